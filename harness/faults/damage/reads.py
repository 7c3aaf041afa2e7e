"""Everything that a program can read from a store, as a list of reads that can be repeated and compared one by one.

A read gives lines. On a damaged store it gives the same lines, an error of Everstep that reports the damage (detected), fewer lines or
another order (missing: no read of a part can tell, but `verify` must report it), or something else (wrong: never allowed). Any other error
is wrong, too.

Relies on the public API; for messages, which only their run reads, on the function that the run uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import everstep
from everstep.codec.values import encode
from everstep.errors import EverstepError, NotFound, PrunedCheckpoint
from everstep.runtime.engine.messages import verified as verified_message
from everstep.store.refs import find_run

Lines = list[str]
Read = Callable[[everstep.Store], Lines]
SAME, DETECTED, MISSING, WRONG = "same", "detected", "missing", "wrong"


def reads_of(store: everstep.Store) -> dict[str, Read]:
    """List the reads that make sense for the content of a store, by name."""
    reads: dict[str, Read] = {
        "runs": _runs,
        "events": lambda store: list(map(repr, store.events())),
        "due": lambda store: store.due(),
        "queue entries": _queue_entries,
        "retention": lambda store: list(map(repr, filter(None, [store.get_retention()]))),
    }
    for filters in _filters(store):
        reads[f"runs with {filters}"] = partial(_runs, **filters)
    for info in store.runs():
        reads |= _of_run(store, info.id)
    return reads


def _queue_entries(store: everstep.Store) -> Lines:
    """Read the queue entries. An entry proves nothing, and nothing follows from it: a run is claimed by its row. It can be read, or is
    reported as damaged.
    """
    store.backend.queue_entries()
    return []


def _filters(store: everstep.Store) -> list[dict[str, Any]]:
    """Build one listing for each filter that matches some run."""
    found: dict[str, dict[str, Any]] = {"prefix": {"prefix": ""}}
    for info in store.runs():
        given = {"status": info.status, "workflow": info.workflow, "session": info.session, "parent": info.parent, "note": info.note,
                 "tag": info.tags, "meta": info.meta, "prefix": info.id[:2]}  # fmt: skip
        for name, value in given.items():
            if value:
                found[f"{name} {value}" if name == "status" else name] = {name: value}
    return list(found.values())


def _of_run(store: everstep.Store, run: str) -> dict[str, Read]:
    reads: dict[str, Read] = {
        f"run {run}": lambda store: [repr(store.get(run))],
        f"checkpoints of {run}": lambda store: _checkpoints(store, run),
        f"steps of {run}": lambda store: _steps(store, run),
        f"gates of {run}": lambda store: list(map(repr, store.gates(run))),
        f"events of {run}": lambda store: list(map(repr, store.events(run=run))),
        f"messages to {run}": lambda store: _messages(store, run),
    }
    checkpoints = store.checkpoints(run)
    for one in checkpoints:
        reads[f"state {one.ref}"] = partial(_state, ref=one.ref)
        reads |= {f"state {run}@{tag}": partial(_state, ref=f"{run}@{tag}") for tag in one.tags}
    if checkpoints:
        reads[f"view of {run}"] = lambda store: [encode(_plain(store.view(run))).hex()]
        reads[f"checkpoint {run}"] = lambda store: [_line(store.checkpoint(run))]
    return reads


def _runs(store: everstep.Store, **filters: Any) -> Lines:
    return [repr(info) for info in store.runs(**filters)]


def _line(one: everstep.Checkpoint) -> str:
    return repr((one.run, one.number, one.at, one.note, one.tags, one.meta, one.kind, one.step, one.progress, one.used, one.digest))


def _checkpoints(store: everstep.Store, run: str) -> Lines:
    return [_line(one) for one in store.checkpoints(run)]


def _state(store: everstep.Store, ref: str) -> Lines:
    try:
        return [encode(store.load(ref)).hex()]
    except PrunedCheckpoint:
        return [f"{ref} was pruned"]


def _plain(view: Any) -> Any:
    """Read everything in a view."""
    if isinstance(view, Mapping):
        return {key: _plain(value) for key, value in view.items()}
    return [_plain(item) for item in view] if isinstance(view, Sequence) and not isinstance(view, (str, bytes)) else view


def _steps(store: everstep.Store, run: str) -> Lines:
    return [f"{step!r} {encode(step.result).hex()}" for step in store.steps(run)]


def _messages(store: everstep.Store, run: str) -> Lines:
    row = find_run(store.backend, run)
    return [repr(verified_message(row, message, store.backend.seal)) for message in store.backend.messages(row.id)]


def compare(read: Read, store: everstep.Store, good: Lines, before: Lines | None = None) -> tuple[str, str]:
    """Compare a read with the good lines; return the outcome and a note. `before`: the lines before a prune, which are not a wrong read
    either.
    """
    try:
        now = read(store)
    except NotFound as error:
        return MISSING, error.message
    except EverstepError as error:
        return DETECTED, f"{type(error).__name__}: {error.message}"
    except Exception as error:  # noqa: BLE001 - any other error does not report damage
        return WRONG, f"a bare {type(error).__name__}: {error}"
    if now == good:
        return SAME, ""
    if _lacks(now, good):
        return MISSING, f"{len(now)} of {len(good)} lines"
    if now == before:
        return MISSING, "it was pruned and is back"
    if sorted(now) == sorted(good):
        return MISSING, "the lines are in another order"
    other = next((line for line in now if line not in good), now[0])
    return WRONG, f"{other:.300}"


def _lacks(now: Sequence[str], good: Sequence[str]) -> bool:
    """Whether some lines are missing and the others are unchanged, in their order."""
    rest = iter(good)
    return len(now) < len(good) and all(line in rest for line in now)
