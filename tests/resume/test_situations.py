"""What a resume does, as a table: each program below, disturbed in each way below.

A program names what it calls, and what of that a resume calls again after a failure. What each disturbance may call follows from that by one
rule: a recorded attempt is never made again, and everything else is made once more.
"""

import asyncio
import inspect
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from situations import DEEP, Down, Kill, Kills, World, attempts, drive

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


@everstep.workflow(name="table rent")
def rent() -> str:
    return step("car")


@everstep.workflow(name="table arent")
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


def gate_and_finally() -> Any:
    try:
        return everstep.gate("boss")
    finally:
        step("undo")


async def async_gate_and_finally() -> Any:
    try:
        return await everstep.gate("boss")
    finally:
        await astep("undo")


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
    Row(gate_and_finally, "undo", result="yes to boss"),
    Row(async_gate_and_finally, "undo", result="yes to boss"),
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
    return


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
        assert least <= made[name] <= most, f"{name}: called {made[name]} times, not {least} to {most}: {before} {recorded}"
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


@pytest.mark.parametrize("program", [gate_and_finally, async_gate_and_finally], ids=lambda program: program.__name__)
def test_table_a_finally_does_not_run_its_steps_while_the_run_only_waits(program: Callable[[], Any]) -> None:
    with everstep.open("memory://") as store:
        assert store.start(flow_of(Row(program, "undo")), id="r").status == "waiting"
        assert world.calls == []
        store.answer("r", "boss", "yes")
        assert store.resume("r").unwrap() == "yes"
        assert world.calls == ["undo"]


FILES = [row for n, row in enumerate(TABLE) if n % 4 == 0 or row.program in (async_race, async_child, mapped)]


@pytest.mark.parametrize("row", FILES, ids=shown)
def test_table_kill_at_each_commit_to_a_file_then_resume(row: Row, tmp_path: Path) -> None:
    world.broken = row.broken
    (tmp_path / "live").mkdir()
    with everstep.open(str(tmp_path / "live" / "store.db")) as store:
        kills = Kills(store, world, tmp_path / "live")
        drive(store, flow_of(row), world)
    for kill in kills.found[:: 1 if DEEP else 3]:
        after_kill(row, kill)


def killed_in_the_first_attempt(row: Row) -> list[Kill]:
    """Kills of a run that has recorded the end of a step, and has not failed or waited yet."""
    found = []
    with everstep.open("memory://") as store:
        kills = Kills(store, world)
        store.start(flow_of(row), id="r")
    for kill in kills.found:
        with kill.open() as store:
            if attempts(store) and store.get("r").status == "running":
                found.append(kill)
    return found


OWN_INPUT = [row for row in TABLE if not re.search("child|mapped|inner|inside", row.program.__name__)]


@pytest.mark.parametrize("row", OWN_INPUT, ids=shown)
def test_table_changed_code_is_refused_and_calls_nothing(row: Row) -> None:
    """The new code gives each step a different input. The run fails, no handler starts a step then, and the old code finishes the run."""
    world.broken = row.broken
    for kill in killed_in_the_first_attempt(row):
        world.calls, world.version = list(kill.calls), 2
        with kill.open() as store:
            recorded = attempts(store)
            outcome = store.resume("r")
            assert isinstance(outcome.error, NonDeterminism), outcome
            assert world.calls == kill.calls
            world.version = 1
            check_end(row, drive(store, flow_of(row), world))
            check_calls(row, Counter(world.calls), Counter(kill.calls), recorded)


@pytest.mark.parametrize("row", [TABLE[0], TABLE[1], TABLE[22]], ids=shown)
def test_table_another_input_for_the_same_id_is_refused(row: Row) -> None:
    flow = everstep.workflow(lambda x: step("car"), name="with input")
    with everstep.open("memory://") as store:
        store.start(flow, 1, id="r")
        with pytest.raises(RunExists):
            store.start(flow, 2, id="r")
        assert world.calls == ["car"]


HANDLED = [row for row in TABLE if row.result in (Down, ValueError) and "child" not in row.program.__name__ and not row.options]


@pytest.mark.parametrize("row", HANDLED, ids=shown)
def test_table_a_fork_before_the_failed_step_runs_it_again(row: Row) -> None:
    """The failure of the fork is one of its own: its step has a first attempt, too, and the world is mended before it."""
    world.broken = dict(row.broken)
    with everstep.open("memory://") as store:
        drive(store, flow_of(row), world)
        world.broken.clear()
        address = next(s.address for s in store.steps("r") if s.address.endswith("car#0"))
        fork = store.resume("r", from_step=address)
        assert fork.status == "succeeded", fork
        assert world.calls.count("car") == 2
        assert store.get("r").status == "failed"


@pytest.mark.parametrize("row", HANDLED, ids=shown)
def test_table_retry_is_an_explicit_choice(row: Row) -> None:
    world.broken = row.broken
    with everstep.open("memory://") as store:
        drive(store, flow_of(row), world)
        store.retry("r", next(s.address for s in store.steps("r") if s.address.endswith("car#0")))
        again = store.resume("r")
        if row.program is not handler_inside_a_step:
            assert again.status == "succeeded", again
        assert world.calls.count("car") <= 2


# loops of your own, agents and YAML


def own_loop(store: everstep.Store) -> str:
    with store.run("r") as run:
        run.step("flight", world.do, "flight")
        try:
            return str(run.step("car", world.do, "car"))
        except Down:
            run.step("undo", world.do, "undo")
            raise


async def async_own_loop(store: everstep.Store) -> str:
    async with store.run("r") as run:
        await run.step("flight", world.ado, "flight")
        try:
            return str(await run.step("car", world.ado, "car"))
        except Down:
            await run.step("undo", world.ado, "undo")
            raise


@pytest.mark.parametrize("program", [own_loop, async_own_loop], ids=lambda program: program.__name__)
def test_table_a_loop_of_your_own(program: Callable[[everstep.Store], Any]) -> None:
    """Failed, killed at each commit, and run again: the car is rented never, and given back once."""

    def run(store: everstep.Store) -> None:
        with pytest.raises(Down):
            asyncio.run(program(store)) if inspect.iscoroutinefunction(program) else program(store)

    world.broken = ONE
    with everstep.open("memory://") as store:
        kills = Kills(store, world)
        run(store)
        run(store)
    assert Counter(world.calls) == Counter(["flight", "car", "undo"])
    for kill in kills.found:
        world.calls = list(kill.calls)
        with kill.open() as store:
            recorded = attempts(store)
            run(store)
        expected = Counter(kill.calls) + (Counter(["flight", "car", "undo"]) - recorded)
        assert Counter(world.calls) == expected, kill.place


# real processes

CHILD = """
import os, signal, sys
sys.path.insert(0, {folder!r})
import test_situations as table
from situations import drive
import everstep

row = next(row for row in table.TABLE if table.shown(row) == {row!r})
table.world.broken = row.broken
log = os.open({log!r}, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
class Calls(list):
    def append(self, name):
        os.write(log, (name + "\\n").encode())
        super().append(name)
table.world.calls = Calls()
store = everstep.open({store!r})
left = {commits}
commit, submit = store.backend.commit, store.backend.submit
def counted(function):
    def call(*args):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args)
    return call
store.backend.commit, store.backend.submit = counted(commit), counted(submit)
drive(store, table.flow_of(row), table.world)
"""


@pytest.mark.parametrize("name", ["except_and_raise-car", "async_race-note-hotel", "async_child_and_undo-car", "async_timeout-bus"])
def test_table_kill_9_then_resume(name: str, tmp_path: Path) -> None:
    row = next(row for row in TABLE if shown(row) == name)
    for commits in (3, 5) if not DEEP else range(1, 12):
        path, log = tmp_path / f"{commits}.db", tmp_path / f"{commits}.log"
        code = CHILD.format(folder=str(Path(__file__).parent), row=name, log=str(log), store=str(path), commits=commits)
        ended = subprocess.run([sys.executable, "-c", code], timeout=60, capture_output=True, text=True)
        assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
        calls = log.read_text().split() if log.exists() else []
        after_kill(row, Kill(f"kill -9 at {commits}", lambda path=path: everstep.open(str(path)), calls))  # type: ignore[misc]
