"""A value that is never shown: `Secret("…")`. Only `reveal()` gives it back.

Every text of a Secret is the same, whatever it holds: `repr`, `str`, a format, a log line, a traceback. It refuses to be pickled, because a
pickle shows it. It is stored only where a store encrypts, or is allowed to store it readable. The memory of the process does hold it. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NoReturn

from everstep.errors import InvalidArgument

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", str, bytes, default=str)
else:
    from typing import TypeVar

    T = TypeVar("T", str, bytes)

MASK = "[redacted]"
_salts: list[bytes] = []  # one for this process: without it, a hash could be compared with those of guessed values


class Secret(Generic[T]):
    """A text or bytes that no output shows. `reveal()` returns it; two Secrets are equal if their values are."""

    __slots__ = ("_held",)  # a function, because debuggers and inspect print the values of attributes
    _held: Callable[[], T]

    def __init__(self, value: T):
        kind = type(value)
        problem = "" if kind is str or kind is bytes else f"must be str or bytes, got a value of type {kind.__name__}"
        if kind is str and not _is_text(value):
            problem = "must be text without lone surrogates"
        if problem:
            del value  # a traceback may show the variables of this frame
            raise InvalidArgument(f"the value of a Secret {problem}", remedy='Pass a str or bytes: everstep.Secret("…").')
        object.__setattr__(self, "_held", lambda: value)

    def reveal(self) -> T:
        """Return the value."""
        return self._held()

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def __str__(self) -> str:
        return MASK

    def __format__(self, spec: str) -> str:
        return format(MASK, spec)

    def __bool__(self) -> bool:
        """Whether the value is not empty."""
        return bool(self._held())

    def __eq__(self, other: object) -> bool:
        """Compare in a time that does not depend on where the values differ."""
        if not isinstance(other, Secret):
            return NotImplemented
        from hmac import compare_digest  # few programs compare secrets

        mine, theirs = self._held(), other._held()
        return type(mine) is type(theirs) and compare_digest(_as_bytes(mine), _as_bytes(theirs))

    def __hash__(self) -> int:
        from hashlib import blake2b
        from secrets import token_bytes

        if not _salts:
            _salts.append(token_bytes(16))
        value = self._held()
        return int.from_bytes(blake2b(_as_bytes(value), key=_salts[0], person=type(value).__name__.encode(), digest_size=8).digest())

    def __copy__(self) -> Secret[T]:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Secret[T]:
        return self

    if not TYPE_CHECKING:  # a checker would allow every assignment

        def __setattr__(self, name: str, value: Any) -> NoReturn:
            raise AttributeError("a Secret cannot be changed")

        def __delattr__(self, name: str) -> NoReturn:
            raise AttributeError("a Secret cannot be changed")

    def __init_subclass__(cls, **options: Any) -> NoReturn:
        raise TypeError("Secret cannot be subclassed: the codec would not know the class")

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise InvalidArgument(
            "a Secret cannot be pickled, because a pickle shows its value",
            remedy="Make a new Secret in the other process, or pass secret.reveal() where that is safe.",
        )

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Let a pydantic model have a field of this type: it takes a Secret or its value, and its JSON shows neither."""
        from pydantic_core import core_schema

        kinds = [kind for kind in getattr(source, "__args__", ()) if kind in (str, bytes)] or [str]
        of: dict[Any, Any] = {str: core_schema.str_schema(strict=True), bytes: core_schema.bytes_schema(strict=True)}
        made = core_schema.no_info_after_validator_function(cls, core_schema.union_schema([of[kind] for kind in kinds]))
        return core_schema.json_or_python_schema(
            json_schema=made,
            python_schema=core_schema.union_schema([core_schema.is_instance_schema(cls), made]),
            serialization=core_schema.plain_serializer_function_ser_schema(str, when_used="json"),
        )


def _as_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
