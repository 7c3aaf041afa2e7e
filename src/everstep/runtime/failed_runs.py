"""Finds failed runs by their error, and resumes many of them at once: after an outage, a bug fix, a service that is back.

Executes nothing here. Each run gets a message that asks for a retry; a worker that knows its workflow does it, or `wake`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from everstep.clock import clock
from everstep.errors import InvalidArgument
from everstep.records import Status
from everstep.runtime.engine_store import EngineStore
from everstep.runtime.waits import control
from everstep.runtime.workflow import beginning
from everstep.store.query import list_runs, make_query
from everstep.store.refs import find_run
from everstep.store.views import RunInfo

_PAGE = 500


def failed_by(store: EngineStore, error: str, limit: int | None) -> list[RunInfo]:
    """Return the failed runs whose error is of that class, or was caused by one; oldest first, each with its error."""
    if not isinstance(error, str) or not error.isidentifier():
        raise InvalidArgument(f"error must be the name of a class, such as StoreUnreachable, got {error!r:.60}")
    if limit is not None and (type(limit) is not int or limit < 1):
        raise InvalidArgument(f"limit must be an integer of at least 1, got {limit!r:.60}")
    found: list[RunInfo] = []
    for run in _failed(store):
        if _fits(run, error):
            found.append(run)
        if len(found) == limit:
            break
    return found


def resume_failed(store: EngineStore, error: str, limit: int | None) -> list[str]:
    """Ask for a retry of these runs, from where they failed; return their ids. Child runs are resumed by their callers, loops by their programs."""
    resumed = []
    for run in failed_by(store, error, limit):
        row = find_run(store.backend, run.id)
        if not run.child and row.status == Status.FAILED and "workflow" in beginning(store, row):
            control.post(store, row, "retry", None, clock.now_us(), "nothing")
            resumed.append(run.id)
    return resumed


def _failed(store: EngineStore) -> Iterator[RunInfo]:
    after = None
    while True:
        page = list_runs(store.backend, make_query("runs", status="failed", oldest_first=True, limit=_PAGE, after=after))
        for run in page:
            yield store.get(run.id)
        after = page.next
        if after is None:
            return


def _fits(run: RunInfo, error: str) -> bool:
    """Whether the recorded error has this class. The traceback contains the name, too, if it was the cause of another error."""
    said = run.error or {}
    return re.search(rf"(?<!\w){error}(?!\w)", f"{said.get('type')}\n{said.get('traceback')}") is not None
