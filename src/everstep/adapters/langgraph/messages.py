"""LangChain messages as plain data: `{"@": "human", "content": "hi", "id": "…"}`, so that states, differences and blame can be read.

Fields that have their default are left out. Only the classes listed here are messages; a subclass is an object like any other. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

from langchain_core import messages as lc
from langchain_core.messages import BaseMessage

Encode = Callable[[Any, str], Any]
Decode = Callable[[Any], Any]
TAG = "@"
_EXTRA = "@extra"
_NAMES = {
    "human": "HumanMessage", "ai": "AIMessage", "system": "SystemMessage", "tool": "ToolMessage", "function": "FunctionMessage",
    "chat": "ChatMessage", "remove": "RemoveMessage", "human-chunk": "HumanMessageChunk", "ai-chunk": "AIMessageChunk",
    "system-chunk": "SystemMessageChunk", "tool-chunk": "ToolMessageChunk", "function-chunk": "FunctionMessageChunk",
    "chat-chunk": "ChatMessageChunk",
}  # fmt: skip
CLASSES: dict[str, type[BaseMessage]] = {name: getattr(lc, cls) for name, cls in _NAMES.items()}
NAMES: dict[type, str] = {cls: name for name, cls in CLASSES.items()}
_ATOMS = (str, int, float, bool, type(None))


def _defaults(cls: type[BaseMessage]) -> dict[str, Any]:
    fields = cls.model_fields
    return {name: field.get_default(call_default_factory=True) for name, field in fields.items() if not field.is_required()}


_DEFAULTS: dict[type, dict[str, Any]] = {cls: _defaults(cls) for cls in NAMES}
_FRESH: dict[type, tuple[tuple[str, type], ...]] = {
    cls: tuple((name, type(value)) for name, value in found.items() if isinstance(value, (list, dict))) for cls, found in _DEFAULTS.items()
}
_BLANK: dict[type, BaseMessage] = {cls: cls.model_construct(_fields_set=set(), content="") for cls in CLASSES.values()}


def to_plain(message: BaseMessage, path: str, encode: Encode) -> dict[str, Any]:
    """Return a message as plain data."""
    cls = message.__class__
    defaults = _DEFAULTS[cls]
    out: dict[str, Any] = {TAG: NAMES[cls]}
    for name, value in message.__dict__.items():
        default = defaults.get(name, encode)
        if value.__class__ is default.__class__ and value == default:
            continue
        out[name] = value if value.__class__ in _ATOMS else encode(value, f"{path}.{name}")
    if message.__pydantic_extra__:
        out[_EXTRA] = encode(message.__pydantic_extra__, path)
    return out


def from_plain(cls: type[BaseMessage], fields: dict[str, Any], decode: Decode) -> BaseMessage:
    """Return the message that `to_plain` took apart. Its constructor does not run: it was valid when it was saved."""
    message = copy(_BLANK[cls])
    values = message.__dict__
    for name, kind in _FRESH[cls]:
        if name not in fields:
            values[name] = kind()
    for name, value in fields.items():
        if name == TAG:
            continue
        if name == _EXTRA:
            object.__setattr__(message, "__pydantic_extra__", decode(value))
        else:
            values[name] = value if value.__class__ is str else decode(value)
    object.__setattr__(message, "__pydantic_fields_set__", {"content", *(name for name in fields if name not in (TAG, _EXTRA))})
    return message


def fingerprint(message: BaseMessage) -> dict[str, Any] | None:
    """Return a copy of the content, to be compared with `__dict__` later; None if the message holds more than plain data."""
    if message.__pydantic_extra__:
        return None
    try:
        return {name: value if value.__class__ in _ATOMS else _copied(value) for name, value in message.__dict__.items()}
    except TypeError:
        return None


def copied(value: Any, otherwise: Any) -> Any:
    """Return a copy of plain data that can be compared later; `otherwise` if it holds anything else."""
    try:
        return _copied(value)
    except TypeError:
        return otherwise


def _copied(value: Any) -> Any:
    cls = value.__class__
    if cls in _ATOMS:
        return value
    if cls is list:
        return [_copied(item) for item in value]
    if cls is dict:
        return {key: _copied(item) for key, item in value.items()}
    raise TypeError
