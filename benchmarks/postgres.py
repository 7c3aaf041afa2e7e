"""A durable checkpoint and a durable step in PostgreSQL, against a one-row INSERT of the same bytes on the same server, operation by
operation.

The floor uses a connection like that of the store: autocommit, no prepared statements, the same timeouts. The same INSERT is also measured
prepared, which a pooler would not allow. Round trips are counted on the wire, 50 operations minus 10, after the wire has shown that it
distinguishes two round trips from one.

A disk with slow syncs hides the other costs of a commit: its ratio tends to 1 whatever we do. So if a raw append takes too long meanwhile,
no limit counts as met; and the same is also measured on a server without fsync, where only computing remains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import everstep
from benchmarks import server, workload
from benchmarks.floors import Floor, RawAppend
from benchmarks.options import Options
from benchmarks.table import Bar, Line
from benchmarks.table import ms as show
from benchmarks.timing import first_tenth, interleave, last_tenth, ms
from benchmarks.turns import Times
from benchmarks.wire import Wire
from everstep.backends.postgres.connections.connect import Address
from everstep.testing.postgres import Server

FEW, MANY = 10, 50
SLOW_MS = 0.6  # on the disk that the limit was set for, a raw append takes 0.24
SUBJECTS = {"checkpoint": "checkpoint of a 1 KB turn", "step": "durable step, 1 KB"}


class OnePostgresRow(Floor):
    """One INSERT into a one-table database."""

    def __init__(self, url: str, prepared: bool = False) -> None:
        self._connection = Address(url).connect(writing=True)
        self._prepared = prepared
        table = (
            "public.turn_prepared" if prepared else "public.turn"
        )  # the connections of a store have no schema of users in their search path
        self._connection.execute(f"CREATE TABLE {table} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea)".encode())
        self._insert = f"INSERT INTO {table} (body) VALUES (%b)".encode()

    def write(self, body: bytes) -> None:
        self._connection.execute(self._insert, (body,), prepare=self._prepared)

    def close(self) -> None:
        self._connection.close()


def lines(options: Options) -> Iterator[Line]:
    with server.started(options) as home:
        times = measure(options.postgres_turns, home, options.folder / "postgres")
        for key, what in SUBJECTS.items():
            yield against_floor(what, key, times, server.version(home))
        yield from round_trips(home.database())
    if not home.own:  # the settings of another operator's server are not changed
        return
    with server.started(options, fsync=False) as home:
        times = measure(options.postgres_turns, home, options.folder / "postgres-computing")
    for key, what in SUBJECTS.items():
        yield computing(what, key, times)


def measure(turns: int, home: Server, folder: Path) -> Times:
    ours, floor = home.database(), home.database()
    items = workload.messages(turns)
    bodies = [workload.encoded(item) for item in items]
    coming = workload.stack(bodies)
    with (
        OnePostgresRow(floor) as row,
        OnePostgresRow(floor, prepared=True) as prepared,
        RawAppend(folder) as raw,
        everstep.open(ours) as store,
        store.run("chat", state=workload.state()) as live,
        store.run("talk") as run,
    ):
        operations = {
            "checkpoint": lambda i: checkpoint(live, coming.pop()),
            "row": lambda i: row.write(bodies[i]),
            "step": lambda i: run.step("answer", items.__getitem__, i),
            "prepared": lambda i: prepared.write(bodies[i]),
            "raw": lambda i: raw.write(bodies[i]),
        }
        return interleave(operations, turns)


def checkpoint(live: Any, new: workload.Message) -> None:
    workload.turn(live.state, new)
    live.checkpoint()


def against_floor(what: str, key: str, times: Times, note: str) -> Line:
    found = {name: ms(values) for name, values in times.items()}
    took, floor, raw = found[key], found["row"], found["raw"]
    first, last = ms(first_tenth(times[key])), ms(last_tenth(times[key]))
    line = Line(
        f"PostgreSQL: {what}, N={len(times[key]):,} / one-row insert",
        show(took),
        show(floor),
        note=f"raw append {raw:.3f} ms; {note}; {took / found['prepared']:.2f}x a prepared insert; "
        f"first 10 % {first:.3f}, last 10 % {last:.3f} ms",
        raw={**found, "first_ms": first, "last_ms": last},
    )
    if raw > SLOW_MS:
        problem = f"NOT MEASURED: {took / floor:.2f}x, but a raw append takes {raw:.1f} ms, which hides the rest"
        return replace(line, problem=problem, broken=True)
    return replace(line, value=took / floor, bar=Bar("<=", 1.6))


def computing(what: str, key: str, times: Times) -> Line:
    took, floor = ms(times[key]), ms(times["row"])
    note = f"no disk in it: {took - floor:.3f} ms more than the insert"
    return Line(f"  {what}, server without fsync / one-row insert", show(took), show(floor), took / floor, note=note)


def round_trips(url: str) -> Iterator[Line]:
    items = workload.messages(FEW + MANY)
    with ExitStack() as stack:
        wire = stack.enter_context(Wire(url))
        prove(wire)
        store = stack.enter_context(everstep.open(wire.url))
        live = stack.enter_context(store.run("chat", state=workload.state()))
        run = stack.enter_context(store.run("talk"))
        subjects: dict[str, Callable[[int], object]] = {
            "checkpoint": lambda i: checkpoint(live, dict(items[i])),
            "step": lambda i: run.step("answer", items.__getitem__, i),
        }
        for name, operation in subjects.items():
            trips, statements = counted(wire, operation)
            note = f"counted on the wire over {MANY} of them; statements: {statements:g}"
            yield Line(f"PostgreSQL: round trips for each durable {name}", f"{trips:g}", "", trips, Bar("==", 1, ""), note)


def prove(wire: Wire) -> None:
    """Check the wire: one that cannot distinguish two round trips from one must not count."""
    with Address(wire.url).connect() as connection:

        def twice(i: int) -> None:
            connection.execute(b"SELECT 1")
            connection.execute(b"SELECT 2")

        found = counted(wire, twice)
    if found != (2, 2):
        raise RuntimeError(f"two statements, one after the other, were counted as {found} round trips and statements")


def counted(wire: Wire, operation: Callable[[int], object]) -> tuple[float, float]:
    """Count round trips and statements of one operation, after a warm-up."""
    for i in range(FEW):
        operation(i)
    trips, statements = wire.trips, wire.statements
    for i in range(FEW, FEW + MANY):
        operation(i)
    return (wire.trips - trips) / MANY, (wire.statements - statements) / MANY
