"""What a resume does, as a table: each program below, disturbed in each way below.

A program names what it calls, and what of that a resume calls again after a failure. What each disturbance may call follows from that by one
rule: a recorded attempt is never made again, and everything else is made once more.
"""

import asyncio
import inspect
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from situations import Down, Kill, Kills, World, attempts, drive

import everstep
from everstep.errors import NonDeterminism, RunExists

world = World()


class Row(NamedTuple):
    """One program, and what a careful user expects of it when `broken` steps fail in their first attempts."""

    program: Callable[[], Any]
    calls: str  # the steps that are called, each once
    broken: dict[str, int] = {}  # noqa: RUF012 - never changed
    again: str = ""  # the failed steps that a resume calls once more
    cancelled: str = ""  # the steps that the program cancels: it may do so before they are called
    result: Any = None  # what the run comes to in the end; an error type if it fails
    options: dict[str, Any] = {}  # noqa: RUF012 - never changed
    killed: Any = None  # what it may come to instead, if the process died before the failure of a child was recorded by its caller

    @property
    def expected(self) -> Counter[str]:
        return Counter(self.calls.split()) + Counter(self.again.split())


def step(name: str, **options: Any) -> str:
    return str(everstep.current().step(name, world.do, name, world.version, **options))


async def astep(name: str, seconds: float = 0.0, **options: Any) -> str:
    return str(await everstep.current().step(name, world.ado, name, world.version, seconds, **options))


FOREVER = 30.0


# handlers


def except_and_raise() -> str:
    try:
        return step("car")
    except Down:
        step("undo")
        raise


async def async_except_and_raise() -> str:
    try:
        return await astep("car")
    except Down:
        await astep("undo")
        raise


def except_without_a_record() -> str:
    try:
        return step("car")
    except Down:
        everstep.current().state["seen"] = True
        raise


async def async_except_without_a_record() -> str:
    try:
        return await astep("car")
    except Down:
        everstep.current().state["seen"] = True
        raise


def finally_cleans_up() -> str:
    try:
        return step("car")
    finally:
        step("undo")


async def async_finally_cleans_up() -> str:
    try:
        return await astep("car")
    finally:
        await astep("undo")


def raise_from() -> str:
    try:
        return step("car")
    except Down as error:
        step("undo")
        raise ValueError("no trip") from error


def raise_from_none() -> str:
    try:
        return step("car")
    except Down:
        step("undo")
        raise ValueError("no trip") from None


async def async_raise_from_none() -> str:
    try:
        return await astep("car")
    except Down:
        await astep("undo")
        raise ValueError("no trip") from None


def another_way() -> str:
    with suppress(Down):
        return step("car")
    return step("bus")


async def async_another_way() -> str:
    with suppress(Down):
        return await astep("car")
    return await astep("bus")


def a_group_of_errors() -> str:
    errors = []
    for name in ("car", "hotel"):
        try:
            step(name)
        except Down as error:
            errors.append(error)
    if errors:
        raise ExceptionGroup("trip", errors)
    return "booked"


async def async_except_star() -> str:
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(astep("car"))
            group.create_task(astep("hotel"))
    except* Down:
        await astep("undo")
    return "done"


# many at once


async def async_gather() -> Any:
    return await asyncio.gather(astep("car"), astep("hotel"))


async def async_gather_return_exceptions() -> Any:
    found = await asyncio.gather(astep("car"), astep("hotel"), return_exceptions=True)
    return [one if isinstance(one, str) else await astep("bus") for one in found]


async def async_task_group() -> Any:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(astep("car", 0.02)), group.create_task(astep("hotel"))]
    return [task.result() for task in tasks]


async def async_as_completed() -> Any:
    tasks = [asyncio.create_task(astep("car", 0.03)), asyncio.create_task(astep("hotel"))]
    return [await astep(f"note-{await one}") for one in asyncio.as_completed(tasks)]


async def async_race() -> Any:
    tasks = [asyncio.create_task(astep("car", FOREVER)), asyncio.create_task(astep("hotel", 0.03))]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.wait(pending)
    return await astep(f"note-{done.pop().result()}")


async def async_cancel() -> Any:
    task = asyncio.create_task(astep("car", FOREVER))
    await astep("hotel", 0.03)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return await astep("bus")


async def async_timeout() -> Any:
    try:
        async with asyncio.timeout(0.05):
            return await astep("car", FOREVER)
    except TimeoutError:
        return await astep("bus")


async def async_wait_for() -> Any:
    with suppress(TimeoutError):
        return await asyncio.wait_for(astep("car", FOREVER), 0.05)
    return await astep("bus")


def book(name: str) -> str:
    return world.do(name)


async def abook(name: str) -> str:
    return await world.ado(name)


def mapped() -> Any:
    return everstep.current().map(book, ["car", "hotel", "bus"], concurrency=2)


async def async_mapped() -> Any:
    return await everstep.current().map(abook, ["car", "hotel", "bus"], concurrency=2)


# runs inside of runs, waits, limits


@everstep.workflow
def rent() -> str:
    return step("car")


@everstep.workflow
async def arent() -> str:
    return await astep("car")


def child() -> Any:
    return [rent(), step("hotel")]


async def async_child() -> Any:
    return [await arent(), await astep("hotel")]


def child_and_undo() -> Any:
    try:
        return rent()
    except Down:
        step("undo")
        raise


async def async_child_and_undo() -> Any:
    try:
        return await arent()
    except Down:
        await astep("undo")
        raise


def gate_in_the_handler() -> Any:
    try:
        return step("car")
    except Down:
        return everstep.gate("boss")


async def async_gate_in_the_handler() -> Any:
    try:
        return await astep("car")
    except Down:
        return await everstep.gate("boss")


async def async_gate_beside_a_step() -> Any:
    return await asyncio.gather(astep("car", 0.03), everstep.gate("boss"))


def timer() -> Any:
    step("car")
    everstep.sleep(0.03)
    return step("hotel")


async def async_timer_in_a_race() -> Any:
    tasks = [asyncio.create_task(astep("car", FOREVER)), asyncio.ensure_future(everstep.sleep(0.05))]
    _, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.wait(pending)
    return await astep("bus")


TWICE = everstep.Retry(attempts=3, delay=0.001)


def retried() -> Any:
    return step("car", retry=TWICE)


async def async_retried() -> Any:
    return await asyncio.gather(astep("car", retry=TWICE), astep("hotel", retry=TWICE))


def inner_step_retried() -> Any:
    def trip() -> str:
        return step("flight") + step("car")

    return everstep.current().step("trip", trip, retry=TWICE)


def handler_inside_a_step() -> Any:
    def trip() -> str:
        try:
            return step("car")
        except Down:
            step("undo")
            raise

    return everstep.current().step("trip", trip)


EACH = everstep.every(steps=1)
ONE = {"car": 1}
TABLE = [
    Row(except_and_raise, "car undo", ONE, result=Down),
    Row(async_except_and_raise, "car undo", ONE, result=Down),
    Row(except_without_a_record, "car", ONE, again="car", result="car"),
    Row(async_except_without_a_record, "car", ONE, again="car", result="car"),
    Row(finally_cleans_up, "car undo", ONE, result=Down),
    Row(finally_cleans_up, "car undo", result="car"),
    Row(async_finally_cleans_up, "car undo", ONE, result=Down),
    Row(raise_from, "car undo", ONE, result=ValueError),
    Row(raise_from_none, "car undo", ONE, result=ValueError),
    Row(async_raise_from_none, "car undo", ONE, result=ValueError),
    Row(another_way, "car bus", ONE, result="bus"),
    Row(async_another_way, "car bus", ONE, result="bus"),
    Row(another_way, "car bus", {"car": 1, "bus": 1}, again="bus", result="bus"),
    Row(async_another_way, "car bus", {"car": 1, "bus": 1}, again="bus", result="bus"),
    Row(a_group_of_errors, "car hotel", ONE, result=ExceptionGroup),  # hotel was recorded after the failure
    Row(a_group_of_errors, "car hotel", {"hotel": 1}, again="hotel", result="booked"),
    Row(async_except_star, "car hotel undo", {"car": 1, "hotel": 1}, cancelled="hotel", result="done"),
    Row(async_gather, "car hotel", ONE, again="car", cancelled="hotel", result=["car", "hotel"]),
    Row(async_gather, "car hotel", {"car": 1, "hotel": 1}, again="car hotel", cancelled="car hotel", result=["car", "hotel"]),
    Row(async_gather_return_exceptions, "car hotel bus", ONE, result=["bus", "hotel"]),
    Row(async_task_group, "car hotel", {"hotel": 1}, again="car hotel", cancelled="car", result=["car", "hotel"]),
    Row(async_as_completed, "car hotel note-hotel note-car", result=["note-hotel", "note-car"]),
    Row(async_race, "car hotel note-hotel", cancelled="car", result="note-hotel"),
    Row(async_race, "car hotel note-hotel", {"note-hotel": 1}, again="note-hotel", cancelled="car", result="note-hotel"),
    Row(async_cancel, "car hotel bus", {"bus": 1}, again="bus", cancelled="car", result="bus"),
    Row(async_timeout, "car bus", {"bus": 1}, again="bus", cancelled="car", result="bus"),
    Row(async_wait_for, "car bus", {"bus": 1}, again="bus", cancelled="car", result="bus"),
    Row(mapped, "car hotel bus", {"bus": 1}, again="bus", result=["car", "hotel", "bus"]),
    Row(async_mapped, "car hotel bus", {"bus": 1}, again="bus", result=["car", "hotel", "bus"]),
    Row(child, "car hotel", ONE, again="car", result=["car", "hotel"]),
    Row(async_child, "car hotel", ONE, again="car", result=["car", "hotel"]),
    Row(child, "car hotel", {"hotel": 1}, again="hotel", result=["car", "hotel"]),
    Row(async_child, "car hotel", {"hotel": 1}, again="hotel", result=["car", "hotel"]),
    Row(child_and_undo, "car undo", ONE, result=Down, killed="car"),
    Row(async_child_and_undo, "car undo", ONE, result=Down, killed="car"),
    Row(gate_in_the_handler, "car", ONE, result="yes to boss"),
    Row(async_gate_in_the_handler, "car", ONE, result="yes to boss"),
    Row(async_gate_beside_a_step, "car", result=["car", "yes to boss"]),
    Row(timer, "car hotel", {"hotel": 1}, again="hotel", result="hotel"),
    Row(async_timer_in_a_race, "car bus", {"bus": 1}, again="bus", cancelled="car", result="bus"),
    Row(retried, "car", {"car": 2}, again="car car", result="car"),
    Row(retried, "car", {"car": 4}, again="car car car car", result="car"),
    Row(async_retried, "car hotel", {"car": 2, "hotel": 1}, again="car car hotel", result=["car", "hotel"]),
    Row(inner_step_retried, "flight car", {"car": 2}, again="car car", result="flightcar"),
    Row(handler_inside_a_step, "car undo", ONE, result=Down),
    Row(except_and_raise, "car undo", ONE, result=Down, options={"budget": everstep.Budget(steps=100), "timeout": 60.0}),
    Row(except_and_raise, "car undo", ONE, result=Down, options={"policy": EACH}),
    Row(async_race, "car hotel note-hotel", cancelled="car", result="note-hotel", options={"policy": EACH}),
]


def shown(row: Row) -> str:
    options = f"-{'-'.join(row.options)}" if row.options else ""
    return f"{row.program.__name__}-{'-'.join(row.broken) or 'fine'}{options}"


def flow_of(row: Row) -> Any:
    """The program as a workflow."""
    if inspect.iscoroutinefunction(row.program):

        async def aflow() -> Any:
            return await row.program()

        return everstep.workflow(aflow, name=row.program.__name__, **row.options)
    return everstep.workflow(lambda: row.program(), name=row.program.__name__, **row.options)


@pytest.fixture(autouse=True)
def _new_world() -> Iterator[None]:
    global world
    world = World()
    yield


def check_end(row: Row, outcome: everstep.Outcome) -> None:
    if isinstance(row.result, type):
        assert outcome.status == "failed", outcome
        assert type(outcome.error) is row.result, outcome
    else:
        assert (outcome.status, outcome.result) == ("succeeded", row.result), outcome


def check_calls(row: Row, made: Counter[str], before: Counter[str], recorded: Counter[str]) -> None:
    """All that was not recorded is called once more. What the program cancels may be cancelled before it is called."""
    for name, times in row.expected.items():
        most = before[name] + max(0, times - recorded[name])
        least = before[name] if name in row.cancelled.split() else most
        assert least <= made[name] <= most, f"{name}: called {made[name]} times, not {least} to {most}"
    assert set(made) <= set(row.expected)


@pytest.mark.parametrize("row", TABLE, ids=shown)
def test_table_failure_then_resume(row: Row) -> None:
    world.broken = row.broken
    with everstep.open("memory://") as store:
        check_end(row, drive(store, flow_of(row), world))
        check_calls(row, Counter(world.calls), Counter(), Counter())
        called = list(world.calls)
        check_end(row, store.resume("r"))  # once more: nothing changes
        assert world.calls == called
        assert store.verify("full").ok


def after_kill(row: Row, kill: Kill) -> None:
    global world
    world = World(row.broken)
    world.calls = list(kill.calls)
    with kill.open() as store:
        recorded, outcome = attempts(store), drive(store, flow_of(row), world)
        if row.killed is not None and outcome.status == "succeeded":  # the failed child ran again, and nothing had been recorded after it
            assert "undo" not in world.calls
            assert outcome.result == row.killed
            return
        check_end(row, outcome)
        check_calls(row, Counter(world.calls), Counter(kill.calls), recorded)
        assert store.verify("full").ok


@pytest.mark.parametrize("row", TABLE, ids=shown)
def test_table_kill_at_each_commit_then_resume(row: Row) -> None:
    world.broken = row.broken
    with everstep.open("memory://") as store:
        kills = Kills(store, world)
        drive(store, flow_of(row), world)
    assert len(kills.found) >= 6
    for kill in kills.found:
        after_kill(row, kill)
