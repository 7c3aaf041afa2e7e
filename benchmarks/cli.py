"""The command line in new processes: `--help` relative to a bare interpreter, and the reading commands relative to `--help`, alternating.

The store has 100,000 runs with ten records each. They are written through the backend: executing them would take long and change nothing
that these commands read. One run is real: `show`, `log` and `diff` read it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter_ns

import everstep
from benchmarks import workload
from benchmarks.filling import submit_all
from benchmarks.options import Options
from benchmarks.process import environment
from benchmarks.table import Bar, Line
from benchmarks.table import ms as show
from benchmarks.timing import ms, settle
from everstep.backends.contract.core import Commit
from everstep.records import Status
from everstep.store.chain import Chain, Entry, new_row
from everstep.store.journal.entries import EventEntry, pack

RECORDS = 10
REAL_TURNS = 1_000


def lines(options: Options) -> Iterator[Line]:
    store = _filled(options)
    settle()
    commands = {
        "bare": ["-c", "pass"],
        "--help": ["-m", "everstep", "--help"],
        "runs": ["-m", "everstep", "runs", "--store", store],
        "show": ["-m", "everstep", "show", "real", "--store", store],
        "log": ["-m", "everstep", "log", "real", "--store", store],
        "diff": ["-m", "everstep", "diff", "real~1", "real", "--store", store],
    }
    times: dict[str, list[int]] = {name: [] for name in commands}
    for turn in range(options.starts + 1):
        for name, command in commands.items():
            took = _took(command)
            if turn:  # the first one writes bytecode
                times[name].append(took)
    found = {name: ms(values) for name, values in times.items()}
    note = f"median of {options.starts} each, in turns"
    over = found["--help"] - found["bare"]
    yield Line(
        "everstep --help, over a bare interpreter", f"+{show(over)}", show(found["bare"]), over, Bar("<=", 100, "ms"), note, raw=found
    )
    total = options.listed_runs * RECORDS
    for name in ("runs", "show", "log", "diff"):
        over = found[name] - found["--help"]
        label = f"everstep {name} of {options.listed_runs:,} runs and {total:,} records, over --help"
        yield Line(label, f"+{show(over)}", show(found["--help"]), over, Bar("<=", 100, "ms"), note)


def _took(command: list[str]) -> int:
    start = perf_counter_ns()
    done = subprocess.run([sys.executable, *command], env=environment(), stdin=subprocess.DEVNULL, capture_output=True)
    took = perf_counter_ns() - start
    if done.returncode or (len(command) > 2 and not done.stdout):
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.decode(errors='replace')[-300:]}")
    return took


def _filled(options: Options) -> str:
    folder = options.folder / "cli"
    folder.mkdir(parents=True)
    path = folder / "store.db"
    with everstep.open(str(path)) as store:
        submit_all(store.backend, _commits(store, options.listed_runs))
        with store.run("real", state=workload.state(), durability="async") as run:
            for i in range(REAL_TURNS):
                run.step("turn", int, i)
                run.state["step"] = i
                run.checkpoint()
    return str(Path(path))


def _commits(store: everstep.Store, count: int) -> Iterator[Commit]:
    entry = Entry("event", pack(EventEntry.of("custom:turn", {"text": "word " * 12})), None)
    return (_commit(store, i, entry) for i in range(count))


def _commit(store: everstep.Store, i: int, entry: Entry) -> Commit:
    chain = Chain(store.framer, new_row(f"run-{i:06}", workflow=f"flow-{i % 20}", note="nightly report"), None)
    chain.start(workflow=f"flow-{i % 20}")
    chain.entries([entry] * (RECORDS - 2))
    chain.status(Status.SUCCEEDED)
    return chain.commit()
