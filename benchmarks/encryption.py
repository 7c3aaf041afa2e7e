"""A durable checkpoint and a durable step of a store with a key, beside one without, turn by turn; and the load of the same state. Then the
key of a store is replaced that has many families of runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from secrets import token_bytes
from time import perf_counter, process_time_ns
from typing import Any

import apsw

import everstep
from benchmarks import workload
from benchmarks.options import Options
from benchmarks.table import Bar, Line
from benchmarks.table import ms as show
from benchmarks.timing import interleave, ms, settle

KEY = bytes(range(32))
LIMIT = Bar("<=", 1.10)
BATCH = 100
OTHER = bytes(range(1, 33))
FAMILIES, MOST_SECONDS, WAIT = 100_000, 60, 1
"""At most so many seconds for so many families. `rekey` waits for a moment at its end, until all writers use the new key."""


def lines(options: Options) -> Iterator[Line]:
    count = options.steps[0]
    items = workload.messages(2 * count)
    folder = options.folder / "encryption"
    folder.mkdir(parents=True)
    with (
        everstep.open(str(folder / "plain.db"), key=None) as plain,
        everstep.open(str(folder / "encrypted.db"), key=KEY) as encrypted,
        plain.run("talk", state={"messages": []}) as a,
        encrypted.run("talk", state={"messages": []}) as b,
    ):

        def turn(run: everstep.Run, i: int) -> None:
            run.state["messages"].append(items[i])
            run.checkpoint()

        def step(run: everstep.Run, i: int) -> None:
            run.step("answer", lambda n: items[n], i)

        for name, act in (("checkpoint", turn), ("step", step)):
            times = interleave({"plain": lambda i, act=act: act(a, i), "encrypted": lambda i, act=act: act(b, i)}, count)
            ours, floor = ms(times["encrypted"]), ms(times["plain"])
            spent = {key: _spent(run, act, count) for key, run in (("plain", a), ("encrypted", b))}
            note = f"processor time: {spent['encrypted']:.3f} ms, plain {spent['plain']:.3f} ms"
            yield Line(f"durable {name} with a key / without", show(ours), show(floor), ours / floor, LIMIT, note)
        loads = interleave({"plain": lambda i: plain.load("talk"), "encrypted": lambda i: encrypted.load("talk")}, 50)
        ours, floor = ms(loads["encrypted"]), ms(loads["plain"])
        yield Line(f"load of {2 * count:,} turns with a key / without", show(ours), show(floor), ours / floor)
    yield _replaced(options)


def _replaced(options: Options) -> Line:
    """Replace the key of a store with many families. Only their keys are read and written, so they need no records here."""
    families = options.listed_runs
    path = options.folder / "encryption" / "keys.db"
    with everstep.open(str(path), key=KEY) as store:
        with store.run("one", state={}) as run:
            run.checkpoint()
        framing: Any = store.framer
        made = [token_bytes(16) for _ in range(families)]
        rows = [(family, framing.ring.wrap(family, token_bytes(32))) for family in made]
        with closing(apsw.Connection(str(path))) as connection, connection:
            connection.executemany("INSERT INTO keys (family, wrapped) VALUES (?, ?)", rows)
        settle()
        begun, used = perf_counter(), process_time_ns()
        done = store.rekey(OTHER)
        seconds, spent = perf_counter() - begun, (process_time_ns() - used) / 1e9
        assert done.replaced == families + 2, done
    bar = Bar("<=", MOST_SECONDS * families / FAMILIES + WAIT, "s")
    return Line(f"the key of {families:,} families is replaced", f"{seconds:.2f} s", "", seconds, bar, f"processor time: {spent:.2f} s")


def _spent(run: everstep.Run, act: object, count: int) -> float:
    """Return the processor time of one call in milliseconds."""
    settle()
    begun = process_time_ns()
    for i in range(count, count + BATCH):
        act(run, i)  # type: ignore[operator]
    return (process_time_ns() - begun) / BATCH / 1e6
