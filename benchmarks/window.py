"""A sliding window: `messages.pop(0)` and an append on 10,000 messages, tracked. Every index moves, 1 KB changes."""

from __future__ import annotations

from collections.abc import Iterator

import everstep
from benchmarks import workload
from benchmarks.floors import OneRow
from benchmarks.options import Options
from benchmarks.table import Bar, Line
from benchmarks.table import ms as show
from benchmarks.timing import interleave, ms

HELD = 10_000


def lines(options: Options) -> Iterator[Line]:
    folder = options.folder / "window"
    folder.mkdir(parents=True)
    bodies = [workload.encoded(item) for item in workload.messages(options.window_turns, seed=12)]
    coming = workload.stack(bodies)
    held = workload.state(workload.messages(HELD))
    with OneRow(folder) as row, everstep.open(str(folder / "store.db")) as store, store.run("chat", state=held) as live:

        def slide(i: int) -> None:
            new = coming.pop()
            live.state["messages"].pop(0)
            live.state["messages"].append(new)
            live.checkpoint()

        live.checkpoint()
        times = interleave({"ours": slide, "row": lambda i: row.write(bodies[i])}, options.window_turns)
    ours, floor = ms(times["ours"]), ms(times["row"])
    yield Line("pop(0) + append on 10,000 messages / one-row insert", show(ours), show(floor), ours / floor, Bar("<=", 2))
