"""When checkpoints are made, of which kind, and what they say; durability; budgets and timeouts."""

import signal
import threading
from typing import Any

import pytest
from runtime_driver import Crash, Driver, addresses, kinds

import everstep
from everstep import Budget, every, on
from everstep.errors import Interrupted, InvalidArgument


def steps(d: Driver, n: int, **options: Any) -> Any:
    @d.workflow(name=f"steps-{n}", **options)
    async def work() -> int:
        for i in range(n):
            await d.run.step("s", d.plain(lambda i=i: i), i)
        return n

    return work


def triggers(store: everstep.Store, run: str) -> list[tuple[str, str | None, str | None]]:
    return [(c.kind, c.trigger, c.step) for c in reversed(store.checkpoints(run))]


def test_every_step_gives_a_checkpoint_for_each_and_a_final_one(store: everstep.Store, d: Driver) -> None:
    store.start(steps(d, 5, policy=every(steps=1)), id="r").unwrap()
    assert kinds(store, "r") == [(i, "automatic") for i in range(1, 6)] + [(6, "final")]
    assert triggers(store, "r")[0] == ("automatic", "every 1 step", "s#0")


@pytest.mark.parametrize(("n", "total", "expected"), [(2, 5, ["s#1", "s#3"]), (5, 12, ["s#4", "s#9"]), (3, 3, ["s#2"]), (4, 3, [])])
def test_every_n_steps_gives_a_checkpoint_after_each_n_th(
    store: everstep.Store, d: Driver, n: int, total: int, expected: list[str]
) -> None:
    store.start(steps(d, total, policy=every(steps=n)), id="r").unwrap()
    found = triggers(store, "r")
    assert [step for kind, _, step in found if kind == "automatic"] == expected
    assert [kind for kind, _, _ in found] == ["automatic"] * len(expected) + ["final"]


def test_manual_makes_no_checkpoint_but_the_final_one(store: everstep.Store, d: Driver) -> None:
    store.start(steps(d, 5, policy=everstep.manual), id="r").unwrap()
    assert kinds(store, "r") == [(1, "final")]


def test_the_policy_of_the_store_counts_where_the_run_chooses_none(places: Any, d: Driver) -> None:
    store = places.open(policy="every 2 steps")
    store.start(steps(d, 4), id="a").unwrap()
    assert kinds(store, "a") == [(1, "automatic"), (2, "automatic"), (3, "final")]
    store.start(steps(d, 3, policy=everstep.manual), id="b").unwrap()
    assert kinds(store, "b") == [(1, "final")]

    async def body(run: Any) -> None:
        for i in range(4):
            await run.step("s", d.plain(lambda i=i: i), i)

    d.loop(store, "c", body)
    assert kinds(store, "c") == [(1, "automatic"), (2, "automatic"), (3, "final")]
    d.loop(store, "e", body, policy=on("post_step"))
    assert [kind for _, kind in kinds(store, "e")] == ["post_step"] * 4 + ["final"]


def test_before_and_after_each_step(store: everstep.Store, d: Driver) -> None:
    store.start(steps(d, 2, policy=on("pre_step", "post_step")), id="r").unwrap()
    assert [kind for _, kind in kinds(store, "r")] == ["pre_step", "post_step", "pre_step", "post_step", "final"]


def test_on_gates_there_is_one_checkpoint_after_the_answer(store: everstep.Store, d: Driver) -> None:
    @d.workflow(policy=on("gate"))
    async def work() -> None:
        run = d.run
        await run.step("a", d.plain(lambda: 1))
        run.state["passed"] = await d.gate("quality", condition=True)
        await run.step("b", d.plain(lambda: 2))

    store.start(work, id="r").unwrap()
    assert kinds(store, "r") == [(1, "gate"), (2, "final")]


def test_a_run_that_waits_leaves_a_gate_checkpoint_with_its_state(store: everstep.Store, d: Driver) -> None:
    @d.workflow
    async def work() -> None:
        d.run.state["asked"] = True
        await d.gate("ok")

    store.start(work, id="r")
    assert kinds(store, "r") == [(1, "gate")]
    assert store.load("r") == {"asked": True}


def test_after_llm_and_tool_calls_and_calls_of_a_kind_of_ones_own(store: everstep.Store, d: Driver) -> None:
    calls = {kind: d.step(lambda: 1, name=kind, kind=kind) for kind in ("llm", "tool", "mine", "other")}

    @d.workflow(policy=on("llm", "custom:mine"))
    async def work() -> None:
        for kind in ("tool", "llm", "other", "mine", "llm"):
            await calls[kind]()

    store.start(work, id="r").unwrap()
    assert triggers(store, "r")[:-1] == [
        ("automatic", "on llm", "llm#0"), ("automatic", "on custom:mine", "mine#0"), ("automatic", "on llm", "llm#1"),
    ]  # fmt: skip


def test_on_errors_milestones_and_events_of_ones_own(store: everstep.Store, d: Driver) -> None:
    def fail() -> None:
        raise ValueError

    @d.workflow(policy=on("error", "milestone", "custom:ping"))
    async def work() -> None:
        run = d.run
        with pytest.raises(ValueError):
            await run.step("bad", d.plain(fail))
        run.milestone("half")
        run.emit("ping", n=1)
        run.emit("pong", n=1)

    store.start(work, id="r").unwrap()
    assert [(kind, trigger) for kind, trigger, _ in triggers(store, "r")[:-1]] == [
        ("error", "on error"), ("automatic", "on milestone"), ("automatic", "on custom:ping"),
    ]  # fmt: skip


def test_a_failed_run_leaves_an_error_checkpoint_and_a_stopped_one_an_interrupt(store: everstep.Store, d: Driver) -> None:
    @d.workflow
    async def fails() -> None:
        d.run.state["x"] = 1
        raise ValueError

    store.start(fails, id="f")
    assert kinds(store, "f") == [(1, "error")]
    assert store.load("f") == {"x": 1}
    store.start(steps(d, 3, budget=Budget(steps=1)), id="b")
    assert kinds(store, "b") == [(1, "interrupt")]


def test_all_counts_begin_anew_after_any_checkpoint(store: everstep.Store, d: Driver) -> None:
    ask = d.step(lambda: 1, name="ask", kind="llm")

    @d.workflow(policy=every(steps=3) | on("llm"))
    async def work() -> None:
        run = d.run
        await run.step("s", d.plain(lambda: 1))
        await run.step("s", d.plain(lambda: 1))
        await ask()
        await run.step("s", d.plain(lambda: 1))
        await run.step("s", d.plain(lambda: 1))
        await run.checkpoint()
        for _ in range(3):
            await run.step("s", d.plain(lambda: 1))

    store.start(work, id="r").unwrap()
    assert [(kind, trigger, step) for kind, trigger, step in triggers(store, "r")] == [
        ("automatic", "on llm", "ask#0"), ("manual", None, "s#3"), ("automatic", "every 3 steps", "s#6"), ("final", None, "s#6"),
    ]  # fmt: skip


@pytest.mark.parametrize("draws", [0, 3])
def test_counts_survive_a_resume_and_values_that_were_drawn_do_not_count(store: everstep.Store, d: Driver, draws: int) -> None:
    done: list[int] = []

    @d.workflow(policy=every(steps=3))
    async def work() -> None:
        run = d.run
        for i in range(7):
            for _ in range(draws):
                run.random()
            await run.step("s", d.plain(done.append), i)
            if len(done) == 5 and i == 4 and not again:
                raise Crash

    again: list[bool] = []
    with pytest.raises(Crash):
        store.start(work, id="r")
    again.append(True)
    store.resume("r").unwrap()
    assert [step for kind, _, step in triggers(store, "r") if kind == "automatic"] == ["s#2", "s#5"]
    assert done == list(range(7))


def test_counts_of_a_loop_survive_a_resume(store: everstep.Store, d: Driver) -> None:
    async def body(run: Any) -> None:
        while run.state["i"] < 5:
            await run.step("s", d.plain(lambda i: 1), run.state["i"])
            run.state["i"] += 1
            if run.state["i"] == 2 and not again:
                raise Crash

    again: list[bool] = []
    with pytest.raises(Crash):
        d.loop(store, "r", body, state={"i": 0}, policy=every(steps=3))
    again.append(True)
    d.loop(store, "r", body, state={"i": 0}, policy=every(steps=3))
    assert triggers(store, "r")[0] == ("automatic", "every 3 steps", "s#2")


def test_a_step_that_failed_and_was_tried_again_counts_each_time(store: everstep.Store, d: Driver) -> None:
    tries: list[int] = []

    def flaky() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise ValueError

    async def body(run: Any) -> None:
        await run.step("f", d.plain(flaky), retry=everstep.Retry(attempts=3, delay=0))
        await run.step("g", d.plain(lambda: 1))

    d.loop(store, "r", body, policy=every(steps=4))
    assert triggers(store, "r")[0] == ("automatic", "every 4 steps", "g#0")


def test_seconds_are_looked_at_inside_a_long_step(store: everstep.Store, d: Driver) -> None:
    saved = threading.Event()
    store.on("after_checkpoint", lambda event: saved.set())

    async def body(run: Any) -> None:
        run.state["before"] = True

        def long() -> str:
            assert saved.wait(30)
            return "long"

        await run.step("long", long)
        run.state["after"] = True

    d.loop(store, "r", body, policy=every(seconds=0.02))
    first = store.checkpoint("r@1")
    assert (first.kind, first.trigger) == ("automatic", "every 0.02 s")
    assert store.load("r@1") == {"before": True}
    assert store.load("r") == {"before": True, "after": True}
    assert d.loop(store, "r", lambda run: _state(run)) == {"before": True, "after": True}


async def _state(run: Any) -> Any:
    return dict(run.state)


def test_the_first_step_brings_no_surprise_checkpoint(store: everstep.Store, d: Driver) -> None:
    store.start(steps(d, 1, policy=every(seconds=3600)), id="r").unwrap()
    assert kinds(store, "r") == [(1, "final")]


def test_a_checkpoint_says_step_progress_trigger_and_use_without_its_body(store: everstep.Store, d: Driver) -> None:
    def ask() -> None:
        everstep.current().usage(tokens=10, cost=0.5)

    async def body(run: Any) -> None:
        for i in range(4):
            await run.step("ask", d.plain(ask))
            run.progress(i + 1, 4)
            await run.checkpoint(note=f"n{i}", tags=["t"], meta={"mine": i})

    d.loop(store, "r", body)
    third = next(found for found in store.checkpoints("r") if found.note == "n2")
    assert (third.step, third.progress, third.percent, third.kind, third.trigger) == ("ask#2", (3, 4), 75.0, "manual", None)
    assert third.meta == {"mine": 2}
    used = third.used
    assert (used["steps"], used["tokens"], used["cost"]) == (3, 30, 1.5)
    assert used["seconds"] >= 0
    assert store.checkpoint("r").percent == 100.0


@pytest.mark.parametrize("own", [True, False])
def test_what_was_used_adds_up_over_resumes(store: everstep.Store, d: Driver, own: bool) -> None:
    def ask(i: int) -> None:
        everstep.current().usage(tokens=10, cost=0.5)

    async def body(run: Any) -> None:
        for i in range(4):
            run.now()
            await run.step("ask", d.plain(ask), i)
            if i == 1 and not again:
                raise Crash
        await run.checkpoint()

    @d.workflow
    async def work() -> None:
        await body(d.run)

    again: list[bool] = []
    with pytest.raises(Crash):
        d.loop(store, "r", body) if own else store.start(work, id="r")
    again.append(True)
    d.loop(store, "r", body) if own else store.resume("r")
    used = store.checkpoint("r").used
    assert (used["steps"], used["tokens"], used["cost"]) == (4, 40, 2.0)


@pytest.mark.parametrize(("done", "total"), [(-1, 4), (5, 4), (1, 0), ("1", 2)])
def test_progress_that_makes_no_sense_is_refused(store: everstep.Store, done: Any, total: Any) -> None:
    with store.run("r") as run, pytest.raises(InvalidArgument):
        run.progress(done, total)


# durability


def test_with_exit_nothing_is_stored_before_the_end_and_everything_after(places: Any, d: Driver) -> None:
    store, other = places.open(), places.open()

    async def body(run: Any) -> None:
        for i in range(5):
            await run.step("s", d.plain(lambda i=i: i), i)
            await run.checkpoint()
        assert addresses(other, "r") == []
        assert other.get("r").checkpoints == 0
        await run.flush()
        assert len(addresses(other, "r")) == 5
        await run.step("last", d.plain(lambda: 1))
        assert len(addresses(other, "r")) == 5

    d.loop(store, "r", body, durability="exit")
    assert len(addresses(other, "r")) == 6
    assert other.verify("full").ok


def test_with_async_everything_is_stored_after_a_flush_and_at_the_end(places: Any, d: Driver) -> None:
    store, other = places.open(), places.open()

    async def body(run: Any) -> None:
        for i in range(50):
            await run.step("s", d.plain(lambda i=i: i), i)
        await run.flush()
        assert len(addresses(other, "r")) == 50
        await run.step("last", d.plain(lambda: 1))

    d.loop(store, "r", body, durability="async", policy=every(steps=10))
    assert addresses(other, "r") == [f"s#{i}" for i in range(50)] + ["last#0"]
    assert [kind for _, kind in kinds(other, "r")] == ["automatic"] * 5 + ["final"]
    assert other.verify("full").ok


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_program_that_breaks_off_properly_loses_no_step_whatever_the_durability(
    store: everstep.Store, d: Driver, durability: Any
) -> None:
    ran: list[int] = []

    async def body(run: Any) -> int:
        total = 0
        for i in range(10):
            ran.append(i)
            total += await run.step("s", d.plain(lambda i=i: i), i)
            if i == 6 and not again:
                raise Crash
        return total

    again: list[bool] = []
    with pytest.raises(Crash):
        d.loop(store, "r", body, durability=durability)
    again.append(True)
    assert len(addresses(store, "r")) == 7
    assert d.loop(store, "r", body, durability=durability) == 45
    assert len(addresses(store, "r")) == 10


# budgets and timeouts


def test_a_budget_of_steps_stops_before_the_next_one_and_more_budget_goes_on(store: everstep.Store, d: Driver) -> None:
    flow = steps(d, 5, budget=Budget(steps=3))
    out = store.start(flow, id="r")
    assert (out.status, out.reason) == ("waiting", "budget: 3 steps of 3")
    assert len(addresses(store, "r")) == 3
    assert store.resume("r").status == "waiting"
    assert len(addresses(store, "r")) == 3
    assert store.wake() == []
    assert store.resume("r", budget=Budget(steps=4)).status == "waiting"
    assert store.resume("r", budget=Budget(steps=5)).unwrap() == 5
    assert len(addresses(store, "r")) == 5


@pytest.mark.parametrize(("budget", "ended", "reason"), [
    (Budget(tokens=30), 3, "budget: 30 tokens of 30"), (Budget(tokens=25), 3, "budget: 30 tokens of 25"),
    (Budget(cost=1.0), 2, "budget: cost 1 of 1"), (Budget(tokens=1000, cost=0.6), 2, "budget: cost 1 of 0.6"),
])  # fmt: skip
@pytest.mark.parametrize("crash", [None, 1])
def test_tokens_and_cost_are_counted_over_resumes(
    store: everstep.Store, d: Driver, budget: Budget, ended: int, reason: str, crash: int | None
) -> None:
    def ask(i: int) -> None:
        everstep.current().usage(tokens=10, cost=0.5)

    @d.workflow(name="spender", budget=budget)
    async def work() -> None:
        for i in range(6):
            await d.run.step("ask", d.plain(ask), i)
            if i == crash and not again:
                raise Crash

    again: list[bool] = []
    if crash is not None and crash < ended:
        with pytest.raises(Crash):
            store.start(work, id="r")
        again.append(True)
    out = store.start(work, id="r")
    assert (out.status, out.reason) == ("waiting", reason)
    assert len(addresses(store, "r")) == ended


def test_a_budget_of_time_stops_before_the_next_step(store: everstep.Store, d: Driver) -> None:
    out = store.start(steps(d, 3, budget=Budget(seconds=1e-9)), id="r")
    assert out.status == "waiting"
    assert (out.reason or "").startswith("budget: ")
    assert "seconds" in (out.reason or "")
    assert store.resume("r", budget=Budget(seconds=3600)).unwrap() == 3


def test_a_timeout_stops_the_run_and_a_longer_one_goes_on(store: everstep.Store, d: Driver) -> None:
    out = store.start(steps(d, 3, timeout=1e-9), id="r")
    assert out.status == "waiting"
    assert (out.reason or "").startswith("timeout: ")
    assert store.resume("r", timeout=3600).unwrap() == 3


def test_a_budget_stops_a_loop_of_ones_own_and_counts_over_its_resumes(store: everstep.Store, d: Driver) -> None:
    async def body(run: Any) -> None:
        while run.state["i"] < 6:
            await run.step("s", d.plain(lambda i: 1), run.state["i"])
            run.state["i"] += 1
            if run.state["i"] % 2 == 0:
                await run.checkpoint()

    for _ in range(2):
        with pytest.raises(Interrupted, match="budget: 3 steps of 3"):
            d.loop(store, "r", body, state={"i": 0}, budget=Budget(steps=3))
        assert store.get("r").status == "waiting"
        assert len(addresses(store, "r")) == 3
    d.loop(store, "r", body, state={"i": 0}, budget=Budget(steps=6))
    assert store.load("r")["i"] == 6
    assert addresses(store, "r") == [f"s#{i}" for i in range(6)]


def test_a_run_that_was_never_left_holds_no_signal_back_once_its_store_is_closed() -> None:
    handler = signal.getsignal(signal.SIGTERM)
    with everstep.open("memory://") as store:
        store.run("left-open").__enter__()
        assert signal.getsignal(signal.SIGTERM) is not handler
    assert signal.getsignal(signal.SIGTERM) is handler
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_lets_the_running_step_finish_and_ends_the_program(store: everstep.Store, d: Driver, number: Any, code: int) -> None:
    assert threading.current_thread() is threading.main_thread()
    ran: list[str] = []

    def first() -> str:
        signal.raise_signal(number)
        ran.append("first")
        return "done"

    async def body(run: Any) -> str:
        run.state["seen"] = await run.step("first", d.plain(first))
        await run.step("second", d.plain(lambda: ran.append("second")))
        return "all"

    handler = signal.getsignal(number)
    with pytest.raises(SystemExit) as found:
        d.loop(store, "r", body)
    assert found.value.code == code
    assert ran == ["first"]
    assert addresses(store, "r") == ["first#0"]
    assert kinds(store, "r") == [(1, "interrupt")]
    assert signal.getsignal(number) is handler
    assert not store.get("r").open
    assert d.loop(store, "r", body) == "all"
    assert ran == ["first", "second"]
