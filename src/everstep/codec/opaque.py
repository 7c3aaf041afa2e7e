"""Values that only a framework can read: bytes with the name of their type. They are shown as `<Send 214 bytes>`. No I/O."""

from __future__ import annotations

from typing import Any

from everstep.codec.kinds import Fields, register
from everstep.errors import InvalidArgument

OPAQUE = "everstep:Opaque"


class Opaque:
    """A value of bytes with a declared type, such as the output of a framework's serializer. `shown` is the text that commands print for it."""

    __slots__ = ("data", "shown", "type")
    type: str
    data: bytes
    shown: str | None

    def __init__(self, type: str, data: bytes, shown: str | None = None):
        if not isinstance(type, str) or not isinstance(data, bytes) or not (shown is None or isinstance(shown, str)):
            raise InvalidArgument("Opaque takes the name of a type, bytes, and text or None for shown")
        for name, value in (("type", type), ("data", data), ("shown", shown)):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("an Opaque cannot be changed")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Opaque):
            return NotImplemented
        return (self.type, self.data, self.shown) == (other.type, other.data, other.shown)

    def __hash__(self) -> int:
        return hash((self.type, self.data, self.shown))

    def __repr__(self) -> str:
        return f"<{self.type} {len(self.data):,} bytes>" if self.shown is None else self.shown

    def __reduce__(self) -> Any:
        return Opaque, (self.type, self.data, self.shown)


def _take(value: Opaque) -> Fields:
    return {"type": value.type, "data": value.data, "shown": value.shown}


def _make(fields: Fields) -> Opaque:
    return Opaque(fields["type"], fields["data"], fields.get("shown"))


register(Opaque, name=OPAQUE, encode=_take, decode=_make, frozen=True)
