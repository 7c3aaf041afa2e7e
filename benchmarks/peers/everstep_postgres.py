"""Everstep on PostgreSQL: one open store, workflows of durable steps, every setting its default."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import everstep
from benchmarks.peers import Tallies
from benchmarks.rate import ITEMS
from benchmarks.workload import Message

tallies: dict[str, Tallies] = {}


@everstep.step
def answer(i: int) -> Message:
    return ITEMS[i % len(ITEMS)]


@everstep.workflow
def talk(name: str, steps: int) -> int:
    for i in range(steps):
        answer(i)
        if not tallies[name].step(name):
            break
    return steps


@everstep.step
async def answer_async(i: int) -> Message:
    return ITEMS[i % len(ITEMS)]


@everstep.workflow
async def talk_async(name: str, steps: int) -> int:
    for i in range(steps):
        await answer_async(i)
        if not tallies[name].step(name):
            break
    return steps


class Program:
    def __init__(self, store: Any) -> None:
        self._store = store

    def talk(self, name: str, steps: int, tally: Tallies) -> None:
        tallies[name] = tally
        self._store.start(talk, name, steps, id=name).unwrap()

    async def talk_async(self, name: str, steps: int, tally: Tallies) -> None:
        tallies[name] = tally
        (await self._store.start(talk_async, name, steps, id=name)).unwrap()


@contextmanager
def opened(url: str, width: int) -> Iterator[Program]:
    with everstep.open(url) as store:
        yield Program(store)


@asynccontextmanager
async def opened_async(url: str, width: int) -> AsyncIterator[Program]:
    async with everstep.open(url) as store:
        yield Program(store)
