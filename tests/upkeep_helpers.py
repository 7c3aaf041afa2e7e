"""What the tests of pruning, gc and clean-up share: runs with much history, and what can be said of a store before and after."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import everstep
from everstep.errors import PrunedCheckpoint
from everstep.snapshot import saver
from everstep.store.retention import plan


@contextmanager
def many_bases(every: int = 5, worth: int = 64) -> Iterator[None]:
    """Bases come often, and short rows of deltas are worth a base of their own."""
    before = saver.BASE_EVERY, saver.MOST_DELTAS, plan.WORTH
    saver.BASE_EVERY, saver.MOST_DELTAS, plan.WORTH = every, every * 4, worth
    try:
        yield
    finally:
        saver.BASE_EVERY, saver.MOST_DELTAS, plan.WORTH = before


def grow(
    store: everstep.Store, id: str, turns: int, seed: int = 0, tags: dict[int, str] | None = None, size: int = 400, **options: Any
) -> None:
    """A loop that has a long list, a dict that is changed here and there, and a step each turn, some of them with a long result."""
    chance = random.Random(f"{id} {seed}")
    with store.run(id, state={"messages": [], "facts": {}, "text": ""}, **{"durability": "exit", **options}) as run:
        for turn in range(turns):
            answer = run.step("ask", lambda n=20_000 if turn % 17 == 3 else 40: chance.randbytes(n).hex())
            run.state["messages"].append({"role": "assistant", "content": answer[:60] + chance.randbytes(size // 2).hex()})
            run.state["facts"][f"k{chance.randrange(20)}"] = chance.randrange(10**9)
            if turn % 7 == 6:
                run.state["messages"].pop(0)
            if turn % 11 == 10:
                run.state["text"] = chance.randbytes(6000).hex()
            tag = (tags or {}).get(run.number + 1)
            run.checkpoint(tags=[tag] if tag else ())


def states(store: everstep.Store, run: str) -> dict[int, Any]:
    """Every checkpoint of a run that can be loaded, with its state."""
    found = {}
    for number in range(1, store.get(run).checkpoints + 1):
        try:
            found[number] = store.load(run, at=number)
        except PrunedCheckpoint as error:
            if (error.run, error.number) != (run, number):
                raise
    return found


def everything(store: everstep.Store) -> dict[str, Any]:
    """All that a store says about its runs: states, steps, events."""
    return {info.id: (states(store, info.id), steps(store, info.id)) for info in store.runs()}


def steps(store: everstep.Store, run: str) -> list[tuple[str, str, Any]]:
    return [(step.address, step.status, step.result) for step in store.steps(run)]


def stored(store: everstep.Store) -> int:
    """Bytes of all bodies, added bases and chunks."""
    backend = store.backend
    bases = sum(len(base.body) for info in store.runs() for base in backend.bases(info.id))
    bodies = sum(len(r.body or b"") for info in store.runs() for r in backend.records(info.id, 1, 2**31 - 1))
    return bodies + bases + sum(sum(backend.chunk_sizes(family).values()) for family in backend.families())


def fingerprint(store: everstep.Store) -> Any:
    """Every byte that pruning and gc could change."""
    backend = store.backend
    runs = {
        info.id: (backend.records(info.id, 1, 2**31 - 1), backend.pruned(info.id), backend.bases(info.id), backend.tags(info.id))
        for info in store.runs()
    }
    return runs, {family: backend.chunk_sizes(family) for family in backend.families()}, backend.tombstones()


def good(store: everstep.Store) -> bool:
    report = store.verify("full")
    assert report.ok, str(report)
    return True
