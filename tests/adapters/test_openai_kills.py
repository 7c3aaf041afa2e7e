"""kill -9 in a call of an OpenAI agent: it goes on, makes no finished call again, and ends as if nothing had happened."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest
from killed import kill, made

import everstep

pytest.importorskip("agents", reason="openai-agents is not installed: pip install 'everstep[dev-adapters]'")

import openai_program

DEEP = bool(os.environ.get("EVERSTEP_DEEP"))
TEXT = '{"city":"Rome","total":400}'
MODEL, TOOL = 3, 7  # the first call of Booker; the tool of the agent that is a tool


def finished(store: everstep.Store) -> set[str]:
    """What the journal says was finished, in the words of the ledger."""
    words = {
        "polite": "polite", "Triage#0": "Triage 0", "Booker#0": "Booker 0", "Booker#1": "Booker 3", "Booker#2": "Booker 4",
        "price@1.c0": "price Rome", "price@1.c1": "price Lisbon", "book": "book Rome", "look": "look Rome",
        "Researcher#0": "Researcher 0", "Researcher#1": "Researcher 1",
    }  # fmt: skip
    found = set()
    for step in store.steps("trip") if list(store.runs()) else ():
        last = step.address.rpartition("/")[2].replace("@2.c0", "@1.c0").replace("@2.c1", "@1.c1")
        assert step.status == "succeeded"
        found.add(words.get(last) or words.get(step.name) or step.name)
    return found & set(words.values())


def goes_on(store: everstep.Store, folder: Path, way: str) -> None:
    """Check that a run whose process was killed goes on in this process."""
    kept, before = finished(store), made(folder)
    result, shown = asyncio.run(openai_program.drive(openai_program.make(folder / "ledger"), store, way))
    assert result.final_output == openai_program.Trip(city="Rome", total=400)
    assert (result.last_agent.name, result.usage.total_tokens) == ("Booker", 60)
    assert sum(step.tokens for step in store.steps("trip")) == 60
    after = made(folder)
    assert all(after[name] == before[name] for name in kept)
    assert all(after[name] == before[name] + 1 for name in set(after) - kept)
    assert len(after) == openai_program.CALLS
    assert store.verify("full").ok
    if way == "streamed" and kept != set(after):
        assert shown == TEXT  # the whole text, once


def test_undisturbed_it_makes_so_many_calls(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db") as store:
        for way in ("plain", "streamed"):
            result, shown = asyncio.run(openai_program.drive(openai_program.make(tmp_path / way), store, way, way))
            assert result.final_output == openai_program.Trip(city="Rome", total=400)
            assert (tmp_path / way).read_text().count("\n") == openai_program.CALLS
            assert shown == (TEXT if way == "streamed" else "")
        plain, streamed = ({step.address for step in store.steps(way)} for way in ("plain", "streamed"))
        assert plain == streamed  # a run may begin as a stream and continue without one; parallel tools end in any order


@pytest.mark.parametrize(("number", "way"), [(MODEL, "streamed"), (TOOL, "plain")])
def test_killed_in_a_call_it_goes_on(tmp_path: Path, number: int, way: str) -> None:
    assert kill(openai_program, str(tmp_path / "s.db"), tmp_path, way, number)
    with everstep.open(tmp_path / "s.db") as store:
        goes_on(store, tmp_path, way)


@pytest.mark.skipif(not DEEP, reason="kills at every call: EVERSTEP_DEEP=1")
@pytest.mark.parametrize("way", ["plain", "streamed"])
@pytest.mark.parametrize("number", range(1, openai_program.CALLS + 1))
def test_killed_in_any_call_it_goes_on(tmp_path: Path, number: int, way: str) -> None:
    assert kill(openai_program, str(tmp_path / "s.db"), tmp_path, way, number)
    with everstep.open(tmp_path / "s.db") as store:
        goes_on(store, tmp_path, way)


@pytest.mark.skipif(not DEEP, reason="random kills: EVERSTEP_DEEP=1")
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("where", ["sqlite", "postgres"])
def test_killed_again_and_again_it_goes_on(request: pytest.FixtureRequest, tmp_path: Path, seed: int, where: str) -> None:
    draw, url = random.Random(seed), request.getfixturevalue("place") if where == "postgres" else str(tmp_path / "s.db")
    for _ in range(draw.randint(1, 3)):
        number = draw.randint(1, openai_program.CALLS - 1)
        if not kill(openai_program, url, tmp_path, draw.choice(["plain", "streamed"]), number):
            break
    with everstep.open(url) as store:
        goes_on(store, tmp_path, draw.choice(["plain", "streamed"]))
