"""Finds the driver of a run in the calling code's own context. Code there appends through the driver's lease. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from everstep.runtime.engine.context import Frame, frame

if TYPE_CHECKING:
    from everstep.runtime.engine.attempt import Attempt
    from everstep.runtime.engine_store import EngineStore


def driver_here(store: EngineStore, run: str) -> Attempt | None:
    """Return the open attempt at a run of this store that the calling code is inside of; None if there is none.

    A thread that the program starts on its own is in no run, unless it was started with a copy of the context.
    """
    here: Frame | None = frame.get()
    while here is not None:
        attempt: Attempt = here.run
        if attempt.saver is not None and attempt.row is not None and attempt.row.id == run and attempt.store.url == store.url:
            return attempt
        here = attempt.root.outer
    return None
