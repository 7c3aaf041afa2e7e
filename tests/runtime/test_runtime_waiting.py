"""Gates, timers, and what people do to a run from outside."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from runtime_driver import Crash, Driver, addresses, kinds, names

import everstep
from everstep.errors import AlreadyAnswered, BadAnswer, GateTimeout, IllegalTransition, Interrupted, InvalidArgument, NotFound, Waiting
from everstep.testing.clock import FakeClock


def asking(d: Driver, seen: list[Any] | None = None, **options: Any) -> Any:
    @d.workflow(name="asking")
    async def work() -> Any:
        before = await d.run.step("before", d.plain(lambda: 1))
        if seen is not None:
            seen.append(before)
        return await d.gate("ok", "Go on?", **options)

    return work


def test_a_gate_is_answered_after_the_process_ended(places: Any, d: Driver) -> None:
    one, keep = places.open(), places.open()
    flow = asking(d, choices=["yes", "no"])
    out = one.start(flow, id="r")
    assert (out.status, out.result, [g.address for g in out.gates]) == ("waiting", None, ["ok#0"])
    assert out.gates[0].ask == "Go on?"
    assert out.gates[0].choices == ["yes", "no"]
    one.close()
    two = places.open()
    assert not two.get("r").open
    two.answer("r", "ok", "yes", by="ann")
    assert two.due() == ["r"]
    (woken,) = two.wake()
    assert woken.unwrap() == "yes"
    (gate,) = two.gates("r")
    assert (gate.answered, gate.answer, gate.by, gate.name, gate.run) == (True, "yes", "ann", "ok", "r")
    assert keep.verify("full").ok


def test_the_first_answer_wins_before_and_after_it_was_read(store: everstep.Store, d: Driver) -> None:
    flow = asking(d)
    store.start(flow, id="r")
    store.answer("r", "ok", 1)
    with pytest.raises(AlreadyAnswered):
        store.answer("r", "ok", 2)
    assert store.resume("r").unwrap() == 1
    with pytest.raises(AlreadyAnswered):
        store.answer("r", "ok", 3)


def test_a_wrong_answer_is_refused_with_the_fault_and_the_gate_stays_open(store: everstep.Store, d: Driver) -> None:
    flow = asking(d, schema={"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]})
    store.start(flow, id="r")
    for wrong in ("yes", {}, {"n": 0}, {"n": True}, None):
        with pytest.raises(BadAnswer, match="ok#0"):
            store.answer("r", "ok", wrong)
    assert store.due() == []
    store.answer("r", "ok", {"n": 2})
    assert store.resume("r").unwrap() == {"n": 2}


def test_an_answer_before_the_wait_is_not_lost(store: everstep.Store, d: Driver) -> None:
    def early() -> None:
        store.answer("r", "ok", "early")

    @d.workflow
    async def work() -> Any:
        await d.run.step("early", d.plain(early))
        return await d.gate("ok", choices=["early"])

    assert store.start(work, id="r").unwrap() == "early"


def test_an_answer_before_the_wait_that_does_not_fit_is_thrown_away_and_asked_for_again(store: everstep.Store, d: Driver) -> None:
    def early() -> None:
        store.answer("r", "ok", "rubbish")

    @d.workflow
    async def work() -> Any:
        await d.run.step("early", d.plain(early))
        return await d.gate("ok", choices=["yes"])

    assert store.start(work, id="r").status == "waiting"
    assert "answer_refused" in names(store, "r")
    assert store.due() == []
    store.answer("r", "ok", "yes")
    assert store.resume("r").unwrap() == "yes"


def test_after_a_timeout_the_default_is_the_answer(store: everstep.Store, d: Driver) -> None:
    flow = asking(d, timeout=60, default="no", choices=["yes", "no"])
    with FakeClock() as time:
        assert store.start(flow, id="r").status == "waiting"
        assert store.due() == []
        time.advance(59)
        assert store.wake() == []
        time.advance(2)
        assert store.due() == ["r"]
        (out,) = store.wake()
        assert out.unwrap() == "no"
        assert store.gates("r")[0].by == "timeout"
        with pytest.raises(AlreadyAnswered):
            store.answer("r", "ok", "yes")


def test_the_deadline_of_a_gate_stands_over_resumes(store: everstep.Store, d: Driver) -> None:
    flow = asking(d, timeout=60, default="no")
    with FakeClock() as time:
        store.start(flow, id="r")
        for _ in range(3):
            time.advance(15)
            assert store.resume("r").status == "waiting"
        time.advance(16)
        assert store.resume("r").unwrap() == "no"


def test_an_answer_in_time_goes_before_the_default_even_if_it_is_read_late(store: everstep.Store, d: Driver) -> None:
    flow = asking(d, timeout=60, default="no")
    with FakeClock() as time:
        store.start(flow, id="r")
        store.answer("r", "ok", "yes")
        time.advance(120)
        (out,) = store.wake()
        assert out.unwrap() == "yes"
        assert store.due() == []


def test_without_a_default_a_timeout_is_an_error_that_the_program_may_handle(store: everstep.Store, d: Driver) -> None:
    @d.workflow
    async def work() -> str:
        try:
            return await d.gate("ok", timeout=60)
        except GateTimeout:
            return await d.gate("really")

    with FakeClock() as time:
        store.start(work, id="r")
        time.advance(61)
        (out,) = store.wake()
        assert [g.address for g in out.gates] == ["really#0"]
        store.answer("r", "really", "later")
        assert store.resume("r").unwrap() == "later"


def test_a_default_of_none_is_a_default(store: everstep.Store, d: Driver) -> None:
    flow = asking(d, timeout=1, default=None)
    with FakeClock() as time:
        store.start(flow, id="r")
        time.advance(2)
        assert store.resume("r").unwrap() is None


def test_a_condition_decides_once_and_for_all(store: everstep.Store, d: Driver) -> None:
    asked: list[int] = []

    def good() -> bool:
        asked.append(1)
        return len(asked) == 1

    @d.workflow
    async def work() -> list[Any]:
        got = [
            await d.gate("quality", condition=good),
            await d.gate("pick", condition=True, on_pass="left", on_fail="right"),
            await d.gate("pick", condition=False, on_pass="left", on_fail=lambda: "called"),
            await d.gate("pick", condition=0),
        ]
        if not again:
            raise Crash
        return got

    again: list[bool] = []
    with pytest.raises(Crash):
        store.start(work, id="r")
    again.append(True)
    assert store.resume("r").unwrap() == [True, "left", "called", False]
    assert asked == [1]
    assert [(g.address, g.answer, g.by) for g in store.gates("r")] == [
        ("quality#0", True, "condition"), ("pick#0", True, "condition"), ("pick#1", False, "condition"), ("pick#2", False, "condition"),
    ]  # fmt: skip


def test_an_answer_picks_what_comes_back(store: everstep.Store, d: Driver) -> None:
    @d.workflow
    async def work() -> Any:
        return await d.gate("ok", on_pass="published", on_fail="dropped")

    for run, answer, expected in (("a", "Yes", "published"), ("b", "no", "dropped"), ("c", True, "published")):
        store.start(work, id=run)
        store.answer(run, "ok", answer)
        assert store.resume(run).unwrap() == expected


def test_several_gates_of_one_name_are_answered_one_after_the_other(store: everstep.Store, d: Driver) -> None:
    @d.workflow
    async def work() -> list[Any]:
        return [await d.gate("ok", str(i)) for i in range(3)]

    store.start(work, id="r")
    for i in range(3):
        assert [g.ask for g in store.gates("r") if not g.answered] == [str(i)]
        store.answer("r", "ok", i * 10)
        out = store.resume("r")
    assert out.unwrap() == [0, 10, 20]
    assert [g.address for g in store.gates("r")] == ["ok#0", "ok#1", "ok#2"]


def test_a_run_that_waits_at_its_second_gate_is_not_due(store: everstep.Store, d: Driver) -> None:
    @d.workflow
    async def work() -> list[Any]:
        return [await d.gate("one"), await d.gate("two")]

    store.start(work, id="r")
    store.answer("r", "one", 1)
    assert [o.status for o in store.wake()] == ["waiting"]
    assert store.due() == []
    assert store.wake() == []
    with pytest.raises(AlreadyAnswered):
        store.answer("r", "one", 2)


def test_an_answer_to_a_later_gate_does_not_keep_waking_the_run(store: everstep.Store, d: Driver) -> None:
    @d.workflow
    async def work() -> list[Any]:
        return [await d.gate("one"), await d.gate("two")]

    store.start(work, id="r")
    with pytest.raises(NotFound, match="it waits at one#0"):
        store.answer("r", "two", 2)
    store.answer("r", "two", 2, early=True)
    assert [o.status for o in store.wake()] == ["waiting"]
    assert store.due() == []
    store.answer("r", "one", 1)
    (out,) = store.wake()
    assert out.unwrap() == [1, 2]


def test_a_run_that_failed_after_its_gate_is_not_woken_by_the_old_answer(store: everstep.Store, d: Driver) -> None:
    @d.workflow
    async def work() -> None:
        await d.gate("ok")
        raise ValueError("broken")

    store.start(work, id="r")
    store.answer("r", "ok", 1)
    assert store.resume("r").status == "failed"
    assert store.due() == []


def test_a_gate_inside_a_step_is_asked_at_its_own_address(store: everstep.Store, d: Driver) -> None:
    ran: list[str] = []

    async def outer() -> str:
        ran.append("outer")
        await d.run.step("inner", d.plain(lambda: ran.append("inner")))
        return await d.gate("ok")

    @d.workflow
    async def work() -> str:
        return await d.run.step("outer", d.plain(outer))

    assert store.start(work, id="r").gates[0].address == "outer#0/ok#0"
    store.answer("r", "outer#0/ok#0", "yes")
    assert store.resume("r").unwrap() == "yes"
    assert ran == ["outer", "inner", "outer"]


def test_two_open_gates_of_one_name_in_different_places_must_be_told_apart(store: everstep.Store) -> None:
    async def ask() -> Any:
        return await everstep.gate("ok")

    @everstep.workflow
    async def work() -> list[Any]:
        run = everstep.current()
        return list(await asyncio.gather(run.step("a", ask), run.step("b", ask)))

    assert len(store.start(work, id="r").gates) == 2
    with pytest.raises(InvalidArgument, match="2 open gates 'ok'"):
        store.answer("r", "ok", 1)
    store.answer("r", "a#0/ok#0", 1)
    store.answer("r", "b#0/ok#0", 2)
    assert store.resume("r").unwrap() == [1, 2]


def test_a_gate_in_a_task_group_lets_the_run_wait(store: everstep.Store) -> None:
    @everstep.workflow
    async def work() -> list[Any]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(everstep.gate(name)) for name in ("a", "b")]
        return [task.result() for task in tasks]

    out = store.start(work, id="r")
    assert out.status == "waiting"
    store.answer("r", "a", 1)
    store.answer("r", "b", 2)
    out = store.resume("r")
    assert out.unwrap() == [1, 2]


def test_a_plain_function_that_is_a_step_of_an_async_workflow_may_ask_and_sleep(store: everstep.Store) -> None:
    def ask() -> Any:
        everstep.sleep(0)
        return "it is " + everstep.gate("ok")

    @everstep.workflow
    async def work() -> Any:
        return await everstep.current().step("ask", ask)

    assert store.start(work, id="r").status == "waiting"
    store.answer("r", "ok", "fine")
    assert store.resume("r").unwrap() == "it is fine"
    assert "timer_set" in names(store, "r")


def test_a_loop_of_ones_own_leaves_its_block_at_a_gate_and_goes_on_later(store: everstep.Store, d: Driver) -> None:
    ran: list[str] = []

    async def body(run: Any) -> Any:
        await run.step("a", d.plain(lambda: ran.append("a")))
        return await run.gate("ok")

    with pytest.raises(Waiting):
        d.loop(store, "r", body)
    assert store.get("r").status == "waiting"
    store.answer("r", "ok", "yes")
    assert store.wake() == []
    assert d.loop(store, "r", body) == "yes"
    assert ran == ["a"]


@pytest.mark.parametrize(
    "options", [{"timeout": 0}, {"timeout": "soon"}, {"choices": ["a"], "default": "b"}, {"schema": {"$dynamicRef": "x"}}], ids=str
)
def test_a_gate_that_makes_no_sense_is_refused(store: everstep.Store, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument), store.run("r") as run:
        run.gate("ok", **options)
    assert store.gates("r") == []


def test_answering_what_is_not_there_is_refused(store: everstep.Store, d: Driver) -> None:
    store.start(asking(d, condition=True), id="r")
    with pytest.raises(NotFound):
        store.answer("nobody", "ok", 1)
    with pytest.raises(NotFound):
        store.answer("r", "other", 1)
    with pytest.raises(InvalidArgument):
        store.answer("r", "", 1)


# timers


def test_a_workflow_that_sleeps_lets_go_of_its_process_and_is_woken_in_time(store: everstep.Store, d: Driver) -> None:
    @d.workflow
    async def work() -> str:
        await d.run.step("a", d.plain(lambda: 1))
        await d.sleep(3600)
        return await d.run.step("b", d.plain(lambda: "woke"))

    with FakeClock() as time:
        out = store.start(work, id="r")
        assert out.status == "waiting"
        assert "sleep#0" in (out.reason or "")
        assert store.wake() == []
        time.advance(1800)
        assert store.resume("r").status == "waiting"
        time.advance(1799)
        assert store.due() == []
        time.advance(1)
        assert store.due() == ["r"]
        (out,) = store.wake()
        assert out.unwrap() == "woke"
        assert store.due() == []


def test_a_deadline_stands_although_the_clock_moves_and_the_code_changes(store: everstep.Store, d: Driver) -> None:
    seconds = [100.0]

    @d.workflow
    async def work() -> None:
        await d.sleep(seconds[0])

    with FakeClock() as time:
        store.start(work, id="r")
        seconds[0] = 100_000.0
        time.advance(101)
        assert store.resume("r").status == "succeeded"


def test_a_sleep_until_a_moment_and_one_that_is_over_already(store: everstep.Store, d: Driver) -> None:
    @d.workflow
    async def work(until: datetime) -> str:
        await d.sleep(0)
        await d.sleep(until=until)
        return "up"

    with FakeClock(1_700_000_000) as time:
        moment = datetime.fromtimestamp(1_700_000_000, UTC) + timedelta(hours=1)
        assert store.start(work, moment, id="r").status == "waiting"
        time.advance(3601)
        assert store.wake()[0].unwrap() == "up"
        assert store.start(work, moment, id="late").unwrap() == "up"


def test_a_short_sleep_is_waited_for_and_not_again_on_replay(store: everstep.Store, d: Driver) -> None:
    seen: list[int] = []

    @d.workflow
    async def work() -> None:
        await d.sleep(0.01)
        seen.append(1)
        if len(seen) == 1:
            raise Crash

    with pytest.raises(Crash):
        store.start(work, id="r")
    assert store.resume("r").status == "succeeded"
    assert [n for n in names(store, "r") if n == "timer_set"] == ["timer_set"]


@pytest.mark.parametrize("given", [{}, {"seconds": -1}, {"seconds": "1"}, {"seconds": 1, "until": 5.0}, {"seconds": float("nan")}], ids=str)
def test_a_sleep_that_makes_no_sense_is_refused(store: everstep.Store, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument), store.run("r") as run:
        run.sleep(given.get("seconds"), until=given.get("until"))


# operators


def test_a_pause_stops_at_the_end_of_the_running_step_with_a_checkpoint(store: everstep.Store, d: Driver) -> None:
    ran: list[str] = []

    def first() -> str:
        store.pause("r", "lunch")
        ran.append("first")
        return "kept"

    @d.workflow
    async def work() -> list[str]:
        return [await d.run.step("first", d.plain(first)), await d.run.step("second", d.plain(lambda: "b"))]

    out = store.start(work, id="r")
    assert (out.status, out.reason) == ("waiting", "pause: lunch")
    assert addresses(store, "r") == ["first#0"]
    assert kinds(store, "r") == [(1, "interrupt")]
    assert store.wake() == []
    assert store.resume("r").unwrap() == ["kept", "b"]
    assert ran == ["first"]


def test_a_paused_run_is_not_woken_by_an_answer_but_by_resuming_it(store: everstep.Store, d: Driver) -> None:
    flow = asking(d)
    store.start(flow, id="r")
    store.pause("r")
    store.answer("r", "ok", "yes")
    assert store.due() == []
    assert store.wake() == []
    assert store.resume("r").unwrap() == "yes"


def test_a_pause_of_a_run_that_nobody_drives_is_said_at_once(store: everstep.Store, d: Driver) -> None:
    @d.workflow
    async def work() -> str:
        if not again:
            raise Crash
        return "done"

    again: list[bool] = []
    with pytest.raises(Crash):
        store.start(work, id="r")
    store.pause("r", "hold on")
    assert store.get("r").status == "waiting"
    again.append(True)
    assert store.resume("r").unwrap() == "done"


def test_a_cancel_stops_for_good_at_the_end_of_the_running_step(store: everstep.Store, d: Driver) -> None:
    ran: list[str] = []

    def first() -> None:
        ran.append("first")
        store.cancel("r", "wrong input")

    @d.workflow
    async def work() -> None:
        await d.run.step("first", d.plain(first))
        await d.run.step("second", d.plain(lambda: ran.append("second")))

    out = store.start(work, id="r")
    assert (out.status, out.reason, ran) == ("cancelled", "cancel: wrong input", ["first"])
    assert kinds(store, "r") == [(1, "interrupt")]


def test_a_cancel_that_comes_in_the_last_step_is_obeyed_when_the_run_is_left(store: everstep.Store, d: Driver) -> None:
    ran: list[str] = []

    def first() -> None:
        ran.append("first")
        store.cancel("r", "stop")
        raise Crash

    @d.workflow
    async def work() -> None:
        await d.run.step("first", d.plain(first))

    with pytest.raises(Crash):
        store.start(work, id="r")
    out = store.wait("r", timeout=0)
    assert (out.status, ran) == ("cancelled", ["first"])
    assert "stop" in (out.reason or "")
    with pytest.raises(IllegalTransition):
        store.resume("r")
    assert not store.get("r").open


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_a_loop_hears_an_operator_whatever_its_durability(store: everstep.Store, d: Driver, durability: Any) -> None:
    done = threading.Event()

    def work(n: int) -> int:
        if n == 3:
            store.pause("r")
        if n == 200:
            done.set()
        return n

    async def body(run: Any) -> None:
        for n in range(1, 201):
            await run.step("w", d.plain(work), n)

    with pytest.raises(Interrupted, match="pause"):
        d.loop(store, "r", body, durability=durability)
    assert not done.is_set()
    assert store.get("r").status == "waiting"


def test_a_step_that_is_to_be_skipped_gives_the_operators_result(store: everstep.Store, d: Driver) -> None:
    ran: list[str] = []

    def broken() -> str:
        ran.append("broken")
        raise ValueError("always")

    @d.workflow
    async def work() -> Any:
        return [await d.run.step("good", d.plain(lambda: 1)), await d.run.step("broken", d.plain(broken))]

    assert store.start(work, id="r").status == "failed"
    with pytest.raises(InvalidArgument, match="already has a result"):
        store.skip("r", "good")
    store.skip("r", "broken", {"by": "hand"})
    with pytest.raises(InvalidArgument, match="already"):
        store.skip("r", "broken#0")
    assert store.resume("r").unwrap() == [1, {"by": "hand"}]
    assert ran == ["broken"]
    assert store.steps("r")[-1].skipped
    assert "step_skipped" in names(store, "r")
    assert store.resume("r").unwrap() == [1, {"by": "hand"}]


def test_a_step_can_be_skipped_before_it_was_reached(store: everstep.Store, d: Driver) -> None:
    ran: list[str] = []

    @d.workflow
    async def work() -> Any:
        await d.gate("ok")
        return await d.run.step("costly", d.plain(lambda: ran.append("costly")))

    store.start(work, id="r")
    store.skip("r", "costly", "nothing")
    store.answer("r", "ok", 1)
    assert store.resume("r").unwrap() == "nothing"
    assert ran == []


def test_a_handled_failure_is_tried_again_when_an_operator_says_so(store: everstep.Store, d: Driver) -> None:
    ran: list[int] = []

    def flaky() -> str:
        ran.append(1)
        if len(ran) == 1:
            raise ValueError("no")
        return "good"

    @d.workflow
    async def work() -> str:
        try:
            got = await d.run.step("flaky", d.plain(flaky))
        except ValueError:
            got = "bad"
        await d.gate("ok")
        return got

    store.start(work, id="r")
    with pytest.raises(NotFound):
        store.retry("r", "other")
    store.retry("r", "flaky")
    store.answer("r", "ok", 1)
    assert store.resume("r").unwrap() == "good"
    assert ran == [1, 1]
    with pytest.raises(InvalidArgument, match="succeeded"):
        store.retry("r", "flaky")


def test_wake_takes_only_as_many_as_it_is_told(store: everstep.Store, d: Driver) -> None:
    flow = asking(d)
    for run in ("a", "b", "c"):
        store.start(flow, id=run)
        store.answer(run, "ok", run)
    assert len(store.wake(limit=2)) == 2
    assert len(store.wake()) == 1
    assert {store.get(run).status for run in ("a", "b", "c")} == {"succeeded"}


def test_a_failed_run_with_a_retry_is_resumed_by_wake_and_ends_as_a_dead_letter(store: everstep.Store, d: Driver) -> None:
    ran: list[str] = []

    def fail() -> None:
        ran.append("fail")
        raise ValueError("always")

    @d.workflow(name="patient", retry=everstep.Retry(attempts=3, delay=10, backoff="linear", jitter=0))
    async def work() -> None:
        await d.run.step("good", d.plain(lambda: ran.append("good")))
        await d.run.step("fail", d.plain(fail))

    with FakeClock() as time:
        assert store.start(work, id="r").status == "failed"
        assert store.wake() == []
        time.advance(11)
        assert [o.status for o in store.wake()] == ["failed"]
        time.advance(11)
        assert store.wake() == []
        time.advance(10)
        assert [o.status for o in store.wake()] == ["failed"]
        assert "dead-letter" in store.get("r").tags
        time.advance(10_000)
        assert store.wake() == []
    assert ran == ["good", "fail", "fail", "fail"]
    assert [r.id for r in store.runs(tag="dead-letter")] == ["r"]
    with pytest.raises(ValueError, match="always"):
        store.resume("r").unwrap()


def test_a_failed_run_that_recovers_is_no_dead_letter(store: everstep.Store, d: Driver) -> None:
    ran: list[int] = []

    def flaky() -> str:
        ran.append(1)
        if len(ran) < 3:
            raise ValueError("not yet")
        return "good"

    @d.workflow(retry=everstep.Retry(attempts=3, delay=1, jitter=0))
    async def work() -> str:
        return await d.run.step("flaky", d.plain(flaky))

    with FakeClock() as time:
        store.start(work, id="r")
        for _ in range(2):
            time.advance(5)
            (out,) = store.wake()
        assert out.unwrap() == "good"
        assert store.get("r").tags == ()
        assert store.due() == []


def test_a_run_that_failed_without_a_retry_is_never_due(store: everstep.Store, d: Driver) -> None:
    @d.workflow
    async def work() -> None:
        raise ValueError

    with FakeClock() as time:
        store.start(work, id="r")
        time.advance(1e6)
        assert store.due() == []
