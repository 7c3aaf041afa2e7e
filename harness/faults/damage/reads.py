"""Everything that a program can read from a store, as a list of reads that can be repeated and compared one by one.

A read gives lines. On a store that was damaged it gives the same lines, an error of Everstep that says so (detected), fewer lines or
another order (missing: no read of a part can tell, but `verify` must report it), or something else (wrong: never allowed). An error that is none
of Everstep's is wrong, too.

Relies on the public API; for letters, which only the run that they are for reads, on what that does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import everstep
from everstep.codec.values import encode
from everstep.errors import EverstepError, NotFound, PrunedCheckpoint
from everstep.runtime.engine.letters import verified as verified_letter
from everstep.store.refs import find_run

Lines = list[str]
Read = Callable[[everstep.Store], Lines]
SAME, DETECTED, MISSING, WRONG = "same", "detected", "missing", "wrong"


def reads_of(store: everstep.Store) -> dict[str, Read]:
    """The reads that make sense for what is in a store, by names that say what is read."""
    reads: dict[str, Read] = {
        "runs": _runs,
        "events": lambda store: list(map(repr, store.events())),
        "due": lambda store: store.due(),
        "places": _places,
        "retention": lambda store: list(map(repr, filter(None, [store.get_retention()]))),
    }
    for filters in _filters(store):
        reads[f"runs with {filters}"] = partial(_runs, **filters)
    for info in store.runs():
        reads |= _of_run(store, info.id)
    return reads


def _places(store: everstep.Store) -> Lines:
    """A place proves nothing and nothing follows from it: a run is taken by its row. It can be read, or is called damaged."""
    store.backend.places()
    return []


def _filters(store: everstep.Store) -> list[dict[str, Any]]:
    """One listing by each filter that fits some run."""
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
        f"letters to {run}": lambda store: _letters(store, run),
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
    """All that a view shows."""
    if isinstance(view, Mapping):
        return {key: _plain(value) for key, value in view.items()}
    return [_plain(item) for item in view] if isinstance(view, Sequence) and not isinstance(view, (str, bytes)) else view


def _steps(store: everstep.Store, run: str) -> Lines:
    return [f"{step!r} {encode(step.result).hex()}" for step in store.steps(run)]


def _letters(store: everstep.Store, run: str) -> Lines:
    row = find_run(store.backend, run)
    return [repr(verified_letter(row, letter, store.backend.seal)) for letter in store.backend.letters(row.id)]


def compare(read: Read, store: everstep.Store, good: Lines, before: Lines | None = None) -> tuple[str, str]:
    """What became of a read, and what to say about it. `before`: what it gave before it was pruned, which is no wrong read either."""
    try:
        now = read(store)
    except NotFound as error:
        return MISSING, error.message
    except EverstepError as error:
        return DETECTED, f"{type(error).__name__}: {error.message}"
    except Exception as error:  # noqa: BLE001 - whatever it is, it says nothing about damage
        return WRONG, f"a bare {type(error).__name__}: {error}"
    if now == good:
        return SAME, ""
    if _lacks(now, good):
        return MISSING, f"{len(now)} of {len(good)} lines"
    if now == before:
        return MISSING, "it was pruned and is there again"
    if sorted(now) == sorted(good):
        return MISSING, "the lines are in another order"
    other = next((line for line in now if line not in good), now[0])
    return WRONG, f"{other:.300}"


def _lacks(now: Sequence[str], good: Sequence[str]) -> bool:
    """Whether some lines are gone and the others are as they were, in their order."""
    rest = iter(good)
    return len(now) < len(good) and all(line in rest for line in now)
