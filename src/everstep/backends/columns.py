"""Packs values inside a column, the same in every database: tags as JSON, ranges as MessagePack. No I/O."""

from __future__ import annotations

import json

from ormsgpack import packb, unpackb

from everstep.records import Ranges


def pack_tags(tags: tuple[str, ...]) -> str | None:
    return json.dumps(tags, ensure_ascii=False) if tags else None


def unpack_tags(text: str | None) -> tuple[str, ...] | None:
    """Return the tags of a row, or None if the text is not a list of texts."""
    if text is None:
        return ()
    try:
        tags = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        return None
    return tuple(tags)


def pack_ranges(ranges: Ranges) -> bytes:
    return packb([list(pair) for pair in ranges])


def unpack_ranges(data: bytes) -> Ranges | None:
    """Return ranges, or None if the bytes are not pairs of numbers."""
    try:
        pairs = tuple((first, last) for first, last in unpackb(data))
    except (ValueError, TypeError):
        return None
    return pairs if all(type(n) is int for pair in pairs for n in pair) else None
