"""Hooks of this process, and the events that any process can follow."""

import threading
from typing import Any

import pytest
from runtime_driver import Crash, Driver

import everstep
from everstep import every
from everstep.errors import InvalidArgument, NotFound


def listen(store: everstep.Store, *events: str) -> list[str]:
    heard: list[str] = []
    for name in events:
        store.on(name, lambda e, name=name: heard.append(name))
    return heard


ALL = [
    f"{when}_{what}" for what in ("checkpoint", "load", "step", "gate", "fork", "resume", "delete", "run") for when in ("before", "after")
]


def test_hooks_hear_everything_in_the_order_in_which_it_happens(store: everstep.Store, d: Driver) -> None:
    heard = listen(store, *ALL, "error", "interrupt", "custom:ping")

    @d.workflow(policy=every(steps=1))
    async def work() -> None:
        await d.run.step("a", d.plain(lambda: 1))
        d.run.emit("ping")
        await d.gate("ok")

    store.start(work, id="r")
    assert heard == [
        "before_run", "before_load", "after_load", "before_step", "before_checkpoint", "after_checkpoint", "after_step", "custom:ping",
        "before_gate", "before_checkpoint", "after_checkpoint", "after_run",
    ]  # fmt: skip
    heard.clear()
    store.answer("r", "ok", 1)
    store.resume("r").unwrap()
    assert heard == [
        "before_resume", "before_load", "after_load", "after_resume", "before_gate", "after_gate", "before_checkpoint", "after_checkpoint",
        "after_run",
    ]  # fmt: skip
    heard.clear()
    fork = store.fork("r")
    store.load("r")
    store.delete(fork.id)
    assert heard == ["before_fork", "after_fork", "before_load", "after_load", "before_delete", "after_delete"]
    heard.clear()
    store.resume("r", from_step="a#0")
    assert heard[:2] == ["before_fork", "after_fork"]


def test_errors_and_interrupts_are_heard(store: everstep.Store, d: Driver) -> None:
    seen: list[Any] = []
    store.on("error", lambda e: seen.append(("error", e.run, e.data["step"])))
    store.on("interrupt", lambda e: seen.append(("interrupt", e.run, e.data["steps"])))

    def fail(kind: type[BaseException]) -> None:
        raise kind("x")

    async def body(run: Any) -> None:
        with pytest.raises(ValueError):
            await run.step("bad", d.plain(lambda: fail(ValueError)))
        await run.step("worse", d.plain(lambda: fail(Crash)))

    with pytest.raises(Crash):
        d.loop(store, "r", body)
    assert seen == [("error", "r", "bad#0"), ("interrupt", "r", ["worse#0"])]


def test_higher_priorities_come_first_and_equal_ones_in_order(store: everstep.Store, d: Driver) -> None:
    heard: list[str] = []
    for name, priority in (("c", 0), ("a", 10), ("d", 0), ("b", 5), ("e", -1)):
        store.on("after_step", lambda e, name=name: heard.append(name), priority=priority)

    async def body(run: Any) -> None:
        await run.step("s", d.plain(lambda: 1))

    d.loop(store, "r", body)
    assert heard == list("abcde")


def test_a_failing_hook_never_fails_a_step_or_a_save(store: everstep.Store, d: Driver) -> None:
    def broken(event: Any) -> None:
        raise RuntimeError("hook")

    hooks = [store.on(name, broken) for name in ALL]

    async def body(run: Any) -> int:
        run.state["x"] = await run.step("s", d.plain(lambda: 5))
        await run.checkpoint()
        return int(run.state["x"])

    with pytest.warns(RuntimeWarning):
        assert d.loop(store, "r", body, policy=every(steps=1)) == 5
    step_hook = hooks[ALL.index("after_step")]
    assert (step_hook.stats.calls, step_hook.stats.failures) == (1, 1)
    assert "hook" in (step_hook.stats.last_error or "")
    assert store.load("r") == {"x": 5}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_hanging_hook_costs_its_timeout_once_and_is_passed_over_then(store: everstep.Store, d: Driver) -> None:
    release = threading.Event()
    hook = store.on("after_step", lambda e: release.wait(30), timeout=0.05)

    async def body(run: Any) -> None:
        for i in range(5):
            await run.step("s", d.plain(lambda i=i: i))

    d.loop(store, "r", body)
    release.set()
    assert (hook.stats.timeouts, hook.stats.skipped) == (1, 4)
    assert len(store.steps("r")) == 5


def test_an_async_hook_is_run_to_its_end_and_a_removed_one_is_not_called(store: everstep.Store, d: Driver) -> None:
    heard: list[str] = []

    @store.on("after_step")
    async def hear(event: Any) -> None:
        heard.append(event.data["step"])

    async def body(run: Any) -> None:
        await run.step("a", d.plain(lambda: 1))
        store.hooks()[0].remove()
        await run.step("b", d.plain(lambda: 1))

    d.loop(store, "r", body)
    assert heard == ["a#0"]
    assert store.hooks() == []


def test_a_hook_may_write_to_the_store_and_to_the_run_itself(store: everstep.Store, d: Driver) -> None:
    def write(event: Any) -> None:
        if event.run != "r":
            return
        with store.run("log", state={"n": 0}) as log:
            log.state["n"] += 1
            log.checkpoint()
        everstep.current().emit("heard")
        everstep.current().now()

    hooks = [store.on(name, write, timeout=20) for name in ("before_checkpoint", "after_step")]

    async def body(run: Any) -> None:
        for i in range(2):
            await run.step("s", d.plain(lambda i=i: i))

    done = threading.Event()

    def drive() -> None:
        d.loop(store, "r", body, policy=every(steps=2))
        done.set()

    thread = threading.Thread(target=drive, daemon=True)
    thread.start()
    assert done.wait(15), "a lock was held while a hook was called"
    thread.join()
    assert [h.stats.failures + h.stats.timeouts for h in hooks] == [0, 0], [h.stats.last_error for h in hooks]
    assert store.load("log")["n"] >= 3


def test_an_unknown_event_is_refused_with_those_that_there_are(store: everstep.Store) -> None:
    with pytest.raises(InvalidArgument) as found:
        store.on("after_lunch", print)
    assert "after_step" in found.value.remedy


# the feed


def test_another_store_follows_what_happens_in_order_and_once(places: Any, d: Driver) -> None:
    store, other = places.open(), places.open()
    seen: list[Any] = []
    after = 0

    def follow() -> None:
        nonlocal after
        page = other.events(after=after)
        seen.extend(page)
        assert page.next is not None
        after = page.next

    async def body(run: Any) -> None:
        for i in range(3):
            await run.step("s", d.plain(lambda i=i: i), i)
            follow()
        await run.checkpoint("saved")
        run.emit("ping", n=5)

    d.loop(store, "a", body)
    follow()
    d.loop(store, "b", body)
    follow()
    follow()
    assert [e.position for e in seen] == sorted({e.position for e in seen})
    of_a = [e.name for e in seen if e.run == "a"]
    assert of_a[:5] == ["run_created", "step_succeeded", "step_succeeded", "step_succeeded", "checkpoint_created"]
    assert "custom:ping" in of_a
    assert of_a[-1] == "run_succeeded"
    (ping,) = [e for e in seen if e.name == "custom:ping" and e.run == "b"]
    assert ping.data == {"n": 5}
    assert [(e.run, e.name, e.seq) for e in other.events()] == [(e.run, e.name, e.seq) for e in seen]


def test_events_come_in_pages_and_of_one_run(store: everstep.Store, d: Driver) -> None:
    async def body(run: Any) -> None:
        for i in range(5):
            await run.step("s", d.plain(lambda i=i: i), i)

    d.loop(store, "a", body)
    d.loop(store, "b", body)
    whole = store.events()
    paged: list[Any] = []
    after = 0
    while page := store.events(after=after, limit=3):
        assert len(page) <= 3
        paged.extend(page)
        after = page.next or 0
    assert paged == list(whole)
    assert [(e.run, e.name) for e in store.events(run="b")] == [(e.run, e.name) for e in whole if e.run == "b"]
    mine, after = [], 0
    while page := store.events(after=after, run="b", limit=2):
        mine.extend(page)
        after = page.next or 0
    assert [e.seq for e in mine] == [e.seq for e in whole if e.run == "b"]
    for bad in ({"after": -1}, {"after": "x"}, {"limit": 0}):
        with pytest.raises(InvalidArgument):
            store.events(**bad)
    with pytest.raises(NotFound):
        store.events(run="nobody")


def test_events_of_a_deleted_run_are_left_out_and_positions_go_on(store: everstep.Store, d: Driver) -> None:
    async def body(run: Any) -> None:
        await run.step("s", d.plain(lambda: 1))

    for name in ("a", "b", "c"):
        d.loop(store, name, body)
    end = store.events().next
    store.delete("b")
    left = store.events()
    assert {e.run for e in left} == {"a", "c"}
    assert left.next == end
    d.loop(store, "b", body)
    assert {e.run for e in store.events(after=end or 0)} == {"b"}


def test_events_say_what_happened_to_a_run_in_words(store: everstep.Store, d: Driver) -> None:
    tries: list[int] = []

    def flaky() -> int:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("once")
        return 1

    @d.workflow(name="worded")
    async def work() -> None:
        await d.run.step("flaky", d.plain(flaky), retry=everstep.Retry(attempts=2, delay=0))
        d.run.random()
        await d.gate("ok", "Really?", choices=["yes"])

    store.start(work, id="r")
    store.answer("r", "ok", "yes", by="ann")
    store.resume("r").unwrap()
    events = store.events(run="r")
    assert [e.name for e in events] == [
        "run_created", "step_retrying", "step_succeeded", "value_drawn", "gate_opened", "checkpoint_created", "run_waiting",
        "run_running", "gate_answered", "checkpoint_created", "run_succeeded",
    ]  # fmt: skip
    by_name = {e.name: e.data for e in events}
    assert by_name["run_created"]["workflow"] == "worded"
    assert by_name["step_retrying"]["error"] == {"type": "ValueError", "message": "once"}
    assert by_name["gate_opened"]["ask"] == "Really?"
    assert (by_name["gate_answered"]["value"], by_name["gate_answered"]["by"]) == ("yes", "ann")


def test_what_a_program_says_is_said_once_however_often_it_is_replayed(store: everstep.Store, d: Driver) -> None:
    @d.workflow
    async def work() -> None:
        run = d.run
        run.emit("begun", n=1)
        await run.step("a", d.plain(lambda: 1))
        run.emit("begun", n=2)
        await run.step("b", d.plain(lambda: 1))
        if len(heard) < 4 and not again:
            raise Crash

    again: list[bool] = []
    heard: list[Any] = []
    store.on("custom:begun", lambda e: heard.append(e.data["n"]))
    with pytest.raises(Crash):
        store.start(work, id="r")
    again.append(True)
    store.resume("r").unwrap()
    assert heard == [1, 2]
    assert [e.data["n"] for e in store.events(run="r") if e.name == "custom:begun"] == [1, 2]


@pytest.mark.parametrize("name", ["", "a/b", "x#1"])
def test_an_event_with_a_name_that_makes_no_sense_is_refused(store: everstep.Store, name: str) -> None:
    with store.run("r") as run, pytest.raises(InvalidArgument):
        run.emit(name)
