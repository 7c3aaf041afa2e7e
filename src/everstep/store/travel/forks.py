"""Forks: new runs that begin at another run's checkpoint, with its journal up to there, so that they can be replayed.

Records are copied, not referenced: a fork stays complete when its parent is deleted. The family shares chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from everstep.backends.contract.core import Backend
from everstep.codec.kinds import Unknown, has_structure, kind_of
from everstep.errors import InvalidArgument, NotFound
from everstep.ids import check_id, new_id
from everstep.records import Framing, Kind, Record, RunRow, Status
from everstep.snapshot.saver import Saver
from everstep.store import load
from everstep.store.chain import Chain, Entry, new_row
from everstep.store.encryption.frames import sealed_row, shown_row
from everstep.store.journal.attached import carried
from everstep.store.journal.driven import driven_in
from everstep.store.journal.entries import said_in
from everstep.store.journal.results import Chunks, result_body
from everstep.store.journal.steps import address_named
from everstep.store.views import header_of, own_text

Edit = Mapping[Any, Any] | Callable[[Any], Any]
_ENTRIES = frozenset({Kind.STEP.value, Kind.GATE.value, Kind.ANSWER.value, Kind.TIMER.value, Kind.EVENT.value})


def fork(backend: Backend, framer: Framing, row: RunRow, number: int, id: str | None, edit: Edit | None, mask: Any = None) -> RunRow:
    """Create a run that begins at a checkpoint. `mask` is applied to an edited state before it is stored."""
    origin = load.checkpoint_record(backend, row, number)
    return _make(backend, framer, row, origin, _before(backend, row, origin), id, edit, mask)


def fork_before(backend: Backend, framer: Framing, row: RunRow, address: str, id: str | None) -> RunRow:
    """Create a run of the same workflow that begins just before a recorded step: earlier results are kept, everything else runs again."""
    records = load.checked_from(backend, row, 1)
    places = [r for r in records if r.kind in (Kind.STEP, Kind.GATE, Kind.ANSWER, Kind.TIMER)]
    address = address_named(address, (r.note for r in places))
    seqs = [r.seq for r in places if r.note == address]
    if not seqs:
        known = ", ".join(dict.fromkeys(str(r.note) for r in records if r.kind == Kind.STEP)) or "none"
        raise NotFound(f"run {row.id!r} has no recorded step {address!r}", remedy=f"Its steps are: {known[:500]}.")
    inside = f"{address}/"  # a step is recorded when it ends, after the steps inside it: to run it again, they must run again, too
    first = next(r.seq for r in records if r.seq == seqs[0] or (r.kind in _ENTRIES and r.note is not None and r.note.startswith(inside)))
    mark = load.prune_mark(backend, row)  # the workflow rebuilds the state, so an older one is enough, or none
    saves = [r for r in records if r.kind == Kind.CHECKPOINT and r.seq < first and (mark is None or mark.has_state(r.number))]
    return _make(backend, framer, row, saves[-1] if saves else None, [r for r in records if r.seq < first], id, None)


def _before(backend: Backend, row: RunRow, origin: Record) -> list[Record]:
    """Return the records that a fork copies: a workflow's whole journal; for your own loop, only the steps that have a key."""
    if row.workflow is not None:
        records = load.checked(backend, row, 1, origin.seq - 1)
        if "workflow" in _start_of(records):
            return records
    return [record for record in load.checked(backend, row, 1, origin.seq) if _has_key(record)]


def _make(
    backend: Backend, framer: Framing, row: RunRow, origin: Record | None, records: list[Record], id: str | None, edit: Edit | None,
    mask: Any = None,
) -> RunRow:  # fmt: skip
    about = _start_of(records)
    workflow = "workflow" in about
    if workflow:
        about |= {name: value for name, value in driven_in(said_in(records[0]), records)._asdict().items() if name in about}
    if workflow and edit is not None and origin is not None and not _by_hand(origin):
        raise InvalidArgument(
            f"{row.id}@{origin.number} was not made by the workflow's own code, so an edited state would be lost: replay rebuilds the state",
            remedy="Fork at a checkpoint that the workflow made with run.checkpoint(), or run a step again: store.resume(run_id, from_step=...).",
        )
    parent = shown_row(backend, row)
    child = new_row(
        check_id(id) if id is not None else f"{row.id[:180]}-{new_id(6)}", row.family,
        workflow=row.workflow, session=row.session, tags=parent.tags, meta=parent.meta, parent=row.id,
        parent_number=origin.number if origin is not None else 0,
    )  # fmt: skip
    child = sealed_row(framer, child)
    chain = Chain(framer, child, None, backend.seal)
    saves = _saves(records, origin) if workflow else 0
    edits, chunks = _edits(backend, framer, row, records, saves) if workflow else ([], [])
    where = {"number": origin.number, "digest": origin.digest} if origin is not None else {}
    kept = {"saves": saves, "edited": edit is not None, **({"edits": edits} if edits else {})} if workflow else {}
    chain.start(**about, parent=row.id, parent_key=row.key, **where, **kept)
    chain.chunks(chunks)
    chain.entries([_copy(r) for r in records if r.kind in _ENTRIES and r.body is not None and (workflow or _has_key(r))])
    if origin is not None:
        header = {k: v for k, v in header_of(origin.own).items() if k in ("counts", "many", "used", "step", "progress")}
        saver = Saver(framer.inner.wrap)
        state = _edited(load.load(backend, row, origin.number).revived(), edit)
        saver.begin(state if mask is None else mask(state))
        chain.checkpoint(saver.build(whole=True), f"fork of {row.id}@{origin.number}", own=own_text(header))
        chain.entries(carried(backend, row, origin.number, child.key))
    again = _again(load.checked_from(backend, row, 1), records) if workflow else []
    chain.status(Status.WAITING, **({"steps": again} if again else {}))
    commit = chain.commit()
    backend.commit(commit)
    return commit.run


def _start_of(records: list[Record]) -> dict[str, Any]:
    """Return the workflow data in the first record of a run."""
    said = said_in(records[0]) if records and records[0].seq == 1 else {}
    return {k: said[k] for k in ("workflow", "version", "input", "input_digest", "definition") if k in said}


def _saves(records: list[Record], origin: Record | None) -> int:
    """Count the checkpoints that the program had asked for by then. The first one of a fork replaces those before it and was not asked for."""
    said = said_in(records[0])
    saves = {r.seq for r in (*records, origin) if r is not None and r.kind == Kind.CHECKPOINT and _by_hand(r)}
    made = len(saves)
    if not said.get("number"):
        return made
    return int(said.get("saves", 0)) + made - 1 if made else 0


def _edits(backend: Backend, framer: Framing, row: RunRow, records: list[Record], saves: int) -> tuple[list[Any], Chunks]:
    """Return the edited states of earlier forks that this fork keeps, each with the number of the save that it replaced."""
    said = said_in(records[0])
    edits = [edit for edit in said.get("edits", ()) if edit[0] < saves]
    index = int(said.get("saves", 0)) - 1
    if not said.get("edited") or not 0 <= index < saves:
        return edits, []
    form, data, chunks = result_body(load.load(backend, row, 1).revived(), "the edited state", framer.inner.wrap)
    return [*edits, [index, form, data]], chunks


def _again(everything: list[Record], records: list[Record]) -> list[str]:
    """Return the steps whose newest record is a failure that failed the run: they run again, in a fork as in the run itself."""
    newest = {r.note: r.seq for r in records if r.kind == Kind.STEP}
    found: dict[str, None] = {}
    latest: dict[str | None, int] = {}
    for record in everything:
        if record.kind == Kind.STEP:
            latest[record.note] = record.seq
        elif record.kind == Kind.STATUS:
            found.update(dict.fromkeys(a for a in said_in(record).get("steps", ()) if a in newest and latest.get(a) == newest[a]))
    return list(found)


def _copy(record: Record) -> Entry:
    return Entry(record.kind, record.content(), record.note)


def _has_key(record: Record) -> bool:
    return record.kind == Kind.STEP and record.note is not None and "@" in record.note


def _by_hand(record: Record) -> bool:
    return bool(header_of(record.own).get("kind", "manual") == "manual")


def _edited(state: Any, edit: Edit | None) -> Any:
    if edit is None:
        return state
    if callable(edit):
        changed = edit(state)
        return state if changed is None else changed
    if not isinstance(edit, Mapping):
        raise InvalidArgument(f"edit must be a dict of top-level keys or a function, got {edit!r:.60}")
    if not isinstance(state, dict):
        return _with_fields(state, edit)
    state.update(edit)
    return state


def _with_fields(state: Any, edit: Mapping[str, Any]) -> Any:
    """Return an object with other values in some of its fields; also one whose class this process does not know, or a frozen one."""
    kind = None if type(state) is Unknown or not has_structure(type(state)) else kind_of(type(state))
    if kind is None and type(state) is not Unknown:
        raise InvalidArgument(f"the state is a {type(state).__name__}, which has no keys to set", remedy="Use a function as edit=.")
    fields = state.fields if kind is None else kind.take(state)
    strange = [name for name in edit if name not in fields]
    if strange:
        raise InvalidArgument(
            f"the state has no field {', '.join(map(repr, strange))}",
            remedy=f"Its fields: {', '.join(name for name in fields if name[:2] != '__')}.",
        )
    fields = {**fields, **edit}
    return Unknown(state.name, state.version, fields) if kind is None else kind.make(fields)
