"""Workers that are killed, servers that are restarted and wires that are cut while runs are driven: every run ends once, nothing finished runs again.

In full: `python -m harness.workers --deep`.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pace
import pytest
import worker_programs
from worker_helpers import Notes, Working

import everstep
from everstep.testing.postgres import Server
from everstep.testing.waiting import until
from harness.workers import __main__ as command
from harness.workers import judge, scenes

SIZE = replace(scenes.SHORT, runs=pace.share(scenes.SHORT.runs, 2), cut_one_of=pace.share(scenes.SHORT.cut_one_of, 2))


@pytest.mark.parametrize("name", ["kills on SQLite", "kills on PostgreSQL", "cuts"])
def test_every_run_ends_once_and_no_finished_step_runs_twice(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    server = None if name == "kills on SQLite" else request.getfixturevalue("server")
    if name == "cuts" and not server.own:
        pytest.skip("the wire is one between sockets of this machine; the server that TEST_POSTGRES_URL names has another")
    tally = scenes.play(name, SIZE, tmp_path, server=server)
    assert tally.ok, scenes.line(tally)


def test_a_server_that_is_restarted_and_killed_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_POSTGRES_URL", raising=False)  # one of its own, which may be stopped
    tally = scenes.play("restarts", SIZE, tmp_path)
    assert tally.ok, scenes.line(tally)


def test_runs_of_workers_outlive_outages_that_are_longer_than_their_patience(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_POSTGRES_URL", raising=False)
    tally = scenes.play("outages", scenes.DEEP if os.environ.get("EVERSTEP_DEEP") else scenes.SHORT, tmp_path)
    assert tally.ok, scenes.line(tally)


def test_a_worker_that_lost_its_server_goes_on_by_itself_as_soon_as_that_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, working: Callable[..., Working]
) -> None:
    monkeypatch.delenv("TEST_POSTGRES_URL", raising=False)
    notes = Notes(tmp_path / "notes")
    worker_programs.know(notes.path, "held", "count")
    with Server.start(fsync=False) as server, everstep.open(server.database(), patience=0.3) as store:
        one = working(store)
        run = store.enqueue("held", str(tmp_path / "go"))
        until(lambda: notes.count("waits") == 1)
        server.halt()
        (tmp_path / "go").touch()
        until(lambda: one.seen("given back", run=run.id))  # its step is done, and cannot be recorded
        until(lambda: one.seen("trouble", code="E410"))
        server.start_again()
        until(lambda: one.seen("succeeded", run=run.id))
        assert [notes.count(what) for what in ("first", "waits", "last 0")] == [1, 2, 1]
        assert store.verify("full").ok
        one.stop()


def test_a_scene_that_went_wrong_is_told_and_makes_the_command_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = scenes.Tally("fine", runs=2, steps=1, faults=1, canary=True, verdict=judge.Verdict(ended=2))
    bad = scenes.Tally(
        "kills on SQLite", runs=2, steps=1, faults=1, canary=True, verdict=judge.Verdict(ended=1, lost=1, faults=["r1 is gone"])
    )
    blind = scenes.Tally("blind", runs=2, steps=1, faults=1, verdict=judge.Verdict(ended=2))
    idle = scenes.Tally("idle", runs=2, steps=1, canary=True, verdict=judge.Verdict(ended=2))
    for tally, code in ((good, 0), (bad, 1), (blind, 1), (idle, 1)):
        monkeypatch.setattr(scenes, "play", lambda *_, tally=tally: tally)
        assert command.main(["--only", "kills on SQLite"]) == code
        assert ("NOT OK" in capsys.readouterr().out) == bool(code)
    assert "r1 is gone" in scenes.line(bad)
