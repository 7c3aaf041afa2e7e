"""A program that waits or is stopped is unwound. What it returns or raises while it is unwound is not how its run ended.

`gather(return_exceptions=True)` gives a program the waits of its tasks as results, and a wide handler catches them.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import everstep

calls: list[str] = []


@pytest.fixture
def store() -> Iterator[everstep.Store]:
    calls.clear()
    with everstep.open("memory://") as opened:
        yield opened


async def work(name: str, seconds: float = 0.0) -> str:
    calls.append(name)
    await asyncio.sleep(seconds)
    return name


def returns_all(found: list[Any]) -> Any:
    return found


def counts_the_good(found: list[Any]) -> Any:
    return sum(isinstance(one, str) for one in found)


def raises_if_one_failed(found: list[Any]) -> Any:
    if any(isinstance(one, BaseException) for one in found):
        raise RuntimeError("one of them failed")
    return found


REACTIONS = [returns_all, counts_the_good, raises_if_one_failed]


@pytest.mark.parametrize("react", REACTIONS, ids=lambda react: react.__name__)
@pytest.mark.parametrize("kind", ["gates", "children", "gate and step", "timer"])
def test_a_program_that_gathers_its_waits_waits(store: everstep.Store, kind: str, react: Callable[[list[Any]], Any]) -> None:
    @everstep.workflow(name="r6 asking child")
    async def child(name: str) -> Any:
        return await everstep.gate(name)

    @everstep.workflow(name="r6 gathers waits")
    async def flow() -> Any:
        run = everstep.current()
        both = {
            "gates": lambda: (everstep.gate("a"), everstep.gate("b")),
            "children": lambda: (child("a"), child("b")),
            "gate and step": lambda: (everstep.gate("a"), run.step("b", work, "b")),
            "timer": lambda: (everstep.sleep(1.5), run.step("b", work, "b")),
        }[kind]()
        return react(await asyncio.gather(*both, return_exceptions=True))

    out = store.start(flow, id="r")
    assert (out.status, out.error, out.result) == ("waiting", None, None)
    for gate in out.gates:
        store.answer(gate.run, gate.name, gate.name)
    if kind != "timer":
        expected = ["a", "b"] if react is not counts_the_good else 2
        assert store.resume("r").unwrap() == expected


@pytest.mark.parametrize("react", REACTIONS, ids=lambda react: react.__name__)
def test_a_program_that_gathers_the_end_of_its_budget_is_stopped_by_it(store: everstep.Store, react: Callable[[list[Any]], Any]) -> None:
    @everstep.workflow(name="r6 gathers stops", budget=everstep.Budget(steps=1))
    async def flow() -> Any:
        run = everstep.current()
        return react(await asyncio.gather(run.step("a", work, "a"), run.step("b", work, "b"), return_exceptions=True))

    out = store.start(flow, id="r")
    assert (out.status, out.error, out.reason) == ("waiting", None, "budget: 1 steps of 1")
    assert store.resume("r", budget=everstep.Budget(steps=9)).unwrap() == (2 if react is counts_the_good else ["a", "b"])
    assert calls == ["a", "b"]


@pytest.mark.parametrize("react", REACTIONS, ids=lambda react: react.__name__)
@pytest.mark.parametrize(("said", "status"), [("pause", "waiting"), ("cancel", "cancelled")])
def test_a_program_that_gathers_what_a_person_said_obeys(
    store: everstep.Store, said: str, status: str, react: Callable[[list[Any]], Any]
) -> None:
    began = threading.Event()

    async def begin() -> str:
        began.set()
        return await work("a", 0.3)

    @everstep.workflow(name="r6 gathers orders")
    async def flow() -> Any:
        run = everstep.current()
        first = await run.step("a", begin)
        return react([first, *await asyncio.gather(run.step("b", work, "b"), run.step("c", work, "c"), return_exceptions=True)])

    def tell() -> None:
        began.wait(10)
        getattr(store, said)("r")

    person = threading.Thread(target=tell)
    person.start()
    out = store.start(flow, id="r")
    person.join()
    assert (out.status, out.error, out.result, calls) == (status, None, None, ["a"])
    if said == "pause":
        assert store.resume("r").unwrap() == (3 if react is counts_the_good else ["a", "b", "c"])


@pytest.mark.parametrize("then", ["return", "raise"])
def test_a_wide_handler_ends_no_run_that_waits(store: everstep.Store, then: str) -> None:
    @everstep.workflow(name="r6 wide")
    def flow() -> Any:
        try:
            return everstep.gate("a")
        except BaseException:  # too wide, as many handlers are
            if then == "return":
                return "swallowed"
            raise RuntimeError("swallowed") from None

    assert store.start(flow, id="r").status == "waiting"
    store.answer("r", "a", 1)
    assert store.resume("r").unwrap() == 1


def test_a_loop_of_your_own_that_waits_has_not_failed(store: everstep.Store) -> None:
    def program() -> None:
        with store.run("r") as run:
            try:
                run.gate("a")
            except BaseException:
                raise RuntimeError("swallowed") from None

    with pytest.raises(RuntimeError):
        program()
    assert store.get("r").status == "waiting"


def test_an_error_before_the_wait_still_fails_the_run(store: everstep.Store) -> None:
    """A task has failed, and nothing else waits any more: that is the end of the run."""

    @everstep.workflow(name="r6 fails beside")
    async def flow() -> Any:
        async def fail() -> None:
            raise ValueError("really")

        return await asyncio.gather(everstep.gate("a"), everstep.current().step("fail", fail))

    out = store.start(flow, id="r")
    assert out.status == "failed"
    assert isinstance(out.error, ValueError)


@pytest.mark.parametrize("react", REACTIONS, ids=lambda react: react.__name__)
@pytest.mark.parametrize("kind", ["gates", "budget"])
def test_a_step_that_gathers_what_stopped_it_has_not_ended(store: everstep.Store, kind: str, react: Callable[[list[Any]], Any]) -> None:
    async def outer() -> Any:
        run = everstep.current()
        both = (run.gate("a"), run.gate("b")) if kind == "gates" else (run.step("a", work, "a"), run.step("b", work, "b"))
        found = await asyncio.gather(*both, return_exceptions=True)
        return react([one if isinstance(one, str) else repr(one) for one in found] if react is returns_all else found)

    @everstep.workflow(name="r6 step gathers", budget=everstep.Budget(steps=2))
    async def flow() -> Any:
        return await everstep.current().step("outer", outer)

    assert store.start(flow, id="r").status == "waiting"
    assert "outer#0" not in [step.address for step in store.steps("r")]
    for gate in store.gates("r"):
        store.answer("r", gate.address, gate.name)
    assert store.resume("r", budget=everstep.Budget(steps=9)).unwrap() == (2 if react is counts_the_good else ["a", "b"])


@pytest.mark.parametrize("then", ["return", "raise"])
def test_a_wide_handler_in_a_step_ends_no_step_that_waits(store: everstep.Store, then: str) -> None:
    def outer() -> Any:
        try:
            return everstep.gate("a")
        except BaseException:
            if then == "return":
                return "swallowed"
            raise RuntimeError("swallowed") from None

    @everstep.workflow(name="r6 wide step")
    def flow() -> Any:
        return everstep.current().step("outer", outer)

    assert store.start(flow, id="r").status == "waiting"
    assert store.steps("r") == []
    store.answer("r", "outer#0/a#0", 1)
    assert store.resume("r").unwrap() == 1
