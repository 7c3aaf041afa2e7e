"""Random programs, interrupted at random places and resumed until they end, against the same program left in peace."""

import contextlib
import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime_driver import Crash, Driver, finish

import everstep
from everstep import every, on
from everstep.errors import Interrupted, Waiting

LEAF = st.one_of(
    st.tuples(st.just("step"), st.sampled_from("ab")),
    st.tuples(st.just("keyed"), st.sampled_from("xy")),
    st.tuples(st.just("value"), st.sampled_from(["now", "random", "uuid"])),
    st.tuples(st.just("fail"), st.sampled_from("ab")),
    st.tuples(st.just("retry"), st.integers(1, 2)),
    st.tuples(st.just("condition"), st.booleans()),
    st.tuples(st.just("emit"), st.just("ping")),
    st.tuples(st.just("big"), st.just(0)),
)
SAVE = st.tuples(st.just("checkpoint"), st.just(0))
OPERATION = st.one_of(
    LEAF,
    st.tuples(st.sampled_from(["step", "keyed"]), st.sampled_from("x")),  # names that come again are the ones to mix up
    SAVE,
    SAVE,
    st.tuples(st.just("gate"), st.just(0)),
    st.tuples(st.just("map"), st.integers(2, 4)),
    st.tuples(st.just("once"), st.just(0)),
    st.tuples(st.just("child"), st.lists(LEAF, max_size=2)),
    st.tuples(st.just("nested"), st.lists(st.one_of(LEAF, st.tuples(st.just("gate"), st.just(0))), max_size=3)),
)
PROGRAMS = st.lists(OPERATION, min_size=1, max_size=8)
POLICIES = st.sampled_from([everstep.manual, every(steps=1), every(steps=2), on("post_step", "gate", "error"), on("pre_step")])
# How many places to pass before the next crash, one for each attempt; after the last there is peace.
CRASHES = st.lists(st.integers(0, 16), max_size=8)


class Bomb:
    """Goes off after so many places of a program, once for each number that it was given."""

    def __init__(self, crashes: list[int]):
        self.left = list(crashes)
        self.arm()

    def arm(self) -> None:
        self.fuse = self.left.pop(0) if self.left else None

    def tick(self) -> None:
        if self.fuse is not None:
            if self.fuse == 0:
                raise Crash
            self.fuse -= 1


class Program:
    """What an operation does, in the colour of a driver; notes what ran and ended."""

    def __init__(self, d: Driver, bomb: Bomb):
        self.d = d
        self.bomb = bomb
        self.ended: list[str] = []
        self.serial = itertools.count()

    def end(self, what: str) -> None:
        """The function of a step has ended; nothing may break it off between this and its record."""
        self.ended.append(what)

    async def perform(self, run: Any, operation: tuple[str, Any], place: str) -> Any:
        self.bomb.tick()
        kind, detail = operation
        result = await getattr(self, kind)(run, detail, place)
        self.bomb.tick()
        return result

    async def step(self, run: Any, name: str, place: str) -> Any:
        def work(given: str) -> str:
            self.bomb.tick()
            self.end(place)
            return f"{name}:{given}"

        return await run.step(name, self.d.plain(work), place)

    async def keyed(self, run: Any, key: str, place: str) -> Any:
        def work() -> str:
            self.bomb.tick()
            self.end(f"key {key} in {place.rpartition('/')[0]}")
            return f"key {key}"

        return await run.step("keyed", self.d.plain(work), key=key)

    async def value(self, run: Any, kind: str, place: str) -> Any:
        getattr(run, kind)()
        return kind

    async def fail(self, run: Any, name: str, place: str) -> Any:
        def work() -> None:
            self.bomb.tick()
            self.end(place)
            raise ValueError(place)

        try:
            await run.step(name, self.d.plain(work))
        except ValueError as error:
            return f"failed {error}"

    async def retry(self, run: Any, failures: int, place: str) -> Any:
        def work() -> int:
            self.bomb.tick()
            attempt = everstep.current().step_attempt
            self.end(f"{place} {attempt}")
            if attempt <= failures:
                raise KeyError(place)
            return attempt

        return await run.step("retry", self.d.plain(work), retry=everstep.Retry(attempts=3, delay=0))

    async def condition(self, run: Any, value: bool, place: str) -> Any:
        return await run.gate("condition", condition=value)

    async def emit(self, run: Any, name: str, place: str) -> Any:
        run.emit(name, place=place)

    async def big(self, run: Any, _: Any, place: str) -> Any:
        def work() -> list[str]:
            self.bomb.tick()
            self.end(place)
            return [f"{place} {i}" * 4 for i in range(600)]

        return len(await run.step("big", self.d.plain(work)))

    async def checkpoint(self, run: Any, _: Any, place: str) -> Any:
        await run.checkpoint(place)

    async def gate(self, run: Any, _: Any, place: str) -> Any:
        return await run.gate("ok", place)

    async def map(self, run: Any, n: int, place: str) -> Any:
        def work(i: int) -> int:
            self.bomb.tick()
            self.end(f"{place} {i}")
            return i * i

        return await run.map(self.d.plain(work), range(n), concurrency=1)

    async def once(self, run: Any, _: Any, place: str) -> Any:
        def work() -> str:
            self.bomb.tick()
            self.end(place)
            return "once"

        made = everstep.step(name="once", at_most_once=True)(self.d.plain(work))
        return await run.step(made)

    async def child(self, run: Any, operations: list[Any], place: str) -> Any:
        @self.d.workflow(name=f"machine-child-{place}")
        async def kid() -> list[Any]:
            return [await self.perform(self.d.run, o, f"{place}/{i}") for i, o in enumerate(operations)]

        return await self.d.child(kid)

    async def nested(self, run: Any, operations: list[Any], place: str) -> Any:
        async def outer() -> list[Any]:
            got = [await self.perform(self.d.run, o, f"{place}/{i}") for i, o in enumerate(operations)]
            self.end(place)
            return got

        return await run.step("nested", self.d.plain(outer))


def answer_all(store: everstep.Store, run: str) -> bool:
    """Answer what is open; at a step that was to run once, have it run."""
    found = [gate for gate in store.gates(run) if not gate.answered]
    for gate in found:
        store.answer(run, gate.address, "run" if gate.choices else f"answer {gate.ask}")
    return bool(found)


def finished(store: everstep.Store, run: str) -> list[tuple[str, str]]:
    """The steps of a run that have an end, by address. Each has one: attempts that failed on the way are left out."""
    ends = [(s.address, s.status) for s in store.steps(run) if s.status != "running"]
    done = sorted(end for end in ends if not end[0].rpartition("/")[2].startswith("retry") or end[1] == "succeeded")
    assert len(done) == len(set(done)), [e for e in done if done.count(e) > 1]
    return done


def saved(store: everstep.Store, run: str) -> list[str | None]:
    """The notes of the checkpoints that the program asked for."""
    return [c.note for c in reversed(store.checkpoints(run)) if c.kind == "manual"]


def check_ended(ended: list[str]) -> None:
    """No step ended twice: what has ended is recorded before anything else happens."""
    assert len(ended) == len(set(ended)), [e for e in ended if ended.count(e) > 1]


def as_workflow(
    store: everstep.Store, d: Driver, operations: list[Any], policy: Any, crashes: list[int], run: str
) -> tuple[Any, list[str]]:
    bomb = Bomb(crashes)
    program = Program(d, bomb)

    @d.workflow(name="machine", policy=policy)
    async def work() -> list[Any]:
        handle = d.run
        got = []
        for i, operation in enumerate(operations):
            got.append(await program.perform(handle, operation, str(i)))
            handle.state["got"] = list(got)
        return got

    for _ in range(60):
        with contextlib.suppress(Crash):
            out = store.start(work, id=run)
            if out.status == "succeeded":
                assert store.load(run) == ({"got": out.result} if out.result else {})
                check_ended(program.ended)
                return out.result, program.ended
            assert out.status == "waiting", (out, out.error)
            assert answer_all(store, run)
            continue
        bomb.arm()
        assert not store.get(run).open
    raise AssertionError("it never ended")


def as_loop(store: everstep.Store, d: Driver, operations: list[Any], policy: Any, crashes: list[int], run: str) -> tuple[Any, list[str]]:
    bomb = Bomb(crashes)
    program = Program(d, bomb)

    async def body(handle: Any) -> list[Any]:
        while len(handle.state["got"]) < len(operations):
            place = len(handle.state["got"])
            operation = operations[place]
            if operation[0] == "checkpoint":
                handle.state["got"].append(None)
            got = await program.perform(handle, operation, str(place))
            if operation[0] != "checkpoint":
                handle.state["got"].append(got)
        return list(handle.state["got"])

    for _ in range(60):
        try:
            result = d.loop(store, run, body, state={"got": []}, policy=policy)
        except Crash:
            bomb.arm()
            assert not store.get(run).open
        except (Waiting, Interrupted):
            assert answer_all(store, run)
        else:
            assert store.load(run) == {"got": result}
            check_ended(program.ended)
            return result, program.ended
    raise AssertionError("it never ended")


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("form", ["workflow", "loop"])
def test_an_interrupted_program_ends_as_one_that_was_left_in_peace(kind: str, colour: str, form: str, tmp_path_factory: Any) -> None:
    drive = as_workflow if form == "workflow" else as_loop
    d = Driver(colour == "async")
    count = itertools.count()
    folder = tmp_path_factory.mktemp("machine")
    store = everstep.open("memory://" if kind == "memory" else folder / "s.db", checking=True)

    share = {("memory", "sync"): 60, ("memory", "async"): 15, ("sqlite", "sync"): 12, ("sqlite", "async"): 6}[kind, colour]

    @settings(max_examples=share * settings().max_examples // 100)
    @given(PROGRAMS, POLICIES, CRASHES)
    def explore(operations: list[Any], policy: Any, crashes: list[int]) -> None:
        number = next(count)
        calm, ran_calm = drive(store, d, operations, policy, [], f"calm-{number}")
        wild, ran_wild = drive(store, d, operations, policy, crashes, f"wild-{number}")
        assert wild == calm
        assert sorted(ran_wild) == sorted(ran_calm)
        assert finished(store, f"wild-{number}") == finished(store, f"calm-{number}")
        assert saved(store, f"wild-{number}") == saved(store, f"calm-{number}")

    try:
        explore()
        found = store.verify("full")
        assert found.ok, str(found)
    finally:
        store.close()


def test_a_body_that_waits_in_the_sync_colour_is_noticed() -> None:
    class Never:
        def __await__(self) -> Any:
            yield

    async def body() -> None:
        await Never()

    with pytest.raises(AssertionError, match="waited"):
        finish(body())
