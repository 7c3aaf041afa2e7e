"""kill -9 at the commits of a session with permissions: no tool runs more often than people said yes, and a new process continues."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import everstep

pytest.importorskip("claude_agent_sdk", reason="claude-agent-sdk is not installed: pip install 'everstep[dev-adapters]'")

import claude_program
from claude_agent_sdk import project_key_for_directory

from everstep.adapters.claude import keys

ID = "5f0c1a34-77aa-4b1e-9f52-3a0d6d0f1c11"
DEEP = bool(os.environ.get("EVERSTEP_DEEP"))
COMMITS = [sign * number for number in range(1, 16) for sign in (1, -1)]  # -n: before the commit of this number, n: after it


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "f").mkdir()
    return tmp_path / "f"


@pytest.fixture
def url(request: pytest.FixtureRequest, folder: Path, where: str) -> str:
    return str(request.getfixturevalue("place") if where == "postgres" else folder / "s.db")


def session(url: str, folder: Path, kill: str) -> tuple[int, str, int]:
    """Run the program, approve what it asks; return its exit code, what it prints, and how many questions were answered."""
    path = os.pathsep.join([str(Path(everstep.__file__).parents[1]), str(Path(__file__).parent)])
    command = [sys.executable, str(claude_program.__file__), url, str(folder), ID, "", kill]
    running = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": path, "CLAUDE_FOLDER": ""}, stdout=subprocess.PIPE, text=True)
    approved = 0
    while running.poll() is None:
        with everstep.open(url) as store:
            for gate in store.questions():
                store.answer(gate.run, gate.name, "yes")
                approved += 1
        time.sleep(0.05)
    out = running.communicate(timeout=40)[0].strip()
    assert running.returncode in (0, -signal.SIGKILL)
    return running.returncode, out, approved


def ledger(folder: Path) -> list[str]:
    return [line.split()[0] for line in (folder / "ledger").read_text().splitlines()] if (folder / "ledger").exists() else []


def check(url: str, folder: Path, kills: list[int]) -> None:
    """Run a session that is killed at these commits, then without a kill; check the calls and the transcript."""
    approved, out = 0, ""
    for kill in [*map(str, kills), "none"]:
        code, out, answered = session(url, folder, kill)
        approved += answered
        assert len(ledger(folder)) <= approved
        if code == 0:
            break
    assert out == "Done."
    assert ledger(folder).count("Find") >= 1
    assert ledger(folder).count("Pay") >= 2
    run = keys.run_of({"project_key": project_key_for_directory(folder), "session_id": ID})
    with everstep.open(url) as store:
        assert store.verify("full").ok
        state = store.load(run)
        assert len(state["$used"]) == len(set(state["$used"])) <= approved
        entries = state["entries"]
    uuids = [one["uuid"] for one in entries]
    assert len(uuids) == len(set(uuids))
    assert [one["parentUuid"] for one in entries] == [None, *uuids[:-1]]  # no entry is missing in between
    made = [part for one in entries if isinstance(one["message"]["content"], list) for part in one["message"]["content"]]
    assert sum(part["type"] == "tool_result" and not part.get("is_error") for part in made) == len(claude_program.SCRIPT)
    assert json.dumps(entries[-1]["message"]["content"][0]["text"]) == '"Done."'


@pytest.mark.parametrize("number", COMMITS if DEEP else [7])
@pytest.mark.parametrize("where", ["sqlite", "postgres"] if DEEP else ["sqlite"])
def test_killed_at_a_commit_no_tool_runs_more_often_than_it_was_approved(url: str, folder: Path, number: int) -> None:
    check(url, folder, [number])


@pytest.mark.skipif(not DEEP, reason="random kills: EVERSTEP_DEEP=1")
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("where", ["sqlite", "postgres"])
def test_killed_at_random_again_and_again_it_continues(url: str, folder: Path, seed: int) -> None:
    draw: Any = random.Random(seed)
    check(url, folder, [draw.choice(COMMITS) for _ in range(draw.randint(1, 3))])
