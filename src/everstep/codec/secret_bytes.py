"""How a Secret is stored: the data of extension 23. Also finds one in bytes that are about to be stored readable.

    C1 53 65 63 72 65 74 C1    a mark: C1 occurs in no text and begins no value of MessagePack
    t or b                     text or bytes
    the rest                   the value; a text in UTF-8

The mark is not there to hide anything. It lets a store without a key find a Secret in any content, however deep it is nested, with one search.
Costs nothing in a process that never encoded a Secret. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from everstep.errors import DamagedFrame, PlainSecret
from everstep.secret import Secret

TYPE = 23
_MARK = b"\xc1Secret\xc1"
_START = bytes((TYPE,)) + _MARK


class _Seen:
    """Whether this process has encoded a Secret, and how many it has decoded."""

    encoded = False
    decoded = 0


def to_bytes(secret: Secret[Any]) -> bytes:
    """Return the data of the extension."""
    _Seen.encoded = True
    value = secret.reveal()
    return _MARK + (b"t" + value.encode() if isinstance(value, str) else b"b" + value)


def from_bytes(data: bytes) -> Secret[Any]:
    """Return the Secret in the data of an extension."""
    kind, value = data[len(_MARK) : len(_MARK) + 1], bytes(data[len(_MARK) + 1 :])
    if data[: len(_MARK)] != _MARK or kind not in (b"t", b"b"):
        raise DamagedFrame("the data of a Secret is invalid")
    _Seen.decoded += 1
    if kind == b"b":
        return Secret(value)
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = None
    if text is None:  # outside of the `except`: that error would carry the value
        raise DamagedFrame("the data of a Secret is invalid")
    return Secret(text)


def may_hold(content: bytes) -> bool:
    """Whether there is a Secret in content that this process has encoded."""
    return _Seen.encoded and _START in content


def decoded() -> int:
    """Return how many Secrets this process has decoded so far."""
    return _Seen.decoded


def refuse_secret(wrap: Callable[[bytes], bytes], data: bytes, value: Any, path: str, remedy: str | None = None) -> None:
    """Raise `PlainSecret`, with the path, if `wrap` would store a Secret readable. `data` is the encoded value."""
    if may_hold(data) and not getattr(getattr(wrap, "__self__", None), "keeps_secrets", True):
        raise located(value, path, remedy)


def located(value: Any, path: str, remedy: str | None = None) -> PlainSecret:
    """Return the error that names the first Secret in a value."""
    from everstep.codec.explain import secret_in  # imported when needed, because it imports the module that imports this one

    return PlainSecret(secret_in(value, path) or path, remedy=remedy)
