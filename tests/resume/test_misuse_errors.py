"""Small mistakes get an error of their own class, with a remedy."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import everstep
from everstep.errors import InvalidArgument, NoResult, Unstorable


@everstep.workflow(name="f6-ask")
def ask(x: Any = None) -> Any:
    return everstep.gate("ok")


def test_F6_unwrap_of_a_run_without_a_result_has_a_code(store: everstep.Store) -> None:
    waiting = store.start(ask, id="r")
    with pytest.raises(NoResult, match="run 'r' is waiting: an answer at gate 'ok#0'") as caught:
        waiting.unwrap()
    assert (caught.value.code, caught.value.run, caught.value.status) == ("E616", "r", "waiting")
    assert "store.answer('r', 'ok#0', value)" in caught.value.remedy
    store.cancel("r", "no budget")
    with pytest.raises(NoResult, match="was cancelled: cancel: no budget") as caught:
        store.wait("r").unwrap()
    assert caught.value.status == "cancelled"
    queued = store.enqueue(ask).wait(0)
    with pytest.raises(NoResult, match="is queued") as caught:
        queued.unwrap()
    assert "store.answer" not in caught.value.remedy


CALLS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda run: run.map(int, 5), "items must be an iterable, got 5"),
    (lambda run: run.map(5, [1]), "a step must be a function, got 5"),
    (lambda run: run.step(), "run.step needs a function, got nothing"),
    (lambda run: run.step("look"), "run.step needs a function, got only the name 'look'"),
    (lambda run: run.step("look", 5), "a step must be a function, got 5"),
    (lambda run: run.step(None), "a step must be a function, got None"),
]


@pytest.mark.parametrize(("call", "says"), CALLS)
def test_F6_a_step_without_a_function_is_refused(store: everstep.Store, call: Callable[[Any], Any], says: str) -> None:
    with store.run("r") as run, pytest.raises(InvalidArgument, match=says) as caught:
        call(run)
    assert "run." in caught.value.remedy

    async def main() -> None:
        async with store.run("a") as run:
            with pytest.raises(InvalidArgument, match=says):
                await call(run)

    asyncio.run(main())
    assert store.steps("r") == store.steps("a") == []


def test_F6_so_it_is_where_recording_is_off() -> None:
    with everstep.open("memory://", enabled=False) as store, store.run("r") as run:
        for call, says in CALLS:
            with pytest.raises(InvalidArgument, match=says):
                call(run)


@pytest.mark.parametrize("how", ["start", "enqueue", "again"])
def test_F6_an_argument_that_cannot_be_stored_is_called_an_argument(store: everstep.Store, how: str) -> None:
    if how == "again":
        store.start(ask, id="r")
    send = store.enqueue if how == "enqueue" else store.start
    given = object()
    with pytest.raises(Unstorable, match=r"^workflow f6-ask: args\[0\] is a") as caught:
        send(ask, given, id="r")
    assert "result of" not in str(caught.value)
    with pytest.raises(Unstorable, match=r"^workflow f6-ask: x\[1\]\['a'\] is a"):
        send(ask, x=[1, {"a": given}], id="r")
    assert len(store.runs()) == (how == "again")


def test_F6_a_result_that_cannot_be_stored_is_called_a_result(store: everstep.Store) -> None:
    @everstep.workflow(name="f6-bad")
    def bad() -> Any:
        return [object()]

    out = store.start(bad, id="r")
    assert str(out.error).startswith("the workflow's result[0] is a")
    with store.run("l") as run, pytest.raises(Unstorable, match=r"result of look#0\[0\] is a"):
        run.step("look", lambda: [object()])
