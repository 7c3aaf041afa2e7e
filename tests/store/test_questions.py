"""Questions without waiting, the inbox over all runs, and drivers that continue runs which a framework drives."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import everstep
from everstep.errors import AlreadyAnswered, BadAnswer, IllegalTransition, InvalidArgument, UnknownWorkflow
from everstep.runtime import drivers
from everstep.testing.clock import FakeClock


@pytest.fixture(autouse=True)
def _no_drivers_left() -> Iterator[None]:
    before = dict(drivers._known)
    yield
    drivers._known.clear()
    drivers._known.update(before)


@pytest.fixture
def store(places: Any) -> everstep.Store:
    made: everstep.Store = places.open()
    return made


def test_a_question_waits_for_nothing_and_its_answer_shows_at_once(store: everstep.Store) -> None:
    line = store.line("r", workflow="w")
    line.checkpoint()
    asked = line.ask("pay", "Pay 7?", choices=["yes", "no"])
    assert (asked.run, asked.address, asked.name, asked.ask, asked.choices, asked.open) == (
        "r",
        "pay#0",
        "pay",
        "Pay 7?",
        ["yes", "no"],
        True,
    )
    assert line.ask("pay", "Again?") == asked, "it is open already"
    assert store.gates("r") == [asked] == list(store.questions())
    with pytest.raises(BadAnswer):
        store.answer("r", "pay", "perhaps")
    store.answer("r", "pay", "yes", by="boss")
    (gate,) = store.gates("r")
    assert (gate.answered, gate.answer, gate.by, gate.open) == (True, "yes", "boss", False)
    assert list(store.questions()) == []
    with pytest.raises(AlreadyAnswered):
        store.answer("r", "pay", "no")
    assert store.due() == ["r"]
    assert line.answers() == [gate]
    assert store.due() == [], "the answer is recorded, and wakes up nobody any more"
    assert line.answers() == store.gates("r") == [gate]
    with pytest.raises(AlreadyAnswered):
        store.answer("r", "pay", "no")
    assert line.ask("pay").address == "pay#1", "another question of that name"
    assert store.get("r").status == "waiting"
    assert store.verify("full").ok


def test_a_question_creates_its_run_and_is_no_conflict(places: Any) -> None:
    one, other = places.open().line("r"), places.open().line("r")
    one.ask("a")
    other.ask("b")
    one.state["n"] = 1
    one.checkpoint()
    other.ask("c")
    assert [gate.name for gate in places.open().gates("r")] == ["a", "b", "c"]


def test_two_writers_ask_the_same_question_once(places: Any) -> None:
    one, other = places.open().line("r"), places.open().line("r")
    one.checkpoint()
    other.refresh()
    assert one.ask("a") == other.ask("a")


def test_a_question_that_nobody_answers_in_time(store: everstep.Store) -> None:
    line = store.line("r")
    with FakeClock() as clock:
        asked = line.ask("a", timeout=60)
        assert asked.deadline is not None
        line.ask("patient")
        assert [gate.open for gate in line.answers()] == [True, True], "too early"
        assert store.due() == []
        clock.advance(61)
        assert store.due() == ["r"]
        gate, other = line.answers()
        assert (gate.answered, gate.answer, gate.by) == (True, None, "timeout")
        assert other.open, "it has no deadline"
        assert store.due() == []


def test_the_inbox_has_the_open_questions_of_all_waiting_runs(store: everstep.Store) -> None:
    for n in range(4):
        line = store.line(f"r{n}", workflow=f"w{n % 2}")
        line.ask("a")
        line.ask("b")
    store.answer("r0", "a", 1)
    store.cancel("r3")

    @everstep.workflow(name="questions.flow")
    def flow() -> Any:
        return everstep.gate("boss", "Go?")

    store.start(flow, id="w")
    everything = [("r0", "b"), ("r1", "a"), ("r1", "b"), ("r2", "a"), ("r2", "b"), ("w", "boss")]
    assert [(gate.run, gate.name) for gate in store.questions()] == everything
    assert [gate.run for gate in store.questions("w1")] == ["r1", "r1"]
    found, after = [], None
    while True:
        page = store.questions(limit=2, after=after)
        found += page
        after = page.next
        if after is None:
            break
    assert [(gate.run, gate.name) for gate in found] == everything
    with pytest.raises(InvalidArgument):
        store.questions(limit=0)


def test_wrong_questions_are_refused(store: everstep.Store) -> None:
    line = store.line("r")
    for wrong in ({"timeout": -1}, {"schema": 3.5}, {"choices": []}):
        with pytest.raises(everstep.EverstepError):
            line.ask("a", **wrong)
    with pytest.raises(InvalidArgument):
        line.ask("")
    assert not line.exists


def test_a_driver_continues_a_run_that_a_framework_drives(places: Any) -> None:
    store = places.open()
    calls: list[Any] = []

    @store.drives("framework")
    def drive(run: everstep.Run) -> str:
        line = store.line(run.id)
        answers = {gate.name: gate.answer for gate in line.answers() if gate.answered}
        calls.append(answers)
        line.state["turns"] = line.state.get("turns", 0) + 1
        line.checkpoint()
        if "second" not in answers:
            line.ask("second")
            return "not the end"
        line.attach(line.number, "result", answers)
        return "done"

    line = store.line("r", workflow="framework")
    line.checkpoint()
    line.ask("first")
    assert store.wake() == []
    store.answer("r", "first", 1)
    (outcome,) = store.wake()
    assert (outcome.status, [gate.name for gate in outcome.gates]) == ("waiting", ["second"])
    assert store.wake() == [], "the first answer wakes it up once"
    store.answer("r", "second", 2)
    outcome = store.resume("r")
    assert (outcome.status, outcome.result) == ("succeeded", "done")
    assert calls == [{"first": 1}, {"first": 1, "second": 2}]
    assert store.resume("r").result == "done"
    assert len(calls) == 2, "a run that has succeeded is not driven again"
    assert (store.load("r"), store.get("r").status) == ({"turns": 2}, "succeeded")
    line.refresh()
    line.checkpoint()
    assert store.resume("r").status == "succeeded"
    assert len(calls) == 3, "it had moved on"
    assert store.verify("full").ok


def test_an_async_driver(places: Any) -> None:
    async def main() -> None:
        async with places.open() as store:

            @everstep.drives("async framework")
            async def drive(run: Any) -> Any:
                line = await store.line(run.id)
                await line.checkpoint(state={"by": "driver"})
                answers = await line.answers()
                if not answers:
                    await line.ask("go")
                return [gate.answer for gate in answers]

            line = await store.line("r", workflow="async framework")
            await line.checkpoint()
            assert (await store.resume("r")).status == "waiting"
            assert [gate.name for gate in await store.questions()] == ["go"]
            await store.answer("r", "go", 7)
            outcome = await store.resume("r")
            assert (outcome.status, outcome.result) == ("succeeded", [7])
            assert await store.load("r") == {"by": "driver"}

    asyncio.run(main())


def test_a_driver_that_fails_makes_the_run_fail(store: everstep.Store) -> None:
    @store.drives("framework")
    def drive(run: everstep.Run) -> None:
        run.state["n"] = 1
        raise ValueError("no luck")

    line = store.line("r", workflow="framework")
    line.checkpoint()
    outcome = store.resume("r")
    assert (outcome.status, str(outcome.error)) == ("failed", "no luck")
    line.refresh()
    assert line.state == {"n": 1}
    line.checkpoint()
    assert store.get("r").status == "waiting", "the framework has continued it"


def test_a_worker_takes_a_run_only_through_its_driver(store: everstep.Store) -> None:
    for name in ("driven", "other"):
        line = store.line(name, workflow=name)
        line.ask("go")
        store.answer(name, "go", 1)
    driven: list[str] = []
    store.drives("driven", lambda run: driven.append(run.id))
    store.worker().run(until_idle=True)
    assert driven == ["driven"]
    assert (store.get("driven").status, store.get("other").status) == ("succeeded", "waiting")


def test_resume_says_what_is_missing(store: everstep.Store) -> None:
    line = store.line("r", workflow="nobody's")
    line.checkpoint()
    with pytest.raises(UnknownWorkflow, match="driver"):
        store.resume("r")
    assert not store.can_resume("r")
    store.drives("nobody's", lambda run: None)
    assert store.can_resume("r")
    with pytest.raises(InvalidArgument):
        store.resume("r", replay="validate")
    line.status("cancelled")
    with pytest.raises(IllegalTransition):
        store.resume("r")
    for wrong in (("", print), ("w", 3)):
        with pytest.raises(InvalidArgument):
            store.drives(*wrong)
