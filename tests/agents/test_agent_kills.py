"""kill -9 at every commit of an agent: it goes on, pays for nothing that was finished, and ends as if nothing had happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import killed_agent
import pytest
import warm

import everstep

COMMITS = 14
CALLS = {"plan#0": 1, "think#0": 1, "think#1": 1, "think#2": 1, "fetch 0": 1, "fetch 1": 1, "fetch 2": 1, "fetch 3": 1}
ANSWER = "600 by plan ['look', 'compare', 'answer']"


def child(folder: Path, way: str, number: int, when: str) -> subprocess.CompletedProcess[str]:
    package = str(Path(everstep.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([package, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, killed_agent.__file__, str(folder / "s.db"), str(folder / "bill"), way, str(number), when]
    return warm.run(command, env=environment, capture_output=True, text=True, timeout=120)


def paid(folder: Path) -> Counter[str]:
    bill = folder / "bill"
    return Counter(bill.read_text().splitlines() if bill.exists() else ())


def finished(store: everstep.Store) -> set[str]:
    """What the journal says was finished, in the words of the bill."""
    found = set()
    for step in store.steps("a"):
        if step.name in ("fetch", "act"):
            found.add(f"fetch {step.result['result'] // 100}")
        elif step.name != "now":
            found.add(step.address)
    return found


def plain(state: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in state.items() if name not in ("started_at", "updated_at")}


@pytest.mark.parametrize("way", ["sync", "async"])
def test_undisturbed_it_makes_so_many_commits(tmp_path: Path, way: str) -> None:
    done = child(tmp_path, way, 0, "never")
    assert done.stdout.splitlines() == [ANSWER, str(COMMITS)], done.stderr
    assert paid(tmp_path) == CALLS


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(1, COMMITS + 1))
def test_killed_at_any_commit_it_goes_on(tmp_path: Path, number: int, when: str) -> None:
    way = ("sync", "async")[number % 2]
    done = child(tmp_path, way, number, when)
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
    with everstep.open(tmp_path / "s.db", checking=True) as store:
        kept = finished(store) if list(store.runs()) else set()
        before = paid(tmp_path)
        assert all(before[name] == 1 for name in kept)
        out = killed_agent.run(killed_agent.make(tmp_path / "bill"), store, way)
        assert (out.status, out.result) == ("succeeded", ANSWER)
        after = paid(tmp_path)
        assert [name for name in kept if after[name] != 1] == []
        extra = after - Counter(CALLS)
        assert set(after) == set(CALLS)
        assert sum(extra.values()) <= 2  # at most what was in flight: one, or the two of a parallel turn
        if when == "after" and number not in (9, 10):  # between the two of them, the other one is in flight
            assert extra.total() == 0
        calm = everstep.open("memory://")
        killed_agent.run(killed_agent.make(tmp_path / "calm"), calm, way)
        assert plain(store.load("a")) == plain(calm.load("a"))
        assert store.verify("full").ok
