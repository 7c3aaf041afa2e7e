"""kill -9 in the calls and at the saves of a workflow: what was acknowledged is there, and a new process continues without paying twice."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from pathlib import Path

import pytest
from killed import Ledger, kill, made

import everstep

pytest.importorskip("agent_framework", reason="agent-framework-core is not installed: pip install 'everstep[dev-adapters]'")

import agent_framework_program as program

DEEP = bool(os.environ.get("EVERSTEP_DEEP"))
RUN = "trip:ann%40example.com"
POINTS = 2 * program.SAVES


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path, where: str) -> str:
    return str(request.getfixturevalue("place") if where == "postgres" else tmp_path / "s.db")


def check(store: everstep.Store, folder: Path) -> None:
    """Check what a killed process has left: no save that was acknowledged is lost, and at most one that was not is there."""
    known = (folder / "ledger.acknowledged").read_text().split() if (folder / "ledger.acknowledged").exists() else []
    stored = asyncio.run(program.Acknowledging(store, folder / "x").list_checkpoint_ids(workflow_name="trip"))
    assert [id for id in stored if id in known] == known
    assert store.verify("full").ok


def continues(store: everstep.Store, folder: Path, kills: int) -> None:
    check(store, folder)
    storage = program.Acknowledging(store, folder / "ledger.acknowledged")
    outputs = asyncio.run(program.drive(storage, Ledger(folder / "ledger")))
    assert outputs in ([], ["booked"])
    check(store, folder)
    state = store.load(RUN)
    assert state["state"]["booked"] == "Rome"
    assert state["executors"]["planner"] == {"prices": {"Rome": 400, "Lisbon": 400}}
    assert [one["content"] for one in state["state"]["said"]] == ["Book a trip", "booked"]
    assert store.get(RUN).status == "succeeded"
    assert (list(store.questions()), store.due()) == ([], [])
    calls = made(folder)
    assert set(calls) == set(program.ORDER)
    assert sum(calls.values()) <= program.CALLS + kills  # a call that a kill has cut off is made again; no other
    assert sorted(calls) == sorted(program.ORDER)


@pytest.mark.parametrize("where", ["sqlite"])
def test_undisturbed_it_makes_so_many_calls_and_saves(url: str, tmp_path: Path) -> None:
    assert not kill(program, url, tmp_path, "call", 99)
    with everstep.open(url) as store:
        continues(store, tmp_path, 0)
    assert made(tmp_path) == Counter(program.ORDER)
    assert len((tmp_path / "ledger.acknowledged").read_text().split()) == program.SAVES


@pytest.mark.parametrize("number", range(1, program.CALLS + 1) if DEEP else [5])
@pytest.mark.parametrize("where", ["sqlite", "postgres"] if DEEP else ["sqlite"])
def test_killed_in_a_call_it_continues(url: str, tmp_path: Path, number: int) -> None:
    assert kill(program, url, tmp_path, "call", number)
    with everstep.open(url) as store:
        continues(store, tmp_path, 1)
    assert made(tmp_path) == Counter(program.ORDER) + Counter([program.ORDER[number - 1]])  # that call alone, and only it, is made again


@pytest.mark.skipif(not DEEP, reason="kills at every save: EVERSTEP_DEEP=1")
@pytest.mark.parametrize("number", range(1, POINTS + 1))
@pytest.mark.parametrize("where", ["sqlite", "postgres"])
def test_killed_before_or_after_a_save_it_continues(url: str, tmp_path: Path, number: int) -> None:
    assert kill(program, url, tmp_path, "save", number)
    with everstep.open(url) as store:
        continues(store, tmp_path, 1)
    if number % 2 == 0:  # the save had returned: nothing is made again
        assert made(tmp_path) == Counter(program.ORDER)


@pytest.mark.skipif(not DEEP, reason="random kills: EVERSTEP_DEEP=1")
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("where", ["sqlite", "postgres"])
def test_killed_at_random_again_and_again_it_continues(url: str, tmp_path: Path, seed: int) -> None:
    draw, kills = random.Random(seed), 0
    for _ in range(draw.randint(1, 3)):
        way = draw.choice(["call", "save"])
        if not kill(program, url, tmp_path, way, draw.randint(1, program.CALLS if way == "call" else POINTS)):
            break
        kills += 1
        with everstep.open(url) as store:
            check(store, tmp_path)
    with everstep.open(url) as store:
        continues(store, tmp_path, kills)
