"""Hooks: they are called in order, each in its own thread, and nothing that they do reaches the program that fires."""

import asyncio
import gc
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextvars import ContextVar, copy_context
from datetime import UTC, datetime
from typing import Any

import pytest

from everstep.errors import InvalidArgument, StoreClosed
from everstep.runtime.hooks import EVENTS, Hook, Hooks, HookStats
from everstep.store.events.event import Event
from everstep.testing.waiting import until

EVENT = Event("after_step", "r1", datetime(2026, 1, 1, tzinfo=UTC), {"step": "search#0"})
AMPLE = 60.0  # never reached by a call that ends
SHORT = 0.02  # reached by every call that waits for the test


@pytest.fixture
def hooks() -> Iterator[Hooks]:
    made = Hooks()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def elsewhere(work: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def outcome(code: str) -> str:
    """What a program prints that ends by itself with code 0."""
    begin = """
import atexit, os, signal, sys, threading, warnings
from datetime import UTC, datetime
from everstep.runtime.hooks import Hooks
from everstep.store.events.event import Event
warnings.simplefilter("ignore")
EVENT = Event("after_step", "r1", datetime.now(UTC))
hooks = Hooks()
forever = threading.Event()
"""
    done = subprocess.run([sys.executable, "-c", begin + code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("timeout", [AMPLE, None])
def test_a_hook_gets_the_event(hooks: Hooks, timeout: float | None) -> None:
    seen: list[Event] = []
    hook = hooks.add("after_step", seen.append, timeout=timeout)
    hooks.fire("after_step", EVENT)
    hooks.fire("before_step", EVENT)
    assert seen == [EVENT]
    assert (hook.stats.calls, hook.stats.failures, hook.stats.timeouts, hook.stats.skipped) == (1, 0, 0, 0)
    assert hook.stats.seconds >= 0
    assert hook.stats.last_error is None


def test_higher_priority_comes_first_and_equals_keep_their_order(hooks: Hooks) -> None:
    seen: list[str] = []
    for name, priority in [("a", 0), ("b", 5), ("c", 0), ("d", -1), ("e", 5)]:
        hooks.add("after_step", lambda event, name=name: seen.append(name), priority=priority, timeout=AMPLE)
    hooks.fire("after_step", EVENT)
    assert seen == ["b", "e", "a", "c", "d"]
    assert [hook.priority for hook in hooks.registered()] == [0, 5, 0, -1, 5]


def test_the_event_is_made_once_and_only_if_it_is_wanted(hooks: Hooks) -> None:
    made: list[Event] = []

    def make() -> Event:
        made.append(EVENT)
        return EVENT

    assert not hooks.wanted("after_step")
    hooks.fire("after_step", make)
    assert made == []
    seen: list[Event] = []
    mine = [hooks.add("after_step", seen.append, timeout=AMPLE) for _ in range(2)]
    assert hooks.wanted("after_step")
    hooks.fire("after_step", make)
    assert made == [EVENT]
    assert seen == [EVENT, EVENT]
    for hook in mine:
        hook.remove()
    assert not hooks.wanted("after_step")


def test_calls_of_a_hook_share_one_thread_that_is_not_the_callers(hooks: Hooks) -> None:
    idents: list[int] = []
    hooks.add("after_step", lambda event: idents.append(threading.get_ident()), timeout=AMPLE)
    for _ in range(5):
        hooks.fire("after_step", EVENT)
    assert len(idents) == 5
    assert len(set(idents)) == 1
    assert threading.get_ident() not in idents


def test_without_a_timeout_the_call_is_in_the_callers_thread(hooks: Hooks) -> None:
    idents: list[int] = []
    hooks.add("after_step", lambda event: idents.append(threading.get_ident()), timeout=None)
    hooks.fire("after_step", EVENT)
    assert idents == [threading.get_ident()]


@pytest.mark.parametrize("timeout", [AMPLE, None])
def test_what_a_hook_raises_is_counted_and_the_next_hook_is_called(hooks: Hooks, timeout: float | None) -> None:
    def broken(event: Event) -> None:
        raise ValueError("boom")

    seen: list[Event] = []
    hook = hooks.add("after_step", broken, timeout=timeout)
    hooks.add("after_step", seen.append, timeout=AMPLE)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        hooks.fire("after_step", EVENT)
        hooks.fire("after_step", EVENT)
    assert [warning.category for warning in told] == [RuntimeWarning]
    assert "broken at after_step raised ValueError: boom" in str(told[0].message)
    assert len(seen) == 2
    assert (hook.stats.calls, hook.stats.failures) == (2, 2)
    assert "in broken" in (hook.stats.last_error or "")
    assert (hook.stats.last_error or "").strip().endswith("ValueError: boom")


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
def test_not_even_an_exit_raised_in_a_hooks_thread_reaches_the_program(hooks: Hooks, error: BaseException) -> None:
    def leave(event: Event) -> None:
        raise error

    hook = hooks.add("after_step", leave, timeout=AMPLE)
    hooks.fire("after_step", EVENT)
    hooks.fire("after_step", EVENT)
    assert hook.stats.failures == 2


def test_an_exit_in_the_callers_own_thread_passes_through_and_the_hook_goes_on(hooks: Hooks) -> None:
    def stop(event: Event) -> None:
        raise KeyboardInterrupt

    hook = hooks.add("after_step", stop, timeout=None)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            hooks.fire("after_step", EVENT)
    assert (hook.stats.calls, hook.stats.skipped) == (2, 0)


def test_where_warnings_are_errors_the_program_goes_on_too(hooks: Hooks) -> None:
    hook = hooks.add("after_step", lambda event: 1 / 0, timeout=AMPLE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hooks.fire("after_step", EVENT)
    assert hook.stats.failures == 1


def test_a_hook_that_hangs_is_left_passed_over_and_called_again_when_it_is_back(hooks: Hooks) -> None:
    back, seen = threading.Event(), []

    def hang(event: Event) -> None:
        seen.append(event)
        back.wait()

    hook = hooks.add("after_step", hang, timeout=SHORT)
    with pytest.warns(RuntimeWarning, match=r"took longer than its timeout of 0\.02 s"):
        hooks.fire("after_step", EVENT)
    assert (hook.stats.timeouts, hook.stats.skipped) == (1, 0)
    hooks.fire("after_step", EVENT)
    hooks.fire("after_step", EVENT)
    assert (hook.stats.timeouts, hook.stats.skipped, len(seen)) == (1, 2, 1)
    back.set()
    until(lambda: hook.stats.calls == 1)
    hook.timeout = AMPLE
    until(lambda: not hook._workers[""].hangs())
    hooks.fire("after_step", EVENT)
    assert (hook.stats.calls, hook.stats.timeouts, hook.stats.skipped, len(seen)) == (2, 1, 2, 2)


def test_a_call_whose_turn_does_not_come_in_time_is_never_made(hooks: Hooks) -> None:
    back, begun, seen = threading.Event(), threading.Event(), []

    def hang(event: Event) -> None:
        seen.append(event)
        begun.set()
        back.wait()

    hook = hooks.add("after_step", hang, timeout=AMPLE)
    first = elsewhere(lambda: hooks.fire("after_step", EVENT))
    begun.wait()
    hook.timeout = SHORT  # the second caller waits in line, not for long
    hooks.fire("after_step", EVENT)
    assert (hook.stats.skipped, hook.stats.timeouts) == (1, 0)
    back.set()
    first.join()
    hook.timeout = AMPLE
    hooks.fire("after_step", EVENT)
    assert len(seen) == 2


def test_many_threads_fire_and_no_event_is_lost(hooks: Hooks) -> None:
    seen: list[Event] = []
    hook = hooks.add("after_step", seen.append, timeout=AMPLE)
    here: list[Event] = []
    inline = hooks.add("after_step", here.append, timeout=None)
    threads = [elsewhere(lambda: [hooks.fire("after_step", EVENT) for _ in range(50)]) for _ in range(8)]
    for thread in threads:
        thread.join()
    assert len(seen) == len(here) == hook.stats.calls == inline.stats.calls == 400
    assert hook.stats.skipped == hook.stats.timeouts == inline.stats.skipped == 0


@pytest.mark.parametrize("timeout", [AMPLE, None])
def test_the_callers_context_is_copied_and_not_changed(hooks: Hooks, timeout: float | None) -> None:
    var: ContextVar[str] = ContextVar("var", default="nobody")
    seen: list[str] = []

    def look(event: Event) -> None:
        seen.append(var.get())
        var.set("hook")

    async def alook(event: Event) -> None:
        look(event)

    hooks.add("after_step", look, timeout=timeout)
    hooks.add("after_step", alook, timeout=timeout)
    var.set("caller")
    hooks.fire("after_step", EVENT)
    assert seen == ["caller", "caller"]
    assert var.get() == "caller"


class AsyncCallable:
    def __init__(self) -> None:
        self.loops: list[asyncio.AbstractEventLoop] = []

    async def __call__(self, event: Event) -> None:
        await asyncio.sleep(0)
        self.loops.append(asyncio.get_running_loop())


@pytest.mark.parametrize("timeout", [AMPLE, None])
def test_an_async_hook_runs_to_its_end_in_one_loop_of_its_own(hooks: Hooks, timeout: float | None) -> None:
    fn = AsyncCallable()
    hook = hooks.add("after_step", fn, timeout=timeout)

    async def program() -> asyncio.AbstractEventLoop:
        hooks.fire("after_step", EVENT)
        return asyncio.get_running_loop()

    mine = asyncio.run(program())
    hooks.fire("after_step", EVENT)
    assert len(fn.loops) == 2
    assert fn.loops[0] is fn.loops[1]
    assert mine not in fn.loops
    assert (hook.stats.calls, hook.stats.failures) == (2, 0)
    hooks.close()
    assert fn.loops[0].is_closed()


def test_what_an_async_hook_raises_is_counted(hooks: Hooks) -> None:
    async def broken(event: Event) -> None:
        await asyncio.sleep(0)
        raise ValueError("boom")

    mine = [hooks.add("after_step", broken, timeout=timeout) for timeout in (AMPLE, None)]
    hooks.fire("after_step", EVENT)
    assert [(hook.stats.calls, hook.stats.failures) for hook in mine] == [(1, 1), (1, 1)]


@pytest.mark.parametrize("timeout", [AMPLE, None])
def test_a_hook_is_not_called_for_events_that_it_causes(hooks: Hooks, timeout: float | None) -> None:
    seen: list[Event] = []

    def again(event: Event) -> None:
        seen.append(event)
        hooks.fire("after_step", EVENT)

    hook = hooks.add("after_step", again, timeout=timeout)
    hooks.fire("after_step", EVENT)
    hooks.fire("after_step", EVENT)
    assert (len(seen), hook.stats.calls, hook.stats.skipped, hook.stats.timeouts) == (2, 2, 2, 0)


@pytest.mark.parametrize("timeout", [AMPLE, None])
@pytest.mark.parametrize("is_async", [True, False])
def test_two_hooks_that_cause_each_others_events_do_not_wait_for_each_other(hooks: Hooks, timeout: float | None, is_async: bool) -> None:
    seen: list[str] = []

    def to(name: str) -> Callable[[Event], Any]:
        def tell(event: Event) -> None:
            seen.append(name)
            hooks.fire(name, EVENT)

        async def atell(event: Event) -> None:
            tell(event)

        return atell if is_async else tell

    one = hooks.add("after_step", to("after_gate"), timeout=timeout)
    other = hooks.add("after_gate", to("after_step"), timeout=timeout)
    hooks.fire("after_step", EVENT)
    assert seen == ["after_gate", "after_step"]
    assert (one.stats.calls, one.stats.skipped, one.stats.timeouts) == (1, 1, 0)
    assert (other.stats.calls, other.stats.skipped, other.stats.timeouts) == (1, 0, 0)


def test_what_a_hook_has_left_behind_may_cause_its_events_once_it_is_over(hooks: Hooks) -> None:
    contexts: list[Any] = []
    hook = hooks.add("after_step", lambda event: contexts.append(copy_context()), timeout=AMPLE)
    hooks.fire("after_step", EVENT)
    contexts[0].run(hooks.fire, "after_step", EVENT)
    assert (hook.stats.calls, hook.stats.skipped) == (2, 0)


def test_hooks_can_be_added_and_removed_while_an_event_is_told(hooks: Hooks) -> None:
    seen: list[str] = []
    mine: dict[str, Hook] = {}

    def change(event: Event) -> None:
        seen.append("change")
        mine["change"].remove()
        mine["later"].remove()
        mine["new"] = hooks.add("after_step", lambda event: seen.append("new"), timeout=AMPLE)

    mine["change"] = hooks.add("after_step", change, timeout=AMPLE)
    mine["later"] = hooks.add("after_step", lambda event: seen.append("later"), timeout=AMPLE)
    hooks.fire("after_step", EVENT)
    assert seen == ["change"]
    hooks.fire("after_step", EVENT)
    assert seen == ["change", "new"]
    assert hooks.registered() == [mine["new"]]


def test_removing_twice_is_no_harm_and_shows(hooks: Hooks) -> None:
    hook = hooks.add("after_step", print)
    other = hooks.add("after_step", print)
    assert repr(hook) == "<everstep.Hook print at after_step>"
    hook.remove()
    hook.remove()
    assert repr(hook) == "<everstep.Hook print at after_step, removed>"
    assert hooks.registered() == [other]


def test_a_call_that_comes_too_late_for_a_removed_hook_is_sent_back(hooks: Hooks) -> None:
    fn = AsyncCallable()
    hook = hooks.add("after_step", fn, timeout=None)
    hooks.fire("after_step", EVENT)
    hook.remove()
    until(lambda: hook._workers[""].ended)
    hook._removed = False  # as a caller sees it that had looked just before
    hook._tell(EVENT)  # no limit: it would wait for ever
    assert len(fn.loops) == 1
    assert hook.stats.skipped == 1


def test_a_call_in_line_behind_the_end_of_its_thread_is_sent_back(hooks: Hooks) -> None:
    back, begun, seen = threading.Event(), threading.Event(), []

    async def hang(event: Event) -> None:
        seen.append(event)
        begun.set()
        back.wait()

    hook = hooks.add("after_step", hang, timeout=None)
    first = elsewhere(lambda: hooks.fire("after_step", EVENT))
    begun.wait()
    hook.remove()
    hook._removed = False  # as a caller sees it that had looked just before
    second = elsewhere(lambda: hook._tell(EVENT))
    until(lambda: hook._workers[""].inbox.qsize() == 2)
    back.set()
    first.join()
    second.join(AMPLE)
    assert not second.is_alive()
    assert (len(seen), hook.stats.calls, hook.stats.skipped) == (1, 1, 1)


def test_closed_hooks_end_their_threads_and_are_called_no_more(hooks: Hooks) -> None:
    seen: list[threading.Thread] = []
    hooks.add("after_step", lambda event: seen.append(threading.current_thread()), timeout=AMPLE)
    hooks.fire("after_step", EVENT)
    hooks.close()
    hooks.close()
    assert not seen[0].is_alive()
    hooks.fire("after_step", EVENT)
    assert len(seen) == 1
    assert hooks.registered() == []
    with pytest.raises(StoreClosed, match="no hook can be added"):
        hooks.add("after_step", print)


def test_a_hook_may_close_all_hooks(hooks: Hooks) -> None:
    closer = hooks.add("after_step", lambda event: hooks.close(), timeout=AMPLE)
    after = hooks.add("after_step", print, timeout=AMPLE)
    hooks.fire("after_step", EVENT)
    assert (closer.stats.calls, closer.stats.failures, closer.stats.timeouts, after.stats.calls) == (1, 0, 0, 0)


def test_closing_does_not_wait_for_a_call_that_hangs(hooks: Hooks) -> None:
    back = threading.Event()
    threads: list[threading.Thread] = []

    def hang(event: Event) -> None:
        threads.append(threading.current_thread())
        back.wait()

    hooks.add("after_step", hang, timeout=SHORT)
    hooks.fire("after_step", EVENT)
    joined: list[Any] = []
    threads[0].join = lambda *given: joined.append(given)  # type: ignore[method-assign]
    hooks.close()
    assert threads[0].is_alive()
    assert joined == []
    del threads[0].join
    back.set()
    threads[0].join()


def test_the_thread_of_a_forgotten_hook_ends() -> None:
    forgotten = Hooks()
    threads: list[threading.Thread] = []
    forgotten.add("after_step", lambda event: threads.append(threading.current_thread()), timeout=AMPLE)
    forgotten.fire("after_step", EVENT)
    del forgotten
    gc.collect()
    threads[0].join(AMPLE)
    assert not threads[0].is_alive()


def test_stats_are_a_copy(hooks: Hooks) -> None:
    hook = hooks.add("after_step", lambda event: None, timeout=AMPLE)
    before = hook.stats
    hooks.fire("after_step", EVENT)
    assert before == HookStats()
    assert hook.stats.calls == 1


@pytest.mark.parametrize("event", [*EVENTS, "custom:deployed", "custom:a.b/c:d-e", "custom:über"])
def test_events_that_there_are(hooks: Hooks, event: str) -> None:
    assert hooks.add(event, print).event == event
    assert hooks.wanted(event)


@pytest.mark.parametrize(
    "event", ["step", "after_Step", "", "custom:", "custom:a b", "custom:7", "custom:a|b", "deployed", None, 7, ["error"]]
)
def test_events_that_there_are_not(hooks: Hooks, event: Any) -> None:
    with pytest.raises(InvalidArgument, match="unknown event") as refused:
        hooks.add(event, print)
    assert repr(event) in refused.value.message
    assert all(name in refused.value.remedy for name in ("before_checkpoint", "after_run", "interrupt", "custom:name"))


@pytest.mark.parametrize(("given", "words"), [
    ({"fn": "print"}, "a hook must be callable, got 'print'"), ({"priority": 1.5}, "got 1.5"), ({"priority": True}, "got True"), ({"priority": None}, "got None"),
    ({"timeout": 0}, "got 0"), ({"timeout": -1}, "got -1"), ({"timeout": True}, "got True"), ({"timeout": float("nan")}, "got nan"),
    ({"timeout": float("inf")}, "got inf"), ({"timeout": 1e300}, "got 1e"), ({"timeout": "1"}, "got '1'"),
])  # fmt: skip
def test_wrong_arguments_are_refused(hooks: Hooks, given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        hooks.add(**{"event": "error", "fn": print, **given})
    assert words in refused.value.message
    assert refused.value.remedy.startswith("Give ")
    assert hooks.registered() == []


def test_ctrl_c_ends_the_wait_and_the_program_is_not_held_up() -> None:
    assert (
        outcome("""
def hang(event):
    os.kill(os.getpid(), signal.SIGINT)
    forever.wait()
hook = hooks.add("after_step", hang, timeout=1000)
try:
    hooks.fire("after_step", EVENT)
except KeyboardInterrupt:
    hooks.fire("after_step", EVENT)
    print("interrupted", hook.stats.skipped)
""")
        == "interrupted 1"
    )


def test_a_signal_handler_may_fire_while_its_thread_waits_for_the_same_hook() -> None:
    assert (
        outcome("""
signal.signal(signal.SIGUSR1, lambda number, frame: hooks.fire("after_step", EVENT))
told = []
def tell(event):
    told.append(event)
    if len(told) == 1:
        os.kill(os.getpid(), signal.SIGUSR1)
hook = hooks.add("after_step", tell, timeout=1000)
hooks.fire("after_step", EVENT)
print(len(told), hook.stats.calls)
""")
        == "2 2"
    )


def test_a_program_ends_while_hooks_hang_or_are_told_of_its_end() -> None:
    assert (
        outcome("""
async def ahang(event):
    forever.wait()
hooks.add("after_step", lambda event: forever.wait(), timeout=0.01)
hooks.add("after_step", ahang, timeout=0.01)
hooks.fire("after_step", EVENT)
hooks.add("after_run", lambda event: print("told", end=" "), timeout=1000)
hooks.fire("after_run", EVENT)
late = hooks.add("after_run", lambda event: None, timeout=1000)
atexit.register(lambda: (hooks.fire("after_run", EVENT), print(late.stats.calls + late.stats.skipped)))
""")
        == "told told 1"
    )


def test_a_hook_is_passed_over_when_the_interpreter_is_ending() -> None:
    assert (
        outcome("""
async def tell(event):
    pass
hook = hooks.add("after_run", tell, timeout=None)
hooks.fire("after_run", EVENT)
class Last:
    def __init__(self, *kept):
        self.kept = kept
    def __del__(self):
        hooks, hook, event, write, ending = self.kept
        hooks.fire("after_run", event)  # no limit: it would wait for ever
        write(1, f"{ending()} {hook.stats.calls} {hook.stats.skipped}".encode())
last = Last(hooks, hook, EVENT, os.write, sys.is_finalizing)
""")
        == "True 1 1"
    )


FORKED = """
def in_child(work):
    child = os.fork()
    if not child:
        code = 1
        try:
            code = work()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


def test_a_hook_works_in_a_forked_child() -> None:
    assert outcome(
        FORKED
        + """
told = []
hook = hooks.add("after_step", told.append, timeout=1000)
hooks.fire("after_step", EVENT)
print(in_child(lambda: hooks.fire("after_step", EVENT) or 10 + len(told)))
hooks.fire("after_step", EVENT)
print(len(told))
"""
    ).split() == ["12", "2"]


def test_a_hook_that_hangs_in_the_parent_does_not_in_the_child_whatever_is_locked() -> None:
    assert (
        outcome(
            FORKED
            + """
parent = os.getpid()
hook = hooks.add("after_step", lambda event: os.getpid() == parent and forever.wait(), timeout=0.01)
hooks.fire("after_step", EVENT)
hook.timeout = 1000
locked = threading.Event()
def keep():
    with hook._lock, hooks._lock:
        locked.set()
        forever.wait()
threading.Thread(target=keep, daemon=True).start()
locked.wait()
def work():
    hooks.fire("after_step", EVENT)
    hooks.add("after_gate", print)
    hooks.close()
    return 10 + hook.stats.calls
print(in_child(work))
"""
        )
        == "11"
    )


def test_a_child_that_is_forked_inside_of_a_hook_can_fire_and_ends() -> None:
    assert (
        outcome("""
told = []
codes = []
hooks.add("after_gate", told.append, timeout=1000)
hooks.fire("after_gate", EVENT)
def fork(event):
    child = os.fork()
    if child:
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    else:
        hooks.fire("after_gate", EVENT)
        os.write(1, f"child {len(told)} ".encode())
hooks.add("after_step", fork, timeout=1000)
hooks.fire("after_step", EVENT)
print("parent", len(told), codes)
""")
        == "child 2 parent 1 [0]"
    )


def test_no_thread_is_started_for_a_hook_that_is_never_told(hooks: Hooks) -> None:
    before = threading.active_count()
    for event in EVENTS:
        hooks.add(event, print)
    assert threading.active_count() == before


def test_a_hook_that_gets_no_thread_is_skipped(hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    hook = hooks.add("after_step", lambda event: None, timeout=AMPLE)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.warns(RuntimeWarning, match="could not start a thread: can't start new thread"):
        hooks.fire("after_step", EVENT)
    assert (hook.stats.calls, hook.stats.skipped) == (0, 1)
    monkeypatch.undo()
    hooks.fire("after_step", EVENT)
    assert hook.stats.calls == 1
