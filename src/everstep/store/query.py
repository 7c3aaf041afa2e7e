"""Listings: from the caller's filters to a backend query and back to pages. Listings never open a body."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any

from everstep.backends.base import Backend, Query
from everstep.errors import DamagedRecord, InvalidArgument
from everstep.ids import check_tag
from everstep.records import RunRow, Status
from everstep.store.model import HEADER, Checkpoint, Page, RunInfo
from everstep.store.refs import verified

_MOST = 10_000
Time = datetime | float | int


_COMMON = ("tag", "note", "meta", "since", "until", "oldest_first", "after", "limit")
FILTERS = {"runs": ("status", "workflow", "session", "parent", "prefix", *_COMMON), "checkpoints": _COMMON}


def make_query(what: str, **filters: Any) -> Query:
    """The filters of `Store.runs` and `Store.checkpoints`, checked."""
    unknown = set(filters) - set(FILTERS[what])
    if unknown:
        raise InvalidArgument(f"{', '.join(sorted(unknown))}: no such filter for {what}", remedy=f"Use {', '.join(FILTERS[what])}.")
    status = filters.get("status")
    if status is not None and status not in tuple(Status):
        raise InvalidArgument(f"{status!r} is no status", remedy=f"Use one of {', '.join(Status)}.")
    _check_numbers(filters)
    for name in ("workflow", "session", "parent", "prefix", "note"):
        check_text(filters.get(name), name)
    to_meta(filters.get("meta"))
    given = {**filters, "since": to_us(filters.get("since")), "until": to_us(filters.get("until")), "meta": dict(filters.get("meta") or {})}
    return Query(tags=check_tags(given.pop("tag", ())), **given)


def _check_numbers(filters: dict[str, Any]) -> None:
    limit, after = filters.get("limit"), filters.get("after")
    if limit is not None and (type(limit) is not int or not 1 <= limit <= _MOST):
        raise InvalidArgument(f"limit={limit!r:.60} is no whole number between 1 and {_MOST}")
    if after is not None and type(after) is not int:
        raise InvalidArgument(f"after={after!r:.60} is no cursor", remedy="Give the `next` of the page before, of the same listing.")
    if type(filters.get("oldest_first", False)) is not bool:
        raise InvalidArgument(f"oldest_first={filters['oldest_first']!r:.60} is neither True nor False")


def list_runs(backend: Backend, query: Query) -> Page[RunInfo]:
    limit, query.limit = query.limit, None if query.limit is None else query.limit + 1
    found = backend.runs(query)
    page: Page[RunInfo] = Page(RunInfo.of(verified(row)) for _, row in found[:limit])
    page.next = found[limit - 1][0] if limit is not None and len(found) > limit else None
    return page


def list_checkpoints(backend: Backend, row: RunRow, query: Query) -> Page[Checkpoint]:
    limit, query.limit = query.limit, None if query.limit is None else query.limit + 1
    found = backend.checkpoints(row.id, query)
    if any(r.number > row.checkpoints or r.seq > row.head_seq for r in found):
        raise DamagedRecord(row.id, row.head_seq, "there are checkpoints beyond the head")
    page: Page[Checkpoint] = Page(Checkpoint(record) for record in found[:limit])
    page.next = found[limit - 1].number if limit is not None and len(found) > limit else None
    return page


def check_tags(tag: str | Iterable[str]) -> tuple[str, ...]:
    if tag == ():
        return ()
    if not isinstance(tag, (str, tuple, list, set, frozenset)):
        raise InvalidArgument(f"{tag!r:.60} is neither a tag nor several", remedy="Give text, or a list of texts.")
    names = (tag,) if isinstance(tag, str) else tuple(tag)
    return tuple(dict.fromkeys(check_tag(name) for name in names))


def check_note(note: str | None) -> str | None:
    return None if note is None else check_text(note, "note", 10_000)


def check_text(text: str | None, what: str, most: int = 1_000) -> str | None:
    """Text that can stand in a column of any backend, or None."""
    if text is None:
        return None
    if type(text) is not str:
        raise InvalidArgument(f"{what}={text!r:.60} is no text")
    if len(text) > most:
        raise InvalidArgument(
            f"{what} of {len(text):,} characters is too long (the limit is {most:,})", remedy="Keep long text in the state."
        )
    if "\x00" in text or not _encodes(text):
        raise InvalidArgument(f"{what} holds a NUL character or a lone surrogate")
    return text


def to_meta(meta: Mapping[str, Any] | None) -> str | None:
    """Metadata as the JSON text that is stored: an object of scalars."""
    if meta is None or (isinstance(meta, Mapping) and not meta):
        return None
    if not isinstance(meta, Mapping):
        raise InvalidArgument(f"meta={meta!r:.60} is no dict of names and scalars")
    for key, value in meta.items():
        if not isinstance(key, str) or not (value is None or isinstance(value, (str, int, float, bool))):
            raise InvalidArgument(
                f"metadata {key!r}={value!r:.60} is no text key with a JSON scalar", remedy="Keep structured data in the state."
            )
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise InvalidArgument(f"metadata {key!r}={value} does not fit into 64 bits")
        if isinstance(value, float) and not isfinite(value):
            raise InvalidArgument(f"metadata {key!r} is {value}, and metadata cannot be NaN or infinite", remedy="Keep it in the state.")
        check_text(key, "a metadata key")
        if key == HEADER:
            raise InvalidArgument(f"the metadata key {HEADER!r} is Everstep's own")
        if isinstance(value, str):
            check_text(value, f"metadata {key!r}", 10_000)
    return json.dumps(dict(meta), ensure_ascii=False, sort_keys=True, allow_nan=False, separators=(",", ":"))


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def to_us(time: Time | None) -> int | None:
    """A datetime (naive means local) or seconds since 1970, as microseconds."""
    if time is None:
        return None
    if isinstance(time, datetime):
        return (time.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    if isinstance(time, (int, float)) and not isinstance(time, bool) and abs(time) < 1e11:  # false for NaN, too
        return int(time * 1_000_000)
    raise InvalidArgument(f"{time!r} is no time", remedy="Give a datetime, or seconds since 1970.")
