"""kill -9 in a call of a Pydantic AI agent: it goes on, makes no finished call again, and ends as if nothing had happened."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest
from killed import kill, made

import everstep

pytest.importorskip("pydantic_ai", reason="pydantic-ai-slim is not installed: pip install 'everstep[dev-adapters]'")

import pydantic_program

DEEP = bool(os.environ.get("EVERSTEP_DEEP"))
TEXT = "Let me see."
MODEL, TOOL = 8, 6  # a request of Booker; the tool of the agent in a tool


def finished(store: everstep.Store) -> set[str]:
    """What the journal says was finished, in the words of the ledger."""
    found = set()
    turns = {"Booker": ["0", "3", "4", "5"], "Researcher": ["0", "1"]}
    for step in store.steps("trip") if list(store.runs()) else ():
        assert step.status == "succeeded"
        if step.name in turns:
            found.add(f"{step.name} {turns[step.name][int(step.address.rpartition('#')[2])]}")
        elif step.name == "price":
            found.add("price Rome" if step.result["result"] == 400 else "price Lisbon")
        elif step.name in ("look", "book"):
            found.add(
                {"model_retry": "book Rome False", "tool_return": "book Rome True"}[step.result["kind"]]
                if step.name == "book"
                else "look Rome"
            )
    return found


def goes_on(store: everstep.Store, folder: Path, way: str) -> None:
    """Check that a run whose process was killed goes on in this process."""
    kept, before = finished(store), made(folder)
    result, shown = asyncio.run(pydantic_program.drive(pydantic_program.make(folder / "ledger"), store, way))
    assert result.output == pydantic_program.Trip(city="Rome", total=400)
    assert (result.usage.requests, result.usage.total_tokens) == (6, sum(step.tokens for step in store.steps("trip")))
    after = made(folder)
    assert all(after[name] == before[name] for name in kept)
    assert all(after[name] == before[name] + 1 for name in set(after) - kept)
    assert len(after) == pydantic_program.CALLS
    assert store.verify("full").ok
    if way == "streamed" and kept != set(after):
        assert shown == TEXT  # the whole text, once


def test_undisturbed_it_makes_so_many_calls(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db") as store:
        for way in ("plain", "streamed"):
            result, shown = asyncio.run(pydantic_program.drive(pydantic_program.make(tmp_path / way), store, way, way))
            assert result.output == pydantic_program.Trip(city="Rome", total=400)
            assert (tmp_path / way).read_text().count("\n") == pydantic_program.CALLS
            assert shown == (TEXT if way == "streamed" else "")


@pytest.mark.parametrize(("number", "way"), [(MODEL, "streamed"), (TOOL, "plain")])
def test_killed_in_a_call_it_goes_on(tmp_path: Path, number: int, way: str) -> None:
    assert kill(pydantic_program, str(tmp_path / "s.db"), tmp_path, way, number)
    with everstep.open(tmp_path / "s.db") as store:
        goes_on(store, tmp_path, way)


@pytest.mark.skipif(not DEEP, reason="kills at every call: EVERSTEP_DEEP=1")
@pytest.mark.parametrize("way", ["plain", "streamed"])
@pytest.mark.parametrize("number", range(1, pydantic_program.CALLS + 1))
def test_killed_in_any_call_it_goes_on(tmp_path: Path, number: int, way: str) -> None:
    assert kill(pydantic_program, str(tmp_path / "s.db"), tmp_path, way, number)
    with everstep.open(tmp_path / "s.db") as store:
        goes_on(store, tmp_path, way)


@pytest.mark.skipif(not DEEP, reason="random kills: EVERSTEP_DEEP=1")
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("where", ["sqlite", "postgres"])
def test_killed_again_and_again_it_goes_on(request: pytest.FixtureRequest, tmp_path: Path, seed: int, where: str) -> None:
    draw, url = random.Random(seed), request.getfixturevalue("place") if where == "postgres" else str(tmp_path / "s.db")
    for _ in range(draw.randint(1, 3)):
        number = draw.randint(1, pydantic_program.CALLS - 1)
        if not kill(pydantic_program, url, tmp_path, draw.choice(["plain", "streamed"]), number):
            break
    with everstep.open(url) as store:
        goes_on(store, tmp_path, draw.choice(["plain", "streamed"]))
