"""Listings: from the caller's filters to a backend query and back to pages. Listings never open a body."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from everstep.backends.base import Backend, Query
from everstep.errors import DamagedRecord, InvalidArgument
from everstep.ids import check_tag
from everstep.records import RunRow, Status
from everstep.store.model import Checkpoint, Page, RunInfo
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
    status, limit = filters.get("status"), filters.get("limit")
    if status is not None and status not in tuple(Status):
        raise InvalidArgument(f"{status!r} is no status", remedy=f"Use one of {', '.join(Status)}.")
    if limit is not None and not 1 <= limit <= _MOST:
        raise InvalidArgument(f"limit {limit} is not between 1 and {_MOST}")
    given = {**filters, "since": to_us(filters.get("since")), "until": to_us(filters.get("until")), "meta": dict(filters.get("meta") or {})}
    return Query(tags=check_tags(given.pop("tag", ())), **given)


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
    names = (tag,) if isinstance(tag, str) else tuple(tag)
    return tuple(dict.fromkeys(check_tag(name) for name in names))


def check_note(note: str | None) -> str | None:
    if note is None:
        return None
    if not isinstance(note, str):
        raise InvalidArgument(f"a note is text, not {type(note).__name__}")
    if len(note) > 10_000:
        raise InvalidArgument(
            f"a note of {len(note):,} characters is too long (the limit is 10,000)", remedy="Keep long text in the state."
        )
    _check_text(note, "the note")
    return note


def to_meta(meta: Mapping[str, Any] | None) -> str | None:
    """Metadata as the JSON text that is stored: an object of scalars."""
    if not meta:
        return None
    for key, value in meta.items():
        if not isinstance(key, str) or not (value is None or isinstance(value, (str, int, float, bool))):
            raise InvalidArgument(
                f"metadata {key!r}={value!r:.60} is no text key with a JSON scalar", remedy="Keep structured data in the state."
            )
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise InvalidArgument(f"metadata {key!r}={value} does not fit into 64 bits")
        _check_text(key, "a metadata key")
        if isinstance(value, str):
            _check_text(value, f"metadata {key!r}")
    try:
        return json.dumps(dict(meta), ensure_ascii=False, sort_keys=True, allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        raise InvalidArgument(f"metadata {dict(meta)!r:.100} is no JSON: {error}") from error


def _check_text(text: str, what: str) -> None:
    if "\x00" in text or not _encodes(text):
        raise InvalidArgument(f"{what} holds a NUL character or a lone surrogate")


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
    if isinstance(time, (int, float)) and not isinstance(time, bool):
        return int(time * 1_000_000)
    raise InvalidArgument(f"{time!r} is no time", remedy="Give a datetime, or seconds since 1970.")
