"""What a failure leaves behind when several steps ran at the same time, and what a changed definition means for `start` and `wake`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import everstep
from everstep.errors import DefinitionChanged, InvalidArgument
from everstep.runtime.workflow import Workflow


def test_all_steps_that_failed_together_run_again(store: everstep.Store) -> None:
    calls: list[int] = []
    broken = [True]

    @everstep.step
    async def work(i: int) -> int:
        calls.append(i)
        if broken[0] and i % 2:
            raise ValueError(i)
        return i

    @everstep.workflow
    async def together() -> list[int]:
        return list(await asyncio.gather(*(work(i) for i in range(6))))

    assert store.start(together, id="r").status == "failed"
    broken[0] = False
    calls.clear()
    assert store.resume("r").result == [0, 1, 2, 3, 4, 5]
    assert set(calls) <= {1, 3, 5, 2, 4}
    assert 0 not in calls


def test_all_items_of_a_map_that_failed_run_again(store: everstep.Store) -> None:
    calls: list[int] = []
    broken = [True]

    def work(i: int) -> int:
        calls.append(i)
        if broken[0] and i < 2:
            raise ValueError(i)
        return i

    @everstep.workflow
    def together() -> list[int]:
        return list(everstep.current().map(work, range(2), concurrency=2))

    assert store.start(together, id="r").status == "failed"
    broken[0] = False
    assert store.resume("r").result == [0, 1]


def test_a_failure_that_the_program_went_on_from_is_not_run_again(store: everstep.Store) -> None:
    calls: list[str] = []
    broken = [True]

    def flaky() -> None:
        calls.append("flaky")
        raise ValueError("no")

    @everstep.workflow
    def careful() -> str:
        run = everstep.current()
        try:
            run.step(flaky)
        except ValueError:
            run.step("instead", calls.append, "instead")
        if broken[0]:
            raise KeyError("later")
        return "done"

    assert store.start(careful, id="r").status == "failed"
    broken[0] = False
    assert store.resume("r").result == "done"
    assert calls == ["flaky", "instead"]


def flow(text: str, refuse: bool) -> Workflow:
    def body(x: int = 0) -> Any:
        return everstep.gate("ok")

    return Workflow(body, name="changing", definition=text, compatible=lambda old, begun: ["it is not the same"] if refuse else [])


def test_start_looks_at_the_definition_as_resume_does(store: everstep.Store) -> None:
    assert store.start(flow("one", False), id="r").status == "waiting"
    with pytest.raises(DefinitionChanged) as caught:
        store.start(flow("two", True), id="r")
    assert "-one" in caught.value.difference
    assert "+three" in store.start(flow("three", False), id="r").report.changed


def test_one_run_that_cannot_go_on_keeps_no_other_asleep(store: everstep.Store) -> None:
    changing = flow("one", False)
    for name in ("a", "b"):
        store.start(changing, id=name)
    Workflow(lambda: everstep.gate("ok"), name="other")
    store.start(everstep.workflow(name="plain")(lambda: everstep.gate("ok")), id="c")
    for name in ("a", "b", "c"):
        store.answer(name, "ok", 1)
    flow("two", True)
    outcomes = {outcome.run: outcome for outcome in store.wake()}
    assert outcomes["c"].result == 1
    assert isinstance(outcomes["a"].error, DefinitionChanged)
    assert isinstance(outcomes["b"].error, DefinitionChanged)


def test_an_input_that_does_not_fit_makes_no_run(store: everstep.Store) -> None:
    @everstep.workflow
    def two(a: int, b: int) -> int:
        return a + b

    with pytest.raises(InvalidArgument, match="missing a required argument"):
        store.start(two, 1, id="r")
    assert list(store.runs()) == []
