"""dbos: a workflow that takes one step for each item, on SQLite with its default settings (rollback journal, synchronous=FULL).

A launch takes up workflows whose process has died by itself, after its queue's next poll; `resume` times the workflow alone.
Only output is switched off: the admin server and the log.
"""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path
from time import perf_counter_ns

from benchmarks.timing import Laps
from benchmarks.workload import Message

if sqlite3.sqlite_version_info < (3, 42):  # its statements need unixepoch('subsec')
    import pysqlite3

    sys.modules["sqlite3"] = pysqlite3

from dbos import DBOS, SetWorkflowID

given: list[Message] = []
watch = Laps()
spans: list[int] = []


@DBOS.step()
def answer(i: int) -> Message:
    return given[i]


@DBOS.workflow()
def talk(count: int) -> int:
    start = perf_counter_ns()
    for i in range(count):
        watch.start()
        answer(i)
        watch.end()
    spans.append(perf_counter_ns() - start)
    return count


def launch(folder: Path) -> None:
    DBOS(
        config={
            "name": "benchmarks",
            "system_database_url": f"sqlite:///{folder / 'dbos.db'}",
            "application_version": "1",
            "log_level": "ERROR",
            "run_admin_server": False,
        }
    )
    DBOS.launch()


def run(items: list[Message], folder: Path, laps: Laps) -> None:
    global given, watch
    given, watch = items, laps
    launch(folder)
    with SetWorkflowID("talk"):
        talk(len(items))
    DBOS.destroy()


def resume(items: list[Message], folder: Path) -> int:
    global given
    given = items
    launch(folder)
    DBOS.retrieve_workflow("talk").get_result()
    return spans[-1]
