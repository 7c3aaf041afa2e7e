"""Messages of the framework as plain data, so that states, differences and blame can be read.

    {"@": "user", "content": "hi", "id": "m1"}           a message with one text; the role is the kind
    {"@": "assistant", "content": ["Let me see.", {"type": "function_call", "name": "search", …}]}
    {"@": "chat", "role": "critic", "content": []}       a message of another role
    {"@": "content", "type": "text", "text": "hi"}       a content outside of a message

Fields that have their default are left out; `raw_representation`, the object of a provider, is not stored, as in the framework's own storages.
No I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from agent_framework import Content, Message

from everstep.adapters.agent_framework.classes import TAG

Encode = Callable[[Any, str], Any]
Decode = Callable[[Any], Any]
ROLES = frozenset({"user", "assistant", "system", "tool"})
_OTHER = "chat"
KINDS = ROLES | {_OTHER}
CONTENT = "content"
_RAW = "raw_representation"
_FIELDS = ("role", "contents", "author_name", "message_id", "additional_properties", _RAW)
_KEYS = frozenset(_FIELDS)


@lru_cache(64)
def _blank(type: str) -> dict[str, Any]:
    """Return the fields of a content that has nothing but its type."""
    return dict(vars(Content(type)))  # type: ignore[arg-type]


_TEXT = _blank("text")


def is_message(value: Any) -> bool:
    """Whether a value is a message that has exactly the fields this module knows."""
    return value.__class__ is Message and vars(value).keys() == _KEYS and type(value.role) is str and type(value.contents) is list


def message_to_plain(message: Message, path: str, encode: Encode) -> dict[str, Any]:
    role, fields = message.role, vars(message)
    out: dict[str, Any] = {TAG: role} if role in ROLES else {TAG: _OTHER, "role": encode(role, path)}
    contents = [_part(part, f"{path}.contents[{i}]", encode) for i, part in enumerate(message.contents)]
    out["content"] = contents[0] if len(contents) == 1 and contents[0].__class__ is str else contents
    for name, key in (("author_name", "name"), ("message_id", "id")):
        if fields[name] is not None:
            out[key] = encode(fields[name], f"{path}.{name}")
    extra = fields["additional_properties"]
    if extra.__class__ is not dict or extra:
        out["additional_properties"] = encode(extra, f"{path}.additional_properties")
    return out


def message_from_plain(stored: dict[str, Any], decode: Decode) -> Message:
    content = stored["content"]
    message = Message.__new__(Message)
    tag = stored[TAG]
    message.__dict__ = {
        "role": decode(stored["role"]) if tag == _OTHER else tag,
        "contents": [_text(content, decode)] if content.__class__ is str else [_from_part(part, decode) for part in content],
        "author_name": decode(stored.get("name")),
        "message_id": decode(stored.get("id")),
        "additional_properties": decode(stored["additional_properties"]) if "additional_properties" in stored else {},
        _RAW: None,
    }
    return message


def content_to_plain(content: Content, path: str, encode: Encode) -> dict[str, Any]:
    return {TAG: CONTENT, **_fields(content, path, encode)}


def content_from_plain(stored: dict[str, Any], decode: Decode) -> Content:
    content = Content.__new__(Content)
    fields = dict(_blank(stored["type"]))
    fields["additional_properties"] = {}
    for name, value in stored.items():
        if name != TAG:
            fields[name] = decode(value)
    content.__dict__ = fields
    return content


def _part(part: Any, path: str, encode: Encode) -> Any:
    """Return a content of a message: a text alone as text, any other without the tag."""
    if not is_content(part):
        return {TAG: "other", "value": encode(part, path)}
    fields = _fields(part, path, encode)
    return fields["text"] if fields.keys() == {"type", "text"} and fields["type"] == "text" and fields["text"].__class__ is str else fields


def _from_part(stored: Any, decode: Decode) -> Any:
    if stored.__class__ is str:
        return _text(stored, decode)
    return decode(stored["value"]) if TAG in stored else content_from_plain(stored, decode)


def _text(text: str, decode: Decode) -> Content:
    content = Content.__new__(Content)
    content.__dict__ = {**_TEXT, "text": decode(text), "additional_properties": {}}
    return content


def _fields(content: Content, path: str, encode: Encode) -> dict[str, Any]:
    blank = _blank(content.type)
    out: dict[str, Any] = {"type": content.type}
    for name, value in vars(content).items():
        default = blank.get(name, encode)
        if name in (_RAW, "type") or value is default or (value.__class__ is default.__class__ and value == default):
            continue
        if name == "annotations" and value is not None:
            value = [{key: item for key, item in one.items() if key != _RAW} for one in value]
        out[name] = encode(value, f"{path}.{name}")
    if "text" not in out and content.type == "text":
        out["text"] = ""
    return out


def is_content(value: Any) -> bool:
    """Whether a value is a content that has exactly the fields this module knows."""
    return value.__class__ is Content and isinstance(value.type, str) and vars(value).keys() == _blank(str(value.type)).keys()
