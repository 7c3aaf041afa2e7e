"""What a step is known by: its name, its turn, its input, its place, its key."""

import functools
import uuid
from typing import Any

import pytest
from runtime_driver import Crash, Driver, addresses

import everstep
from everstep.errors import InvalidArgument, NonDeterminism, RunClosed, Unstorable


def double(x: Any) -> Any:
    return x * 2


def test_steps_are_numbered_by_their_name_in_the_order_of_the_program(store: everstep.Store, d: Driver) -> None:
    @d.workflow
    async def work() -> list[Any]:
        run = d.run
        return [await run.step("a", d.plain(double), 1), await run.step("b", d.plain(double), 2), await run.step("a", d.plain(double), 3)]

    assert store.start(work, id="r").unwrap() == [2, 4, 6]
    assert addresses(store, "r") == ["a#0", "b#0", "a#1"]


def test_a_nested_step_is_known_by_its_place_inside_the_outer_one(store: everstep.Store, d: Driver) -> None:
    async def outer(n: int) -> int:
        run = d.run
        return sum([await run.step("inner", d.plain(double), i) for i in range(n)])

    @d.workflow
    async def work() -> int:
        return await d.run.step("outer", d.plain(outer), 2) + await d.run.step("outer", d.plain(outer), 1)

    assert store.start(work, id="r").unwrap() == 2
    assert addresses(store, "r") == ["outer#0/inner#0", "outer#0/inner#1", "outer#0", "outer#1/inner#0", "outer#1"]


def test_three_levels_of_nesting_replay_the_innermost_that_was_finished(store: everstep.Store, d: Driver) -> None:
    ran: list[str] = []

    def leaf(x: str) -> str:
        ran.append(x)
        if x == "c" and ran.count("c") == 1:
            raise Crash
        return x

    async def middle(xs: list[str]) -> str:
        return "".join([await d.run.step("leaf", d.plain(leaf), x) for x in xs])

    async def outer() -> str:
        return await d.run.step("middle", d.plain(middle), ["a", "b"]) + await d.run.step("middle", d.plain(middle), ["c"])

    @d.workflow
    async def work() -> str:
        return await d.run.step("outer", d.plain(outer))

    with pytest.raises(Crash):
        store.start(work, id="r")
    assert store.resume("r").unwrap() == "abc"
    assert ran == ["a", "b", "c", "c"]
    assert "outer#0/middle#1/leaf#0" in addresses(store, "r")


def test_a_step_with_a_key_is_found_wherever_it_is_asked_for_again(store: everstep.Store, d: Driver) -> None:
    ran: list[int] = []

    def fetch(x: int) -> int:
        ran.append(x)
        return x + 100

    async def body(run: Any) -> list[int]:
        return [await run.step("fetch", d.plain(fetch), x, key=f"user-{x}") for x in (1, 2, 1)]

    assert d.loop(store, "r", body) == [101, 102, 101]
    assert d.loop(store, "r", body) == [101, 102, 101]
    assert ran == [1, 2]
    assert addresses(store, "r") == ["fetch@user-1", "fetch@user-2"]


def test_a_key_from_before_the_base_is_still_known_after_another_keyed_step_ran_again(store: everstep.Store, d: Driver) -> None:
    ran: list[str] = []

    def fetch(x: str) -> str:
        ran.append(x)
        if x == "two" and ran.count("two") == 1:
            raise ValueError(x)
        return x

    async def body(run: Any) -> None:
        if not run.state.get("first"):
            await run.step("fetch", d.plain(fetch), "one", key="one")
            run.state["first"] = True
            await run.checkpoint()
        await run.step("fetch", d.plain(fetch), "two", key="two")
        await run.step("fetch", d.plain(fetch), "one", key="one")

    with pytest.raises(ValueError, match="two"):
        d.loop(store, "r", body)
    d.loop(store, "r", body)
    assert ran == ["one", "two", "two"]


def test_a_key_stands_in_for_an_argument_that_cannot_be_stored(store: everstep.Store, d: Driver) -> None:
    async def body(run: Any) -> int:
        return await run.step("use", d.plain(lambda handle: 7), object(), key="the-handle")

    assert d.loop(store, "r", body) == 7
    assert addresses(store, "r") == ["use@the-handle"]


@pytest.mark.parametrize("key", ["", "a/b", True, 1.5, "x" * 201])
def test_a_key_that_makes_no_sense_is_refused(store: everstep.Store, key: Any) -> None:
    with pytest.raises(InvalidArgument), store.run("r") as run:
        run.step("a", double, 1, key=key)


@pytest.mark.parametrize("name", ["", "a#1", "a/b", "a@b", "x" * 201, "a\n"])
def test_a_name_that_could_be_mistaken_for_an_address_is_refused(store: everstep.Store, name: str) -> None:
    with pytest.raises(InvalidArgument), store.run("r") as run:
        run.step(name, double, 1)


def test_none_is_an_argument_like_any_other(store: everstep.Store, d: Driver) -> None:
    def show(*args: Any) -> str:
        return repr(args)

    decorated = d.step(show)

    @d.workflow
    async def work() -> list[str]:
        run = d.run
        return [
            await run.step("named", d.plain(show), None),
            await run.step(d.plain(show), None),
            await run.step(d.plain(show), None, 1),
            await decorated(None),
            await decorated(None, 2),
            *await run.map(d.plain(show), [None]),
        ]

    assert store.start(work, id="r").unwrap() == ["(None,)", "(None,)", "(None, 1)", "(None,)", "(None, 2)", "(None,)"]


def test_a_decorated_step_keeps_parameters_that_are_called_like_options(store: everstep.Store, d: Driver) -> None:
    @d.step
    def fetch(url: str, key: str = "", timeout: float = 0, retry: int = 0) -> list[Any]:
        return [url, key, timeout, retry]

    @d.workflow
    async def work() -> Any:
        return await fetch("u", key="k", timeout=5, retry=2)

    assert store.start(work, id="r").unwrap() == ["u", "k", 5, 2]
    assert addresses(store, "r") == ["fetch#0"]


def test_a_child_workflow_keeps_parameters_that_are_called_like_options(store: everstep.Store, d: Driver) -> None:
    @d.workflow(name="child-with-options")
    async def child(key: str, timeout: float) -> list[Any]:
        return [key, timeout]

    @d.workflow
    async def work() -> Any:
        return await d.child(child, key="k", timeout=5)

    assert store.start(work, id="r").unwrap() == ["k", 5]


def test_decorated_inline_partial_and_method_are_all_named_after_the_function(store: everstep.Store, d: Driver) -> None:
    class Tool:
        def search(self, q: str) -> str:
            return q.upper()

        async def asearch(self, q: str) -> str:
            return q.upper()

    method = Tool().asearch if d.is_async else Tool().search

    @d.workflow
    async def work() -> list[Any]:
        run = d.run
        return [
            await run.step(d.plain(double), 2),
            await run.step(functools.partial(d.plain(double)), 3),
            await run.step(functools.partial(d.plain(double), 4)),
            await run.step(method, "x"),
        ]

    assert store.start(work, id="r").unwrap() == [4, 6, 8, "X"]
    assert addresses(store, "r") == ["double#0", "double#1", "double#2", "search#0" if not d.is_async else "asearch#0"]


def test_a_function_without_a_name_needs_one(store: everstep.Store, d: Driver) -> None:
    async def body(run: Any) -> Any:
        with pytest.raises(InvalidArgument, match="no usable name"):
            await run.step(lambda: 1)
        return await run.step("one", lambda: 1)

    assert d.loop(store, "r", body) == 1


def test_what_is_no_function_is_refused(store: everstep.Store) -> None:
    with store.run("r") as run:
        with pytest.raises(InvalidArgument, match="must be a function, got 5"):
            run.step("a", 5)
        with pytest.raises(InvalidArgument):
            run.step("a")
        with pytest.raises(InvalidArgument):
            everstep.step(5)  # type: ignore[call-overload]


def test_a_decorated_step_outside_of_a_run_is_simply_called(d: Driver) -> None:
    @everstep.step(retry=everstep.Retry(attempts=5))
    def add(a: int, b: int = 1) -> int:
        return a + b

    assert add(1, b=2) == 3
    with pytest.raises(RunClosed):
        everstep.current()


def test_a_workflow_outside_of_a_run_is_simply_called(store: everstep.Store) -> None:
    @everstep.workflow
    def add(a: int, b: int) -> int:
        return a + b

    assert add(1, 2) == 3
    assert store.runs() == []


def test_options_of_the_decorator_are_used_and_those_of_the_call_go_before_them(store: everstep.Store, d: Driver) -> None:
    tries: list[str] = []

    @d.step(name="flaky", retry=everstep.Retry(attempts=3, delay=0))
    def work(name: str, needed: int) -> str:
        tries.append(name)
        if tries.count(name) < needed:
            raise ValueError(name)
        return name

    async def body(run: Any) -> None:
        assert await work("a", 3) == "a"
        with pytest.raises(ValueError, match="b"):
            await run.step(work.raw, "b", 2, retry=everstep.Retry(attempts=1))

    d.loop(store, "r", body)
    assert tries == ["a", "a", "a", "b"]
    assert addresses(store, "r") == ["flaky#0"] * 3 + ["flaky#1"]


@pytest.mark.parametrize(
    "bad", [{"retry": 0}, {"retry": "3"}, {"retry": True}, {"timeout": 0}, {"timeout": -1}, {"timeout": "5"}, {"name": "a/b"}]
)
def test_options_that_make_no_sense_are_refused_when_the_step_is_made(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        everstep.step(**bad)(double)


def test_parameters_that_are_left_out_do_not_count_as_input(store: everstep.Store, d: Driver) -> None:
    ran: list[int] = []

    @d.step(ignore=("client",))
    def fetch(client: Any, x: int) -> int:
        ran.append(x)
        return x

    @d.workflow
    async def work() -> int:
        got = await fetch(object(), 5)
        if len(ran) == 1 and not again:
            raise Crash
        return got

    again: list[bool] = []
    with pytest.raises(Crash):
        store.start(work, id="r")
    again.append(True)
    assert store.resume("r").unwrap() == 5
    assert ran == [5]


def test_a_changed_input_is_named_with_both_values_and_three_remedies(store: everstep.Store, d: Driver) -> None:
    given = ["old"]

    @d.workflow
    async def work() -> str:
        got = await d.run.step("ask", d.plain(str.upper), given[0])
        if given[0] == "old":
            raise Crash
        return got

    with pytest.raises(Crash):
        store.start(work, id="r")
    given[0] = "new"
    out = store.resume("r")
    assert out.status == "failed"
    error = out.error
    assert isinstance(error, NonDeterminism)
    assert (error.run, error.address) == ("r", "ask#0")
    assert "'old'" in error.recorded
    assert "'new'" in error.now
    assert "from_step='ask#0'" in error.remedy
    assert "rename" in error.remedy.lower()
    assert "accept=['ask#0']" in error.remedy
    assert store.resume("r", accept=["ask#0"]).unwrap() == "OLD"


def test_a_changed_keyword_argument_is_a_changed_input(store: everstep.Store, d: Driver) -> None:
    given = {"n": 1}

    async def body(run: Any) -> Any:
        await run.step("f", d.plain(lambda n: n), n=given["n"])
        raise Crash

    with pytest.raises(Crash):
        d.loop(store, "r", body)
    given["n"] = 2
    with pytest.raises(NonDeterminism, match=r"n=1.*n=2"):
        d.loop(store, "r", body)


def test_an_argument_that_cannot_be_stored_is_named_before_anything_runs(store: everstep.Store, d: Driver) -> None:
    ran: list[Any] = []

    async def body(run: Any) -> None:
        with pytest.raises(Unstorable, match=r"use#0: args.*\[1\]") as found:
            await run.step("use", d.plain(ran.append), 1, object())
        assert "key=" in found.value.remedy

    d.loop(store, "r", body)
    assert ran == []
    assert store.steps("r") == []


def test_a_workflow_whose_input_cannot_be_stored_is_refused_and_leaves_no_run(store: everstep.Store, d: Driver) -> None:
    @d.workflow
    async def work(x: Any) -> None: ...

    with pytest.raises(Unstorable):
        store.start(work, object(), id="r")
    assert store.runs() == []


def test_the_key_of_a_step_stays_the_same_for_all_its_attempts_and_differs_between_steps(store: everstep.Store, d: Driver) -> None:
    seen: list[tuple[str, int, bool]] = []

    def pay() -> None:
        run = everstep.current()
        seen.append((run.step_key, run.step_attempt, run.step_again))
        if len(seen) < 3:
            raise ValueError("no")
        if len(seen) == 3:
            raise Crash

    @d.workflow
    async def work() -> None:
        await d.run.step("pay", d.plain(pay), retry=everstep.Retry(attempts=9, delay=0))
        await d.run.step("pay", d.plain(pay))

    with pytest.raises(Crash):
        store.start(work, id="r")
    store.resume("r").unwrap()
    first, other = [s for s in seen if s[0] == seen[0][0]], [s for s in seen if s[0] != seen[0][0]]
    assert [(attempt, again) for _, attempt, again in first] == [(1, False), (2, False), (3, False), (3, True)]
    assert [(attempt, again) for _, attempt, again in other] == [(1, False)]


def test_outside_of_a_step_there_is_no_step_key(store: everstep.Store, d: Driver) -> None:
    async def body(run: Any) -> None:
        for name in ("step_key", "step_attempt", "step_again"):
            with pytest.raises(RunClosed, match="not inside a step"):
                getattr(run, name)
        with pytest.raises(RunClosed):
            run.usage(tokens=1)

    d.loop(store, "r", body)


def test_a_step_that_was_running_when_the_program_broke_off_is_told_that_it_may_have_run(store: everstep.Store, d: Driver) -> None:
    again: dict[str, list[bool]] = {"a": [], "b": []}

    def work(name: str) -> None:
        again[name].append(everstep.current().step_again)
        if name == "a" and len(again["a"]) == 1:
            raise Crash

    async def body(run: Any) -> None:
        await run.step("w", d.plain(work), "a")
        await run.step("w", d.plain(work), "b")

    with pytest.raises(Crash):
        d.loop(store, "r", body)
    d.loop(store, "r", body)
    assert again == {"a": [False, True], "b": [False]}


def test_a_step_that_runs_at_most_once_asks_a_person_after_the_program_broke_off_in_it(store: everstep.Store, d: Driver) -> None:
    ran: list[int] = []

    @d.step(at_most_once=True)
    def pay() -> str:
        ran.append(everstep.current().step_attempt)
        if len(ran) < 3:
            raise Crash
        return "paid"

    @d.workflow
    async def work() -> str | None:
        return await pay()

    with pytest.raises(Crash):
        store.start(work, id="r")
    out = store.resume("r")
    assert (out.status, ran) == ("waiting", [1])
    assert out.gates[0].choices == ["run", "skip", "fail"]
    store.answer("r", "pay", "run")
    with pytest.raises(Crash):
        store.resume("r")
    assert store.resume("r").status == "waiting"
    store.answer("r", "pay", "run")
    assert store.resume("r").unwrap() == "paid"
    assert ran == [1, 2, 3]


@pytest.mark.parametrize("answer", ["skip", "fail"])
def test_a_person_may_skip_or_fail_a_step_that_runs_at_most_once(store: everstep.Store, d: Driver, answer: str) -> None:
    ran: list[int] = []

    @d.step(at_most_once=True)
    def pay() -> str:
        ran.append(1)
        raise Crash

    @d.workflow
    async def work() -> str | None:
        return await pay()

    with pytest.raises(Crash):
        store.start(work, id="r")
    assert store.resume("r").status == "waiting"
    store.answer("r", "pay", answer)
    out = store.resume("r")
    assert ran == [1]
    if answer == "skip":
        assert (out.status, out.result) == ("succeeded", None)
    else:
        assert out.status == "failed"
        assert isinstance(out.error, everstep.StepFailed)


def test_a_step_that_runs_at_most_once_and_ends_well_runs_once_and_asks_nobody(store: everstep.Store, d: Driver) -> None:
    ran: list[int] = []

    @d.step(at_most_once=True)
    def pay(n: int) -> int:
        ran.append(n)
        return n

    @d.workflow
    async def work() -> int:
        total = await pay(1) + await pay(2)
        if not done:
            raise Crash
        return total

    done: list[bool] = []
    with pytest.raises(Crash):
        store.start(work, id="r")
    done.append(True)
    assert store.resume("r").unwrap() == 3
    assert ran == [1, 2]
    assert store.gates("r") == []


def test_now_random_and_uuid_are_drawn_once(store: everstep.Store, d: Driver) -> None:
    seen: list[list[Any]] = []

    @d.workflow
    async def work() -> None:
        run = d.run
        drawn = [run.now(), run.random(), run.uuid(), run.now(), run.random(), run.uuid()]
        await run.step("between", d.plain(double), 1)
        drawn += [run.now(), run.random(), run.uuid()]
        seen.append(drawn)
        await run.step("last", d.plain(double), 1)
        if len(seen) == 1:
            raise Crash

    with pytest.raises(Crash):
        store.start(work, id="r")
    store.resume("r").unwrap()
    assert seen[0] == seen[1]
    assert seen[0][0].tzinfo is not None
    assert isinstance(seen[0][2], uuid.UUID)
    assert len({seen[0][1], seen[0][4], seen[0][7]}) == 3


def test_values_drawn_inside_a_step_belong_to_it(store: everstep.Store, d: Driver) -> None:
    def pick() -> float:
        return everstep.current().random()

    @d.workflow
    async def work() -> list[float]:
        return [await d.run.step("pick", d.plain(pick)), d.run.random()]

    first, second = store.start(work, id="r").unwrap()
    assert first != second
    assert [s.address for s in store.steps("r")] == ["pick#0/random#0", "pick#0", "random#0"]
