"""A configuration that changes while its store is open: what can change does, what cannot is named, and a broken file changes nothing."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hook_functions
import pytest

import everstep
from everstep.config import watch
from everstep.config.settings import load
from everstep.config.watch import Watch
from everstep.testing.waiting import until

FIRST = 'store = "memory://"\nreload = "file"\n'


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "SECONDS", 0.02)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What was warned of, by whichever thread."""
    texts: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        monkeypatch.setattr(warnings, "showwarning", lambda message, *rest: texts.append(str(message)))
        yield texts


def put(text: str) -> None:
    """As an editor does it: whole, and at once."""
    Path("everstep.toml.new").write_text(text)
    os.replace("everstep.toml.new", "everstep.toml")


@pytest.mark.filterwarnings("ignore:schedule changed")
@pytest.mark.parametrize(
    ("line", "look", "value"),
    [
        ('policy = "every 2 steps"', lambda s: str(s.policy), "every 2 steps"),
        ('durability = "exit"', lambda s: s.durability, "exit"),
        ("[limits]\nsteps = 3\ntimeout = 2", lambda s: (s.budget, s.timeout), (everstep.Budget(steps=3), 2)),
        ('[compression]\ncodec = "none"\nthreshold = 5', lambda s: s.framer._threshold, 5),
        ("[retention]\nkeep_last = 3", lambda s: s.get_retention(), everstep.Retention(keep_last=3)),
        ('protect = ["gold"]', lambda s: s.protect, ("gold",)),
        ('[redaction]\nstore = true\nkeys = ["pin"]', lambda s: s.mask is not None and s.mask.redactor.names("pin"), True),
        ('preset = "high_throughput"', lambda s: s.durability, "async"),
        ('[[hooks]]\nevent = "error"\ncall = "hook_functions:heard"', lambda s: [h.fn for h in s.hooks()], [hook_functions.heard]),
    ],
)
def test_what_can_change_changes(line: str, look: Any, value: Any) -> None:
    put(FIRST)
    with everstep.open() as store:
        assert look(store) != value
        before = look(store)
        put(FIRST + line + "\n")
        until(lambda: look(store) == value)
        put(FIRST)
        until(lambda: look(store) == before)


def test_the_next_decision_of_an_open_run_goes_by_the_new_policy() -> None:
    put(FIRST + 'policy = "every 100 steps"\n')
    with everstep.open() as store, store.run("r") as run, store.run("own", policy="every 100 steps") as own:
        run.step("one", lambda: 1)
        assert len(store.checkpoints("r")) == 0
        put(FIRST + 'policy = "every step"\n')
        until(lambda: str(store.policy) == "every 1 step")
        run.step("one", lambda: 2)
        own.step("one", lambda: 2)
        assert len(store.checkpoints("r")) == 1
        assert len(store.checkpoints("own")) == 0  # it chose its own


def test_an_open_workflow_goes_by_the_new_interval() -> None:
    put(FIRST + 'policy = "every 1000 s"\n')
    with everstep.open() as store:

        def flow() -> None:
            run = everstep.current()
            run.step("one", lambda: 1)
            put(FIRST + 'policy = "every 0.01 s"\n')
            until(lambda: str(store.policy) == "every 0.01 s")
            run.step("long", lambda: until(lambda: len(store.checkpoints("w")) > 0))

        assert store.start(flow, id="w").status == "succeeded"


def test_from_manual_to_a_policy_and_back_while_a_run_is_open() -> None:
    put(FIRST)
    with everstep.open() as store, store.run("r") as run:
        for text, made in ((FIRST + 'policy = "every step"\n', 1), (FIRST, 1), (FIRST + 'policy = "on step"\n', 2)):
            put(text)
            until(lambda text=text: str(store.policy) != "manual" if "policy" in text else str(store.policy) == "manual")  # type: ignore[misc]
            run.step("one", lambda: 1)
            assert len(store.checkpoints("r")) == made


def test_a_broken_file_keeps_the_old_values_and_says_so_once_for_each_change(said: list[str]) -> None:
    put(FIRST + 'policy = "every 3 steps"\n')
    with everstep.open() as store:
        put(FIRST + 'policy = "sometimes"\ndurability = "exit"\n')
        until(lambda: said)
        time.sleep(0.2)
        assert len(said) == 1
        assert "was not reloaded and stays as it was: everstep.toml:3: policy must be " in said[0]
        assert (str(store.policy), store.durability) == ("every 3 steps", "sync")  # nothing of it was taken
        put(FIRST + 'policy = "sometimes"\n')
        until(lambda: len(said) == 2)
        put("broken = \n")
        until(lambda: len(said) == 3)
        assert "everstep.toml:1: invalid TOML" in said[2]
        Path("everstep.toml").unlink()
        until(lambda: len(said) == 4)
        assert "cannot be read" in said[3]
        put(FIRST + 'policy = "every 4 steps"\n')
        until(lambda: str(store.policy) == "every 4 steps")
        assert len(said) == 4


def test_a_hook_that_cannot_be_imported_keeps_the_old_ones(said: list[str]) -> None:
    hook = '[[hooks]]\nevent = "after_checkpoint"\ncall = "hook_functions:{}"\n'
    put(FIRST + hook.format("heard"))
    hook_functions.HEARD.clear()
    with everstep.open() as store:
        put(FIRST + hook.format("gone"))
        until(lambda: said)
        with store.run("r") as run:
            run.checkpoint()
        assert hook_functions.HEARD == ["after_checkpoint"]
        put(FIRST + hook.format("other"))
        until(lambda: [h.fn for h in store.hooks()] == [hook_functions.other])


def test_hooks_of_the_program_stay_when_those_of_the_file_change() -> None:
    put(FIRST + '[[hooks]]\nevent = "error"\ncall = "hook_functions:heard"\n')
    with everstep.open() as store:
        own = store.on("error", print)
        put(FIRST)
        until(lambda: store.hooks() == [own])


def test_what_needs_a_new_start_is_named(said: list[str]) -> None:
    put(FIRST)
    with everstep.open() as store:
        put(
            'store = "other.db"\nreload = "file"\nlease_seconds = 5\nenabled = false\npolicy = "off"\nimports = ["a"]\nschedule = "daily"\n'
        )
        until(lambda: said)
        for name in ("enabled", "imports", "lease_seconds", "policy", "schedule", "store"):
            assert name in said[0].partition(" changed")[0]
        assert "takes effect when the store is opened again" in said[0]
        assert store.enabled
        assert str(store.policy) == "manual"
    assert not Path("other.db").exists()


@pytest.mark.filterwarnings("ignore:schedule changed")
def test_what_was_given_to_open_is_never_touched() -> None:
    put(FIRST)
    with everstep.open(
        policy="every 9 steps", durability="sync", compression="none", retention=None, protect=["a"], redaction=None
    ) as store:
        put(FIRST + 'preset = "production"\npolicy = "every step"\nprotect = ["b"]\n[redaction]\nstore = true\n[limits]\nsteps = 3\n')
        until(lambda: store.budget is not None)
        time.sleep(0.05)
        assert store.mask is None
        assert str(store.policy) == "every 9 steps"
        assert store.durability == "sync"
        assert store.get_retention() is None
        assert store.protect == ("a",)


def test_the_environment_still_wins_after_a_reload(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERSTEP_POLICY", "every 7 steps")
    put(FIRST)
    with everstep.open() as store:
        put(FIRST + 'policy = "every step"\n[limits]\nsteps = 3\n')
        until(lambda: store.budget is not None)
        assert str(store.policy) == "every 7 steps"


def test_redaction_that_is_switched_on_holds_for_runs_opened_from_then_on() -> None:
    put(FIRST)
    with everstep.open() as store:
        with store.run("before", state={"password": "x"}) as run:
            put(FIRST + "[redaction]\nstore = true\n")
            until(lambda: store.mask is not None)
            run.step("one", lambda password: password, "x")
            run.checkpoint()
        with store.run("after", state={"password": "x"}) as run:
            run.checkpoint()
        assert store.load("before") == {"password": "x"}
        assert store.load("after") == {"password": "[redacted]"}


def test_the_watch_ends_with_its_store_and_with_a_store_that_is_forgotten() -> None:
    def watching() -> int:
        return sum(thread.name == "everstep-config" for thread in threading.enumerate())

    put(FIRST)
    everstep.open().close()
    assert watching() == 0
    with everstep.open(), everstep.open():
        assert watching() == 2
    assert watching() == 0
    forgotten = everstep.open()
    assert watching() == 1
    del forgotten
    gc.collect()
    until(lambda: watching() == 0)


def test_a_watch_can_be_asked_to_reload_by_hand() -> None:
    put('store = "memory://"\n')
    with everstep.open() as store:
        by_hand = Watch(store, load(environ={}))
        put('store = "memory://"\npolicy = "every step"\n')
        assert by_hand.reload()
        assert str(store.policy) == "every 1 step"
        put("nonsense = 1\n")
        with pytest.warns(UserWarning, match="nonsense"):
            assert not by_hand.reload()
        by_hand.stop()
        assert not by_hand.reload()


def test_where_warnings_are_errors_the_watch_goes_on() -> None:
    put(FIRST)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with everstep.open() as store:
            put("nonsense = 1\n")
            time.sleep(0.2)
            put(FIRST + 'policy = "every step"\n')
            until(lambda: str(store.policy) == "every 1 step")


def test_a_signal_is_not_listened_to_outside_the_main_thread(said: list[str]) -> None:
    put('store = "memory://"\nreload = "signal"\n')
    before = signal.getsignal(signal.SIGHUP)
    thread = threading.Thread(target=lambda: everstep.open().close())
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGHUP) == before
    assert "only works in the main thread" in said[0]


def test_the_programs_handler_comes_back_when_the_store_is_closed() -> None:
    put('store = "memory://"\nreload = "signal"\n')
    calls: list[int] = []
    former = signal.signal(signal.SIGHUP, lambda number, frame: calls.append(number))
    try:
        mine = signal.getsignal(signal.SIGHUP)
        first, second = everstep.open(), everstep.open()
        put('store = "memory://"\nreload = "signal"\npolicy = "every step"\n')
        os.kill(os.getpid(), signal.SIGHUP)
        until(lambda: str(first.policy) == str(second.policy) == "every 1 step")
        assert calls == [signal.SIGHUP]
        first.close()
        os.kill(os.getpid(), signal.SIGHUP)
        until(lambda: len(calls) == 2)
        second.close()
    finally:
        left = signal.signal(signal.SIGHUP, former)
    assert left is mine


PROGRAM = """
import signal, sys, time
import everstep

heard = []
signal.signal(signal.SIGHUP, lambda *a: heard.append(1))
with everstep.open() as store, store.run("r") as run:
    print("ready", flush=True)
    last = None
    for line in sys.stdin:
        run.step("one", lambda: 1)
        print(str(store.policy), len(store.checkpoints("r")), len(heard), flush=True)
"""


def test_sighup_reloads_in_a_real_process() -> None:
    put('store = "runs.db"\nreload = "signal"\n')
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None

        def ask() -> list[str]:
            process.stdin.write("\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            return process.stdout.readline().split()  # type: ignore[union-attr]

        assert process.stdout.readline() == "ready\n"
        assert ask() == ["manual", "0", "0"]
        put('store = "runs.db"\nreload = "signal"\npolicy = "every step"\n')
        assert ask()[0] == "manual"  # only the signal counts
        process.send_signal(signal.SIGHUP)
        until(lambda: ask()[:3] == ["every", "1", "step"])
        assert int(ask()[3]) > 0
        put("broken\n")
        process.send_signal(signal.SIGHUP)
        until(lambda: ask()[-1] == "2")
        assert ask()[:3] == ["every", "1", "step"]
        process.stdin.close()
        errors = process.stderr.read()
        assert process.wait(20) == 0, errors
        assert "was not reloaded and stays as it was: everstep.toml:1: invalid TOML" in errors


def test_a_program_may_change_its_folder(here: Path) -> None:
    put(FIRST)
    (here / "elsewhere").mkdir()
    with everstep.open(config="everstep.toml") as store:
        put(FIRST + 'policy = "every step"\n')
        os.chdir("elsewhere")
        until(lambda: str(store.policy) == "every 1 step")


def test_a_rhythm_that_is_taken_away_and_given_back_while_a_step_runs() -> None:
    put(FIRST + 'policy = "every 0.02 s"\n')
    with everstep.open() as store:

        def long() -> None:
            until(lambda: len(store.checkpoints("r")) > 0)
            put(FIRST)
            until(lambda: str(store.policy) == "manual")
            time.sleep(0.1)  # one may be on its way
            before = len(store.checkpoints("r"))
            time.sleep(0.3)
            assert len(store.checkpoints("r")) == before
            put(FIRST + 'policy = "every 0.03 s"\n')
            until(lambda: len(store.checkpoints("r")) > before)

        with store.run("r") as run:
            run.step("long", long)


def test_many_runs_open_and_end_while_the_policy_changes() -> None:
    put(FIRST)
    with everstep.open() as store:
        by_hand = Watch(store, load(environ={}))
        over = threading.Event()

        def turn() -> None:
            while not over.is_set():
                for policy in ("every step", "every 0.01 s", "manual"):
                    put(FIRST + f'policy = "{policy}"\n')
                    assert by_hand.reload()

        changing = threading.Thread(target=turn)
        changing.start()
        try:
            for n in range(200):
                with store.run(f"r{n}") as run:
                    run.step("one", lambda: 1)
        finally:
            over.set()
            changing.join()
        assert len(store.runs(status="succeeded", limit=1000)) == 200
