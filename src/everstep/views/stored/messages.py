"""Messages of agents as one line of text, for people: `human: hi`, `ai: -> search(q="bike")`. For values that adapters have stored.

Adapters store a message as a dict whose key `@` names its kind (docs/adapters). Anything else is left as it is. Prints nothing.
"""

from __future__ import annotations

import json
from typing import Any

_KINDS = frozenset({"human", "ai", "user", "assistant", "system", "tool", "function", "chat", "remove"})


def readable(value: Any) -> Any:
    """Return plain JSON data with a line of text for each message and object in it."""
    if isinstance(value, list):
        return [readable(item) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get("@")
    if isinstance(kind, str):
        if kind.removesuffix("-chunk") in _KINDS:
            return message_text(value)
        if kind == "entry" and isinstance(value.get("message"), dict) and isinstance(value["message"].get("role"), str):
            return _entry_text(value["message"])
        if kind == "object" and isinstance(value.get("type"), str):
            return _object_text(value)
        if kind in ("sent", "request", "content", "type"):
            return _workflow_text(kind, value)
        if kind == "dict" and isinstance(value.get("items"), dict):
            return {key: readable(item) for key, item in value["items"].items()}
    return {key: readable(item) for key, item in value.items()}


def message_text(message: dict[str, Any]) -> str:
    """Return a message as one line."""
    content = message.get("content", "")
    parts = [content if isinstance(content, str) else _content(content)]
    for call in message.get("tool_calls") or ():
        if isinstance(call, dict):
            parts.append(f"-> {call.get('name')}({_arguments(call.get('args'))})")
    if message["@"] == "remove":
        parts.append(f"message {message.get('id')}")
    name = f" {message['name']}" if isinstance(message.get("name"), str) else ""
    return f"{message['@']}{name}: {' '.join(part for part in parts if part)}".rstrip()


def _entry_text(message: dict[str, Any]) -> str:
    """Return the message in an entry of a transcript as one line."""
    content, texts = message.get("content"), []
    for part in content if isinstance(content, list) else [content]:
        if not isinstance(part, dict):
            texts.append("" if part is None else _content(part))
        elif part.get("type") == "tool_use":
            texts.append(f"-> {part.get('name')}({_arguments(part.get('input'))})")
        elif part.get("type") == "tool_result":
            texts.append(f"<- {_content(part.get('content'))}")
        else:
            texts.append(_content(part))
    return f"{message['role']}: {' '.join(texts)}".rstrip()


def _workflow_text(kind: str, value: dict[str, Any]) -> Any:
    """Return what the executors of a workflow exchange as one line: a message that was sent, a request for information, a content, a type."""
    if kind == "content":
        return _content({name: item for name, item in value.items() if name != "@"})
    if kind == "type":
        return value.get("name")
    data = readable(value.get("data"))
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    if kind == "request":
        return f"{value.get('from')} asks: {text}"
    to = value.get("to")
    return f"{value.get('from')} -> {to}: {text}" if to is not None else f"{value.get('from')}: {text}"


def _content(content: Any) -> str:
    """Return the texts of a content that has several parts."""
    return " ".join(_part(part) for part in (content if isinstance(content, list) else [content]))


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return json.dumps(part, ensure_ascii=False)
    if part.get("type") == "function_call":
        arguments = part.get("arguments")
        return f"-> {part.get('name')}({arguments if isinstance(arguments, str) else _arguments(arguments)})"
    if part.get("type") == "function_result":
        result = part.get("result")
        return f"<- {result if isinstance(result, str) else json.dumps(readable(result), ensure_ascii=False)}"
    return str(part["text"]) if isinstance(part.get("text"), str) else json.dumps(part, ensure_ascii=False)


def _arguments(args: Any) -> str:
    if not isinstance(args, dict):
        return "" if args is None else json.dumps(args, ensure_ascii=False)
    return ", ".join(f"{name}={json.dumps(readable(value), ensure_ascii=False)}" for name, value in args.items())


def _object_text(value: dict[str, Any]) -> str:
    name = value["type"].rpartition(".")[2]
    if "fields" in value:
        return f"{name}({_arguments(value['fields'])})"
    return f"{name}({json.dumps(readable(value.get('value')), ensure_ascii=False)})"
