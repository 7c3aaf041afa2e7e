"""A store that is used in the middle of a save of the same thread: an error or the result, never a hang.

Signal handlers, finalizers and collected generators run between any two lines of a save. Each program runs in a process of its own with a
watchdog, because a hang can't be seen from inside.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import warm

import everstep

SECONDS = 40


def run(program: str, *args: str, seconds: float = SECONDS) -> subprocess.CompletedProcess[str]:
    """A program in a process of its own; TimeoutExpired if it hangs."""
    return warm.run([sys.executable, "-c", textwrap.dedent(program), *args], capture_output=True, text=True, timeout=seconds, check=False)


COLLECTED = """
    import gc, sys, everstep
    store = everstep.open(sys.argv[1])

    class Saver:
        def __init__(self, n):
            self.run = store.run(f"saver-{n}")
            self.run.__enter__()
            self.me = self  # a cycle: only the collector finds it
        def __del__(self):
            try:
                self.run.checkpoint()
            except everstep.EverstepError as error:
                print(error.code)
            self.run.__exit__(None, None, None)

    def abandoned(n):
        with store.run(f"gen-{n}") as run:
            run.state["n"] = n
            run.checkpoint()
            me = (yield)
            yield me

    gc.disable()
    with store.run("main") as run:
        for n in range(6):
            generator = abandoned(n)
            next(generator)
            generator.send(generator)  # a cycle
            del generator
            Saver(n)
            gc.enable()
            gc.set_threshold(1)
            run.state["n"] = [{"x": i} for i in range(50)]
            run.checkpoint()
            gc.set_threshold(700)
            gc.collect()
            gc.disable()
    store.close()
    print("closed")
"""


@pytest.mark.parametrize("kind", ["sqlite", "memory", "postgres"])
def test_what_is_collected_during_a_save_does_not_hang(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    place = str(tmp_path / "s.db") if kind == "sqlite" else "memory://" if kind == "memory" else request.getfixturevalue("place")
    ended = run(COLLECTED, place)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert ended.stdout.split()[-1] == "closed"
    assert set(ended.stdout.split()[:-1]) <= {"E308"}
    if kind == "memory":
        return
    with everstep.open(place) as store:
        assert store.verify("full").ok
        assert store.get("main").status == "succeeded"
        for n in range(6):  # the lease was given back: another process could go on
            with store.run(f"gen-{n}") as resumed:
                assert resumed.state["n"] == n


SIGNALS = """
    import faulthandler, random, signal, sys, time, everstep
    faulthandler.dump_traceback_later(30, exit=True)
    place, seconds = sys.argv[1], float(sys.argv[2])
    store = everstep.open(place)
    other = store.run("handler").__enter__()
    done = {"saved": 0, "refused": 0, "loaded": 0}

    def soon():
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0002, 0.004))

    def handler(number, frame):
        try:
            other.state["saved"] = done["saved"] + 1
            other.checkpoint()
            done["saved"] += 1
        except everstep.EverstepError as error:
            assert error.code == "E308", error
            done["refused"] += 1
        try:
            store.load("main")
            done["loaded"] += 1
        except everstep.EverstepError as error:
            assert error.code == "E308", error
        soon()

    signal.signal(signal.SIGALRM, handler)
    with store.run("main") as run:
        run.state["n"] = 0
        run.checkpoint()
        soon()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            run.state["n"] += 1
            run.checkpoint()
            run.step("x", lambda: 1)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        n = run.state["n"]
    other.__exit__(None, None, None)
    assert store.load("main")["n"] == n
    assert store.load("handler")["saved"] >= done["saved"]
    assert store.verify("full").ok
    store.close()
    print(n, done["saved"], done["refused"], done["loaded"])
"""


@pytest.mark.parametrize("kind", ["sqlite", "memory", "postgres"])
def test_a_signal_handler_that_saves_is_served_or_refused(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    place = str(tmp_path / "s.db") if kind == "sqlite" else "memory://" if kind == "memory" else request.getfixturevalue("place")
    ended = run(SIGNALS, place, "1.5")
    assert ended.returncode == 0, ended.stderr[-2000:]
    n, saved, refused, _ = map(int, ended.stdout.split())
    assert n > 5
    assert saved + refused > 5
    assert refused > 0


PASSED = """
    import faulthandler, random, signal, sys, time, everstep
    from everstep.errors import NotFound, Reentered
    faulthandler.dump_traceback_later(30, exit=True)
    place, seconds = sys.argv[1], float(sys.argv[2])
    store = everstep.open(place)
    other = store.run("handler").__enter__()
    other.checkpoint()

    def soon():
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0001, 0.003))

    def handler(number, frame):
        if random.random() < 0.3:
            store.load("nothing")  # its error passes, too
        other.checkpoint()

    signal.signal(signal.SIGALRM, handler)
    interrupted = made = n = 0
    with store.run("main", state={"n": 0}) as run:
        run.checkpoint()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            before, n = n, n + 1
            run.state["n"] = n
            try:
                try:
                    soon()
                    run.checkpoint()
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except (Reentered, NotFound) as error:
                interrupted += isinstance(error, Reentered)
                stored = store.load("main")["n"]
                assert stored in (before, n), (stored, n)
                run.checkpoint()
            assert store.load("main")["n"] == n
            made += 1
    other.__exit__(None, None, None)
    assert store.verify("full").ok
    store.close()
    print(made, interrupted)
"""


@pytest.mark.parametrize("kind", ["sqlite", "memory", "postgres"])
def test_an_error_that_a_handler_lets_pass_leaves_the_save_made_or_not(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    place = str(tmp_path / "s.db") if kind == "sqlite" else "memory://" if kind == "memory" else request.getfixturevalue("place")
    interrupted = 0
    for _ in range(2):
        ended = run(PASSED, place, "1")
        assert ended.returncode == 0, ended.stderr[-3000:]
        interrupted += int(ended.stdout.split()[1])
    assert interrupted > 0


def test_a_handle_that_is_collected_gives_its_lease_back(tmp_path: Path) -> None:
    program = """
        import gc, sys, threading, time, everstep
        store = everstep.open(sys.argv[1])
        def work():
            run = store.run("lost").__enter__()
            run.state["n"] = 1
            run.checkpoint()
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        del thread
        gc.collect()
        other = everstep.open(sys.argv[1])
        until = time.monotonic() + 10
        while True:
            try:
                with other.run("lost") as run:
                    assert run.state["n"] == 1
                break
            except everstep.errors.LeaseHeld:
                assert time.monotonic() < until, "the lease is still held"
                time.sleep(0.02)
        print("resumed")
    """
    ended = run(program, str(tmp_path / "s.db"))
    assert ended.stdout.strip() == "resumed", ended.stderr[-2000:]


CANARY = """
    import sys, everstep
    from everstep.threads import guard
    if sys.argv[2] == "broken":
        guard.enter = guard.Guard.check = lambda section: None
        for module in list(sys.modules.values()):
            if getattr(module, "__name__", "").startswith("everstep.backends") and hasattr(module, "enter"):
                module.enter = guard.enter
    store = everstep.open(sys.argv[1])
    run = store.run("a").__enter__()
    other = store.run("b").__enter__()
    state = {"armed": True}

    def trace(frame, event, arg):
        if frame.f_code.co_name == "apply" and state.pop("armed", None):
            try:
                other.checkpoint()
            except everstep.EverstepError as error:
                print(error.code)
        return None

    sys.settrace(trace)
    run.checkpoint()
    sys.settrace(None)
    print("over")
"""


def test_the_watchdog_catches_a_lock_without_the_check(tmp_path: Path) -> None:
    """Canary: without the check this program hangs, and the watchdog sees it."""
    assert run(CANARY, str(tmp_path / "good.db"), "good").stdout.split() == ["E308", "over"]
    with pytest.raises(subprocess.TimeoutExpired):
        run(CANARY, str(tmp_path / "bad.db"), "broken", seconds=5)
