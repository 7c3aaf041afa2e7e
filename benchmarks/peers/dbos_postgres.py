"""dbos on PostgreSQL: its system database, workflows of durable steps, a pool with a connection for each thread, 20 (its default) at least.

Only output is switched off: the admin server and the log. Async workflows do their database work on threads of dbos; there are as many as
the pool has connections, since with more of them, some wait for a connection until they fail.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from dbos import DBOS, SetWorkflowID

from benchmarks.peers import Tallies
from benchmarks.rate import ITEMS
from benchmarks.workload import Message

POOL = 20
tallies: dict[str, Tallies] = {}


@DBOS.step()
def answer(i: int) -> Message:
    return ITEMS[i % len(ITEMS)]


@DBOS.workflow()
def talk(name: str, steps: int) -> int:
    for i in range(steps):
        answer(i)
        if not tallies[name].step(name):
            break
    return steps


@DBOS.step()
async def answer_async(i: int) -> Message:
    return ITEMS[i % len(ITEMS)]


@DBOS.workflow()
async def talk_async(name: str, steps: int) -> int:
    for i in range(steps):
        await answer_async(i)
        if not tallies[name].step(name):
            break
    return steps


class Program:
    def talk(self, name: str, steps: int, tally: Tallies) -> None:
        tallies[name] = tally
        with SetWorkflowID(name):
            talk(name, steps)

    async def talk_async(self, name: str, steps: int, tally: Tallies) -> None:
        tallies[name] = tally
        with SetWorkflowID(name):
            await talk_async(name, steps)


@contextmanager
def opened(url: str, threads: int) -> Iterator[Program]:
    DBOS(
        config={
            "name": "benchmarks",
            "system_database_url": url,
            "sys_db_pool_size": max(threads, POOL),
            "max_executor_threads": max(threads, POOL),
            "application_version": "1",
            "log_level": "ERROR",
            "run_admin_server": False,
        }
    )
    DBOS.launch()
    yield Program()
    DBOS.destroy()


@asynccontextmanager
async def opened_async(url: str, width: int) -> AsyncIterator[Program]:
    with opened(url, POOL) as program:
        yield program
