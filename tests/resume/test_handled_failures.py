"""A resume never undoes how the program handled a failure."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import everstep
from everstep.errors import InvalidArgument


class World:
    """Calls that steps made outside of the store. A name in `broken` fails when it is called."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.broken: set[str] = set()

    def do(self, name: str) -> str:
        self.calls.append(name)
        if name in self.broken:
            raise ConnectionError(f"no {name}")
        return name

    def once(self, name: str) -> None:
        """Something outside of a step: the program does it again when it is replayed."""
        if name not in self.calls:
            self.calls.append(name)

    async def ado(self, name: str) -> str:
        await asyncio.sleep(0)
        return self.do(name)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def store() -> Iterator[everstep.Store]:
    with everstep.open("memory://") as store:
        yield store
        assert store.verify("full").ok


def step(world: World, name: str) -> str:
    return str(everstep.current().step(name, world.do, name))


async def astep(world: World, name: str) -> str:
    return str(await everstep.current().step(name, world.ado, name))


def undo_then_raise(world: World) -> str:
    step(world, "flight")
    try:
        step(world, "car")
    except ConnectionError:
        step(world, "undo")
        raise
    return "booked"


def another_error_from_none(world: World) -> str:
    try:
        step(world, "car")
    except ConnectionError:
        step(world, "undo")
        raise ValueError("no trip") from None
    return "booked"


def a_step_of_the_handler_fails(world: World) -> str:
    try:
        step(world, "car")
    except ConnectionError:
        step(world, "undo")
        step(world, "report")
        raise
    return "booked"


def cleanup_in_finally(world: World) -> str:
    try:
        return step(world, "car")
    finally:
        step(world, "undo")


def a_checkpoint_in_the_handler(world: World) -> str:
    try:
        return step(world, "car")
    except ConnectionError:
        world.once("undo")
        everstep.current().checkpoint("undone")
        raise


def an_event_in_the_handler(world: World) -> str:
    try:
        return step(world, "car")
    except ConnectionError:
        world.once("undo")
        everstep.current().emit("undone")
        raise


def in_a_map(world: World) -> str:
    def book(name: str) -> str:
        return world.do(name)

    try:
        return "".join(everstep.current().map(book, ["car"]))
    except ConnectionError:
        step(world, "undo")
        raise


async def async_undo(world: World) -> str:
    try:
        return await astep(world, "car")
    except ConnectionError:
        await astep(world, "undo")
        raise


async def async_group(world: World) -> str:
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(astep(world, "car"))
            group.create_task(astep(world, "hotel"))
    except* ConnectionError:
        await astep(world, "undo")
        raise
    return "booked"


async def async_handler_in_a_task_of_its_own(world: World) -> str:
    try:
        return await asyncio.create_task(astep(world, "car"))
    except ConnectionError:
        await asyncio.create_task(astep(world, "undo"))
        raise


async def async_caught_inside_a_gather(world: World) -> str:
    async def careful() -> str:
        try:
            return await astep(world, "car")
        except ConnectionError:
            await astep(world, "undo")
            raise

    await asyncio.gather(careful(), astep(world, "hotel"))
    return "booked"


HANDLERS: list[Callable[[World], Any]] = [
    undo_then_raise,
    another_error_from_none,
    a_step_of_the_handler_fails,
    cleanup_in_finally,
    a_checkpoint_in_the_handler,
    an_event_in_the_handler,
    in_a_map,
    async_undo,
    async_group,
    async_handler_in_a_task_of_its_own,
    async_caught_inside_a_gather,
]


def started(store: everstep.Store, program: Callable[[World], Any], world: World) -> Any:
    async def aflow() -> str:
        return str(await program(world))

    def flow() -> str:
        return str(program(world))

    chosen: Callable[..., Any] = aflow if inspect.iscoroutinefunction(program) else flow
    return store.start(everstep.workflow(chosen, name=program.__name__), id="trip")


@pytest.mark.parametrize("program", HANDLERS, ids=lambda program: program.__name__)
def test_a_failure_that_was_handled_is_replayed(store: everstep.Store, world: World, program: Callable[[World], Any]) -> None:
    world.broken = {"car", "report"}
    first = started(store, program, world)
    assert first.status == "failed"
    assert world.calls.count("undo") == 1
    world.broken.clear()
    called = list(world.calls)
    again = store.resume("trip")
    assert again.status == "failed"
    if program is not a_step_of_the_handler_fails:  # there the last step failed with nothing after it
        assert world.calls == called
        assert "car" in again.report.handled[-1] or "book" in again.report.handled[-1]
        assert "store.resume('trip', from_step=" in str(again.report)
    assert world.calls.count("car") == 1
    assert type(again.error) is type(first.error)


@pytest.mark.parametrize("program", HANDLERS, ids=lambda program: program.__name__)
def test_retry_runs_a_handled_step_again(store: everstep.Store, world: World, program: Callable[[World], Any]) -> None:
    world.broken = {"car", "report"}
    started(store, program, world)
    world.broken.clear()
    failed = next(s.address for s in store.steps("trip") if s.status == "failed" and s.name in ("car", "book"))
    store.retry("trip", failed)
    again = store.resume("trip")
    assert again.status == "succeeded", again
    assert world.calls.count("car") == 2
    assert "retried" in [event.name for event in store.events(run="trip")]


@pytest.mark.parametrize("program", [undo_then_raise, async_undo], ids=lambda program: program.__name__)
def test_a_fork_before_a_handled_step_runs_it_again(store: everstep.Store, world: World, program: Callable[[World], Any]) -> None:
    world.broken = {"car"}
    started(store, program, world)
    world.broken.clear()
    fork = store.resume("trip", from_step="car#0")
    assert fork.status == "succeeded"
    assert store.get("trip").status == "failed"


def test_a_persons_answer_in_the_handler_is_not_bypassed(store: everstep.Store, world: World) -> None:
    @everstep.workflow
    def order() -> str:
        try:
            return step(world, "charge")
        except ConnectionError:
            if everstep.gate("boss", choices=["give up", "pay by hand"]) == "give up":
                raise
            return "paid by hand"

    world.broken = {"charge"}
    assert store.start(order, id="trip").status == "waiting"
    world.broken.clear()
    store.answer("trip", "boss", "give up")
    assert store.resume("trip").status == "failed"
    assert store.resume("trip").status == "failed"
    assert world.calls == ["charge"]


def test_a_child_that_was_compensated_is_not_run_again(store: everstep.Store, world: World) -> None:
    @everstep.workflow
    def rent() -> str:
        return step(world, "car")

    @everstep.workflow
    def trip() -> str:
        try:
            return str(rent())
        except ConnectionError:
            step(world, "undo")
            raise

    world.broken = {"car"}
    assert store.start(trip, id="trip").status == "failed"
    world.broken.clear()
    assert store.resume("trip").status == "failed"
    assert world.calls == ["car", "undo"]


def test_a_child_with_a_handler_replays_its_failure_when_its_caller_runs_it_again(store: everstep.Store, world: World) -> None:
    @everstep.workflow
    def rent() -> str:
        try:
            return step(world, "car")
        except ConnectionError:
            step(world, "undo")
            raise

    @everstep.workflow
    def trip() -> str:
        return str(rent())

    world.broken = {"car"}
    assert store.start(trip, id="trip").status == "failed"
    world.broken.clear()
    assert store.resume("trip").status == "failed"
    assert world.calls == ["car", "undo"]


def test_a_loop_of_your_own_replays_a_handled_failure(store: everstep.Store, world: World) -> None:
    def program() -> None:
        with store.run("trip") as run:
            try:
                run.step("car", world.do, "car")
            except ConnectionError:
                run.step("undo", world.do, "undo")
                raise

    world.broken = {"car"}
    with pytest.raises(ConnectionError):
        program()
    world.broken.clear()
    with pytest.raises(ConnectionError):
        program()
    assert world.calls == ["car", "undo"]


def unhandled(world: World) -> str:
    step(world, "flight")
    return step(world, "car")


def noted_in_the_state_alone(world: World) -> str:
    try:
        return step(world, "car")
    except ConnectionError:
        everstep.current().state["seen"] = True
        raise


def two_in_a_map(world: World) -> str:
    def book(name: str) -> str:
        return world.do(name)

    return "".join(everstep.current().map(book, ["car", "hotel", "flight"]))


async def async_unhandled(world: World) -> str:
    return await astep(world, "car")


async def async_gather_with_a_busy_sibling(world: World) -> str:
    async def busy() -> None:
        for n in range(5):
            await astep(world, f"work {n}")

    found = await asyncio.gather(astep(world, "car"), busy(), return_exceptions=True)
    if isinstance(found[0], BaseException):
        raise found[0]
    return "booked"


async def async_task_group(world: World) -> str:
    async with asyncio.TaskGroup() as group:
        group.create_task(astep(world, "hotel"))
        group.create_task(astep(world, "car"))
    return "booked"


UNHANDLED = [unhandled, noted_in_the_state_alone, two_in_a_map, async_unhandled, async_gather_with_a_busy_sibling, async_task_group]


@pytest.mark.parametrize("program", UNHANDLED, ids=lambda program: program.__name__)
def test_a_failure_that_nothing_recorded_depends_on_runs_again(
    store: everstep.Store, world: World, program: Callable[[World], Any]
) -> None:
    world.broken = {"car"}
    assert started(store, program, world).status == "failed"
    done = [call for call in world.calls if call != "car"]
    world.broken.clear()
    again = store.resume("trip")
    assert again.status == "succeeded", again.error
    assert world.calls.count("car") == 2
    assert all(world.calls.count(call) <= 2 for call in done)


def test_a_handler_may_swallow_and_try_another_way(store: everstep.Store, world: World) -> None:
    @everstep.workflow
    def trip() -> str:
        with suppress(ConnectionError):
            return step(world, "car")
        step(world, "bus")
        return step(world, "ticket")

    world.broken = {"car", "ticket"}
    assert store.start(trip, id="trip").status == "failed"
    world.broken.clear()
    assert store.resume("trip").unwrap() == "ticket"
    assert world.calls == ["car", "bus", "ticket", "ticket"]


# a handler inside a step


@pytest.fixture
def inside(store: everstep.Store, world: World) -> everstep.Store:
    """A run that failed in a step which had handled the failure of a step inside it, and whose own failure was handled, too."""

    def outer() -> Any:
        try:
            return everstep.current().step("car", world.do, "car")
        except ConnectionError:
            everstep.current().step("undo", world.do, "undo")
            raise

    @everstep.workflow(name="r1 inside")
    def flow() -> Any:
        try:
            return everstep.current().step("outer", outer)
        except ConnectionError:
            everstep.current().step("note", world.do, "note")
            raise

    world.broken.add("car")
    assert store.start(flow, id="r").status == "failed"
    assert world.calls == ["car", "undo", "note"]
    world.broken.clear()
    return store


def test_a_fork_before_a_step_runs_the_steps_inside_it_again(inside: everstep.Store, world: World) -> None:
    assert inside.resume("r", from_step="outer#0").result == "car"
    assert world.calls == ["car", "undo", "note", "car"]


def test_retry_of_a_step_inside_a_step_runs_both_again(inside: everstep.Store, world: World) -> None:
    inside.retry("r", "outer#0/car#0")
    assert inside.resume("r").result == "car"
    assert world.calls == ["car", "undo", "note", "car"]
    retried = [event.data["steps"] for event in inside.events(run="r") if event.name == "retried"]
    assert retried == [["outer#0"], ["outer#0/car#0"]]


def test_retry_of_a_step_inside_one_that_succeeded_is_refused(store: everstep.Store, world: World) -> None:
    def outer() -> str:
        with suppress(ConnectionError):
            everstep.current().step("car", world.do, "car")
        return "walked"

    @everstep.workflow(name="r1 inside a success")
    def flow() -> Any:
        return everstep.current().step("outer", outer) + everstep.current().step("bad", world.do, "bad")

    world.broken.update(("car", "bad"))
    store.start(flow, id="r")
    with pytest.raises(InvalidArgument, match=r"outer#0/car#0 of run 'r' is inside outer#0, which has succeeded"):
        store.retry("r", "outer#0/car#0")
    world.broken.clear()
    assert store.resume("r", from_step="outer#0/car#0").result == "walkedbad"
    assert world.calls.count("car") == 2


def test_a_failure_that_was_handled_inside_a_step_is_named(inside: everstep.Store, world: World) -> None:
    inside.retry("r", "outer#0")
    out = inside.resume("r")
    assert out.status == "failed"
    assert world.calls == ["car", "undo", "note"], "the step around them ran again, and replayed both"
    assert out.report.handled == ["outer#0/car#0"]
    assert "store.retry('r', 'outer#0/car#0')" in str(out.report)
