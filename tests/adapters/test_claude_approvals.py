"""Permissions of Claude as gates, with the real SDK and a scripted CLI process: answers from elsewhere, kill -9, and runs that are resumed."""

from __future__ import annotations

import asyncio
import os
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
from claude_agent_sdk import ToolPermissionContext, project_key_for_directory

from everstep.adapters.claude import Approvals, SessionStore, durable, keys
from everstep.errors import InvalidArgument

ID = "5f0c1a34-77aa-4b1e-9f52-3a0d6d0f1c11"
PROGRAM = str(Path(claude_program.__file__))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "f").mkdir()
    return tmp_path / "f"


def run_of(folder: Path) -> str:
    return keys.run_of({"project_key": project_key_for_directory(folder), "session_id": ID})  # a long path is shortened in it


def environment(folder: Path) -> dict[str, str]:
    path = os.pathsep.join([str(Path(everstep.__file__).parents[1]), str(Path(PROGRAM).parent)])
    return os.environ | {
        "PYTHONPATH": path,
        "CLAUDE_FOLDER": str(folder),
        "CLAUDE_STORE": str(folder / "s.db"),
        "EVERSTEP_STORE": str(folder / "s.db"),
    }


def everstep_command(folder: Path, *words: str) -> str:
    command = [sys.executable, "-m", "everstep", "--store", str(folder / "s.db"), *words]
    done = subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def program(folder: Path, kill: str = "none", wait: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, PROGRAM, str(folder / "s.db"), str(folder), ID, wait, kill]
    return subprocess.Popen(command, env=environment(folder) | {"CLAUDE_FOLDER": ""}, stdout=subprocess.PIPE, text=True)


def question(folder: Path, running: subprocess.Popen[str] | None = None) -> Any:
    """Wait for the next open question."""
    until = time.monotonic() + 40
    while time.monotonic() < until:
        assert running is None or running.poll() is None, "the program has ended"
        if (folder / "s.db").exists():
            with everstep.open(folder / "s.db") as store:
                for gate in store.questions():
                    return gate
        time.sleep(0.1)
    raise AssertionError("no question was asked")


def ledger(folder: Path) -> list[str]:
    return [line.split()[0] for line in (folder / "ledger").read_text().splitlines()] if (folder / "ledger").exists() else []


def test_another_process_answers_while_the_session_waits(folder: Path) -> None:
    running = program(folder)
    for asked in ("Find", "Pay", "Pay"):
        gate = question(folder, running)
        assert gate.run == run_of(folder)
        assert gate.ask.startswith(f"Let Claude use {asked}(")
        assert gate.name in everstep_command(folder, "inbox")
        everstep_command(folder, "answer", gate.run, gate.name, "yes")
        while True:
            with everstep.open(folder / "s.db") as store:
                if not any(one.name == gate.name for one in store.questions()):
                    break
    assert running.communicate(timeout=40)[0].strip() == "Done."
    assert ledger(folder) == ["Find", "Pay", "Pay"]
    with everstep.open(folder / "s.db") as store:
        assert store.due() == []  # nothing is left for a worker
        assert store.verify("full").ok


def answered(folder: Path, running: subprocess.Popen[str], said: str, tool: str) -> Any:
    """Wait for the question about a tool, and answer it."""
    while not (gate := question(folder, running)).ask.startswith(f"Let Claude use {tool}"):
        time.sleep(0.05)
    everstep_command(folder, "answer", gate.run, gate.name, said)
    return gate


def test_an_answer_survives_kill_9_and_counts_for_one_call(folder: Path) -> None:
    running = program(folder)
    answered(folder, running, "yes", "Find")
    while (gate := question(folder, running)).ask.startswith("Let Claude use Find"):
        time.sleep(0.05)
    running.kill()
    running.wait(40)
    everstep_command(folder, "answer", gate.run, gate.name, "yes")
    again = program(folder)  # it makes the first payment without asking; the second one is a question of its own
    second = question(folder, again)
    assert (second.name, ledger(folder)) == (f"{gate.name}-2", ["Find", "Pay"])
    assert "may have been made" not in second.ask
    everstep_command(folder, "answer", second.run, second.name, '{"answer": "no", "reason": "too much"}')
    assert again.communicate(timeout=40)[0].strip() == "Not made: refused by a person: too much"
    assert ledger(folder) == ["Find", "Pay"]
    with everstep.open(folder / "s.db") as store:
        assert store.verify("full").ok


@pytest.mark.parametrize(("kill", "made"), [("answer", ["Find"]), ("tool", ["Find", "Pay"])])
def test_a_call_that_may_have_been_made_is_asked_again(folder: Path, kill: str, made: list[str]) -> None:
    running = program(folder, kill)
    answered(folder, running, "yes", "Find")
    gate = answered(folder, running, "yes", "Pay")
    assert running.wait(40) == -signal.SIGKILL
    assert ledger(folder) == made
    again = program(folder)
    second = question(folder, again)
    assert (second.name, ledger(folder)) == (f"{gate.name}-2", made)
    assert second.ask.endswith("it may have been made.")
    everstep_command(folder, "answer", second.run, second.name, "no")
    assert again.communicate(timeout=40)[0].strip() == "Not made: refused by a person"
    assert ledger(folder) == made  # one approval, one payment at most


def test_everstep_resume_continues_a_session_that_was_stopped_to_wait(folder: Path) -> None:
    stopped = program(folder, wait="0")
    stopped.communicate(timeout=40)
    for made in ([], ["Find"], ["Find", "Pay"]):
        gate = question(folder)
        assert ledger(folder) == made
        everstep_command(folder, "answer", gate.run, gate.name, "yes")
        out = everstep_command(folder, "resume", "--import", "claude_program", gate.run)
    assert ledger(folder) == ["Find", "Pay", "Pay"]
    assert out.strip() == "Done."
    with everstep.open(folder / "s.db") as store:
        assert store.outcome(run_of(folder)).result == "Done."
        assert not store.questions()


def test_a_worker_continues_a_session_after_the_answer(folder: Path) -> None:
    program(folder, wait="0").communicate(timeout=40)
    for made in ([], ["Find"], ["Find", "Pay"]):
        gate = question(folder)
        assert ledger(folder) == made
        everstep_command(folder, "answer", gate.run, gate.name, "yes")
        everstep_command(folder, "worker", "--import", "claude_program", "--until-idle")
    assert ledger(folder) == ["Find", "Pay", "Pay"]
    with everstep.open(folder / "s.db") as store:
        assert (store.outcome(run_of(folder)).result, list(store.questions()), store.due()) == ("Done.", [], [])


def test_all_commands_show_what_people_understand(folder: Path) -> None:
    program(folder, wait="0").communicate(timeout=40)
    run = run_of(folder)
    for _ in range(3):
        gate = question(folder)
        everstep_command(folder, "answer", gate.run, gate.name, "yes")
        everstep_command(folder, "resume", "--import", "claude_program", gate.run)
    assert run in everstep_command(folder, "runs")
    log = everstep_command(folder, "log", run)
    for line in ("user: Buy a bike", "assistant: -> Find", "user: <- result", "assistant: Done.", 'Let Claude use Pay({"eur": 5})?'):
        assert line in log
    assert "toolu_" not in log  # which call a gate was for is bookkeeping
    with everstep.open(folder / "s.db") as store:
        last = store.get(run).checkpoints
    changes = [everstep_command(folder, "diff", f"{run}@{n}", f"{run}@{n + 1}") for n in range(1, last)]
    lines = [line.partition(": ")[2] for change in changes for line in change.splitlines()]
    assert next(line for line in lines if line.startswith("assistant: -> ")) == 'assistant: -> Find(what="bike")'
    assert lines.count("user: <- made") == 3
    assert lines[-1] == "assistant: Done."
    state = everstep_command(folder, "state", run)
    assert "Buy a bike" in state
    for internal in ("$summary", "$session", "$used"):
        assert internal not in state + "".join(changes)
        assert internal in everstep_command(folder, "state", run, "--all")
    assert "user: Buy a bike" in everstep_command(folder, "blame", run, "entries[0]")
    fork = run[:-2] + "22"
    everstep_command(folder, "fork", f"{run}@2", fork)
    assert "Buy a bike" in everstep_command(folder, "state", fork)
    everstep_command(folder, "verify", "--depth", "full")


async def test_two_equal_calls_at_once_are_two_questions(tmp_path: Path) -> None:
    async with SessionStore(tmp_path / "s.db") as sessions:
        approve = Approvals(sessions, ID, cwd=tmp_path)
        calls = [asyncio.ensure_future(approve("Pay", {"eur": 5}, ToolPermissionContext(tool_use_id=f"t{n}"))) for n in range(2)]
        store = await sessions.opened()
        while len(asked := list(await store.questions())) < 2:
            await asyncio.sleep(0.05)
        await store.answer(asked[0].run, asked[0].name, "yes")
        await store.answer(asked[1].run, asked[1].name, False)
        assert sorted([one.behavior for one in await asyncio.gather(*calls)]) == ["allow", "deny"]
        same = await approve("Pay", {"eur": 5}, ToolPermissionContext(tool_use_id="t0"))  # the CLI asks again for the same call
        assert same.behavior == "allow"


async def test_bad_options_are_refused(tmp_path: Path) -> None:
    async with SessionStore(tmp_path / "s.db") as sessions:
        with pytest.raises(InvalidArgument, match="must be a UUID, got 'order-7'"):
            await durable(id="order-7", store=sessions)
        with pytest.raises(InvalidArgument, match="wait must be a number of at least 0, got -1"):
            await durable(id=ID, store=sessions, wait=-1)
