"""`store.observe`: what begins and ends is told in the thread or task that does it, and an observer can do no harm."""

import asyncio
import threading
import warnings
from typing import Any

import pytest

import everstep
from everstep.errors import InvalidArgument, StoreFull


class Notes:
    """Notes what it is told, and in which thread."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str, str | None]] = []
        self.spans: list[Any] = []
        self.threads: set[int] = set()

    def begin(self, span: Any) -> None:
        span.notes["thread"] = threading.get_ident()
        self.told.append(("begin", span.what, span.name, span.status))

    def end(self, span: Any) -> None:
        assert span.notes["thread"] == threading.get_ident() or span.what == "checkpoint"
        self.told.append(("end", span.what, span.name, span.status))
        self.spans.append(span)
        self.threads.add(threading.get_ident())

    def of(self, what: str) -> list[Any]:
        return [span for span in self.spans if span.what == what]


def test_spans_are_nested_and_told_in_order(store: everstep.Store) -> None:
    notes = store.observe(Notes())

    def outer() -> int:
        return int(everstep.current().step("inner", abs, -1))

    with store.run("r") as run:
        run.step("outer", outer)
        run.checkpoint()
    assert notes.told == [
        ("begin", "attempt", "r", None),
        ("begin", "step", "outer#0", None),
        ("begin", "step", "outer#0/inner#0", None),
        ("end", "step", "outer#0/inner#0", "succeeded"),
        ("end", "step", "outer#0", "succeeded"),
        ("begin", "checkpoint", "1", None),
        ("end", "checkpoint", "1", "succeeded"),
        ("end", "attempt", "r", "succeeded"),
    ]
    assert notes.threads == {threading.get_ident()}
    assert all(span.seconds >= 0 and span.run == "r" for span in notes.spans)


def test_each_attempt_of_a_step_is_told_with_its_usage_and_error(store: everstep.Store) -> None:
    notes = store.observe(Notes())

    @everstep.step(kind="llm", retry=everstep.Retry(attempts=2, delay=0, jitter=0))
    def shaky() -> str:
        run = everstep.current()
        run.usage(tokens=3, cost=0.5)
        if run.step_attempt == 1:
            raise OSError("once")
        return "good"

    with store.run("r"):
        assert shaky() == "good"
    first, second = notes.of("step")
    assert (first.status, first.attempt, str(first.error), first.kind, first.tokens) == ("failed", 1, "once", "llm", 3)
    assert (second.status, second.attempt, second.error, second.cost) == ("succeeded", 2, None, 0.5)
    assert notes.of("attempt")[0].tokens == 6


def test_what_is_played_back_is_not_told(store: everstep.Store) -> None:
    @everstep.workflow(name="observed")
    def flow() -> Any:
        everstep.current().step("a", abs, -1)
        return everstep.gate("go")

    notes = store.observe(Notes())
    store.start(flow, id="r")
    assert [(span.what, span.status) for span in notes.spans] == [
        ("step", "succeeded"), ("gate", "waiting"), ("checkpoint", "succeeded"), ("attempt", "waiting"),
    ]  # fmt: skip
    store.answer("r", "go", "yes")
    notes.spans.clear()
    store.resume("r")
    assert (notes.spans[0].what, notes.spans[0].status) == ("gate", "succeeded")
    assert not notes.of("step")


def test_a_task_is_told_in_its_loop(store: everstep.Store) -> None:
    notes = store.observe(Notes())

    async def main() -> None:
        async with store.run("r") as run:
            await asyncio.gather(*(run.step("a", later, n) for n in range(3)), return_exceptions=True)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await run.step("slow", asyncio.sleep, 30)
            await run.checkpoint()
            assert await run.gate("g", condition=True)

    async def later(n: int) -> int:
        if n == 1:
            raise ValueError("bad")
        return n

    asyncio.run(main())
    assert sorted((span.name, span.status) for span in notes.of("step")) == [
        ("a#0", "succeeded"), ("a#1", "failed"), ("a#2", "succeeded"), ("slow#0", "cancelled"),
    ]  # fmt: skip
    assert [span.status for span in notes.of("gate")] == ["succeeded"]
    assert notes.of("checkpoint")[0].status == "succeeded"
    assert notes.told[-1] == ("end", "attempt", "r", "succeeded")


def test_checkpoints_of_a_policy_are_told(store: everstep.Store) -> None:
    notes = store.observe(Notes())
    with store.run("r", policy="every 1 steps") as run:
        run.step("a", abs, -1)
        run.emit("x")
    assert notes.of("checkpoint")[0].kind == "automatic"


def test_a_checkpoint_that_was_not_made_is_told_with_its_error(store: everstep.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = store.observe(Notes())

    def full(commit: Any) -> None:
        raise StoreFull("no space", written="no")

    with store.run("r") as run:
        run.state["a"] = 1
        with monkeypatch.context() as patched:
            patched.setattr(store.backend, "commit", full)
            with pytest.raises(StoreFull):
                run.checkpoint()
        run.checkpoint()
    assert [(span.status, type(span.error)) for span in notes.of("checkpoint")][:2] == [("failed", StoreFull), ("succeeded", type(None))]


def test_a_failing_observer_is_reported_once_and_does_no_harm(store: everstep.Store) -> None:
    class Broken:
        def begin(self, span: Any) -> None:
            raise RuntimeError("broken")

        def end(self, span: Any) -> None:
            raise RuntimeError("broken too")

    notes = store.observe(Notes())
    store.observe(Broken())
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with store.run("r") as run:
            assert [run.step("a", abs, -n) for n in range(3)] == [0, 1, 2]
    assert [str(one.message).partition(":")[0].partition("raised ")[2] for one in told] == ["RuntimeError in begin"]
    assert len(notes.of("step")) == 3


def test_a_failing_observer_does_no_harm_where_warnings_are_errors(store: everstep.Store) -> None:
    class Broken:
        def end(self, span: Any) -> None:
            raise RuntimeError("broken")

    store.observe(Broken())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with store.run("r") as run:
            run.step("a", abs, -1)
    assert store.get("r").status == "succeeded"


def test_an_observer_may_have_one_method_and_go_again(store: everstep.Store) -> None:
    class Ends:
        count = 0

        def end(self, span: Any) -> None:
            self.count += 1

    ends = store.observe(Ends())
    with store.run("r") as run:
        run.step("a", abs, -1)
        assert ends.count == 1
        store.unobserve(ends)
        run.step("b", abs, -1)
    assert ends.count == 1
    with pytest.raises(InvalidArgument, match="must have a method"):
        store.observe(print)


def test_a_step_that_somebody_else_runs_is_told(store: everstep.Store) -> None:
    notes = store.observe(Notes())
    with store.run("r") as run:
        step = run.begin("a", kind="tool", retry=everstep.Retry(attempts=2, delay=0))
        step.fail(OSError())
        step.complete(1)
    assert [(span.name, span.attempt, span.status, span.kind) for span in notes.of("step")] == [
        ("a#0", 1, "failed", "tool"), ("a#0", 2, "succeeded", "tool"),
    ]  # fmt: skip
