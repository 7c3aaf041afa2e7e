"""Failed runs by their error, and many of them resumed at once: after an outage, a bug that was mended, a service that is back.

Nothing is driven here. Each run gets a letter that says that it is to be tried again; a worker that knows its workflow does so, or `wake`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from everstep.clock import clock
from everstep.errors import InvalidArgument
from everstep.records import Status
from everstep.runtime.driving_store import Host
from everstep.runtime.waits import control
from everstep.runtime.workflow import beginning
from everstep.store.query import list_runs, make_query
from everstep.store.refs import find_run
from everstep.store.views import RunInfo

_PAGE = 500


def failed_by(store: Host, error: str, limit: int | None) -> list[RunInfo]:
    """The failed runs whose error is of that class, or was caused by one; the oldest first, each with its error."""
    if not isinstance(error, str) or not error.isidentifier():
        raise InvalidArgument(f"error must be the name of a class, such as StoreUnreachable, got {error!r:.60}")
    if limit is not None and (type(limit) is not int or limit < 1):
        raise InvalidArgument(f"limit must be a whole number from 1 on, got {limit!r:.60}")
    found: list[RunInfo] = []
    for run in _failed(store):
        if _fits(run, error):
            found.append(run)
        if len(found) == limit:
            break
    return found


def resume_failed(store: Host, error: str, limit: int | None) -> list[str]:
    """Have them tried again, from where they failed; gives their ids. Child runs are resumed by their callers, loops by their programs."""
    resumed = []
    for run in failed_by(store, error, limit):
        row = find_run(store.backend, run.id)
        if not run.child and row.status == Status.FAILED and "workflow" in beginning(store, row):
            control.post(store, row, "retry", None, clock.now_us(), "nothing")
            resumed.append(run.id)
    return resumed


def _failed(store: Host) -> Iterator[RunInfo]:
    after = None
    while True:
        page = list_runs(store.backend, make_query("runs", status="failed", oldest_first=True, limit=_PAGE, after=after))
        for run in page:
            yield store.get(run.id)
        after = page.next
        if after is None:
            return


def _fits(run: RunInfo, error: str) -> bool:
    """The name stands in the recorded traceback, too, where it was the cause of another error."""
    said = run.error or {}
    return re.search(rf"(?<!\w){error}(?!\w)", f"{said.get('type')}\n{said.get('traceback')}") is not None
