"""What was emitted or drawn before `flush` returned is there after kill -9, with every durability, sync and async."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

import everstep

SYNC = """
import os, signal, sys, everstep
path, durability = sys.argv[1:]
store = everstep.open(path)
with store.run("r", durability=durability) as run:
    run.checkpoint()
    run.emit("paid", amount=7)
    run.milestone("half")
    drawn = run.random()
    run.flush()
    print(repr(drawn), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
ASYNC = """
import asyncio, os, signal, sys, everstep
path, durability = sys.argv[1:]
async def main():
    store = everstep.open(path)
    async with store.run("r", durability=durability) as run:
        await run.checkpoint()
        run.emit("paid", amount=7)
        run.milestone("half")
        drawn = run.random()
        await run.flush()
        print(repr(drawn), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("program", [SYNC, ASYNC], ids=["threads", "asyncio"])
def test_an_event_that_was_flushed_is_there_after_kill_9(tmp_path: Path, program: str, durability: str) -> None:
    async def child() -> tuple[int, bytes]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, str(tmp_path / "s.db"), durability, stdout=asyncio.subprocess.PIPE
        )
        said, _ = await asyncio.wait_for(process.communicate(), 60)
        return process.returncode or 0, said

    code, said = asyncio.run(child())
    assert code == -signal.SIGKILL
    with everstep.open(tmp_path / "s.db") as store:
        events = {event.name: event.data for event in store.events(run="r")}
        assert events["custom:paid"]["amount"] == 7
        assert "milestone" in events
        assert store.verify("full").ok
        with store.run("r") as run:
            assert repr(run.random()) == said.decode().strip()  # the value that the program relied on


def test_leaving_a_run_makes_one_commit_of_its_last_events(tmp_path: Path) -> None:
    """Events that nobody flushed still go with the commit that ends the run."""
    with everstep.open(tmp_path / "s.db") as store:
        with store.run("r") as run:
            run.checkpoint()
            before = store.backend.manifest().writes
            run.emit("last")
        assert store.backend.manifest().writes - before == 1
