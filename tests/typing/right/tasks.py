"""Async handles: everything that waits is awaited."""

from __future__ import annotations

import asyncio
from typing import Any, assert_type

import everstep
from everstep import AsyncRun, AsyncStore, Outcome


@everstep.step(retry=2)
async def ask(question: str, temperature: float = 0.0) -> str:
    return question


def plain(text: str) -> int:
    return len(text)


@everstep.workflow
async def research(topic: str, depth: int = 1) -> list[str]:
    run = everstep.current(everstep.AsyncRun)
    assert_type(run, AsyncRun[Any])
    first = await ask(topic)
    assert_type(first, str)
    several = await asyncio.gather(run.step(ask, "a"), run.step("b", ask, "b", temperature=0.5))
    assert_type(several, tuple[str, str])
    assert_type(await run.step(plain, "text"), int)
    assert_type(await run.map(ask, ["a", "b"]), list[str])
    assert_type(await run.map(plain, ["a", "b"], name="lengths"), list[int])
    assert_type(await run.gate("boss", choices=["yes", "no"]), str)
    await everstep.sleep("1ms")
    await run.sleep(0.001)
    return [first, *several]


@everstep.workflow
async def outer(topic: str) -> int:
    found = await research(topic, depth=2)
    assert_type(found, list[str])
    return len(found)


async def main() -> None:
    async with everstep.open("memory://") as store:
        assert_type(store, AsyncStore)
        outcome = await store.start(research, "tea", id="r1")
        assert_type(outcome, Outcome[list[str]])
        assert_type(await store.start(outer, "tea"), Outcome[int])
        assert_type((await store.outcome("r1")).status, str)
        assert_type((await store.enqueue(outer, "tea", queue="q")).id, str)
        print(await store.load("r1"), await store.runs(status="failed", limit=3), await store.cancel("r1"))
        print((await store.wait("r1", timeout="5s")).result)
        async with store.run("loop", state={"n": 0}) as run:
            run.state["n"] += 1
            assert_type(run.number, int)
            assert_type((await run.checkpoint("one", tag="t")).ref, str)
            assert_type(run.now().year, int)
            ticket = await run.begin("other", 1)
            await ticket.complete(2)
            await run.flush()


def elsewhere(store: everstep.Store) -> None:
    """Outside of an event loop, a plain store runs an async workflow to its end."""
    assert_type(store.start(research, "tea", id="r2"), Outcome[list[str]])


if __name__ == "__main__":
    asyncio.run(main())
