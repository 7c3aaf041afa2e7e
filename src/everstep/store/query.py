"""Listings: turn the caller's filters into a backend query, and the results into pages. Listings never open a body."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from math import isfinite
from typing import TYPE_CHECKING, Any

from everstep.backends.contract.core import Backend, Query
from everstep.backends.contract.query_semantics import fits_checkpoint, fits_run
from everstep.errors import DamagedRecord, DamagedRun, InvalidArgument, NotSearchable
from everstep.fields import replace
from everstep.ids import check_tag
from everstep.records import ZERO, Record, RunRow, Status, record_fault
from everstep.store.encryption.frames import frames_of, shown_row
from everstep.store.load import prune_mark
from everstep.store.refs import tags_of, verified
from everstep.store.views import Checkpoint, Page, RunInfo

if TYPE_CHECKING:
    from typing import TypedDict

    from everstep.store.masking import Mask

_MOST = 10_000
RESERVED = "$"
MAX_POSITION = 2**63 - 1
"""The largest cursor, position or limit that every backend can compare."""
Time = datetime | float | int
CRASHED, INTERRUPTED = "crashed", "interrupted"
"""Words for runs that are stored as running, but that no live process runs: its process died, or closed the run before its end."""


_COMMON = ("tag", "note", "meta", "since", "until", "oldest_first", "after", "limit")
FILTERS = {"runs": ("status", "workflow", "session", "parent", "prefix", *_COMMON), "checkpoints": _COMMON}


if TYPE_CHECKING:

    class CheckpointFilters(TypedDict, total=False):
        """The filters of `Store.checkpoints`."""

        tag: str | Iterable[str]
        note: str | None
        meta: Mapping[str, Any] | None
        since: datetime | float | None
        until: datetime | float | None
        oldest_first: bool
        limit: int | None
        after: int | None
        status: str | None
        workflow: str | None
        session: str | None
        parent: str | None

    class RunFilters(CheckpointFilters, total=False):
        """The filters of `Store.runs`."""

        prefix: str | None


def make_query(what: str, **filters: Any) -> Query:
    """Check the filters of `Store.runs` and `Store.checkpoints`, and make a query of them."""
    unknown = set(filters) - set(FILTERS[what])
    if unknown:
        raise InvalidArgument(
            f"store.{what} has no filter {', '.join(map(repr, sorted(unknown)))}", remedy=f"Use {', '.join(FILTERS[what])}."
        )
    status = filters.get("status")
    if status is not None and status not in tuple(Status):
        words = tuple(Status) if status in (CRASHED, INTERRUPTED) else (*Status, CRASHED, INTERRUPTED)
        raise InvalidArgument(f"status must be one of {', '.join(words)}, got {status!r:.60}")
    _check_numbers(filters)
    for name in ("workflow", "session", "parent", "prefix", "note"):
        check_text(filters.get(name), name)
    to_meta(filters.get("meta"))
    given = {**filters, "since": to_us(filters.get("since")), "until": to_us(filters.get("until")), "meta": dict(filters.get("meta") or {})}
    return Query(tags=check_tags(given.pop("tag", ())), **given)


def _check_numbers(filters: dict[str, Any]) -> None:
    limit, after = filters.get("limit"), filters.get("after")
    if limit is not None and (type(limit) is not int or not 1 <= limit <= _MOST):
        raise InvalidArgument(f"limit must be an integer from 1 to {_MOST:,}, got {limit!r:.60}")
    if after is not None and (type(after) is not int or not -MAX_POSITION <= after <= MAX_POSITION):
        raise InvalidArgument(
            f"after must be a cursor of this listing, got {after!r:.60}", remedy="Use the `next` of the previous page of the same listing."
        )
    if type(filters.get("oldest_first", False)) is not bool:
        raise InvalidArgument(f"oldest_first must be True or False, got {filters['oldest_first']!r:.60}")


def list_runs(backend: Backend, query: Query) -> Page[RunInfo]:
    query = sealed_query(backend, query, of_run=True)
    limit, query.limit = query.limit, None if query.limit is None else query.limit + 1
    found = backend.runs(query)
    positions = [position for position, _ in found]
    if positions != sorted(set(positions), reverse=not query.oldest_first):  # an index that names one run twice and omits another
        raise DamagedRun("the listing of runs is out of order", remedy="Run store.verify('full') to list all damage.")
    for _, row in found:
        if not fits_run(verified(row, backend.seal), query):  # an index that points to another run
            raise DamagedRun(
                f"the listing names run {row.id!r}, which does not match its filters", remedy="Run store.verify('full') to list all damage."
            )
    page: Page[RunInfo] = Page(RunInfo.of(shown_row(backend, row)) for _, row in found[:limit])
    page.next = found[limit - 1][0] if limit is not None and len(found) > limit else None
    return page


def list_stopped(backend: Backend, status: str, **filters: Any) -> Page[RunInfo]:
    """List the runs that are crashed or interrupted. No index knows them: each run that is stored as running is looked at."""
    limit, found = filters.pop("limit", None), Page[RunInfo]()
    _check_numbers({"limit": limit})
    while True:  # a page that is full of other runs is not the last one
        page = list_runs(backend, make_query("runs", **filters, status=Status.RUNNING, limit=None if limit is None else limit - len(found)))
        found += [run for run in page if stopped(backend, run) == status]
        found.next = filters["after"] = page.next
        if page.next is None or len(found) == limit:
            return found


def stopped(backend: Backend, run: RunInfo) -> str | None:
    """Return the word for a run that is stored as running and that no live process runs; None for every other run."""
    if run.status != Status.RUNNING:
        return None
    row = backend.run(run.id) if run.open else None
    if row is None or row.worker is None:
        return INTERRUPTED
    return CRASHED if backend.holder(row) is None else None


def list_checkpoints(backend: Backend, row: RunRow, query: Query) -> Page[Checkpoint]:
    query = sealed_query(backend, query)
    limit, query.limit = query.limit, None if query.limit is None else query.limit + 1
    everything = query == Query(oldest_first=query.oldest_first, after=query.after, limit=query.limit)
    if not query.oldest_first:  # leave out checkpoints that another process saves meanwhile
        query.after = row.checkpoints + 1 if query.after is None else min(query.after, row.checkpoints + 1)
    found = [record for record in backend.checkpoints(row.id, query) if record.seq <= row.head_seq]
    _prove(backend, row, found)
    if everything:
        _miss_none(row, found, query)
    page: Page[Checkpoint] = Page(with_tags_and_marks(backend, row, found[:limit]))
    page.next = found[limit - 1].number if limit is not None and len(found) > limit else None
    return page


def find_checkpoints(backend: Backend, query: Query) -> Page[Checkpoint]:
    """Find checkpoints of all runs by tags and metadata."""
    query = sealed_query(backend, query)
    limit = query.limit
    found = backend.find(query.tags, query.meta, query.after, None if limit is None else limit + 1)
    page: Page[Checkpoint] = Page()
    rows: dict[str, RunRow | None] = {}
    for _, record in found[:limit]:
        if record.run not in rows:
            rows[record.run] = backend.run(record.run)
        row = rows[record.run]
        if row is None or record.seq > verified(row, backend.seal).head_seq or not fits_checkpoint(record, Query(meta=query.meta)):
            continue  # deleted or written meanwhile; or found by a number that two scalars share
        _prove(backend, row, [record])
        page += with_tags_and_marks(backend, row, [record])
    page.next = found[limit - 1][0] if limit is not None and len(found) > limit else None
    return page


def sealed_query(backend: Backend, query: Query, of_run: bool = False) -> Query:
    """Return the query as an encrypted store answers it: by keyed hash of tags and metadata."""
    framer: Any = backend.framer
    if not framer.encrypted or not (query.tags or query.meta or query.note is not None):
        return query
    if query.note is not None:
        raise NotSearchable("notes are encrypted in this store, so no part of one can be searched for")
    if framer.locked:
        framer.store()  # raises MissingKey
    return replace(query, tags=tuple(framer.index.tag(tag) for tag in query.tags), meta=framer.index.wanted(query.meta, of_run))


def _prove(backend: Backend, row: RunRow, found: list[Record]) -> None:
    """Check each record against its digest; this needs only the digest of the record before it."""
    before = backend.digests(row.id, [record.seq - 1 for record in found])
    for record in found:
        fault = record_fault(before.get(record.seq - 1, ZERO), record, row.key, backend.seal)
        if fault:
            raise DamagedRecord(row.id, record.seq, fault, record.number)


def _miss_none(row: RunRow, found: list[Record], query: Query) -> None:
    """Check that an unfiltered listing has all numbers, from its start to its limit."""
    end = row.checkpoints + 1
    beyond = (query.after or 0) + 1 if query.oldest_first else end if query.after is None else min(query.after, end)
    numbers = range(beyond, end) if query.oldest_first else range(beyond - 1, 0, -1)
    for number, record in zip_longest(numbers[: query.limit], (record.number for record in found)):
        if number != record:
            raise DamagedRecord(row.id, row.head_seq, f"checkpoint {number} is missing from the listing", number)


def with_tags_and_marks(backend: Backend, row: RunRow, records: list[Record]) -> list[Checkpoint]:
    """Return checkpoints with the tags that were added later, and whether they were pruned."""
    if not records:
        return []
    numbers = [record.number for record in records]
    mark = prune_mark(backend, row)
    names: dict[int, list[str]] = {}
    hashed = backend.framer.encrypted
    for tag in tags_of(backend, row, min(numbers), max(numbers)):
        if not (hashed and tag.name.startswith("#")):  # such a one came with the checkpoint: its record has the name
            names.setdefault(tag.number, []).append(tag.name)
    frames = frames_of(backend, row)
    for record in records:
        record.note, record.tags, record.meta = record.opened_by(frames).shown()
        record.tags += tuple(name for name in names.get(record.number, ()) if name not in record.tags)
    return [Checkpoint(record, mark is not None and not mark.has_state(record.number)) for record in records]


def check_tags(tag: str | Iterable[str]) -> tuple[str, ...]:
    if tag == ():
        return ()
    if not isinstance(tag, (str, tuple, list, set, frozenset)):
        raise InvalidArgument(f"tag must be a string or a list of strings, got {tag!r:.60}")
    names = (tag,) if isinstance(tag, str) else tuple(tag)
    return tuple(dict.fromkeys(check_tag(name) for name in names))


def check_note(note: str | None) -> str | None:
    return None if note is None else check_text(note, "note", 10_000)


def check_text(text: str | None, what: str, most: int = 1_000) -> str | None:
    """Return the text if every backend can store it, or None."""
    if text is None:
        return None
    if type(text) is not str:
        raise InvalidArgument(f"{what} must be a string, got {text!r:.60}")
    if len(text) > most:
        raise InvalidArgument(f"{what} must have at most {most:,} characters, got {len(text):,}", remedy="Keep long text in the state.")
    if "\x00" in text or not _encodes(text):
        raise InvalidArgument(f"{what} must not contain a NUL character or a lone surrogate")
    return text


def to_meta(meta: Mapping[str, Any] | None) -> str | None:
    """Return metadata as the JSON text that is stored: an object of scalars."""
    if meta is None or (isinstance(meta, Mapping) and not meta):
        return None
    if not isinstance(meta, Mapping):
        raise InvalidArgument(f"meta must be a dict of names and scalars, got {meta!r:.60}")
    for key, value in meta.items():
        if not isinstance(key, str) or not (value is None or isinstance(value, (str, int, float, bool))):
            raise InvalidArgument(
                f"meta must have strings as keys and JSON scalars as values, got {key!r}: {value!r:.60}",
                remedy="Keep structured data in the state.",
            )
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise InvalidArgument(f"metadata {key!r} must fit into 64 bits, got {value}")
        if isinstance(value, float) and not isfinite(value):
            raise InvalidArgument(f"metadata {key!r} must be a finite number, got {value}", remedy="Keep it in the state.")
        check_text(key, "a metadata key")
        if key == RESERVED:
            raise InvalidArgument(f"the metadata key {RESERVED!r} is reserved for Everstep")
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
    """Convert a datetime (naive means local) or seconds since 1970 to microseconds."""
    if time is None:
        return None
    if isinstance(time, datetime):
        return (time.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    if isinstance(time, (int, float)) and not isinstance(time, bool) and abs(time) < 1e11:  # false for NaN, too
        return int(time * 1_000_000)
    raise InvalidArgument(f"a time must be a datetime or seconds since 1970, got {time!r}")


def run_fields(
    mask: Mask | None,
    workflow: str | None,
    session: str | None,
    tags: Iterable[str] | str,
    note: str | None,
    meta: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Check the fields that describe a new run, and mask them if the store does."""
    if mask is not None:
        note, meta = mask.text(note), mask.meta(meta)
    return {
        "workflow": check_text(workflow, "workflow"),
        "session": check_text(session, "session"),
        "tags": check_tags(tags),
        "note": check_note(note),
        "meta": to_meta(meta),
    }
