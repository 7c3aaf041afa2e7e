"""A validation compares every recorded step, shows where values differ, and cannot be taken for a success."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import everstep
from everstep.errors import InvalidArgument


@pytest.fixture
def store() -> Iterator[everstep.Store]:
    with everstep.open("memory://") as store:
        yield store
        assert store.verify("full").ok


@pytest.fixture(params=["sync", "async"])
def make(request: pytest.FixtureRequest) -> Callable[[Callable[[Callable[..., Any]], Any]], Any]:
    """Make a workflow from a generator that yields (name, function, *args) for each step: once with and once without asyncio."""

    def sync(program: Callable[..., Any]) -> Any:
        def flow() -> Any:
            run, steps = everstep.current(), program()
            try:
                asked = next(steps)
                while True:
                    try:
                        got = run.step(*asked)
                    except ValueError as error:
                        asked = steps.throw(error)
                    else:
                        asked = steps.send(got)
            except StopIteration as end:
                return end.value

        return everstep.workflow(name="validated")(flow)

    def with_asyncio(program: Callable[..., Any]) -> Any:
        async def flow() -> Any:
            run, steps = everstep.current(), program()
            try:
                asked = next(steps)
                while True:
                    try:
                        got = await run.step(*asked)
                    except ValueError as error:
                        asked = steps.throw(error)
                    else:
                        asked = steps.send(got)
            except StopIteration as end:
                return end.value

        return everstep.workflow(name="validated")(flow)

    return sync if request.param == "sync" else with_asyncio


def addresses(out: Any) -> list[str]:
    return [one.address for one in out.report.differences]


@pytest.mark.parametrize("replay", ["Validate", "validated", None, 1])
def test_a_misspelt_replay_is_refused_also_of_a_run_that_has_ended(store: everstep.Store, replay: Any) -> None:
    @everstep.workflow(name="misspelt")
    def flow() -> int:
        return 1

    store.start(flow, id="ended")
    with pytest.raises(InvalidArgument, match="replay must be one of normal, validate, republish"):
        store.resume("ended", replay=replay)


@pytest.mark.parametrize("timeout", ["x", -1, float("nan"), True])
def test_a_timeout_that_is_none_is_refused(store: everstep.Store, timeout: Any) -> None:
    store.start(everstep.workflow(lambda: 1, name="short"), id="ended")
    with pytest.raises(InvalidArgument, match=r"timeout must be (a number of )?seconds"):
        store.wait("ended", timeout)


def test_all_steps_are_compared_and_get_recorded_results(store: everstep.Store, make: Any) -> None:
    factor, seen = [1], []

    def times(x: int) -> int:
        seen.append(x)
        return x * factor[0]

    def program() -> Any:
        one = yield "a", times, 3
        two = yield "b", times, one
        three = yield "c", lambda x: x, two
        return three

    store.start(make(program), id="r").unwrap()
    row, events = store.backend.run("r"), store.events()
    factor[0], seen[:] = 5, []
    out = store.resume("r", replay="validate")
    assert seen == [3, 3]
    assert addresses(out) == ["a#0", "b#0"]
    assert [(one.recorded, one.now) for one in out.report.differences] == [("3", "15"), ("3", "15")]
    assert (out.status, out.result) == ("differs", 3)
    assert "2 differences" in (out.reason or "")
    with pytest.raises(everstep.EverstepError, match="differs"):
        out.unwrap()
    assert (store.backend.run("r"), store.events()) == (row, events)


def test_the_place_of_a_difference_is_shown_with_both_values(store: everstep.Store, make: Any) -> None:
    text, deep = ["x" * 5000 + "old" + "y" * 5000], [1]

    def program() -> Any:
        yield "text", lambda: text[0]
        yield "deep", lambda: {"rows": [{"n": n, "pad": "p" * 500} for n in range(50)], "last": {"value": deep[0]}}

    store.start(make(program), id="r").unwrap()
    text[0], deep[0] = text[0].replace("old", "new"), 2
    out = store.resume("r", replay="validate")
    long, nested = out.report.differences
    assert "xold" in long.recorded
    assert "xnew" in long.now
    assert len(long.recorded) < 300
    assert (nested.recorded, nested.now) == ("1", "2")
    assert nested.path == ("last", "value")
    assert "deep#0['last']['value']: recorded 1, now 2" in str(out.report)


def test_several_places_of_one_value_are_shown(store: everstep.Store, make: Any) -> None:
    value: list[Any] = [{"a": 1, "b": 2, "c": [1, 2, 3]}]

    def program() -> Any:
        yield "v", lambda: value[0]

    store.start(make(program), id="r").unwrap()
    value[0] = {"a": 9, "c": [1, 2, 4], "d": 5}
    (found,) = store.resume("r", replay="validate").report.differences
    said = str(found)
    for part in (
        "['a']: recorded 1, now 9",
        "['c'][2]: recorded 3, now 4",
        "['b']: recorded 2, now nothing",
        "['d']: recorded nothing, now 5",
    ):
        assert part in said


def test_only_the_type_differs(store: everstep.Store, make: Any) -> None:
    value: list[Any] = [{"n": 1}]

    def program() -> Any:
        yield "v", lambda: value[0]

    store.start(make(program), id="r").unwrap()
    value[0] = {"n": True}
    assert addresses(store.resume("r", replay="validate")) == ["v#0"]


def test_another_input_is_a_difference_and_the_step_is_not_called(store: everstep.Store, make: Any) -> None:
    given, called = [{"to": "ann", "pad": "p" * 50}], []

    def send(mail: dict[str, str]) -> str:
        called.append(mail)
        return "sent"

    after = ["same"]

    def program() -> Any:
        yield "send", send, dict(given[0])
        yield "after", lambda: after[0]

    store.start(make(program), id="r").unwrap()
    given[0]["to"], after[0], called[:] = "bob", "other", []
    out = store.resume("r", replay="validate")
    assert called == []
    assert addresses(out) == ["send#0", "after#0"]
    said = str(out.report.differences[0])
    assert "input" in said
    assert "ann" in said
    assert "bob" in said


def test_failures_are_compared_by_class_and_text(store: everstep.Store, make: Any) -> None:
    error: list[Exception | None] = [ValueError("first")]

    def fail() -> str:
        if error[0] is not None:
            raise error[0]
        return "fine"

    def program() -> Any:
        try:
            yield "fail", fail
        except ValueError as problem:
            return (yield "undo", str, str(problem))

    store.start(make(program), id="r").unwrap()
    assert store.resume("r", replay="validate").status == "succeeded"
    error[0] = ValueError("second")
    (found,) = store.resume("r", replay="validate").report.differences
    assert "first" in found.recorded
    assert "second" in found.now
    error[0] = KeyError("first")
    (found,) = store.resume("r", replay="validate").report.differences
    assert "ValueError" in found.recorded
    assert "KeyError" in found.now
    error[0] = None
    (found,) = store.resume("r", replay="validate").report.differences
    assert "'fine'" in found.now


def test_the_step_that_failed_a_run_is_compared(store: everstep.Store, make: Any) -> None:
    text = ["first"]

    def fail() -> None:
        raise RuntimeError(text[0])

    def program() -> Any:
        yield "fail", fail

    assert store.start(make(program), id="r").status == "failed"
    clean = store.resume("r", replay="validate")
    assert (clean.status, clean.report.executed, addresses(clean)) == ("failed", 1, [])
    text[0] = "second"
    assert addresses(store.resume("r", replay="validate")) == ["fail#0"]


def test_new_steps_and_steps_not_asked_for_are_told(store: everstep.Store, make: Any) -> None:
    code, called = ["old"], []

    def program() -> Any:
        yield "a", lambda: 1
        if code[0] == "old":
            yield "gone", lambda: 2
        if code[0] == "more":
            yield "extra", called.append, 1
        yield "z", lambda: 3

    store.start(make(program), id="r").unwrap()
    code[0] = "less"
    out = store.resume("r", replay="validate")
    assert (addresses(out), out.report.unused, out.status) == (["gone#0"], ["gone#0"], "differs")
    assert "not called" in str(out.report)
    code[0] = "more"
    out = store.resume("r", replay="validate")
    assert out.report.new == ["extra#0"]
    assert called == []
    assert addresses(out) == ["extra#0"]
    assert "gone#0, z#0" in str(out.report)
    assert out.status == "differs"


def test_the_end_of_an_unfinished_journal_is_no_difference(store: everstep.Store, make: Any) -> None:
    stop = [True]

    def second() -> int:
        if stop[0]:
            raise KeyboardInterrupt
        return 2

    def program() -> Any:
        yield "a", lambda: 1
        yield "b", second

    with pytest.raises(KeyboardInterrupt):
        store.start(make(program), id="r")
    out = store.resume("r", replay="validate")
    assert (out.status, addresses(out), out.report.new) == ("running", [], ["b#0"])


def test_a_workflow_that_returns_something_else_differs(store: everstep.Store, make: Any) -> None:
    factor = [1]

    def program() -> Any:
        got = yield "a", lambda: 2
        if factor[0] == 0:
            raise ValueError("zero")
        return got * factor[0]

    store.start(make(program), id="r").unwrap()
    factor[0] = 4
    (found,) = store.resume("r", replay="validate").report.differences
    assert (found.recorded, found.now) == ("2", "8")
    factor[0] = 0
    out = store.resume("r", replay="validate")
    assert "ValueError: zero" in out.report.differences[0].now
    assert out.status == "differs"


def test_steps_inside_steps_get_recorded_results(store: everstep.Store) -> None:
    base, more = [1], [False]

    @everstep.workflow(name="nested")
    def flow() -> int:
        run = everstep.current()

        def outer() -> int:
            got = int(run.step("inner", lambda: base[0]))
            if more[0]:
                run.step("new", lambda: 0)
            return got + 1

        return int(run.step("outer", outer)) + int(run.step("last", lambda: base[0]))

    store.start(flow, id="r").unwrap()
    base[0] = 7
    assert addresses(store.resume("r", replay="validate")) == ["outer#0/inner#0", "last#0"]
    more[0] = True
    out = store.resume("r", replay="validate")
    assert sorted(addresses(out)) == ["last#0", "outer#0/inner#0", "outer#0/new#0"]


def test_at_most_once_is_not_called_again(store: everstep.Store) -> None:
    called: list[int] = []

    @everstep.step(at_most_once=True)
    def pay(amount: int) -> int:
        called.append(amount)
        return amount

    @everstep.workflow(name="payer")
    def flow() -> int:
        return int(pay(5))

    store.start(flow, id="r").unwrap()
    assert store.resume("r", replay="validate").status == "succeeded"
    assert called == [5]


@pytest.mark.parametrize("ending", ["succeeded", "failed", "waiting"])
def test_children_are_compared_and_left_alone(store: everstep.Store, ending: str) -> None:
    value, called = [1], []

    @everstep.workflow(name="child")
    def child() -> int:
        run = everstep.current()
        got = int(run.step("inner", lambda: called.append(1) or value[0]))
        if ending == "failed":
            raise ValueError("no")
        if ending == "waiting":
            run.gate("ok")
            run.step("later", called.append, 2)
        return got

    @everstep.workflow(name="caller")
    def caller() -> int:
        return int(child())

    assert store.start(caller, id="r").status == ending
    rows = [(run.id, store.backend.run(run.id)) for run in store.runs()]
    events = store.events()
    clean = store.resume("r", replay="validate")
    assert (clean.status, addresses(clean)) == (ending, [])
    value[0] = 2
    out = store.resume("r", replay="validate")
    assert out.status == "differs"
    assert addresses(out)[0].endswith("inner#0")
    assert called == [1, 1, 1]
    assert ([(run.id, store.backend.run(run.id)) for run in store.runs()], store.events()) == (rows, events)


def test_async_branches_are_compared_in_recorded_order(store: everstep.Store) -> None:
    slow, factor = [0.03, 0.0, 0.015], [1]

    async def work(n: int) -> int:
        await asyncio.sleep(slow[n])
        return n * factor[0]

    @everstep.workflow(name="race")
    async def flow() -> list[int]:
        run, order = everstep.current(), []
        for one in asyncio.as_completed([run.step("work", work, n) for n in range(3)]):
            order.append(await run.step("note", lambda n: n, await one))
        return order

    assert store.start(flow, id="r").unwrap() == [1, 2, 0]
    slow[:] = [0.0, 0.03, 0.015]
    clean = store.resume("r", replay="validate")
    assert (clean.result, addresses(clean), clean.status) == ([1, 2, 0], [], "succeeded")
    factor[0] = 10
    out = store.resume("r", replay="validate")
    assert (out.result, sorted(addresses(out))) == ([1, 2, 0], ["work#1", "work#2"])


def test_a_cancelled_step_is_not_called_again(store: everstep.Store) -> None:
    called = []

    async def slow() -> None:
        called.append(1)
        await asyncio.sleep(60)

    @everstep.workflow(name="impatient")
    async def flow() -> str:
        run = everstep.current()
        try:
            async with asyncio.timeout(0.05):
                await run.step("slow", slow)
        except TimeoutError:
            return str(await run.step("instead", lambda: "instead"))
        return "never"

    assert store.start(flow, id="r").unwrap() == "instead"
    out = store.resume("r", replay="validate")
    assert (out.status, addresses(out), called) == ("succeeded", [], [1])


def test_gates_are_part_of_the_comparison(store: everstep.Store) -> None:
    ask = ["ok"]

    @everstep.workflow(name="asks")
    def flow() -> Any:
        run = everstep.current()
        run.step("a", lambda: 1)
        if ask[0]:
            return run.gate(ask[0])
        return None

    assert store.start(flow, id="r").status == "waiting"
    clean = store.resume("r", replay="validate")
    assert (clean.status, addresses(clean), clean.report.new) == ("waiting", [], [])
    ask[0] = "other"
    out = store.resume("r", replay="validate")
    assert (out.report.new, sorted(addresses(out)), out.status) == (["other#0"], ["other#0"], "differs")
    ask[0] = ""
    out = store.resume("r", replay="validate")
    assert (addresses(out), out.status) == (["ok#0"], "differs")


@dataclass
class Point:
    x: int
    y: int


def test_fields_of_objects_have_a_path(store: everstep.Store) -> None:
    everstep.register(Point)
    y = [2]

    @everstep.workflow(name="points")
    def flow() -> Any:
        return everstep.current().step("p", lambda: {"at": Point(1, y[0])})["at"].x

    store.start(flow, id="r").unwrap()
    y[0] = 3
    (found,) = store.resume("r", replay="validate").report.differences
    assert (found.recorded, found.now) == ("2", "3")
