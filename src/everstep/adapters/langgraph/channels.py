"""Writes channel values into the live state of a run by changing only what differs, so that a save costs what has changed.

A *mirror* remembers which objects a saver has written last. A list whose items are the same objects with the same content is not encoded again:
its tail is appended. Everything else is assigned, and Everstep compares it with what is stored. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter, is_
from typing import Any

from everstep.adapters.langgraph import messages
from everstep.adapters.langgraph.layout import is_internal

Encode = Callable[[Any, str], Any]
_UNKNOWN = object()
_fields = attrgetter("__dict__")


class Mirror:
    """The objects that a saver has written last to one namespace."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.versions: dict[str, Any] = {}
        self.lists: dict[str, tuple[list[Any], list[Any]]] = {}

    def unchanged(self, channel: str, parent: str | None, versions: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
        """Whether LangGraph says that a channel has the value that was written last."""
        return parent == self.id and channel not in new and channel in self.versions and self.versions[channel] == versions.get(channel)


def write(of: Any, values: Mapping[str, Any], mirror: Mirror, same: Callable[[str], bool], encode: Encode) -> None:
    """Bring the dict of a namespace in the live state up to date."""
    for name, internal in (("values", False), ("pending", True)):
        wanted = {channel: value for channel, value in values.items() if is_internal(channel) is internal}
        if not wanted:
            of.pop(name, None)
            continue
        if name not in of:
            of[name] = {}
        _channels(of[name], wanted, mirror, same, encode)


def _channels(live: Any, wanted: Mapping[str, Any], mirror: Mirror, same: Callable[[str], bool], encode: Encode) -> None:
    for channel in [channel for channel in live if channel not in wanted]:
        del live[channel]
        mirror.lists.pop(channel, None)
    for channel, value in wanted.items():
        if channel in live and same(channel):
            continue
        if value.__class__ is list:
            known = mirror.lists.get(channel) if channel in live else None
            if known is None:
                live[channel], contents = encode(value, channel), [_content(item) for item in value]
            else:
                contents = _edit(live[channel], known, value, channel, encode)
            mirror.lists[channel] = (list(value), contents)
        else:
            mirror.lists.pop(channel, None)
            live[channel] = encode(value, channel)


def _content(item: Any) -> Any:
    """Return what an item is compared with later: its content now. _UNKNOWN never compares as equal."""
    cls = item.__class__
    if cls in messages.NAMES:
        found = messages.fingerprint(item)
        return _UNKNOWN if found is None else found
    if cls is dict or cls is list:
        return messages.copied(item, _UNKNOWN)
    return item if cls is str or cls is int else _UNKNOWN


def _is_same(source: Any, item: Any, content: Any) -> bool:
    if source is not item:
        return False
    if content is item:
        return True
    return content is not _UNKNOWN and bool((item.__dict__ if item.__class__ in messages.NAMES else item) == content)


def _edit(live: Any, known: tuple[list[Any], list[Any]], value: list[Any], channel: str, encode: Encode) -> list[Any]:
    """Change a live list so that it holds the items of another one; return what these are compared with next time."""
    sources, contents = known
    if len(value) < len(sources):
        first = _common(zip(sources, value, contents, strict=False))
        last = min(_common(zip(reversed(sources), reversed(value), reversed(contents), strict=False)), len(value) - first)
        between = range(first, len(value) - last)
        live[first : len(sources) - last] = [encode(value[i], f"{channel}[{i}]") for i in between]
        return [*contents[:first], *(_content(value[i]) for i in between), *contents[len(contents) - last :]]
    found = list(contents)
    if not _all_same(sources, contents, value):
        _replace_changed(live, known, value, channel, encode, found)
    new = range(len(sources), len(value))
    if new:
        live.extend([encode(value[i], f"{channel}[{i}]") for i in new])
        found.extend([_content(value[i]) for i in new])
    return found


def _all_same(sources: list[Any], contents: list[Any], value: list[Any]) -> bool:
    """Whether a list begins with the same messages, unchanged. Compared without a loop in Python: this is what grows with a thread."""
    if not all(map(is_, sources, value)):
        return False
    try:
        return list(map(_fields, sources)) == contents
    except AttributeError:
        return False  # items that are not messages


def _replace_changed(
    live: Any, known: tuple[list[Any], list[Any]], value: list[Any], channel: str, encode: Encode, found: list[Any]
) -> None:
    sources, contents = known
    for i, (source, item, content) in enumerate(zip(sources, value, contents, strict=False)):
        if _is_same(source, item, content):
            continue
        live[i] = encode(item, f"{channel}[{i}]")
        found[i] = _content(item)


def _common(triples: Any) -> int:
    """Count the items that are the same from the start."""
    count = 0
    for source, item, content in triples:
        if not _is_same(source, item, content):
            break
        count += 1
    return count
