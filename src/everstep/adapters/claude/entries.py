"""Entries of a transcript as a run stores them, and back.

An entry is the JSON object of one line of a transcript. It is stored with the key `@`, so that commands show it as a message:
`{"@": "entry", "type": "user", …}`. An entry that cannot be stored so, because a text in it has a lone surrogate or it has a key `@` itself,
is stored as JSON text: `{"@": "entry-json", "json": "…"}`. No I/O.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from everstep.errors import Damaged, InvalidArgument
from everstep.redact import MASK

KIND, ENTRY, AS_JSON = "@", "entry", "entry-json"
_LINKS = ("type", "uuid", "parentUuid", "sessionId", "leafUuid")  # a transcript can't be resumed without them
_SCALARS = (type(None), bool, int, float)


class _Odd(Exception):
    """A text that cannot be stored as it is."""


def to_stored(entry: Any) -> dict[str, Any]:
    """Return an entry as it is stored; it shares nothing with the given one. Refuses what JSON has no form for."""
    if not isinstance(entry, Mapping):
        raise InvalidArgument(f"an entry of a transcript must be a dict, got {entry!r:.60}", remedy="Nothing was saved.")
    try:
        if KIND in entry:
            raise _Odd
        return {KIND: ENTRY, **_copied(entry, "entry")}
    except _Odd:
        return {KIND: AS_JSON, "json": json.dumps(_copied(entry, "entry", odd=True))}
    except RecursionError:
        raise InvalidArgument("an entry of a transcript is nested too deeply", remedy="Nothing was saved.") from None


def from_stored(stored: Any, run: str) -> dict[str, Any]:
    """Return the entry. Refuses an entry that redaction has made useless."""
    kind = stored.get(KIND) if isinstance(stored, dict) else None
    if kind == ENTRY:
        entry = {name: value for name, value in stored.items() if name != KIND}
    elif kind == AS_JSON:
        try:
            entry = json.loads(stored["json"])
        except (ValueError, TypeError):
            raise _masked(run, "a whole entry") from None
    else:
        raise InvalidArgument(f"run {run!r} is not a transcript of Claude", remedy="Use another project, session id or store.")
    for name in _LINKS:
        if entry.get(name) == MASK:
            raise _masked(run, repr(name))
    return entry


def uuid_of(stored: Mapping[str, Any]) -> str | None:
    """Return what identifies an entry; some have nothing."""
    uuid = from_stored(stored, "").get("uuid") if stored.get(KIND) == AS_JSON else stored.get("uuid")
    return uuid if isinstance(uuid, str) and uuid else None


def note_of(stored: Mapping[str, Any]) -> str | None:
    """Return the message in an entry in a few words, for the log; None if it has none."""
    message = stored.get("message")
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        return None
    role, content = message["role"], message.get("content")
    for part in content if isinstance(content, list) else [{"type": "text", "text": content}]:
        if not isinstance(part, Mapping):
            continue
        if part.get("type") == "tool_use":
            return f"{role}: -> {part.get('name')!s:.80}"
        if part.get("type") == "tool_result":
            return f"{role}: <- result"
        text = part.get("text")
        if part.get("type") == "text" and isinstance(text, str):
            return f"{role}: {' '.join(text.split())[:80]}"
    return str(role)


def _copied(value: Any, where: str, odd: bool = False) -> Any:
    if isinstance(value, str):
        if not odd and not value.isascii() and not _encodes(value):
            raise _Odd
        return str(value)
    if isinstance(value, Mapping):
        out = {}
        for name, item in value.items():
            if not isinstance(name, str):
                raise InvalidArgument(f"{where} has the key {name!r:.60}: keys must be texts", remedy="Nothing was saved.")
            out[_copied(name, where, odd)] = _copied(item, f"{where}.{name:.60}", odd)
        return out
    if isinstance(value, (list, tuple)):
        return [_copied(item, f"{where}[{n}]", odd) for n, item in enumerate(value)]
    if type(value) in _SCALARS:
        return value
    raise InvalidArgument(
        f"{where} must be JSON data (dict, list, text, number, true, false or null), got {type(value).__name__}",
        remedy="Nothing was saved.",
    )


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _masked(run: str, what: str) -> Damaged:
    return Damaged(
        f"the redaction of the store has masked {what} in the transcript {run!r}, so the session can't be resumed",
        remedy="Open the store with a redaction that leaves type, uuid, parentUuid and sessionId of entries as they are.",
    )
