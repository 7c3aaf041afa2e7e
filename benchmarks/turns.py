"""The main row: one durable checkpoint for each turn of 1 KB, tracked, against both floors, turn by turn.

From the same run come the flatness (last tenth of the turns against the first), the disk that a turn takes after close,
and from its store the cold load of the head.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median

import everstep
from benchmarks import process, workload
from benchmarks.floors import OneRow, RawAppend
from benchmarks.options import Options
from benchmarks.table import Bar, Line
from benchmarks.table import ms as show
from benchmarks.timing import first_tenth, interleave, last_tenth, ms, size

Times = dict[str, list[int]]
DRIFT = 2


def lines(options: Options) -> Iterator[Line]:
    for turns in options.turns:
        folder = options.folder / f"turns-{turns}"
        times = measure(turns, folder)
        yield from against_floors(turns, times)
        yield flatness(f"last 10 % / first 10 %, N={turns:,}", times)
        yield disk(turns, size(folder / "own"))
        yield cold_load(turns, folder, options.loads)


def measure(turns: int, folder: Path) -> Times:
    bodies = [workload.encoded(item) for item in workload.messages(turns)]
    coming = workload.stack(bodies)
    own = folder / "own"
    own.mkdir(parents=True)
    with (
        OneRow(folder) as row,
        RawAppend(folder) as raw,
        everstep.open(str(own / "store.db")) as store,
        store.run("chat", state=workload.state()) as live,
    ):

        def checkpoint(i: int) -> None:
            new = coming.pop()
            workload.turn(live.state, new)
            live.checkpoint()

        return interleave({"ours": checkpoint, "row": lambda i: row.write(bodies[i]), "raw": lambda i: raw.write(bodies[i])}, turns)


def against_floors(turns: int, times: Times) -> Iterator[Line]:
    ours = ms(times["ours"])
    for key, name, limit in (("row", "one-row insert", 1.2), ("raw", "raw append + fdatasync", 1.5)):
        floor = ms(times[key])
        note = "" if floor > 0.02 else "THE FLOOR IS TOO QUICK FOR A DISK: use --dir with a folder on a disk"
        yield Line(
            f"checkpoint of a 1 KB turn, N={turns:,} / {name}",
            show(ours),
            show(floor),
            ours / floor,
            Bar("<=", limit),
            note,
            raw={"ours_ms": ours, "floor_ms": floor},
        )


def flatness(name: str, times: Times) -> Line:
    """Compare the cost of the last tenth with the first. The limit applies to the ratio normalised by the raw append of the same turns.

    The raw append does the same work at each turn, so its drift is that of the disk; the one-row insert is not suitable, because its speed
    changes when its WAL wraps. A disk that drifts by more than DRIFT proves nothing: the other costs of a turn stay the same, and dividing
    them by the drift would invent a trend.
    """
    first, last = ms(first_tenth(times["ours"])), ms(last_tenth(times["ours"]))
    floor_first, floor_last = ms(first_tenth(times["raw"])), ms(last_tenth(times["raw"]))
    plain, drift = last / first, floor_last / floor_first
    if not 1 / DRIFT <= drift <= DRIFT:
        return Line(name, problem=f"NOT MEASURED: the raw append went from {floor_first:.3f} to {floor_last:.3f} ms meanwhile", broken=True)
    return Line(
        name,
        f"{first:.3f}>{last:.3f} ms",
        f"{floor_first:.3f}>{floor_last:.3f}",
        plain / drift,
        Bar("<=", 1.1),
        f"normalised by the raw append of the same turns, because the disk drifts; as measured {plain:.2f}x",
        raw={"first_ms": first, "last_ms": last, "plain_ratio": plain},
    )


def disk(turns: int, stored: int) -> Line:
    each = stored / turns / 1000
    return Line(
        f"disk for each 1 KB turn, N={turns:,}",
        f"{each:.2f} KB",
        "",
        each,
        Bar("<=", 1.5, "KB"),
        f"{stored / 1e6:.2f} MB in all files after close",
    )


def cold_load(turns: int, folder: Path, loads: int) -> Line:
    """Measure `store.load` of the head in a new process. The limit grows with the messages."""
    said = [process.subject("load", "everstep", turns, folder) for _ in range(loads)]
    took = median(one["load_only"] for one in said) / 1e6
    opening = median(one["load"] for one in said) / 1e6
    note = f"fresh process, median of {loads}; with open and close {opening:.1f} ms"
    return Line(f"cold load of the head, N={turns:,}", show(took), "", took, Bar("<=", 5 + 0.006 * turns, "ms"), note)
