"""`python -m harness.faults`: what it prints, what it writes, and when it says that all is well."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from harness.children import environment
from harness.faults import __main__ as command
from harness.faults import peers, report
from harness.faults.count import Count


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put harnesses of the test in place of the real ones: names with what they count, or with the error that they raise."""

    def put(**made: Count | Exception) -> None:
        for name, what in made.items():
            module = ModuleType(name, f"What {name} does.\n\n    a list    of it\n")

            def run(folder: Path, *, deep: bool, seed: int, progress: Any, what: Count | Exception = what) -> Count:
                assert folder.is_dir()
                if isinstance(what, Exception):
                    raise what
                return what

            module.run = run  # type: ignore[attr-defined]
            monkeypatch.setitem(sys.modules, f"harness.faults.{name}", module)
        for where in (report, command):
            monkeypatch.setattr(where, "HARNESSES", {name: name for name in made})

    return put


def good(name: str, **fields: int) -> Count:
    count = Count(name, **{"tried": 1234, "held": 1200, "detected": 34, **fields})
    count.tell_canary("broken", True)
    return count


def test_all_well_is_zero(harness: Any, capsys: pytest.CaptureFixture[str]) -> None:
    harness(one=good("first thing"), two=good("second thing"))
    assert command.main([]) == 0
    out = capsys.readouterr().out
    assert "first thing" in out
    assert "1,234" in out
    assert "all canaries were caught" in out


@pytest.mark.parametrize("field", ["lost", "wrong", "missing", "leftovers"])
def test_one_failure_is_not_zero(harness: Any, field: str, capsys: pytest.CaptureFixture[str]) -> None:
    harness(one=good("first thing"), two=good("second thing", **{field: 1}))
    assert command.main([]) == 1
    assert "NOT OK" in capsys.readouterr().out


def test_a_canary_that_is_not_caught_and_a_fault_that_never_fired_are_not_zero(harness: Any) -> None:
    blind = Count("blind", tried=5, held=5)
    blind.tell_canary("broken", False)
    harness(one=blind)
    assert command.main([]) == 1
    harness(one=good("idle", tried=0, held=0, detected=0))
    assert command.main([]) == 1


def test_a_harness_that_breaks_down_is_told_and_the_others_run(harness: Any, capsys: pytest.CaptureFixture[str]) -> None:
    harness(one=OSError("no such luck"), two=good("second thing"))
    assert command.main([]) == 1
    out = capsys.readouterr().out
    assert "no such luck" in out
    assert "second thing" in out


def test_only_runs_what_is_named_and_a_name_that_nobody_knows_is_refused(harness: Any, capsys: pytest.CaptureFixture[str]) -> None:
    harness(one=good("first thing"), two=good("second thing"))
    assert command.main(["--only", "two"]) == 0
    assert "first thing" not in capsys.readouterr().out
    with pytest.raises(SystemExit):
        command.main(["--only", "three"])


def test_deep_writes_the_counts_and_the_peers_beside_them(harness: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    harness(flips=good("bits"), clocks=good("clock"))
    assert command.main(["--deep", "--seed", "7"]) == 0
    text = (tmp_path / "docs" / "trust.md").read_text()
    assert "| bits | every point | 1,234 | 1,200 | 34 | 0 | 0 | 0 | 0 | broken: caught |" in text
    assert "--deep --seed 7" in text
    assert "LangGraph: 27 %" in text
    assert "1,234 tried: 0 wrong" in text
    assert "### clocks\n\nWhat clocks does.\n\n```text\n    a list    of it\n```" in text


def test_without_deep_nothing_is_written_unless_asked_for(harness: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    harness(one=good("first thing"))
    command.main([])
    command.main(["--deep", "--only", "one"])
    assert list(tmp_path.iterdir()) == []
    command.main(["--out", "found/here.md"])
    assert "first thing" in (tmp_path / "found" / "here.md").read_text()


def test_every_harness_is_there_and_every_peer_stands_beside_one() -> None:
    for name in report.HARNESSES:
        module = __import__(f"harness.faults.{report.HARNESSES[name]}", fromlist=["run"])
        assert callable(module.run)
        assert callable(module.canary)
        assert module.__doc__
    assert {peer.harness for peer in peers.PEERS} <= set(report.HARNESSES)


def test_the_command_runs(tmp_path: Path) -> None:
    arguments = [sys.executable, "-m", "harness.faults", "--only", "writers", "--seed", "3"]
    done = subprocess.run(arguments, env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("seed 3, short\n")
    assert "two processes write one run" in done.stdout


def test_a_long_run_can_be_done_in_parts(
    harness: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a deep run of all writes docs/trust.md where it is
    kept, page = str(tmp_path / "counts.json"), tmp_path / "trust.md"
    harness(one=good("first thing"), two=good("second thing"))
    assert command.main(["--deep", "--only", "one", "--counts", kept]) == 0
    harness(one=RuntimeError("it was run again"), two=good("second thing"))
    assert command.main(["--counts", kept, "--out", str(page)]) == 0
    text = page.read_text()
    assert "| first thing | every point | 1,234 |" in text
    assert "| second thing | some points | 1,234 |" in text
    assert command.main(["--deep", "--counts", kept, "--seed", "1"]) == 1  # another chance: it has to be run again
    assert "it was run again" in capsys.readouterr().out
