"""The current run follows the code that opened it, also where generators take turns. A step is in its own run or raises AmbiguousRun.

| situation                                                       | a step belongs to                                 |
|-----------------------------------------------------------------|---------------------------------------------------|
| code of a generator that opened a run, whoever else has one open | that run                                          |
| code that drives such a generator, inside a run of its own      | the run of the driver                             |
| code that drives such a generator, in no run                    | AmbiguousRun                                      |
| a generator resumed in another thread, task or context          | its run                                           |
| a run that a function called by the generator left open         | that run, while the generator runs                |
| a contextmanager or fixture that opens a run, the code inside   | that run                                          |
| a task or thread started while a generator's run is open        | AmbiguousRun, unless it started inside a step     |
| runs that are left in another order than they were opened in    | the newest one that is open                       |
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep.errors import AmbiguousRun


@everstep.step
def note(text: str) -> str:
    return text


@everstep.step
async def anote(text: str) -> str:
    return text


def steps(store: everstep.Store, run: str) -> list[Any]:
    return [step.name if not step.result else step.result for step in store.steps(run)]


def stream(store: everstep.Store, name: str, many: int = 3) -> Iterator[str]:
    with store.run(name):
        for i in range(many):
            yield note(f"{name}{i}")


async def astream(store: everstep.Store, name: str, many: int = 3) -> AsyncIterator[str]:
    async with store.run(name):
        for i in range(many):
            yield await anote(f"{name}{i}")


def test_two_generators_that_take_turns_record_in_their_own_runs(store: everstep.Store) -> None:
    assert list(zip(stream(store, "a"), stream(store, "b"), strict=True)) == [("a0", "b0"), ("a1", "b1"), ("a2", "b2")]
    assert steps(store, "a") == ["a0", "a1", "a2"]
    assert steps(store, "b") == ["b0", "b1", "b2"]
    assert store.get("a").status == store.get("b").status == "succeeded"
    with pytest.raises(everstep.EverstepError):
        everstep.current()


def test_two_async_generators_that_take_turns_record_in_their_own_runs(store: everstep.Store) -> None:
    async def main() -> None:
        a, b = astream(store, "a"), astream(store, "b")
        async for text in a:
            assert text == f"a{text[1]}"
            assert await anext(b) == f"b{text[1]}"
        assert [text async for text in b] == []

    asyncio.run(main())
    assert steps(store, "a") == ["a0", "a1", "a2"]
    assert steps(store, "b") == ["b0", "b1", "b2"]


def test_a_run_in_a_generator_is_resumed_after_a_crash_as_it_was(store: everstep.Store) -> None:
    a, b = stream(store, "a", 4), stream(store, "b", 4)
    for _ in range(2):
        next(a), next(b)
    with pytest.raises(ValueError, match="broken"):
        a.throw(ValueError("broken"))
    with pytest.raises(ValueError, match="broken"):
        b.throw(ValueError("broken"))
    assert list(stream(store, "b", 4)) == ["b0", "b1", "b2", "b3"]
    assert list(stream(store, "a", 4)) == ["a0", "a1", "a2", "a3"]


def test_the_driver_of_a_generator_is_in_its_own_run(store: everstep.Store) -> None:
    with store.run("outer"):
        for text in stream(store, "inner"):
            note(f"outer-{text}")
    assert steps(store, "outer") == ["outer-inner0", "outer-inner1", "outer-inner2"]
    assert steps(store, "inner") == ["inner0", "inner1", "inner2"]


def test_a_driver_in_no_run_gets_an_error_and_records_nothing(store: everstep.Store) -> None:
    generator = stream(store, "a")
    next(generator)
    with pytest.raises(AmbiguousRun, match="'a'") as error:
        note("whose")
    assert error.value.code == "E309"
    assert error.value.written == "no"
    with pytest.raises(AmbiguousRun):
        everstep.current()
    assert list(generator) == ["a1", "a2"]
    assert steps(store, "a") == ["a0", "a1", "a2"]
    assert note("free") == "free"


def test_the_handle_is_never_ambiguous(store: everstep.Store) -> None:
    runs: list[Any] = []

    def agent(name: str) -> Iterator[None]:
        with store.run(name) as run:
            runs.append(run)
            yield

    a, b = agent("a"), agent("b")
    next(a), next(b)
    runs[0].step("x", str, 1)
    runs[1].step("y", str, 2)
    list(a), list(b)
    assert steps(store, "a") == ["1"]
    assert steps(store, "b") == ["2"]


def test_a_generator_that_is_resumed_in_other_threads_keeps_its_run(store: everstep.Store) -> None:
    a, b = stream(store, "a"), stream(store, "b")
    with ThreadPoolExecutor(2) as pool:
        for generator in (a, b, b, a, b, a):
            pool.submit(contextvars.copy_context().run, next, generator).result()
        for generator in (a, b):
            assert pool.submit(next, generator, None).result() is None
    assert steps(store, "a") == ["a0", "a1", "a2"]
    assert steps(store, "b") == ["b0", "b1", "b2"]


def test_merged_streams_keep_their_runs(store: everstep.Store) -> None:
    """Each `anext` is a task of its own, with a copy of the context, as libraries that merge streams do it."""

    async def main() -> None:
        streams = {name: astream(store, name) for name in "abc"}
        for _ in range(3):
            await asyncio.gather(*(asyncio.ensure_future(anext(one)) for one in streams.values()))
        for one in streams.values():
            with pytest.raises(StopAsyncIteration):
                await anext(one)

    asyncio.run(main())
    for name in "abc":
        assert steps(store, name) == [f"{name}{i}" for i in range(3)]


def test_a_contextmanager_that_opens_a_run_has_its_block_inside(store: everstep.Store) -> None:
    @contextmanager
    def opened(name: str) -> Iterator[Any]:
        with store.run(name) as run:
            yield run

    @asynccontextmanager
    async def aopened(name: str) -> AsyncIterator[Any]:
        async with store.run(name) as run:
            yield run

    with opened("a"), opened("b"):
        note("in b")
    with ExitStack() as stack:
        stack.enter_context(opened("c"))
        note("in c")

    async def main() -> None:
        async with aopened("d"):
            await asyncio.gather(anote("in d"), anote("in d, too"))

    asyncio.run(main())
    assert steps(store, "a") == []
    assert (steps(store, "b"), steps(store, "c"), steps(store, "d")) == (["in b"], ["in c"], ["in d", "in d, too"])


@pytest.fixture
def inside(store: everstep.Store) -> Iterator[Any]:
    with store.run("fixture") as run:
        yield run


def test_a_fixture_that_opens_a_run_has_its_test_inside(store: everstep.Store, inside: Any) -> None:
    note("in the test")
    inside.checkpoint()
    assert steps(store, "fixture") == ["in the test"]


def test_contextmanagers_inside_generators_belong_to_the_generator(store: everstep.Store) -> None:
    @contextmanager
    def opened(name: str) -> Iterator[Any]:
        with store.run(name) as run:
            yield run

    def agent(name: str) -> Iterator[str]:
        with opened(name):
            for i in range(2):
                yield note(f"{name}{i}")

    list(zip(agent("a"), agent("b"), strict=True))
    assert steps(store, "a") == ["a0", "a1"]
    assert steps(store, "b") == ["b0", "b1"]


def test_a_run_that_a_helper_leaves_open_belongs_to_the_generator(store: everstep.Store) -> None:
    def begin(stack: ExitStack, name: str) -> None:
        stack.enter_context(store.run(name))

    def agent(name: str) -> Iterator[str]:
        with ExitStack() as stack:
            begin(stack, name)
            for i in range(2):
                yield note(f"{name}{i}")

    list(zip(agent("a"), agent("b"), strict=True))
    assert steps(store, "a") == ["a0", "a1"]
    assert steps(store, "b") == ["b0", "b1"]


def test_nested_steps_keep_their_place_when_a_generator_begins_inside(store: everstep.Store) -> None:
    @everstep.step
    def outer() -> str:
        inner = stream(store, "b")
        next(inner)
        note("nested")
        key = everstep.current().step_key
        list(inner)
        return str(key)

    def agent() -> Iterator[str]:
        with store.run("a"):
            yield outer()

    list(agent())
    assert [step.address for step in store.steps("a")] == ["outer#0/note#0", "outer#0"]
    assert steps(store, "b") == ["b0", "b1", "b2"]


def test_a_task_of_a_generator_is_told_to_use_the_handle(store: everstep.Store) -> None:
    async def helper(text: str) -> str:
        return await anote(text)

    async def agent(name: str) -> AsyncIterator[Any]:
        async with store.run(name) as run:
            yield await asyncio.gather(anote("called here"), anote("called here, too"))
            yield await asyncio.gather(helper(name), return_exceptions=True)
            yield await asyncio.gather(run.step("by handle", helper_alone, name))

    async def helper_alone(text: str) -> str:
        return text

    async def main() -> None:
        a, b = agent("a"), agent("b")
        async for results in a:
            await anext(b)
            assert all(isinstance(one, (str, AmbiguousRun)) for one in results)
        await b.aclose()

    asyncio.run(main())
    for name in "ab":
        assert [step.name for step in store.steps(name)] == ["anote", "anote", "by handle"]


def test_tasks_inside_a_step_of_a_generator_are_inside_the_step(store: everstep.Store) -> None:
    async def helper(text: str) -> str:
        return await anote(text)

    @everstep.step
    async def tools(name: str) -> list[str]:
        return list(await asyncio.gather(helper(f"{name}0"), helper(f"{name}1")))

    async def agent(name: str) -> AsyncIterator[Any]:
        async with store.run(name):
            yield await tools(name)

    async def main() -> None:
        a, b = agent("a"), agent("b")
        await anext(a), await anext(b)
        await a.aclose(), await b.aclose()

    asyncio.run(main())
    assert sorted(step.address for step in store.steps("a")) == ["tools#0", "tools#0/anote#0", "tools#0/anote#1"]


def test_runs_left_in_another_order(store: everstep.Store) -> None:
    a, b, c = store.run("a"), store.run("b"), store.run("c")
    a.__enter__(), b.__enter__(), c.__enter__()
    b.__exit__(None, None, None)
    note("in c")
    c.__exit__(None, None, None)
    note("in a")
    a.__exit__(None, None, None)
    assert note("in none") == "in none"
    assert (steps(store, "a"), steps(store, "b"), steps(store, "c")) == (["in a"], [], ["in c"])


def test_a_workflow_is_driven_inside_a_generator(store: everstep.Store) -> None:
    @everstep.workflow
    def flow(name: str) -> str:
        return note(name)

    def agent(name: str) -> Iterator[Any]:
        with store.run(name):
            yield flow(f"{name} child")
            yield store.start(flow, f"{name} own", id=f"{name}-own").result

    list(zip(agent("a"), agent("b"), strict=True))
    for name in "ab":
        assert [step.name for step in store.steps(name)] == ["flow"]
        assert steps(store, f"{name}-own") == [f"{name} own"]


def test_generators_take_turns_where_nothing_is_recorded() -> None:
    with everstep.open(enabled=False) as store:
        texts = list(zip(stream(store, "a"), stream(store, "b"), strict=True))
        assert texts == [("a0", "b0"), ("a1", "b1"), ("a2", "b2")]
        with pytest.raises(everstep.EverstepError):
            everstep.current()


def test_a_generator_is_closed_in_another_context(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db") as store:
        generator = stream(store, "a")
        next(generator)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(generator.close).result()
        assert note("free") == "free"
        with store.run("b"):
            note("in b")
        assert steps(store, "b") == ["in b"]
