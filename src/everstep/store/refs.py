"""Resolve a ref to a run row and a checkpoint number. Relies on a backend and on `ids`; verifies every row that it returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from everstep.backends.contract.audit import Audit
from everstep.backends.contract.capability import has, need
from everstep.backends.contract.core import MAX_SEQ, Backend, Query
from everstep.backends.contract.index import Index
from everstep.clock import clock, iso
from everstep.errors import DamagedRun, InvalidArgument, NotFound
from everstep.fields import replace
from everstep.ids import check_id, parse_ref
from everstep.records import CHILD, RunRow, Seal, Status, Tag

_SHOWN, _LOOKED_AT = 4, 50
_COMPANION = "="  # a row beside a tag: `encryption.labels`
_RECENT = 10_000
_LAST_TIME = 250_000_000_000_000_000  # µs: the year 9892, which datetime can still show
_STATUSES = frozenset(status.value for status in Status)


def verified(row: RunRow, seal: Seal) -> RunRow:
    """Return the row after checking it against its digest."""
    if row.digest(seal) != row.check:
        raise DamagedRun(f"the row of run {row.id!r} does not match its digest")
    if not _makes_sense(row):  # a digest can be forged
        raise DamagedRun(f"the row of run {row.id!r} has impossible values")
    return row


def _makes_sense(row: RunRow) -> bool:
    times = 0 <= row.created_at <= _LAST_TIME and 0 <= row.updated_at <= _LAST_TIME and 0 <= row.since <= _LAST_TIME
    counts = 0 <= row.checkpoints <= row.head_seq <= MAX_SEQ and row.epoch >= 0 and row.stored >= 0 and row.parent_number >= CHILD
    return times and counts and row.status in _STATUSES


def find_run(backend: Backend, run: str) -> RunRow:
    """Return the run with exactly this id. A prefix is never enough: it may be that of another customer's order."""
    row = backend.run(_exact(run))
    if row is None:
        raise NotFound(_not_there(backend, run))
    return verified(row, backend.seal)


def _exact(run: str) -> str:
    if isinstance(run, str) and run.startswith("@last"):
        raise InvalidArgument(
            "@last is only for commands that read, such as `everstep show @last`; code must name the run",
            remedy="Give the id of the run. store.runs(limit=1)[0].id is the newest run.",
        )
    return check_id(run)


def _not_there(backend: Backend, run: str) -> str:
    if not has(backend, Audit):
        return f"there is no run {run!r}"
    newest = max(0, backend.manifest().created - _RECENT)  # callers may ask for many missing runs and must not wait for each
    deleted = [stone.at for stone in backend.tombstones(newest) if stone.id == run]
    if deleted:
        return f"run {run!r} was deleted at {iso(max(deleted))}"
    near = similar(backend, run)
    return f"there is no run {run!r}" + (f". Similar ids: {', '.join(near)}" if near else "")


def similar(backend: Backend, run: str) -> list[str]:
    """Return a few ids that a person may have meant, for a message. Costs two look-ups by index, however many runs there are."""
    from difflib import get_close_matches

    longer = _beginning_with(backend, run, _SHOWN)
    if longer:
        return sorted(longer)
    return get_close_matches(run, _beginning_with(backend, run[: max(1, len(run) // 3)], _LOOKED_AT), _SHOWN, 0.75)


def _beginning_with(backend: Backend, text: str, limit: int) -> list[str]:
    return [row.id for _, row in backend.runs(Query(prefix=text, limit=limit))]


def resolve(backend: Backend, ref: str, known: RunRow | None = None) -> tuple[RunRow, int]:
    """Return the run and the number of the checkpoint that a ref names. `known` is a run that was just looked up."""
    parsed = parse_ref(ref)
    same = known is not None and parsed.run == known.id
    row = known if known is not None and same else find_run(backend, "@last" if parsed.run is None else parsed.run)
    number = _number(backend, row, parsed.at) - parsed.back
    if not 1 <= number <= row.checkpoints:
        raise NotFound(f"{ref!r} is not a checkpoint of run {row.id!r}: {numbers_of(row)}", remedy=_list(row))
    return row, number


def numbers_of(row: RunRow | None) -> str:
    """Return which checkpoints a run has, in words."""
    if row is None or not row.checkpoints:
        return "it has no checkpoint yet"
    return f"its checkpoints are 1 to {row.checkpoints:,}" if row.checkpoints > 1 else "its only checkpoint is 1"


def _list(row: RunRow) -> str:
    return f"List its checkpoints: store.checkpoints({row.id!r})."


def _number(backend: Backend, row: RunRow, at: int | str | None) -> int:
    if at is None:
        return row.checkpoints
    if isinstance(at, int):
        return at
    need(backend, Index)
    numbers = [tag.number for tag in tags_of(backend, row, name=at)]
    if not numbers:
        raise NotFound(f"run {row.id!r} has no checkpoint tagged {at!r}", remedy=_list(row))
    return max(numbers)


def tags_of(backend: Backend, row: RunRow, first: int | None = None, last: int | None = None, name: str | None = None) -> list[Tag]:
    """Return the tags of a run, or of some of its checkpoints, or those of a name, checked against their digests."""
    stored = name if name is None or not backend.framer.encrypted else _hashed(backend, name)
    tags = backend.tags(row.id, first, last) if stored is None else backend.tags(row.id, name=stored)
    if any(tag.check != tag.digest(backend.seal) or tag.key != row.key for tag in tags):
        raise DamagedRun(f"a tag of run {row.id!r} does not match its digest", remedy="Name the checkpoint by its number.")
    return tags if stored is not None or not backend.framer.encrypted else named_tags(backend, row, tags)


def stored_tags(backend: Backend, row: RunRow) -> list[Tag]:
    """Return the tags of a run as they are stored, checked against their digests."""
    tags = backend.tags(row.id)
    if any(tag.check != tag.digest(backend.seal) or tag.key != row.key for tag in tags):
        raise DamagedRun(f"a tag of run {row.id!r} does not match its digest", remedy="Name the checkpoint by its number.")
    return tags


def named_tags(backend: Backend, row: RunRow, tags: Sequence[Tag]) -> list[Tag]:
    """Return the tags of an encrypted store with their names. One that came with its checkpoint keeps its hash: the record has the name."""
    frames: Any = backend.framer.of(row.family, row.family)
    if backend.framer.locked:
        return [tag for tag in tags if not tag.name.startswith(_COMPANION)]
    known = {
        (*frames.named(tag.name, tag.number)[:1], tag.number): frames.named(tag.name, tag.number)[1]
        for tag in tags
        if tag.name.startswith(_COMPANION)
    }
    return [replace(tag, name=known.get((tag.name, tag.number), tag.name)) for tag in tags if not tag.name.startswith(_COMPANION)]


def _hashed(backend: Backend, name: str) -> str:
    framer: Any = backend.framer
    if framer.locked:
        framer.store()  # raises MissingKey
    hashed: str = framer.index.tag(name)
    return hashed


def add_tag(backend: Backend, row: RunRow, name: str, number: int) -> None:
    """Put a tag on a checkpoint. In an encrypted store, its name is in a row beside it."""
    now, framer = clock.now_us(), backend.framer
    if framer.encrypted:
        hashed, frames = _hashed(backend, name), cast(Any, framer.of(row.family, row.family))
        if not any(tag.name == hashed for tag in backend.tags(row.id, number, number)):
            backend.tag(Tag.make(row.key, frames.companion(name, number), number, now, backend.seal), row.id)
        name = hashed
    backend.tag(Tag.make(row.key, name, number, now, backend.seal), row.id)
