"""The examples run, end by themselves, and say what they promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import everstep

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, folder: Path) -> str:
    package = str(Path(everstep.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([package, os.environ.get("PYTHONPATH", "")]), "TMPDIR": str(folder)}
    done = subprocess.run([sys.executable, str(EXAMPLES / name)], cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_example_has_a_test() -> None:
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == [
        "agent_loop.py",
        "async_many.py",
        "chat_loop.py",
        "durable_steps.py",
        "langgraph_agent.py",
        "own_types.py",
        "queue_workers.py",
        "transactional_steps.py",
        "workflow_gate.py",
        "yaml_workflow.py",
    ]  # the agent and the YAML workflow have their tests with the others of their kind


def test_finished_steps_are_kept_when_a_loop_is_killed(tmp_path: Path) -> None:
    out = run("durable_steps.py", tmp_path)
    assert "3 steps kept, 3 steps run" in out
    assert "same key: yes" in out


def test_a_workflow_waits_for_a_person_and_survives_a_kill(tmp_path: Path) -> None:
    out = run("workflow_gate.py", tmp_path)
    assert "2 steps kept, 2 steps run" in out
    assert "booked 4 things" in out


def test_bills_are_paid_once_however_often_the_process_is_killed(tmp_path: Path) -> None:
    out = run("transactional_steps.py", tmp_path)
    assert "Done. 3 deaths, 10 bills. The accounts: {'us': 45, 'them': 55}" in out


def test_the_runs_of_a_killed_worker_go_on_with_another(tmp_path: Path) -> None:
    assert "All 10 runs succeeded." in run("queue_workers.py", tmp_path)


def test_a_langgraph_agent_is_killed_twice_and_makes_every_call_once(tmp_path: Path) -> None:
    pytest.importorskip("langgraph", reason="pip install 'everstep[langgraph,dev-adapters]'")
    out = run("langgraph_agent.py", tmp_path)
    assert "first process: killed\nsecond process: killed" in out
    assert "Bought a bike and a lock for 330.\nthird process: finished\n7 calls, each made once: yes" in out


def test_the_chat_goes_on_where_it_stopped(tmp_path: Path) -> None:
    assert run("chat_loop.py", tmp_path).splitlines()[-1] == "chat@2: You have said 2 things."
    assert run("chat_loop.py", tmp_path).splitlines()[-1] == "chat@4: You have said 4 things."


def test_a_hundred_async_runs_are_saved(tmp_path: Path) -> None:
    out = run("async_many.py", tmp_path)
    assert "100 runs, 500 durable checkpoints" in out
    assert "agent-099 ends with {'turn': 4, 'answer': 396}" in out
    assert "all good" in out


def test_own_types_come_back_where_they_are_known(tmp_path: Path) -> None:
    out = run("own_types.py", tmp_path)
    assert "+ ['plan']['stops'][1] = 'Madrid'" in out
    assert "Unknown('trip.Plan', 2, {'goal': 'Lisbon', 'stops': ['Paris', 'Madrid']})" in out
    assert "Plan(goal='Lisbon', stops=['Paris', 'Madrid']) 90000 a stranger" in out
    assert "Plan(goal='Rome', stops=[])" in out
