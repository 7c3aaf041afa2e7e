"""The time in which a worker claims a run from a queue in PostgreSQL: with a million ended runs, relative to none.

Two stores on one server take turns, claim by claim, with the same number of runs waiting in each. The server has no fsync: the disk would
take the same time in both and hide the difference. After the million were written, autovacuum's work is done by hand, because it may come
at any time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack

import everstep
from benchmarks import finished, server
from benchmarks.options import Options
from benchmarks.table import Bar, Line
from benchmarks.table import ms as show
from benchmarks.timing import interleave, ms, timed
from benchmarks.turns import Times
from everstep.testing.postgres import Server

QUEUE, WORKFLOW = "default", "claimed"


def lines(options: Options) -> Iterator[Line]:
    with server.started(options, fsync=False) as home, ExitStack() as stack:
        empty, full = home.database(), home.database()
        stores = {"empty": stack.enter_context(everstep.open(empty)), "full": stack.enter_context(everstep.open(full))}
        print(f"  writing {options.finished_runs:,} finished runs", file=sys.stderr, flush=True)
        finished.write(full, options.finished_runs, QUEUE)
        for store in stores.values():
            enqueue(store, options.claims + 1)
        first = timed(lambda _: claim(stores["full"]), 0)
        claim(stores["empty"])
        tidy(home, empty, full)
        times = interleave({name: lambda _, store=store: claim(store) for name, store in stores.items()}, options.claims)
        vain = interleave({name: lambda _, store=store: claim(store, 0) for name, store in stores.items()}, options.claims)
    note = f"median of {options.claims:,} each, in turns; the first one, before any vacuum: {first / 1e6:.1f} ms"
    yield line(f"PostgreSQL: claim with {options.finished_runs:,} finished runs / with none", times, note)
    yield line("  a claim that finds nothing", vain, "as above")


def enqueue(store: everstep.Store, count: int) -> None:
    for i in range(count):
        store.enqueue(WORKFLOW, i, queue=QUEUE)


def claim(store: everstep.Store, expected: int = 1) -> None:
    taken = store.keeper.claim([QUEUE], [WORKFLOW], 1, [])
    if len(taken) != expected:
        raise RuntimeError(f"{len(taken)} runs were claimed instead of {expected}")


def tidy(home: Server, *urls: str) -> None:
    for url in urls:
        home.execute("VACUUM ANALYZE", url=url)


def line(name: str, times: Times, note: str) -> Line:
    full, empty = ms(times["full"]), ms(times["empty"])
    return Line(name, show(full), show(empty), full / empty, Bar("<=", 1.2), note)
