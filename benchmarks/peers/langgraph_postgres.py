"""langgraph on PostgreSQL: a graph of one node that loops, PostgresSaver, durability="sync"; a step is one turn of the loop.

A saver lets one thread at a time to its connection, also with a pool, so that each thread or task has a saver of its own: with a connection
of its own where there are few, and on a pool of 50 where there are many. The state holds the newest result only, as a step does.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any, TypedDict

from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import END, START, StateGraph
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from benchmarks.peers import Tallies
from benchmarks.rate import ITEMS

POOL = 50
tallies: dict[str, Tallies] = {}


class Talk(TypedDict):
    name: str
    steps: int
    done: int
    answer: dict


def agent(live: Any) -> dict[str, Any]:
    return {"answer": ITEMS[live["done"] % len(ITEMS)], "done": live["done"] + 1}


async def agent_async(live: Any) -> dict[str, Any]:
    return agent(live)


def further(live: Any) -> str:
    """Asked after the node has run and before its checkpoint, so that what it tells is one step early for each run."""
    going = tallies[live["name"]].step(live["name"])
    return "agent" if going and live["done"] < live["steps"] else END


def built(saver: Any, node: Any) -> Any:
    graph = StateGraph(Talk)
    graph.add_node("agent", node)
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", further)
    return graph.compile(checkpointer=saver)


def called(name: str, steps: int, tally: Tallies) -> tuple[dict[str, Any], dict[str, Any]]:
    tallies[name] = tally
    return {"name": name, "steps": steps, "done": 0}, {"configurable": {"thread_id": name}, "recursion_limit": 10_000_000}


class Program:
    def __init__(self, url: str, stack: ExitStack) -> None:
        self._url = url
        self._stack = stack
        self._own = threading.local()

    def talk(self, name: str, steps: int, tally: Tallies) -> None:
        if not hasattr(self._own, "app"):
            self._own.app = built(self._stack.enter_context(PostgresSaver.from_conn_string(self._url)), agent)
        self._own.app.invoke(*called(name, steps, tally), durability="sync")


class AsyncProgram:
    def __init__(self, pool: Any) -> None:
        self._pool = pool

    async def talk_async(self, name: str, steps: int, tally: Tallies) -> None:
        app = built(AsyncPostgresSaver(self._pool), agent_async)
        await app.ainvoke(*called(name, steps, tally), durability="sync")


@contextmanager
def opened(url: str, width: int) -> Iterator[Program]:
    with ExitStack() as stack:
        with PostgresSaver.from_conn_string(url) as first:
            first.setup()
        yield Program(url, stack)


@asynccontextmanager
async def opened_async(url: str, width: int) -> AsyncIterator[AsyncProgram]:
    with PostgresSaver.from_conn_string(url) as first:
        first.setup()
    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}  # those of from_conn_string
    async with AsyncConnectionPool(url, min_size=min(width, POOL), max_size=min(width, POOL), kwargs=options) as pool:
        yield AsyncProgram(pool)
