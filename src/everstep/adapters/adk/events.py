"""Events as messages that people can read, and back as equal events.

    {"@": "human", "content": "hi", "event": {…}}                       of the user
    {"@": "ai", "name": AGENT, "content": …, "tool_calls": […], "event": {…}}
    {"@": "tool", "name": TOOL, "content": {…}, "call": {…}, "event": {…}}  one result of a tool
    {"@": "event", "name": AUTHOR, "event": {…}}                        without content: a change of the state, for example

`content` is the text, if there is one part that has nothing else; otherwise a list of parts. `event` has all other fields. No I/O.
"""

from __future__ import annotations

from typing import Any

from google.adk.events.event import Event
from google.genai.types import Content, ModelContent, UserContent
from pydantic import ValidationError

from everstep.adapters.adk.values import TAG, fields_of, from_plain
from everstep.errors import InvalidArgument

_ROLES = {"human": "user", "ai": "model", "tool": "user"}
_CONTENTS: dict[str, type[Content]] = {"UserContent": UserContent, "ModelContent": ModelContent}
_MASKED = "[redacted]"
LATEST = "latest"  # the newest time of this event and all before it, if that is not its own: the clock was set back


def to_message(event: Event) -> dict[str, Any]:
    """Return an event as plain data."""
    rest = fields_of(event, "event", ("content", "author"))
    if event.content is None:
        return {TAG: "event", "name": event.author, "event": rest}
    content = fields_of(event.content, "event.content")
    parts = content.get("parts")
    if isinstance(parts, list) and len(parts) == 1 and "function_response" in parts[0]:
        out = {TAG: "tool", **_result(parts[0]), "author": event.author}
    else:
        out = {TAG: "human"} if event.author == "user" else {TAG: "ai", "name": event.author}
        out.update(_said(parts))
    if event.content.__class__.__name__ in _CONTENTS:
        out["type"] = event.content.__class__.__name__
    if event.content.role != _ROLES[out[TAG]]:
        out["role"] = event.content.role
    return {**out, "event": rest}


def to_event(stored: Any) -> Event:
    """Return the event that was stored as a message."""
    try:
        kind = stored[TAG]
        data = {name: from_plain(value) for name, value in stored["event"].items()}
        data["author"] = "user" if kind == "human" else stored["author" if kind == "tool" else "name"]
        if kind != "event":
            parts = [_result_part(stored)] if kind == "tool" else _parts(stored)
            data["content"] = {"role": stored.get("role", _ROLES[kind]), "parts": parts}
        made_as = _CONTENTS[stored["type"]] if "type" in stored else None
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidArgument(
            f"an event of the session is damaged or was not written by this adapter: {type(error).__name__}: {error}",
            remedy="Run: everstep verify",
        ) from error
    event = _validated(data)
    if made_as is not None and event.content is not None:
        event.content = made_as.model_construct(**event.content.__dict__)
    return event


def time_of(stored: Any) -> float:
    """Return the time of a stored event."""
    return float(stored["event"]["timestamp"])


def latest_of(stored: Any) -> float:
    """Return the newest time of a stored event and all before it."""
    return float(stored.get(LATEST, stored["event"]["timestamp"]))


def describe(event: Event) -> str:
    """Return the note of an event's checkpoint: who did what, without what was said."""
    author = event.author or "event"
    calls = [call.name for call in event.get_function_calls()]
    results = [result.name for result in event.get_function_responses()]
    if calls:
        return f"{author} calls {_names(calls)}"[:200]
    if results:
        return f"{author} answers {_names(results)}"[:200] if author == "user" else f"{_names(results)} returned"[:200]
    return author[:200] if event.content is not None or not event.actions.state_delta else f"{author} changes the state"[:200]


def _names(names: list[str | None]) -> str:
    return ", ".join(name or "(unnamed)" for name in names)


def _result(part: dict[str, Any]) -> dict[str, Any]:
    """Take apart a part that is the result of a tool."""
    result, rest = dict(part["function_response"]), {name: value for name, value in part.items() if name != "function_response"}
    out = {}
    if "name" in result:
        out["name"] = result.pop("name")
    if "response" in result:
        out["content"] = result.pop("response")
    return {**out, "call": result, **({"part": rest} if rest else {})}


def _result_part(stored: Any) -> dict[str, Any]:
    result = dict(from_plain(stored["call"]))
    for name, kept in (("name", "name"), ("response", "content")):
        if kept in stored:
            result[name] = from_plain(stored[kept])
    return {**from_plain(stored.get("part", {})), "function_response": result}


def _said(parts: list[dict[str, Any]] | None) -> dict[str, Any]:
    """Take apart what was said: a text or parts, and the calls of tools at its end."""
    if not parts:
        return {"content": parts}
    first = len(parts)
    while first and "function_call" in parts[first - 1]:
        first -= 1
    head, calls = parts[:first], parts[first:]
    out: dict[str, Any] = {}
    if head:
        out["content"] = head[0]["text"] if len(head) == 1 and head[0].keys() == {"text"} else head
    if calls:
        out["tool_calls"] = [_call(part) for part in calls]
    return out


def _call(part: dict[str, Any]) -> dict[str, Any]:
    rest = {name: value for name, value in part.items() if name != "function_call"}
    return {**part["function_call"], **({"part": rest} if rest else {})}


def _parts(stored: Any) -> list[Any] | None:
    content = stored.get("content")
    head = [{"text": content}] if isinstance(content, str) else content if content is None else [from_plain(part) for part in content]
    calls = []
    for call in stored.get("tool_calls", ()):
        fields = from_plain(call)
        calls.append({**fields.pop("part", {}), "function_call": fields})
    return head if not calls else [*(head or ()), *calls]


def _validated(data: dict[str, Any]) -> Event:
    """Return the event of these fields. A masked value that is not a text can't be one of its field's: it is left out."""
    try:
        return Event.model_validate(data)
    except ValidationError as error:
        masked = [problem["loc"] for problem in error.errors() if problem["input"] == _MASKED]
        if not masked:
            raise _damaged(error) from error
    for place in masked:
        _remove(data, place)
    try:
        return Event.model_validate(data)
    except ValidationError as error:
        raise _damaged(error) from error


def _damaged(error: ValidationError) -> InvalidArgument:
    return InvalidArgument(
        f"an event of the session does not fit the installed google-adk: {error.errors()[0]['msg']:.200}",
        remedy="Install the version that wrote it, or run: everstep verify",
    )


def _remove(data: Any, place: tuple[int | str, ...]) -> None:
    """Remove the value at a place that a validation error names; names of union members in it are passed over."""
    holder: Any = None
    name: Any = None
    for step in place:
        if step in data if isinstance(data, dict) else isinstance(data, list) and isinstance(step, int) and step < len(data):
            holder, name, data = data, step, data[step]
    if isinstance(holder, dict):
        del holder[name]
