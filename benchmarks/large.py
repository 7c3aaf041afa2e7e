"""A state of 10 MB (10,000 messages) of which 1 KB changes: tracked, and as an object of the program that is handed in.

A tracked checkpoint must cost as much as the change; a handed-in one has to compare the whole object, but writes only the change.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import everstep
from benchmarks import workload
from benchmarks.floors import OneRow
from benchmarks.options import Options
from benchmarks.table import Bar, Line
from benchmarks.table import ms as show
from benchmarks.timing import Operation, interleave, ms

HELD = 10_000


def lines(options: Options) -> Iterator[Line]:
    folder = options.folder / "large"
    times = measure(folder / "tracked", options.large_edits, handed=False)
    yield _line("10 MB state, 1 KB change, tracked / one-row insert", times, 2)
    times = measure(folder / "handed", options.handed_edits, handed=True)
    yield _line("10 MB state, 1 KB change, handed in / one-row insert", times, 20)


def measure(folder: Path, edits: int, handed: bool) -> dict[str, list[int]]:
    rng = Random(5)
    places = [rng.randrange(HELD) for _ in range(edits)]
    texts = [workload.text(rng, 1000) for _ in range(edits)]
    own = workload.state(workload.messages(HELD))
    folder.mkdir(parents=True)
    with (
        OneRow(folder) as row,
        everstep.open(str(folder / "store.db")) as store,
        store.run("chat", state=None if handed else own) as live,
    ):

        def tracked(i: int) -> None:
            live.state["messages"][places[i]]["content"] = texts[i]
            live.checkpoint()

        def handed_in(i: int) -> None:
            own["messages"][places[i]]["content"] = texts[i]
            live.checkpoint(state=own)

        edit: Operation = handed_in if handed else tracked
        for i in range(2):
            edit(i)
        return interleave({"ours": edit, "row": lambda i: row.write(texts[i].encode())}, edits)


def _line(name: str, times: dict[str, list[int]], limit: float) -> Line:
    ours, floor = ms(times["ours"]), ms(times["row"])
    return Line(name, show(ours), show(floor), ours / floor, Bar("<=", limit), f"{len(times['ours'])} edits anywhere in 10,000 messages")
