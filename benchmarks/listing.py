"""The newest 20 of 10,000 checkpoints and of 100,000 runs, with filters that match many rows, few rows and none.

The figure is the slowest filter's median, because the limit applies to any filter. The runs are written through the backend, as bare rows:
executing 100,000 real runs would take minutes and change nothing that a listing reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import everstep
from benchmarks import workload
from benchmarks.filling import submit_all
from benchmarks.options import Options
from benchmarks.table import Bar, Line
from benchmarks.table import ms as show
from benchmarks.timing import ms, settle, timed
from everstep.backends.contract.core import Commit
from everstep.records import ZERO, RunRow

START = 1_700_000_000_000_000
PAGE = 20
STATUSES = ("succeeded", "succeeded", "succeeded", "failed", "cancelled")

CHECKPOINT_FILTERS: dict[str, dict[str, Any]] = {
    "no filter": {},
    "common tag": {"tag": "even"},
    "rare tag": {"tag": "rare"},
    "two tags": {"tag": ("even", "rare")},
    "common note": {"note": "answered"},
    "rare note": {"note": "needle"},
    "note that no checkpoint has": {"note": "nowhere"},
    "common meta": {"meta": {"model": "m-1"}},
    "rare meta": {"meta": {"turn": 17}},
    "meta that no checkpoint has": {"meta": {"turn": -1}},
}

RUN_FILTERS: dict[str, dict[str, Any]] = {
    "no filter": {},
    "common status": {"status": "failed"},
    "status that no run has": {"status": "waiting"},
    "workflow": {"workflow": "flow-3"},
    "session": {"session": "session-77"},
    "common tag": {"tag": "prod"},
    "rare tag": {"tag": "rare"},
    "common note": {"note": "nightly"},
    "rare note": {"note": "needle"},
    "note that no run has": {"note": "nowhere"},
    "common meta": {"meta": {"team": "t-3"}},
    "rare meta": {"meta": {"ticket": 17}},
    "status and workflow": {"status": "failed", "workflow": "flow-3"},
    "status, workflow and tag that never meet": {"status": "failed", "workflow": "flow-3", "tag": "prod"},
}


def lines(options: Options) -> Iterator[Line]:
    folder = options.folder / "listing"
    folder.mkdir(parents=True)
    with everstep.open(str(folder / "store.db")) as store:
        write_checkpoints(store, options.listed_checkpoints)
        submit_all(store.backend, (Commit(_row(i), None) for i in range(options.listed_runs)))
        settle()
        name = f"newest {PAGE} of {options.listed_checkpoints:,} checkpoints, slowest filter"
        yield _line(name, lambda given: store.checkpoints("long", limit=PAGE, **given), CHECKPOINT_FILTERS, options.listings)
        name = f"newest {PAGE} of {options.listed_runs:,} runs, slowest filter"
        yield _line(name, lambda given: store.runs(limit=PAGE, **given), RUN_FILTERS, options.listings)


def write_checkpoints(store: everstep.Store, count: int) -> None:
    with store.run("long", state=workload.state()) as run:
        for i in range(count):
            run.state["step"] = i
            tags = ("even",) * (i % 2 == 0) + ("rare",) * (i == 16)
            note = "needle in it" if i == 17 else "answered a question"
            run.checkpoint(note=note, tags=tags, meta={"model": f"m-{i % 3}", "turn": i})


def _row(i: int) -> RunRow:
    return RunRow(
        id=f"run-{i:06}",
        key=i.to_bytes(16),
        family=i.to_bytes(16),
        workflow=f"flow-{i % 20}",
        session=f"session-{i % 5000}",
        tags=("prod",) * (i % 2 == 0) + ("rare",) * (i == 16),
        note="needle in it" if i == 17 else "nightly report",
        meta=f'{{"team":"t-{i % 9}","ticket":{i}}}',
        parent=None,
        parent_number=0,
        created_at=START + i,
        status=STATUSES[i % len(STATUSES)],
        updated_at=START + i,
        head_seq=0,
        head_digest=ZERO,
        checkpoints=0,
        stored=0,
        epoch=1,
        worker=None,
        since=0,
    ).sealed()


def _line(name: str, listed: Callable[[dict[str, Any]], object], filters: dict[str, dict[str, Any]], times: int) -> Line:
    medians = {label: ms([timed(lambda _, given=given: listed(given), i) for i in range(times)]) for label, given in filters.items()}
    slowest = max(medians, key=lambda label: medians[label])
    note = f"slowest of {len(filters)}: {slowest}; no filter {medians['no filter']:.2f} ms"
    return Line(name, show(medians[slowest]), "", medians[slowest], Bar("<=", 10, "ms"), note, raw=medians)
