"""Workers that are killed, servers that are restarted and wires that are cut while runs are driven: every run ends once, nothing finished runs again.

In full: `python -m everstep.testing.workers --deep`.
"""

from pathlib import Path

import pytest

from everstep.testing.workers import __main__ as command
from everstep.testing.workers import judge, scenes


@pytest.mark.parametrize("name", ["kills on SQLite", "kills on PostgreSQL", "cuts"])
def test_every_run_ends_once_and_no_finished_step_runs_twice(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    server = None if name == "kills on SQLite" else request.getfixturevalue("server")
    if name == "cuts" and not server.own:
        pytest.skip("the wire is one between sockets of this machine; the server that TEST_POSTGRES_URL names has another")
    tally = scenes.play(name, scenes.SHORT, tmp_path, server=server)
    assert tally.ok, scenes.line(tally)


def test_a_server_that_is_restarted_and_killed_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_POSTGRES_URL", raising=False)  # one of its own, which may be stopped
    tally = scenes.play("restarts", scenes.SHORT, tmp_path)
    assert tally.ok, scenes.line(tally)


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
