"""What the tests of live states share: checkpoint and compare, count bytes, walk containers."""

from typing import Any

import everstep
from everstep.codec.values import encode
from everstep.runtime.run import attempt_of


def opened(state: Any = None, **options: Any) -> everstep.Run:
    """A run in a fresh store in memory that checks every delta; entered, never left."""
    store = everstep.open("memory://", checking=True)
    return store.run("r", state=state, **options).__enter__()


def save(run: everstep.Run) -> Any:
    """Checkpoint, load, and prove that what the program sees is what was saved, to the byte and to the order of keys."""
    run.checkpoint()
    stored = attempt_of(run).store.load(run.id)
    assert encode(stored) == encode(run.state)
    return stored


def written(run: everstep.Run) -> int:
    """How many bytes the run has stored up to now: frames of records and chunks."""
    return attempt_of(run).store.get(run.id).stored_bytes


def cost(run: everstep.Run) -> int:
    """How many bytes one checkpoint writes."""
    before = written(run)
    run.checkpoint()
    return written(run) - before
