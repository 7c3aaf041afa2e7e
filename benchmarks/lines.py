"""Appends without a lease beside those of a held run, and many states in one walk: 1,000 messages of 1 KB, one more at each checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from time import process_time_ns

import everstep
from benchmarks import workload
from benchmarks.options import Options
from benchmarks.table import Bar, Line
from benchmarks.table import ms as show
from benchmarks.timing import interleave, ms

MESSAGES = 1_000
STATES = 50
_TIMES = 5


def lines(options: Options) -> Iterator[Line]:
    folder = options.folder / "lines"
    folder.mkdir(parents=True)
    bodies = [workload.encoded(item) for item in workload.messages(MESSAGES)]
    for_line, for_held, for_entry = (workload.stack(bodies) for _ in range(3))
    with everstep.open(str(folder / "store.db")) as store:
        line = store.line("line", state=workload.state([]))
        line.checkpoint()
        with store.run("held", state=workload.state([])) as held:
            held.checkpoint()

            def append(i: int) -> None:
                line.state["messages"].append(for_line.pop())
                line.checkpoint()

            def save(i: int) -> None:
                held.state["messages"].append(for_held.pop())
                held.checkpoint()

            def attach(i: int) -> None:
                line.attach(line.number, f"write-{i}", for_entry.pop())

            times = interleave({"line": append, "held": save, "attach": attach}, MESSAGES)
        ours, floor = ms(times["line"]), ms(times["held"])
        yield Line("append without a lease / checkpoint of a held run", show(ours), show(floor), ours / floor, Bar("<=", 1.1))
        entry = ms(times["attach"])
        yield Line("attach an entry of 1 KB / checkpoint of a held run", show(entry), show(floor), entry / floor)
        for shared, limit in ((True, 12), (False, 50)):
            took = ms([_walk(store, shared) for _ in range(_TIMES)])
            name = f"{STATES} states in one walk, {'shared' if shared else 'copied'}, processor time"
            yield Line(name, show(took), value=took, bar=Bar("<=", limit, "ms"))


def _walk(store: everstep.Store, shared: bool) -> int:
    began = process_time_ns()
    found = list(store.states("line", first=MESSAGES - STATES + 2, shared=shared))
    took = process_time_ns() - began
    assert len(found) == STATES
    return took
