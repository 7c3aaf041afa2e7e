"""A graph is killed with kill -9 at its model and tool calls and resumed in a new process: every finished call was made once, nothing is lost."""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph", reason="pip install 'everstep[langgraph,dev-adapters]'")

import warm
from langgraph_graph import CALLS, Calls, build, run

import everstep
from everstep.adapters.langgraph import Saver

PROGRAM = Path(__file__).with_name("langgraph_graph.py")
DEEP = bool(os.environ.get("EVERSTEP_DEEP"))
EVERY = [*range(1, CALLS + 1), *range(-CALLS, 0)]
EXPECTED = ["model 0", "search bike", "search lock", "model 1", "charge 30", "model 2"]


def start(url: str, log: Path, kill_at: int = 0) -> Any:
    return warm.run(
        [sys.executable, str(PROGRAM), url, "user@example.com", str(log), str(kill_at)], capture_output=True, text=True, timeout=60
    )


def check(url: str, log: Path, kills: list[int], undisturbed: str) -> None:
    for kill_at in kills:
        done = start(url, log, kill_at)
        assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
    done = start(url, log)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == undisturbed
    with everstep.open(url) as store:
        assert store.verify("full").ok


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("undisturbed")
    done = start(str(folder / "s.db"), folder / "log")
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


@pytest.mark.parametrize("kill_at", EVERY if DEEP else [-5])
def test_a_killed_graph_makes_every_finished_call_once(kill_at: int, tmp_path: Path, undisturbed: str) -> None:
    log = tmp_path / "log"
    check(str(tmp_path / "s.db"), log, [kill_at], undisturbed)
    made = log.read_text().split("\n")[:-1]
    assert sorted(set(made)) == sorted(EXPECTED)
    # A call that was cut off after its effect and before its result was recorded is made again: nobody can know.
    assert len(made) == CALLS + (kill_at > 0)


@pytest.mark.skipif(not DEEP, reason="EVERSTEP_DEEP=1 runs it: 20 random kills on each store")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_random_kills_lose_nothing(kind: str, tmp_path: Path, undisturbed: str, request: pytest.FixtureRequest) -> None:
    url = str(tmp_path / "s.db") if kind == "sqlite" else request.getfixturevalue("place")
    chance = random.Random(18)
    for round_ in range(10):
        log = tmp_path / f"log{round_}"
        kills = [-chance.randint(2, 4), -1]
        where = f"{url}.{round_}" if kind == "sqlite" else url
        if kind == "postgres":
            with everstep.open(url) as store:
                for one in store.runs():
                    store.delete(one.id)
        check(where, log, kills, undisturbed)
        assert sorted(log.read_text().split()) == sorted(" ".join(EXPECTED).split())


def test_the_graph_is_what_the_processes_run(tmp_path: Path) -> None:
    calls = Calls()
    result = run(str(tmp_path / "s.db"), "t", calls)
    assert calls.made == EXPECTED
    assert result["spent"] == 30
    with Saver(str(tmp_path / "s.db")) as saver:
        assert build(saver, calls).get_state({"configurable": {"thread_id": "t"}}).values == result
