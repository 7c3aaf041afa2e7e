"""Results and errors: what comes back from a step, live and replayed."""

import asyncio
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import pathlib
import uuid
from collections import Counter, OrderedDict, deque
from typing import Any

import pytest
from runtime_driver import Crash, Driver, addresses

import everstep
from everstep.errors import StepTimeout, Unstorable
from everstep.runtime.steps.in_thread import InThread
from everstep.testing.clock import FakeClock


@everstep.register(name="runtime.Point")
@dataclasses.dataclass
class Point:
    x: int
    y: list[int]


@everstep.register(name="runtime.Colour")
class Colour(enum.Enum):
    RED = 1


@everstep.register(name="runtime.Refused")
class Refused(Exception):
    def __init__(self, reason: str, code: int = 0):
        super().__init__(reason)
        self.reason = reason
        self.code = code


class Strange(Exception):
    __qualname__ = "StrangeOne"


class Unshowable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


VALUES = [
    None, True, 0, -(2**63), 2**64 - 1, 10**40, 1.5, float("inf"), "text", "ü\ud7ff", b"bytes", (1, (2,)), [1, [2]], {"a": {1: None}},
    {1, 2}, frozenset({"x"}), deque([1]), Counter("aab"), OrderedDict(b=1), decimal.Decimal("1.10"),
    fractions.Fraction(1, 3), 1 + 2j, uuid.UUID(int=5), pathlib.PurePosixPath("/a/b"), dt.date(2024, 2, 29), dt.time(12, 30),
    dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.timedelta(days=1), Colour.RED, Point(1, [2]), [Point(1, [])],
]  # fmt: skip


def replayed(store: everstep.Store, d: Driver, function: Any, *args: Any, then: Any = lambda: None) -> tuple[Any, Any]:
    """What a step gave when it ran, and what it gave when it was replayed."""
    seen: list[Any] = []

    @d.workflow(name="once-more")
    async def work() -> None:
        try:
            seen.append(await d.run.step("it", d.plain(function), *args))
        except Exception as error:
            seen.append(error)
        if len(seen) == 1:
            raise Crash

    with pytest.raises(Crash):
        store.start(work, id="r")
    then()
    store.resume("r").unwrap()
    assert len(seen) == 2
    return seen[0], seen[1]


@pytest.mark.parametrize("value", VALUES, ids=lambda v: type(v).__name__)
def test_a_result_comes_back_equal_and_of_its_own_type(store: everstep.Store, d: Driver, value: Any) -> None:
    _, again = replayed(store, d, lambda: value)
    assert (type(again), again) == (type(value), value)


@pytest.mark.parametrize(
    "value", [{"rows": [f"row {i} " * 20 for i in range(5000)]}, b"\x00\x01" * 500_000, [Point(i, [i] * 10) for i in range(5000)]],
    ids=["dict", "bytes", "objects"],
)  # fmt: skip
def test_a_big_result_is_chunked_and_comes_back_equal(store: everstep.Store, d: Driver, value: Any) -> None:
    _, again = replayed(store, d, lambda: value)
    assert again == value
    assert type(again) is type(value)
    assert store.steps("r")[0].result == value
    rows = store.backend.records("r", 1, 100)
    assert max(len(r.body or b"") for r in rows) < 10_000
    assert store.stats()["chunks"] > 0


def test_two_big_results_with_the_same_content_are_stored_once(store: everstep.Store, d: Driver) -> None:
    big = {"rows": [f"row {i} " * 20 for i in range(3000)]}

    async def body(run: Any) -> None:
        await run.step("a", d.plain(lambda: big))

    d.loop(store, "one", body)
    before = store.stats()["chunks"]

    async def twice(run: Any) -> None:
        await run.step("a", d.plain(lambda: big))
        await run.step("b", d.plain(lambda: big))

    d.loop(store, "two", twice)
    assert store.stats()["chunks"] == 2 * before


def test_a_result_that_the_program_changes_later_is_recorded_as_it_was_returned(store: everstep.Store, d: Driver) -> None:
    seen: list[Any] = []

    @d.workflow
    async def work() -> list[int]:
        got = await d.run.step("make", d.plain(lambda: [1]))
        seen.append(list(got))
        got.append(2)
        await d.run.step("other", d.plain(lambda: None))
        if len(seen) == 1:
            raise Crash
        return got

    with pytest.raises(Crash):
        store.start(work, id="r")
    assert store.resume("r").unwrap() == [1, 2]
    assert seen == [[1], [1]]
    assert store.steps("r")[0].result == [1]


def test_a_result_that_cannot_be_stored_fails_the_step_and_names_the_place(store: everstep.Store, d: Driver) -> None:
    ran: list[int] = []

    def make() -> Any:
        ran.append(1)
        return {"good": 1, "bad": object()} if len(ran) == 1 else "fine"

    @d.workflow
    async def work() -> Any:
        return await d.run.step("make", d.plain(make))

    out = store.start(work, id="r")
    assert out.status == "failed"
    assert isinstance(out.error, Unstorable)
    assert "make#0" in str(out.error)
    assert "bad" in str(out.error)
    assert [s.status for s in store.steps("r")] == ["failed"]
    assert store.resume("r").unwrap() == "fine"


def test_a_workflow_whose_result_cannot_be_stored_has_failed(store: everstep.Store, d: Driver) -> None:
    bad = [True]

    @d.workflow
    async def work() -> Any:
        await d.run.step("a", d.plain(lambda: 1))
        return object() if bad else "fine"

    out = store.start(work, id="r")
    assert out.status == "failed"
    assert isinstance(out.error, Unstorable)
    assert out.result is None
    assert store.get("r").status == "failed"
    bad.clear()
    assert store.resume("r").unwrap() == "fine"


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a", 1), KeyError("k"), FileNotFoundError(2, "gone"), ZeroDivisionError(), TimeoutError("late"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        RuntimeError("ü"), AssertionError(), ExceptionGroup("many", [ValueError(1)]) , StopAsyncIteration("x"),
    ],
    ids=lambda e: type(e).__name__,
)  # fmt: skip
def test_an_error_of_a_builtin_type_comes_back_as_its_own_type(store: everstep.Store, d: Driver, error: Exception) -> None:
    def fail() -> None:
        raise error

    live, again = replayed(store, d, fail)
    assert type(live) is type(again) is type(error)
    assert repr(again.args) == repr(error.args)
    assert str(again) == str(error)


def test_an_error_of_a_registered_type_comes_back_with_its_fields(store: everstep.Store, d: Driver) -> None:
    def fail() -> None:
        raise Refused("because", 7)

    _, again = replayed(store, d, fail)
    assert isinstance(again, Refused)
    assert (again.reason, again.code, str(again)) == ("because", 7, "because")


def test_an_error_that_is_not_registered_comes_back_as_its_own_type_where_the_program_has_it(store: everstep.Store, d: Driver) -> None:
    def fail() -> None:
        error = Strange("odd thing", 5)
        error.extra = {"more": 1}  # type: ignore[attr-defined]
        raise error

    _, again = replayed(store, d, fail)
    assert type(again) is Strange
    assert (again.args, again.extra) == (("odd thing", 5), {"more": 1})  # type: ignore[attr-defined]


def test_an_error_of_an_unknown_type_comes_back_as_step_failed_with_type_message_and_traceback(store: everstep.Store, d: Driver) -> None:
    class Passing(Exception):
        __qualname__ = "Strange"

    def fail() -> None:
        raise Passing("odd thing")

    live, again = replayed(store, d, fail, then=lambda: setattr(Passing, "__qualname__", "Renamed"))
    assert isinstance(live, Passing)
    assert isinstance(again, everstep.StepFailed)
    assert (again.address, again.error_message) == ("it#0", "odd thing")
    assert again.type_name.endswith("Strange")
    assert "odd thing" in again.traceback_text
    assert "Traceback" in again.traceback_text


@pytest.mark.parametrize(
    "error",
    [ValueError(object()), Unshowable(), Strange("x" * 100_000), ValueError("\ud800")],
    ids=["object", "unshowable", "long", "surrogate"],
)
def test_an_error_that_cannot_be_stored_still_fails_the_step_and_not_the_reader(store: everstep.Store, d: Driver, error: Exception) -> None:
    def fail() -> None:
        raise error

    live, again = replayed(store, d, fail)
    assert type(live) is type(error)
    assert isinstance(again, (everstep.StepFailed, type(error)))
    assert len(store.steps("r")[0].error["message"]) <= 2_000  # type: ignore[index]


def test_a_handled_failure_is_replayed_and_the_program_takes_the_same_way(store: everstep.Store, d: Driver) -> None:
    ran: list[str] = []

    def first() -> None:
        ran.append("first")
        raise ValueError("no")

    def second() -> str:
        ran.append("second")
        return "plan b"

    @d.workflow
    async def work() -> str:
        try:
            await d.run.step("first", d.plain(first))
        except ValueError:
            got = await d.run.step("second", d.plain(second))
        if len(ran) == 2 and not again:
            raise Crash
        return got

    again: list[bool] = []
    with pytest.raises(Crash):
        store.start(work, id="r")
    again.append(True)
    assert store.resume("r").unwrap() == "plan b"
    assert ran == ["first", "second"]


def test_resuming_a_failed_run_runs_the_failed_step_again_and_none_before_it(store: everstep.Store, d: Driver) -> None:
    ran: list[str] = []

    def work_on(name: str) -> str:
        ran.append(name)
        if name == "c" and ran.count("c") < 3:
            raise Strange("not yet")
        return name

    @d.workflow
    async def work() -> str:
        return "".join([await d.run.step("w", d.plain(work_on), name) for name in "abcd"])

    assert store.start(work, id="r").status == "failed"
    assert store.resume("r").status == "failed"
    out = store.resume("r")
    assert out.unwrap() == "abcd"
    assert ran == ["a", "b", "c", "c", "c", "d"]
    assert (out.report.kept, out.report.executed) == (2, 2)
    assert [s.attempt for s in store.steps("r") if s.address == "w#2"] == [1, 2, 3]


def test_a_failure_inside_a_nested_step_runs_only_what_failed_again(store: everstep.Store, d: Driver) -> None:
    ran: list[str] = []

    def leaf(name: str) -> str:
        ran.append(name)
        if name == "bad" and ran.count("bad") == 1:
            raise ValueError(name)
        return name

    async def outer() -> str:
        return await d.run.step("leaf", d.plain(leaf), "good") + await d.run.step("leaf", d.plain(leaf), "bad")

    @d.workflow
    async def work() -> str:
        return await d.run.step("outer", d.plain(outer))

    assert store.start(work, id="r").status == "failed"
    assert store.resume("r").unwrap() == "goodbad"
    assert ran == ["good", "bad", "bad"]


def test_an_own_loop_that_failed_runs_the_failed_step_again(store: everstep.Store, d: Driver) -> None:
    ran: list[int] = []

    def flaky(n: int) -> int:
        ran.append(n)
        if n == 2 and ran.count(2) == 1:
            raise ValueError("no")
        return n

    async def body(run: Any) -> list[int]:
        while len(run.state["got"]) < 4:
            run.state["got"].append(await run.step("f", d.plain(flaky), len(run.state["got"])))
        return list(run.state["got"])

    with pytest.raises(ValueError, match="no"):
        d.loop(store, "r", body, state={"got": []})
    assert store.get("r").status == "failed"
    assert d.loop(store, "r", body, state={"got": []}) == [0, 1, 2, 3]
    assert ran == [0, 1, 2, 2, 3]


def test_retries_are_recorded_and_the_last_result_counts(store: everstep.Store, d: Driver) -> None:
    ran: list[int] = []

    def flaky() -> int:
        ran.append(1)
        if len(ran) < 3:
            raise ValueError(f"try {len(ran)}")
        return 42

    async def body(run: Any) -> int:
        return await run.step("f", d.plain(flaky), retry=everstep.Retry(attempts=5, delay=0))

    assert d.loop(store, "r", body) == 42
    found = store.steps("r")
    assert [(s.status, s.attempt) for s in found] == [("failed", 1), ("failed", 2), ("succeeded", 3)]
    assert [s.error["message"] for s in found if s.error] == ["try 1", "try 2"]
    assert [e.name for e in store.events(run="r") if e.name.startswith("step")] == ["step_retrying", "step_retrying", "step_succeeded"]


def test_attempts_that_were_used_up_before_the_program_broke_off_stay_used_up(store: everstep.Store, d: Driver) -> None:
    ran: list[int] = []

    def flaky() -> None:
        ran.append(everstep.current().step_attempt)
        if len(ran) == 3:
            raise Crash
        raise ValueError("never")

    @d.workflow
    async def work() -> None:
        await d.run.step("f", d.plain(flaky), retry=everstep.Retry(attempts=4, delay=0))

    with pytest.raises(Crash):
        store.start(work, id="r")
    assert store.resume("r").status == "failed"
    assert ran == [1, 2, 3, 3, 4]
    assert store.resume("r").status == "failed"
    assert ran[5:] == [5, 6, 7, 8]


def test_only_the_errors_that_were_named_are_tried_again(store: everstep.Store, d: Driver) -> None:
    ran: list[int] = []

    def fail() -> None:
        ran.append(1)
        raise KeyError("k")

    async def body(run: Any) -> None:
        with pytest.raises(KeyError):
            await run.step("f", d.plain(fail), retry=everstep.Retry(attempts=5, delay=0, only=(ValueError,)))

    d.loop(store, "r", body)
    assert ran == [1]


def test_a_run_that_waits_inside_a_retried_step_is_no_failure(store: everstep.Store, d: Driver) -> None:
    ran: list[int] = []

    async def ask() -> str:
        ran.append(1)
        return await d.gate("sure")

    @d.workflow
    async def work() -> str:
        return await d.run.step("ask", d.plain(ask), retry=everstep.Retry(attempts=3, delay=0))

    assert store.start(work, id="r").status == "waiting"
    assert store.steps("r") == []
    assert [g.address for g in store.gates("r")] == ["ask#0/sure#0"]
    store.answer("r", "sure", "yes")
    assert store.resume("r").unwrap() == "yes"
    assert ran == [1, 1]


def test_a_step_that_takes_too_long_fails_with_step_timeout(store: everstep.Store, d: Driver) -> None:
    import threading

    release = threading.Event()

    async def slow() -> None:
        if d.is_async:
            await asyncio.Event().wait()
        else:
            release.wait()

    async def body(run: Any) -> None:
        with pytest.raises(StepTimeout, match="slow#0"):
            await run.step("slow", d.plain(slow), timeout=0.02)
        assert await run.step("quick", d.plain(lambda: 5), timeout=30) == 5

    d.loop(store, "r", body)
    release.set()
    assert [(s.address, s.status) for s in store.steps("r")] == [("slow#0", "failed"), ("quick#0", "succeeded")]


def test_a_timeout_is_tried_again_like_any_error(store: everstep.Store, d: Driver) -> None:
    import threading

    ran: list[int] = []
    release = threading.Event()

    async def slow() -> str:
        ran.append(1)
        if len(ran) > 1:
            return "at last"
        if d.is_async:
            await asyncio.Event().wait()
        release.wait()
        return "too late"

    async def body(run: Any) -> str:
        return await run.step("slow", d.plain(slow), timeout=0.05, retry=everstep.Retry(attempts=2, delay=0))

    assert d.loop(store, "r", body) == "at last"
    release.set()
    assert [s.status for s in store.steps("r")] == ["failed", "succeeded"]


def test_steps_inside_a_step_with_a_timeout_are_nested_as_always(store: everstep.Store, d: Driver) -> None:
    async def outer() -> int:
        return await d.run.step("inner", d.plain(lambda: 5))

    async def body(run: Any) -> int:
        return await run.step("outer", d.plain(outer), timeout=30)

    assert d.loop(store, "r", body) == 5
    assert addresses(store, "r") == ["outer#0/inner#0", "outer#0"]


def test_usage_is_recorded_with_the_step_and_saved_by_a_replay(store: everstep.Store, d: Driver) -> None:
    def ask() -> None:
        run = everstep.current()
        run.usage(tokens=100, cost=0.25)
        run.usage(tokens=20)

    @d.workflow
    async def work() -> None:
        await d.run.step("ask", d.plain(ask))
        if not again:
            raise Crash

    again: list[bool] = []
    with pytest.raises(Crash):
        store.start(work, id="r")
    assert [(s.tokens, s.cost) for s in store.steps("r")] == [(120, 0.25)]
    again.append(True)
    report = store.resume("r").report
    assert (report.kept, report.tokens_saved, report.cost_saved) == (1, 120, 0.25)
    assert "1 step kept" in str(report)
    assert "120 tokens" in str(report)


def test_each_attempt_of_a_step_has_its_own_usage(store: everstep.Store, d: Driver) -> None:
    tries: list[int] = []

    def ask() -> None:
        everstep.current().usage(tokens=10, cost=0.5)
        tries.append(1)
        if len(tries) < 3:
            raise ValueError

    async def body(run: Any) -> None:
        await run.step("ask", d.plain(ask), retry=everstep.Retry(attempts=3, delay=0))
        await run.checkpoint()

    d.loop(store, "r", body)
    assert [(s.tokens, s.cost) for s in store.steps("r")] == [(10, 0.5)] * 3
    used = store.checkpoint("r").used
    assert (used["steps"], used["tokens"], used["cost"]) == (3, 30, 1.5)


def test_a_step_record_says_who_when_and_with_what(store: everstep.Store, d: Driver) -> None:
    async def body(run: Any) -> None:
        await run.step("f", d.plain(lambda a, b: a), 1, b="x")

    d.loop(store, "r", body)
    (step,) = store.steps("r")
    assert (step.address, step.name, step.status, step.attempt, step.result) == ("f#0", "f", "succeeded", 1, 1)
    assert step.input == "(1, b='x')"
    assert ":" in step.worker
    assert step.started <= step.ended
    assert step.seconds >= 0


@pytest.mark.parametrize(("passed", "left"), [(40, 60), (101, None)])
def test_a_wait_between_two_attempts_goes_on_where_it_was_when_the_program_broke_off_in_it(
    store: everstep.Store, monkeypatch: pytest.MonkeyPatch, passed: int, left: int | None
) -> None:
    ran: list[int] = []
    naps: list[float] = []

    def flaky() -> str:
        ran.append(everstep.current().step_attempt)
        if len(ran) == 1:
            raise ValueError("once")
        return "good"

    async def nap(ways: Any, ticket: Any, seconds: float) -> None:
        naps.append(seconds)
        if len(ran) == 1 and len(naps) == 1:
            raise Crash

    monkeypatch.setattr(InThread, "nap", nap)

    @everstep.workflow
    def work() -> str:
        return str(everstep.current().step("flaky", flaky, retry=everstep.Retry(attempts=2, delay=100, max_delay=100, jitter=0)))

    with FakeClock() as time:
        with pytest.raises(Crash):
            store.start(work, id="r")
        time.advance(passed)
        assert store.resume("r").unwrap() == "good"
    assert ran == [1, 2]
    assert naps == [100.0] if left is None else [100.0, left]
