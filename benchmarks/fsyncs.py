"""The number of flushes of a durable checkpoint, counted by strace: 50 turns minus 10 turns, divided by 40.

The difference excludes opening and closing. The peers are counted in the same way if they are installed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from benchmarks import process
from benchmarks.options import Options
from benchmarks.table import Bar, Line

FEW, MANY = 10, 50
CALLS = ("fsync(", "fdatasync(", "sync_file_range(", "msync(", "syncfs(")


def lines(options: Options) -> Iterator[Line]:
    yield line("checkpoint", "everstep", options)


def line(what: str, name: str, options: Options) -> Line:
    label = f"fsyncs for each durable {what}"
    if shutil.which("strace") is None:
        return Line(label, problem="SKIPPED: strace is not installed, nothing was counted")
    each = count(name, options.folder / "fsyncs" / name)
    return Line(label, f"{each:g}", "", each, Bar("==", 1, ""), f"strace, N={MANY} less N={FEW}, over {MANY - FEW}")


def count(name: str, folder: Path) -> float:
    few, many = (_calls(name, turns, folder / str(turns)) for turns in (FEW, MANY))
    return (many - few) / (MANY - FEW)


def _calls(name: str, turns: int, folder: Path) -> int:
    folder.mkdir(parents=True)
    log = folder / "strace"
    trace = ",".join(call.rstrip("(") for call in CALLS)
    process.subject("bare", name, turns, folder, ("strace", "-f", "-qq", "-e", f"trace={trace}", "-o", str(log)))
    return sum(any(f" {call}" in line for call in CALLS) and "resumed>" not in line for line in log.read_text().splitlines())
