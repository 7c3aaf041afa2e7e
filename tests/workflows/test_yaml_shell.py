"""Commands of YAML workflows: what they get, what is kept of what they print, and that nothing of them is left when they take too long."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from everstep.errors import InvalidArgument, StepFailed, StepTimeout
from everstep.testing.waiting import until
from everstep.yaml import shell


def run(command: str, **options: Any) -> dict[str, Any]:
    return shell.run_command(command, "cmd", **{"cwd": None, "environment": {}, **options})


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has asked about counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def test_output_and_code_are_kept() -> None:
    assert run("echo out; echo err >&2") == {"stdout": "out", "stderr": "err", "code": 0, "cut": 0}


def test_newlines_at_the_end_are_cut_as_a_shell_would() -> None:
    assert run("printf ' a\\n\\nb \\n\\n'")["stdout"] == " a\n\nb "


def test_bytes_that_are_no_text_are_shown_as_such() -> None:
    assert run(r"printf 'a\377b'")["stdout"] == "a\ufffdb"


def test_a_failure_carries_its_code_and_the_end_of_stderr() -> None:
    with pytest.raises(StepFailed) as caught:
        run("echo fine; seq 5000 >&2; echo the reason >&2; exit 7")
    assert caught.value.message.startswith("cmd failed with exit code 7: ")
    assert caught.value.message.endswith("5000\nthe reason")
    assert len(caught.value.message) < shell.TAIL + 100


def test_a_failure_without_stderr_shows_the_end_of_stdout() -> None:
    with pytest.raises(StepFailed, match="exit code 1: only this"):
        run("echo only this; exit 1")
    with pytest.raises(StepFailed, match="exit code 1: it printed nothing"):
        run("exit 1")


def test_a_command_that_a_signal_ended_failed() -> None:
    with pytest.raises(StepFailed, match="failed with signal 9"):
        run("kill -9 $$")


def test_other_codes_can_be_fine() -> None:
    assert run("exit 1", ok=(0, 1))["code"] == 1
    with pytest.raises(StepFailed):
        run("exit 0", ok=(1,))


def test_the_last_of_a_long_output_is_kept_and_the_rest_counted() -> None:
    found = run(f"head -c {3 * shell.MOST_KEPT} /dev/zero | tr '\\0' x; printf end; echo err >&2")
    assert len(found["stdout"]) == shell.MOST_KEPT
    assert found["stdout"].endswith("xend")
    assert found["cut"] == 2 * shell.MOST_KEPT + 3
    assert found["stderr"] == "err"


@pytest.mark.parametrize(
    "value", ["; touch bad", "$(touch bad)", "`touch bad`", "' ; touch bad ; '", '"; touch bad; "', "a\nb", "-n", "*", "ä€"]
)
def test_a_value_is_never_read_as_code(value: str, tmp_path: Path) -> None:
    found = run('printf %s "$EVERSTEP_WITH_X"', cwd=str(tmp_path), environment={"EVERSTEP_WITH_X": value})
    assert found["stdout"] == value
    assert list(tmp_path.iterdir()) == []


def test_it_gets_the_environment_of_the_program_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTER", "o")
    assert run('echo "$OUTER$INNER"', environment={"INNER": "i"})["stdout"] == "oi"


def test_a_value_that_no_variable_can_hold_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"\$A must not contain a NUL"):
        run("true", environment={"A": "x\0y"})
    with pytest.raises(StepFailed, match="could not be run"):
        run("true", environment={"A": "x" * (1 << 22)})


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StepFailed, match="nowhere"):
        run("true", cwd=str(tmp_path / "nowhere"))


@pytest.mark.parametrize(("option", "value"), [("cwd", "a\0b"), ("environment", {"A": "\ud800"})])
def test_what_cannot_be_handed_to_a_process_fails_the_step(option: str, value: Any) -> None:
    with pytest.raises(StepFailed, match="could not be run"):
        run("true", **{option: value})


def test_it_reads_nothing_from_the_terminal() -> None:
    assert run("cat")["stdout"] == ""


def test_what_stays_in_the_background_with_the_output_belongs_to_the_command(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    done: list[Any] = []
    thread = threading.Thread(target=lambda: done.append(run("(read x < go; echo late) & echo early", cwd=str(tmp_path))))
    thread.start()
    with (tmp_path / "go").open("w") as go:
        assert not done
        go.write("x\n")
    thread.join()
    assert done[0]["stdout"] == "early\nlate"


# The children note their ids, so that the tests can see whether they are still there.
FAMILY = "echo $$ >> pids; sh -c 'echo $$ >> pids; sleep 1000' & sh -c 'trap \"\" TERM; echo $$ >> pids; while :; do sleep 0.1; done' >/dev/null 2>&1 & echo started; wait"


def pids(folder: Path) -> list[int]:
    file = folder / "pids"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def test_a_timeout_ends_all_that_the_command_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for = shell.wait_for

    def wait_when_all_are_there(over: threading.Event, timeout: float | None = None) -> bool:
        until(lambda: len(pids(tmp_path)) == 3)
        return wait_for(over, timeout)

    monkeypatch.setattr(shell, "wait_for", wait_when_all_are_there)
    with pytest.raises(StepTimeout, match=r"step cmd took longer than 0.01 s"):
        run(FAMILY, cwd=str(tmp_path), timeout=0.01)
    until(lambda: not any(map(alive, pids(tmp_path))))


def test_a_command_that_hides_its_output_is_timed_too(tmp_path: Path) -> None:
    with pytest.raises(StepTimeout):
        run("echo $$ >> pids; exec >&- 2>&-; sleep 1000", cwd=str(tmp_path), timeout=0.5)
    until(lambda: not any(map(alive, pids(tmp_path))))


def test_a_command_that_is_quick_enough_knows_nothing_of_the_timeout() -> None:
    assert run("echo a", timeout=60)["stdout"] == "a"


PROGRAM = """
import sys
from everstep.yaml.shell import run_command
try:
    run_command(sys.argv[1], "cmd", cwd=sys.argv[2], environment={})
except KeyboardInterrupt:
    print("left")
"""


SLOW = """
import time
from everstep.yaml import shell
class Slow(shell.subprocess.Popen):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        time.sleep(1)
shell.subprocess.Popen = Slow
"""


@pytest.mark.parametrize("before", ["", SLOW], ids=["it runs", "it runs, and nobody knows its id yet"])
def test_leaving_early_ends_the_command(tmp_path: Path, before: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", before + PROGRAM, FAMILY, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    until(lambda: len(pids(tmp_path)) == 3)
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=60)
    assert out == "left\n"
    until(lambda: not any(map(alive, pids(tmp_path))))


def test_where_no_thread_is_to_be_had_the_command_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    with pytest.raises(RuntimeError, match="new thread"):
        run("touch ran", cwd=str(tmp_path))
    assert not (tmp_path / "ran").exists()
