"""Two processes that add items to one session of OpenAI agents at the same time."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

import everstep

pytest.importorskip("agents", reason="openai-agents is not installed: pip install 'everstep[dev-adapters]'")

import openai_writer

from everstep.adapters.openai_agents import Session

COUNT = 25


def start(url: str, name: str) -> subprocess.Popen[str]:
    paths = [str(Path(everstep.__file__).parents[1]), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    command = [sys.executable, openai_writer.__file__, url, name, str(COUNT)]
    return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)}, text=True)


@pytest.mark.parametrize("where", ["sqlite", "postgres"])
def test_two_processes_that_add_items_at_once_lose_nothing(request: pytest.FixtureRequest, tmp_path: Path, where: str) -> None:
    url = request.getfixturevalue("place") if where == "postgres" else str(tmp_path / "s.db")
    everstep.open(url).close()
    running = [start(url, name) for name in "xy"]
    assert [one.wait(timeout=120) for one in running] == [0, 0]

    async def stored() -> list[str]:
        async with Session("shared", url) as session:
            return [item["content"] for item in await session.get_items()]

    found = asyncio.run(stored())
    assert found[::2] == found[1::2], "the two items of a call were separated"
    for name in "xy":
        assert [one for one in found[::2] if one[0] == name] == [f"{name}{n}" for n in range(COUNT)]
    assert len(found) == 4 * COUNT
    with everstep.open(url) as store:
        assert store.verify("full").ok
