"""No record is lost, no finished step runs again and nothing wrong is returned: failed commits, races, shared keys, forged journals."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest
from ormsgpack import packb

import everstep
from everstep.backends.contract.core import Commit, Committed
from everstep.codec.values import encode
from everstep.errors import Damaged, InvalidArgument, RunExists, StepTimeout, StoreFull, Waiting
from everstep.records import Message
from everstep.runtime.engine import journal_writer, opening
from everstep.runtime.engine.journal_writer import JournalWriter
from everstep.runtime.run import attempt_of
from everstep.runtime.steps.in_thread import InThread
from everstep.store.chain import Chain


@pytest.fixture
def store() -> Iterator[everstep.Store]:
    store = everstep.open("memory://", checking=True)
    yield store
    found = store.verify("full")
    assert found.ok, str(found)


@pytest.fixture
def eager_threads() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def fill(store: everstep.Store, monkeypatch: pytest.MonkeyPatch, full: Any) -> None:
    """Let the disk be full for the commits that `full` says."""
    real = store.backend.commit

    def commit(commit: Commit) -> Committed:
        if full(commit):
            raise StoreFull("the disk is full")
        return real(commit)

    monkeypatch.setattr(store.backend, "commit", commit)


# records that were lost


@pytest.mark.usefixtures("eager_threads")
def test_no_step_of_many_threads_is_lost(store: everstep.Store) -> None:
    for turn in range(20):
        with store.run(f"r{turn}") as run:
            run.map(str, range(100))
        assert len(store.steps(f"r{turn}")) == 100


def test_a_commit_that_fails_takes_no_step_of_another_thread_with_it(store: everstep.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread has put its result up and not committed it yet, when the checkpoint of another one meets a full disk."""
    full: list[bool] = []
    fill(store, monkeypatch, lambda commit: bool(full))
    with store.run("r") as run:
        real = InThread.commit

        async def commit(ticket: Any, due: Any) -> Any:
            full.append(True)
            with pytest.raises(StoreFull):
                run.checkpoint()
            full.clear()
            return await real(ticket, due)

        monkeypatch.setattr(InThread, "commit", staticmethod(commit))
        assert run.step("a", str, 1) == "1"
    assert [step.address for step in store.steps("r")] == ["a#0"]


def test_events_and_answers_outlive_a_commit_that_failed(store: everstep.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    full: list[bool] = []
    fill(store, monkeypatch, lambda commit: bool(full))
    with store.run("r") as run:
        run.emit("said", x=1)
        full.append(True)
        with pytest.raises(StoreFull):
            run.checkpoint()
        with pytest.raises(StoreFull):
            run.gate("ok", condition=True)
        full.clear()
        run.checkpoint()
    assert [event.name for event in store.events(run="r") if event.name.startswith(("custom", "gate"))] == ["custom:said", "gate_answered"]


@pytest.mark.parametrize("url", ["memory://", "store.db"])
def test_deferred_saves_outlive_a_full_disk(url: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_writer, "MOST_KEPT", 5)
    store = everstep.open(url if "memory" in url else tmp_path / url)
    full: list[bool] = []
    fill(store, monkeypatch, lambda commit: bool(full))
    with store.run("r", durability="exit") as run:
        full.append(True)
        for n in range(8):
            run.state["n"] = n
            if n < 5:
                run.checkpoint(str(n))
            else:
                with pytest.raises(StoreFull):
                    run.checkpoint(str(n))
        full.clear()
        run.checkpoint("last")
    assert [c.note for c in store.checkpoints("r", oldest_first=True)] == ["0", "1", "2", "3", "4", "last"]
    assert store.load("r") == {"n": 7}
    assert store.verify("full").ok
    store.close()


def test_deferred_saves_of_a_task_outlive_a_full_disk(store: everstep.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    full: list[bool] = []
    fill(store, monkeypatch, lambda commit: bool(full))

    async def program() -> None:
        async with store.run("r", durability="exit") as run:
            monkeypatch.setattr(journal_writer, "MOST_KEPT", 3)
            monkeypatch.setattr(JournalWriter, "is_full", lambda self: False)
            full.append(True)
            for n in range(3):
                run.state["n"] = n
                await run.checkpoint()
            run.state["n"] = 3
            with pytest.raises(StoreFull):
                await run.checkpoint()
            full.clear()
            await run.checkpoint("last")

    asyncio.run(program())
    assert [c.note for c in store.checkpoints("r", oldest_first=True)] == [None, None, None, "last"]
    assert store.load("r") == {"n": 3}


def test_a_step_with_a_key_is_looked_for_although_what_came_before_it_is_deferred(store: everstep.Store) -> None:
    with store.run("r", durability="exit") as run:
        run.step("a", int)
        assert run.step("k", str, 1, key="k") == run.step("k", str, 2, key="k") == "1"


def test_checkpoints_inside_a_long_step_also_come_where_saves_are_deferred(store: everstep.Store) -> None:
    seen = threading.Event()
    store.on("after_checkpoint", lambda event: seen.set(), timeout=None)
    with store.run("r", durability="exit", policy=everstep.every(seconds=0.01)) as run:
        run.checkpoint("mine")
        seen.clear()
        run.step("long", lambda: seen.wait(20))
    assert store.checkpoints("r", oldest_first=True)[1].kind == "automatic"


def test_what_an_operator_said_outlives_a_commit_that_failed(store: everstep.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    @everstep.workflow(name="skipping")
    def skipping() -> Any:
        everstep.gate("go")
        return everstep.current().step("work", calls.append, 1)

    store.start(skipping, id="r")
    store.skip("r", "work", 42)
    store.answer("r", "go", 1)
    times: list[int] = []

    def first(commit: Commit) -> bool:
        if any(record.note == "work#0" for record in commit.records):
            times.append(1)
            return len(times) == 1
        return False

    fill(store, monkeypatch, first)
    with pytest.raises(StoreFull):
        store.resume("r")
    assert store.get("r").status == "running"
    assert store.resume("r").result == 42
    assert calls == []


# finished steps that ran again


def test_a_step_with_a_key_that_failed_and_then_succeeded_is_not_run_a_third_time(store: everstep.Store) -> None:
    calls: list[int] = []

    def load() -> int:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("no")
        return len(calls)

    @everstep.workflow(name="twice")
    def twice() -> Any:
        run = everstep.current()
        return [run.step("load", load, key="u"), run.step("load", load, key="u")]

    assert store.start(twice, id="r").status == "failed"
    assert store.resume("r").result == [2, 2]


def test_calls_of_one_key_at_the_same_time_run_once(store: everstep.Store) -> None:
    calls: list[int] = []

    async def load() -> int:
        calls.append(1)
        await asyncio.sleep(0)
        return len(calls)

    async def program() -> Any:
        async with store.run("r") as run:
            return await asyncio.gather(*(run.step("load", load, key="u") for _ in range(5)))

    assert asyncio.run(program()) == [1] * 5
    both = threading.Barrier(2)

    def slow() -> int:
        calls.append(2)
        return len(calls)

    with store.run("t") as run:

        def call() -> None:
            both.wait(20)
            found.append(run.step("load", slow, key="u"))

        found: list[int] = []
        threads = [threading.Thread(target=call) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert found == [2, 2]
    assert calls == [1, 2]


def test_a_call_of_a_key_goes_on_when_the_one_that_it_waited_for_failed(store: everstep.Store) -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    async def program() -> Any:
        async with store.run("r") as run:
            return await asyncio.gather(*(run.step("load", fails, key="u") for _ in range(3)), return_exceptions=True)

    assert [str(error) for error in asyncio.run(program())] == ["no"] * 3
    assert len(store.steps("r")) == 1


def test_a_retry_of_the_outer_step_keeps_the_inner_ones_that_are_finished(store: everstep.Store) -> None:
    calls: list[str] = []

    def outer() -> Any:
        run = everstep.current()
        run.step("good", calls.append, "good")
        run.step("bad", shaky)
        return "done"

    def shaky() -> None:
        calls.append("bad")
        if calls.count("bad") < 3:
            raise ConnectionError("again")

    with store.run("r") as run:
        assert run.step("outer", outer, retry=everstep.Retry(attempts=3, delay=0.001)) == "done"
        assert not [address for address in attempt_of(run).replay.entries if "/" in address]
    assert calls == ["good", "bad", "bad", "bad"]


def test_a_retry_of_the_outer_step_in_another_process_runs_the_inner_one_that_failed(store: everstep.Store) -> None:
    calls: list[str] = []

    def outer() -> Any:
        run = everstep.current()
        run.step("good", calls.append, "good")
        return run.step("bad", shaky)

    def shaky() -> str:
        calls.append("bad")
        if len(calls) < 3:
            raise ConnectionError("again")
        return "done"

    def program() -> Any:
        with store.run("r") as run:
            return run.step("outer", outer, retry=everstep.Retry(attempts=2, delay=0.001))

    async def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InThread, "nap", die)
        with pytest.raises(KeyboardInterrupt):
            program()
    assert program() == "done"
    assert calls == ["good", "bad", "bad"]


def test_a_step_beside_a_gate_ends_before_the_run_is_suspended(store: everstep.Store) -> None:
    told: list[bool] = []

    @everstep.workflow(name="leaving")
    async def leaving() -> Any:
        run = everstep.current()
        return await asyncio.gather(run.step("slow", slow), run.step("asks", asks))

    async def slow() -> None:
        told.append(everstep.current().step_again)
        await asyncio.sleep(0.1)

    async def asks() -> Any:
        return await everstep.gate("g")

    assert store.start(leaving, id="r").status == "waiting"
    store.answer("r", "asks#0/g#0", 1)
    assert store.resume("r").result == [None, 1]
    assert told == [False]


def test_an_answer_is_no_reason_to_try_a_failed_run_again(store: everstep.Store) -> None:
    calls: list[int] = []

    def fails() -> None:
        calls.append(1)
        raise ValueError("no")

    @everstep.workflow(name="failing")
    def failing() -> None:
        everstep.gate("a")
        everstep.current().step("fails", fails)
        everstep.gate("b")

    store.start(failing, id="r")
    store.answer("r", "a", 1)
    store.answer("r", "b", 1)
    assert [out.status for out in store.wake()] == ["failed"]
    assert store.due() == []
    assert store.wake() == []
    assert len(calls) == 1


def test_two_that_wake_a_run_at_once_drive_it_once(store: everstep.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def fails() -> None:
        calls.append(1)
        raise ValueError("no")

    @everstep.workflow(name="woken")
    def woken() -> None:
        everstep.gate("a")
        everstep.current().step("fails", fails)

    store.start(woken, id="r")
    store.answer("r", "a", 1)
    real, other = store.keeper.acquire, [True]

    def acquire(run: str) -> Any:
        if other:
            other.clear()
            assert store.resume("r").status == "failed"
        return real(run)

    monkeypatch.setattr(store.keeper, "acquire", acquire)
    out = store.resume("r")
    assert (out.status, str(out.error), len(calls)) == ("failed", "no", 1)


def test_a_caller_waits_for_a_child_that_somebody_else_drives(tmp_path: Any) -> None:
    @everstep.workflow(name="asked kid")
    def kid() -> Any:
        return everstep.gate("g")

    @everstep.workflow(name="waiting mother")
    def mother() -> Any:
        return kid()

    with everstep.open(tmp_path / "s.db") as store, everstep.open(tmp_path / "s.db") as other:
        store.start(mother, id="m")
        (child,) = (run.id for run in store.runs(parent="m"))
        store.answer(child, "g", 7)
        held = other.keeper.acquire(child)
        assert store.resume("m").status == "waiting"
        other.backend.release(held)
        other.keeper.released()
        assert other.resume(child).result == 7
        assert [out.result for out in store.wake()] == [7]


# wrong results


def test_an_answer_that_came_early_is_not_given_to_a_later_question_of_a_run_with_many_names(store: everstep.Store) -> None:
    store.answer(begun(store), "ok", "first")
    left: list[type] = []
    for expected in ("first", None):
        try:
            with store.run("r") as run:
                for n in range(40):
                    run.step(f"s{n}", int)
                run.emit("said")
                assert run.gate("ok") == expected
                run.checkpoint()
                raise KeyboardInterrupt
        except (KeyboardInterrupt, Waiting) as error:
            left.append(type(error))
    assert left == [KeyboardInterrupt, Waiting]
    assert [gate.address for gate in store.gates("r")] == ["ok#0", "ok#1"]


def begun(store: everstep.Store) -> str:
    with pytest.raises(KeyboardInterrupt), store.run("r"):
        raise KeyboardInterrupt
    return "r"


def test_two_that_start_an_id_at_once_with_different_inputs_do_not_both_have_it(
    store: everstep.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    @everstep.workflow(name="echo")
    def echo(value: int) -> int:
        return value

    real, other = opening.first_commit, [True]

    def first_commit(*args: Any, **kwargs: Any) -> Any:
        if other:
            other.clear()
            store.start(echo, 1, id="r")
        return real(*args, **kwargs)

    monkeypatch.setattr(opening, "first_commit", first_commit)
    with pytest.raises(RunExists):
        store.start(echo, 2, id="r")
    assert store.resume("r").result == 1


def test_children_of_different_addresses_are_different_runs(store: everstep.Store) -> None:
    calls: list[int] = []

    @everstep.workflow(name="c")
    def child(n: int) -> int:
        calls.append(n)
        return n

    @everstep.workflow(name="a b")
    def spaced(n: int) -> int:
        return n

    @everstep.workflow(name="a-b")
    def dashed(n: int) -> int:
        return n

    @everstep.workflow(name="s.0.c")
    def dotted(n: int) -> int:
        return n + 1

    @everstep.workflow(name="caller")
    def caller() -> Any:
        run = everstep.current()
        keyed, counted = run.step("s", lambda: child(1), key="0"), run.step("s", lambda: child(1))
        return [keyed, counted, spaced(1), dashed(1), dotted(1)]

    out = store.start(caller, id="r")
    assert out.unwrap() == [1, 1, 1, 1, 2]
    assert calls == [1, 1]
    assert len(store.runs(parent="r")) == 5


def test_a_run_that_merely_has_the_id_of_a_child_is_not_taken_for_it(store: everstep.Store) -> None:
    @everstep.workflow(name="kid")
    def kid(n: int) -> int:
        return n

    @everstep.workflow(name="mother")
    def mother(n: int) -> int:
        return int(kid(n))

    store.start(kid, 5, id="m.kid.0")
    assert isinstance(store.start(mother, 5, id="m").error, RunExists)


def test_a_child_that_failed_is_not_resumed_for_another_input(store: everstep.Store) -> None:
    given = [1]

    @everstep.workflow(name="failing kid")
    def kid(n: int) -> int:
        if len(given) == 1:
            raise ValueError("no")
        return n

    @everstep.workflow(name="fickle mother")
    def mother() -> int:
        return int(kid(given[-1]))

    assert store.start(mother, id="m").status == "failed"
    given.append(2)
    assert isinstance(store.resume("m").error, RunExists)


@everstep.workflow(name="saving")
def saving() -> Any:
    run = everstep.current()
    run.state["topic"] = "old"
    run.checkpoint("one")
    run.step("a", str, run.state["topic"])
    run.state["n"] = 2
    run.checkpoint("two")
    run.step("b", str, run.state["topic"])
    run.state["n"] = 3
    run.checkpoint("three")
    run.step("c", str, run.state["topic"])
    return dict(run.state)


def test_a_fork_before_a_step_saves_all_that_comes_after_it(store: everstep.Store) -> None:
    store.start(saving, id="r")
    again = store.resume("r", from_step="b#0")
    assert [c.note for c in store.checkpoints(again.run, oldest_first=True)] == ["fork of r@2", "three", None]
    once_more = store.resume(again.run, from_step="c#0")
    assert [c.note for c in store.checkpoints(once_more.run, oldest_first=True)] == [f"fork of {again.run}@2", None]


def test_forks_of_an_edited_fork_keep_the_edit_where_it_was_made(store: everstep.Store) -> None:
    store.start(saving, id="r")
    edited = store.fork("r@1", edit={"topic": "new", "long": "x" * 100_000})
    whole = store.resume(edited.id).unwrap()
    assert whole["topic"] == "new"
    before = store.resume(edited.id, from_step="b#0")
    assert before.unwrap() == whole
    assert store.resume(store.fork(f"{edited.id}@2").id).unwrap() == whole
    assert store.resume(before.run, from_step="c#0").unwrap() == whole
    store.delete("r")
    store.delete(edited.id)
    assert store.resume(before.run, from_step="c#0").unwrap() == whole


def test_publishing_a_finished_run_once_more_writes_nothing_and_runs_nothing(store: everstep.Store) -> None:
    told: list[Any] = []
    store.start(saving, id="r")
    store.on("after_step", lambda event: told.append((event.data["step"], event.replayed)), timeout=None)
    before, end = store.backend.run("r"), store.backend.feed_end()
    assert store.resume("r", replay="republish").result["n"] == 3
    assert told == [("a#0", True), ("b#0", True), ("c#0", True)]
    assert (store.backend.run("r"), store.backend.feed_end()) == (before, end)


# odd names and forged bytes


@pytest.mark.parametrize("given", [{"name": "a\ud800"}, {"name": "a", "key": "\udfff"}, {"name": "a", "key": 10**5000}])
def test_a_name_that_cannot_be_recorded_is_refused_before_the_step_runs(store: everstep.Store, given: dict[str, Any]) -> None:
    calls: list[int] = []
    with store.run("r") as run:
        with pytest.raises(InvalidArgument):
            run.step(given.pop("name"), calls.append, 1, **given)
        run.step("fine", int)
    assert calls == []
    assert [step.address for step in store.steps("r")] == ["fine#0"]


@everstep.workflow(name="forged")
def forged() -> Any:
    run = everstep.current()
    run.step("a", int)
    run.now(), run.random(), run.uuid()
    everstep.sleep(0)
    return everstep.gate("g")


STEP = ["succeeded", 1, b"", b"", 1, encode(1), None, 1, 2, 0, 0.0, "h:1", {}]
ODD = [None, -1, 2**63, 1.5, "x", b"x", [], {}, [1], True]


def odd_bodies() -> Iterator[tuple[str, str | None, Any]]:
    yield "step", "a#0", STEP[:5]
    yield "step", "a#0", {}
    for odd in ODD:
        for i in range(13):
            yield "step", "a#0", [*STEP[:i], odd, *STEP[i + 1 :]]
        for name in ("now", "uuid", "random"):
            yield "step", f"{name}#0", [*STEP[:5], encode(odd), *STEP[6:]]
        for flag in ("next", "tried", "inner"):
            yield "step", "a#0", ["failed", *STEP[1:6], {}, *STEP[7:12], {"next": 1, flag: odd}]
        for i in range(5):
            yield "gate", "g#0", [*["q", None, None, None, {}][:i], odd, *["q", None, None, None, {}][i + 1 :]]
        for i in range(3):
            yield "answer", "g#0", [*[encode(1), None, {}][:i], odd, *[encode(1), None, {}][i + 1 :]]
        yield "timer", "sleep#0", [odd]
        yield "event", None, ["interrupted", odd]
        yield "event", None, ["interrupted", encode({"steps": odd})]
        yield "status", None, odd
        for word in ("steps", "failures", "seconds", "error", "result", "until"):
            yield "status", None, {"status": "failed", word: odd}


READS: dict[str, Any] = {
    "steps": lambda store: store.steps("r"),
    "gates": lambda store: store.gates("r"),
    "events": lambda store: store.events(),
    "get": lambda store: store.get("r"),
    "can_resume": lambda store: store.can_resume("r"),
    "from_step": lambda store: store.resume("r", from_step="a#0"),
    "resume": lambda store: store.resume("r"),
}


def with_forged(kind: str, address: str | None, body: Any) -> everstep.Store:
    store = everstep.open("memory://")
    store.start(forged, id="r")
    row = store.keeper.acquire("r")
    chain = Chain(store.framer, row, row)
    chain.add(kind, packb(body), address)
    store.backend.commit(chain.commit(worker=None, since=0))
    store.keeper.released()
    return store


@pytest.mark.parametrize("read", READS)
def test_a_forged_journal_is_damaged_and_never_breaks_the_reader(read: str) -> None:
    for kind, address, body in odd_bodies():
        with with_forged(kind, address, body) as store:
            try:
                out = READS[read](store)
            except everstep.EverstepError:
                continue
        error = getattr(out, "error", None)
        assert error is None or isinstance(error, everstep.EverstepError), (kind, body, error)


@pytest.mark.parametrize("said", [1, "x", [], {}, {"by": "x"}, {"value": 1, "by": 3}])
def test_a_forged_answer_is_damaged(store: everstep.Store, said: Any) -> None:
    store.start(forged, id="r")
    row = store.backend.run("r")
    assert row is not None
    store.backend.post(Message.make(row.key, "answer:g#0", 1, 1, store.framer.wrap(encode(said))), "r")
    assert isinstance(store.resume("r").error, Damaged)


def test_a_step_that_was_given_up_records_nothing_more(store: everstep.Store) -> None:
    given_up, over = threading.Event(), threading.Event()
    trouble: list[BaseException] = []

    def slow(run: everstep.Run) -> None:
        given_up.wait(20)
        try:
            run.step("inner", int)
        except StepTimeout as error:
            trouble.append(error)
        over.set()

    with store.run("r") as run:
        with pytest.raises(StepTimeout, match="took longer"):
            run.step("slow", slow, run, key="k", timeout=0.05)
        given_up.set()
        assert over.wait(20)
        run.step("next", int)
    assert "given up" in str(trouble[0])
    assert [step.address for step in store.steps("r")] == ["slow@k", "next#0"]


def test_a_step_that_the_garbage_collector_ends_is_not_recorded_as_failed(tmp_path: Path) -> None:
    """It does so in the context of whoever it interrupts, which is not that of the step."""

    async def slow() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        async with everstep.open(tmp_path / "s.db") as opened, opened.run("r") as run:
            step = run.step("slow", slow)
            copy_context().run(step.send, None)
            step.close()

    asyncio.run(main())
    with everstep.open(tmp_path / "s.db") as store:
        assert store.steps("r") == []
        assert store.get("r").status == "succeeded"
