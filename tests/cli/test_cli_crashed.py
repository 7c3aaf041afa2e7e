"""A run whose process died is crashed at once, everywhere; one that its process closed before the end is interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import warm
from cli_helpers import Shop, environment, plain

import everstep
from everstep.errors import InvalidArgument
from everstep.runtime.run import attempt_of

FLOWS = """
import everstep, os

@everstep.step
def first():
    return 1

@everstep.workflow
def dies():
    first()
    if not os.path.exists("go"):
        os.kill(os.getpid(), 9)
    return "lived"
"""


@pytest.fixture
def crashed(empty: Shop) -> Shop:
    """A store with a run whose process was killed, and one that succeeded."""
    (Path(empty.folder) / "flows.py").write_text(FLOWS)
    done = warm.run(
        [sys.executable, "-m", "everstep", "run", "flows.py:dies", "--id", "dead"],
        cwd=empty.folder,
        env=environment(),
        capture_output=True,
        timeout=60,
    )
    assert done.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)
    with everstep.open(empty.path) as store, store.run("fine"):
        pass
    return empty


def test_what_a_crashed_run_used_is_known_only_until_its_newest_checkpoint(empty: Shop) -> None:
    with everstep.open(empty.path) as store, store.run("r") as run:
        run.step("pay", run.usage, tokens=500, cost=0.01)
        run.checkpoint()
        assert "500 tokens, $0.0100 until @1" in empty.pipe("show", "r").ok().out
    assert "until" not in empty.call("show", "r").ok().out


def test_lists_json_filters_and_counts_say_crashed(crashed: Shop) -> None:
    assert [(run["id"], run["status"], run["open"]) for run in crashed.json("runs")["runs"]] == [
        ("fine", "succeeded", False),
        ("dead", "crashed", False),
    ]
    assert [run["id"] for run in crashed.json("runs", "--status", "crashed")["runs"]] == ["dead"]
    assert crashed.json("runs", "--status", "running")["runs"] == []
    assert crashed.json("show", "dead")["run"]["status"] == "crashed"
    assert crashed.json("stats")["statuses"] == {"succeeded": 1, "crashed": 1}
    assert crashed.call("log", "dead").lines[0] == "dead  crashed  dies"
    assert "dead: crashed" in crashed.call("log", "dead", "--graph", "mermaid").out
    assert "dead  crashed" in crashed.call("runs", "--tree").out
    on_terminal = " ".join(plain(crashed.terminal("runs").out).split())
    assert "dead has crashed. To continue: everstep resume dead --import flows.py" in on_terminal
    assert "next" in plain(crashed.terminal("show", "dead").out)


def test_the_library_finds_crashed_and_interrupted_runs(crashed: Shop) -> None:
    with everstep.open(crashed.path) as store:
        with store.run("live"):
            row = attempt_of(store.run("left").__enter__()).row
            assert row is not None
            store.keeper.release(row)
            assert [run.id for run in store.runs(status="crashed")] == ["dead"]
            assert [run.id for run in store.runs(status="interrupted")] == ["left"]
            assert {run.id for run in store.runs(status="running")} == {"dead", "left", "live"}
        assert store.runs(status="crashed", workflow="other") == []
        assert [run.id for run in store.runs(status="crashed", workflow="dies", limit=1)] == ["dead"]
        with pytest.raises(InvalidArgument, match=r"limit must be an integer from 1 to 10,000, got 0"):
            store.runs(status="crashed", limit=0)
        with pytest.raises(InvalidArgument, match=r"status must be one of .*cancelled, crashed, interrupted, got 'dead'"):
            store.runs(status="dead")
        with pytest.raises(InvalidArgument, match=r"status must be one of .*cancelled, got 'crashed'"):
            store.checkpoints("dead", status="crashed")


def test_a_follower_is_told_that_the_process_has_died(crashed: Shop) -> None:
    child = crashed.spawn("log", "dead", "--follow", columns=200)
    child.expect_exact("dead has crashed. To continue: everstep resume dead")
    child.sendintr()
    assert child.ended() == 130


def test_resume_offers_a_crashed_run_first_and_continues_it(crashed: Shop) -> None:
    (Path(crashed.folder) / "go").touch()
    child = crashed.spawn("resume", "--import", "flows.py")
    child.expect_exact("1  dead")
    child.expect_exact("crashed")
    child.expect_exact("Which one to resume")
    child.send("\r")
    child.expect_exact("lived")
    assert child.ended() == 0
    assert crashed.json("show", "dead")["run"]["status"] == "succeeded"


def test_pages_of_runs_with_one_of_these_statuses_are_full(empty: Shop) -> None:
    with everstep.open(empty.path) as store:
        for n in range(7):
            row = attempt_of(store.run(f"r{n}").__enter__()).row
            assert row is not None
            if n % 2:
                store.keeper.release(row)
        assert [run["id"] for run in empty.json("runs", "--status", "interrupted")["runs"]] == ["r5", "r3", "r1"]
        first = empty.json("runs", "--status", "interrupted", "-n", "2")
        assert [run["id"] for run in first["runs"]] == ["r5", "r3"]
        rest = empty.json("runs", "--status", "interrupted", "-n", "2", "--after", str(first["next"]))
        assert [run["id"] for run in rest["runs"]] == ["r1"]
        assert rest["next"] is None
        two = store.runs(status="interrupted", limit=2)
        assert [run.id for run in two] == ["r5", "r3"]
        assert [run.id for run in store.runs(status="interrupted", limit=2, after=two.next)] == ["r1"]
        assert [run.id for run in store.runs(status="interrupted", oldest_first=True)] == ["r1", "r3", "r5"]
        assert [run["id"] for run in empty.json("runs", "--status", "running")["runs"]] == ["r6", "r4", "r2", "r0"]
        assert all(run["open"] for run in empty.json("runs", "--status", "running")["runs"])


def test_a_run_that_another_live_process_has_open_is_running(empty: Shop) -> None:
    program = f"import everstep, sys; s = everstep.open({str(empty.path)!r}); s.run('held').__enter__(); print('open', flush=True); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", program], env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"open\n"
        (run,) = empty.json("runs")["runs"]
        assert (run["status"], run["open"]) == ("running", True)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.communicate(timeout=30)
    (run,) = empty.json("runs")["runs"]
    assert (run["status"], run["open"]) == ("crashed", False)
