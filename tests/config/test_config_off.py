"""Switched off, Everstep is not there: no file, no thread, no hook, and a step is a call."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import everstep

OFF = 'enabled = false\nstore = "sub/x.db"\nreload = "file"\nschedule = "on_open"\n[retention]\nkeep_last = 1\n[[hooks]]\nevent = "error"\ncall = "no_such_module:f"\n'


def twice(number: int) -> int:
    return number * 2


def test_nothing_is_made_and_nothing_is_started() -> None:
    Path("everstep.toml").write_text(OFF)
    before = {thread.ident for thread in threading.enumerate()}
    with everstep.open() as store:
        with store.run("r", state={"a": 1}) as run:
            assert run.step("one", lambda x: x + 1, 1) == 2
            run.checkpoint(note="n", tags=["t"])
            assert run.state == {"a": 1}
        assert store.start(twice, 4).result == 8
        assert {thread.ident for thread in threading.enumerate()} == before
        assert store.hooks() == []
    assert sorted(path.name for path in Path.cwd().rglob("*")) == ["everstep.toml"]


@pytest.mark.parametrize("value", ["false", "0", "off", "no"])
def test_the_environment_switches_off_for_one_start(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("EVERSTEP_ENABLED", value)
    with everstep.open() as store:
        assert not store.enabled
    assert list(Path.cwd().iterdir()) == []


def test_a_program_gives_the_same_with_and_without(here: Path) -> None:
    (here / "program.py").write_text(
        "import everstep\n"
        "def add(a, b): return a + b\n"
        "with everstep.open() as store, store.run('sum') as run:\n"
        "    total = 0\n"
        "    for n in range(5):\n"
        "        total = run.step('add', add, total, n)\n"
        "        run.state['total'] = total\n"
        "        run.checkpoint()\n"
        "    print(total, run.state)\n"
    )

    def output() -> str:
        return subprocess.run([sys.executable, "program.py"], capture_output=True, text=True, check=True).stdout

    (here / "everstep.toml").write_text(OFF)
    off = output()
    assert not (here / "sub").exists()
    (here / "everstep.toml").write_text('store = "x.db"\n')
    assert output() == off
    assert (here / "x.db").exists()


def test_a_step_costs_about_as_much_as_a_call() -> None:
    Path("everstep.toml").write_text(OFF)
    with everstep.open() as store, store.run("r") as run:
        work = abs
        best = min(_seconds(lambda: run.step("s", work, -1)) for _ in range(5))
    assert best < 20e-6  # a recorded one takes twenty times as long, without a disk


def _seconds(call: object) -> float:
    began = time.perf_counter()
    for _ in range(2000):
        call()  # type: ignore[operator]
    return (time.perf_counter() - began) / 2000
