"""`python -m benchmarks`: measure, print one table, exit with 1 if a limit is missed or a row could not be measured.

Progress goes to stderr, the table to stdout. `--json FILE` writes the same lines for other programs.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import shutil
import sqlite3
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path

from benchmarks.options import Options, full, quick
from benchmarks.table import Line, render

ROWS = {
    "turns": "a durable checkpoint of a 1 KB turn: both floors, flatness, disk, cold load",
    "large": "10 MB state with a 1 KB change, tracked and handed in",
    "window": "pop(0) + append on 10,000 messages",
    "lines": "an append without a lease beside a held run; 50 states of 1,000 messages in one walk",
    "adapters": "threads of LangGraph beside SqliteSaver: put, put_writes, get_tuple, list, disk",
    "steps": "a durable step with a result of 1 KB: floor, processor time, flatness, fsyncs; the peers' steps",
    "encryption": "a durable checkpoint and a durable step of a store with a key, beside one without",
    "replay": "a workflow of 10,000 finished steps that is resumed",
    "parallel": "100 asyncio steps at once, and run.map on 8 threads",
    "disabled": "a step of a store that is switched off",
    "tasks": "200 asyncio runs",
    "threads": "16 threads",
    "listing": "newest 20 of 10,000 checkpoints and of 100,000 runs",
    "fsyncs": "fsyncs for each checkpoint",
    "upkeep": "prune and gc of 10,000 checkpoints beside a writer: seconds, space returned, the writer's longest wait",
    "expired": "verify, gc and retention of 100,000 finished runs on SQLite and PostgreSQL: seconds, memory, a writer's longest wait",
    "retention": "deciding which of 100,000 checkpoints to keep",
    "limits": "1,000 writers on one run, 1,000 runs at once, 20 processes: nothing lost",
    "postgres": "a durable checkpoint and a durable step in PostgreSQL: floor, round trips",
    "throughput": "steps and one-step workflows a second in one process on PostgreSQL, with the peers",
    "claims": "claiming a run from a queue in PostgreSQL beside 1,000,000 ended runs",
    "workers": "from enqueue to start, and from a worker's death to the start in another, on SQLite and PostgreSQL",
    "verify": "verifying a store, in three depths",
    "startup": "import everstep",
    "cli": "the command line: --help, and runs, show, log and diff on a store of 100,000 runs and 1,000,000 records",
    "comparison": "the peers, with us among them",
}


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    names = [name for name in ROWS if (given.only is None or name in given.only) and not (given.no_peers and name == "comparison")]
    folder = Path(tempfile.mkdtemp(prefix="everstep-bench-", dir=given.dir))
    started = time.monotonic()
    try:
        options = (quick if given.quick else full)(folder, not given.no_peers)
        lines = [line for name in names for line in measured(name, options)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{machine()}, {time.monotonic() - started:.0f} s{', QUICK: fewer operations than the bars ask for' if given.quick else ''}\n")
    print(render(lines))
    print(f"\n{verdict(lines)}")
    if given.json:
        given.json.write_text(
            json.dumps({"machine": machine(), "quick": given.quick, "lines": [line.as_json() for line in lines]}, indent=1)
        )
    return int(any(line.failed for line in lines))


def parser() -> argparse.ArgumentParser:
    rows = "\n".join(f"  {name:<12}{what}" for name, what in ROWS.items())
    made = argparse.ArgumentParser(
        "python -m benchmarks", description=__doc__, epilog=f"rows:\n{rows}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--quick", action="store_true", help="fewer operations; under a minute without peers")
    made.add_argument("--only", action="append", choices=ROWS, metavar="ROW", help="measure only this row (may be repeated)")
    made.add_argument("--no-peers", action="store_true", help="do not measure the peers")
    made.add_argument("--json", type=Path, metavar="FILE", help="also write the lines as JSON")
    made.add_argument(
        "--dir", type=Path, metavar="FOLDER", help="where to put the files; must be on a real disk (default: the temporary folder)"
    )
    return made


def measured(name: str, options: Options) -> Iterator[Line]:
    """Yield the lines of one row; a row that fails becomes a line that says so."""
    print(f"measuring {name}: {ROWS[name]}", file=sys.stderr, flush=True)
    started = time.monotonic()
    try:
        lines: Callable[[Options], Iterator[Line]] = import_module(f"benchmarks.{name}").lines
        yield from lines(options)
    except Exception as error:  # noqa: BLE001 - the other rows are still useful; the line makes the exit code 1
        traceback.print_exc()
        yield Line(
            f"{name}: {ROWS[name]}",
            problem=f"FAILED: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
            broken=True,
        )
    finally:
        gc.unfreeze()
        print(f"  {time.monotonic() - started:.1f} s", file=sys.stderr, flush=True)


def machine() -> str:
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    return (
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, load {load:.1f}, Python {platform.python_version()}, "
        f"SQLite {sqlite3.sqlite_version} under the one-row insert"
    )


def verdict(lines: Sequence[Line]) -> str:
    held = [line for line in lines if line.bar is not None and line.value is not None]
    missed = [line.name for line in held if line.missed]
    others = [line.name.strip() for line in lines if line.problem]
    said = f"{len(held) - len(missed)} of {len(held)} bars met."
    if missed:
        said += f" MISSED: {'; '.join(missed)}."
    if others:
        said += f" Not measured: {'; '.join(others)}."
    return said


if __name__ == "__main__":
    sys.exit(main())
