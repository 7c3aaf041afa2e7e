"""kill -9 in a call of an ADK agent: what was acknowledged is there, the scopes of the state agree, and the agent continues."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import Any

import pytest
from killed import Ledger, kill, made

import everstep

pytest.importorskip("google.adk", reason="google-adk is not installed: pip install 'everstep[dev-adapters]'")

import adk_program

DEEP = bool(os.environ.get("EVERSTEP_DEEP"))


def check(store: everstep.Store, folder: Path) -> list[Any]:
    """Check what a killed process has left; return the events."""
    from everstep.adapters.adk import SessionService

    session = asyncio.run(SessionService(store).get_session(app_name="travel", **adk_program.WHO))
    acknowledged = folder / "ledger.acknowledged"
    known = acknowledged.read_text().splitlines() if acknowledged.exists() else []
    events = [] if session is None else session.events
    assert set(known) <= {event.id for event in events}
    assert len(known) == len(set(known))
    state: dict[str, Any] = {}
    for event in events:
        state.update(event.actions.state_delta)
    assert ({} if session is None else session.state) == state  # no scope has more or less than the events say
    assert store.verify("full").ok
    return events


def continues(store: everstep.Store, folder: Path, way: str = "resumed") -> None:
    events, before = check(store, folder), made(folder)
    results = {result.id for event in events for result in event.get_function_responses()}
    runner = adk_program.make(Ledger(folder / "ledger"), store)
    assert asyncio.run(adk_program.drive(runner, way)) == "Rome is booked."
    check(store, folder)
    session = asyncio.run(runner.session_service.get_session(app_name="travel", **adk_program.WHO))
    assert (session.state["booked"], session.state["user:trips"], session.state["app:asked"]) == ("Rome", ["Rome"], 2)
    assert "temp:secret" not in session.state
    after = made(folder)
    for id, name in (("c0", "price Rome"), ("c1", "price Lisbon"), ("c2", "book Rome")):
        if id in results:
            assert after[name] == before[name]  # its result was stored: it is not called again


def test_undisturbed_it_makes_so_many_calls(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db") as store:
        continues(store, tmp_path)
        assert sum(made(tmp_path).values()) == adk_program.CALLS
        assert [store.get(run).checkpoints for run in ("travel/ann%40example.com/trip", "user:travel/ann%40example.com", "app:travel")] == [
            8,
            1,
            2,
        ]


@pytest.mark.parametrize("number", [5])
def test_killed_in_a_call_it_continues(tmp_path: Path, number: int) -> None:
    assert kill(adk_program, str(tmp_path / "s.db"), tmp_path, "resumed", number)
    with everstep.open(tmp_path / "s.db") as store:
        continues(store, tmp_path)


@pytest.mark.skipif(not DEEP, reason="kills at every call: EVERSTEP_DEEP=1")
@pytest.mark.parametrize("number", range(1, adk_program.CALLS + 1))
@pytest.mark.parametrize("where", ["sqlite", "postgres"])
def test_killed_in_any_call_it_continues(request: pytest.FixtureRequest, tmp_path: Path, number: int, where: str) -> None:
    url = request.getfixturevalue("place") if where == "postgres" else str(tmp_path / "s.db")
    assert kill(adk_program, url, tmp_path, "resumed", number)
    with everstep.open(url) as store:
        continues(store, tmp_path)


@pytest.mark.skipif(not DEEP, reason="random kills: EVERSTEP_DEEP=1")
@pytest.mark.parametrize("seed", range(10))
def test_killed_again_and_again_it_continues(tmp_path: Path, seed: int) -> None:
    draw, url = random.Random(seed), str(tmp_path / "s.db")
    for _ in range(draw.randint(1, 3)):
        if not kill(adk_program, url, tmp_path, "resumed", draw.randint(1, adk_program.CALLS - 1)):
            break
        with everstep.open(url) as store:
            check(store, tmp_path)
    with everstep.open(url) as store:
        continues(store, tmp_path)
