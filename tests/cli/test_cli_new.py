"""`everstep new` writes programs that run, with tests that pass, and never overwrites a file."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from cli_helpers import Shop, environment

from everstep.cli.commands.new import KINDS

LAST = {"agent": "The end: three notes", "workflow": "bought tea, milk", "pipeline": "340 characters on 10 pages"}


def typed(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Type a command that was printed, in a shell that finds this Python and this Everstep."""
    script = f'python() {{ {shlex.quote(sys.executable)} "$@"; }}; everstep() {{ python -m everstep "$@"; }}; {command}'
    env = environment(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    return subprocess.run(["bash", "-c", script], cwd=folder, env=env, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("kind", KINDS)
def test_the_program_and_its_test_run_as_they_were_written(kind: str, empty: Shop) -> None:
    printed = empty.call("new", kind, "my project").ok()
    folder = empty.folder / "my project"
    assert printed.lines == [f"my project/{kind}.py", f"my project/test_{kind}.py"]
    assert {path.name for path in folder.iterdir()} == {f"{kind}.py", f"test_{kind}.py"}
    assert 30 <= len((folder / f"{kind}.py").read_text().splitlines()) <= 60

    enter, run, test = (line.strip() for line in printed.err.splitlines()[1:])
    assert enter == "cd 'my project'"
    tested = typed(test, folder)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "2 passed" in tested.stdout
    said = typed(run, folder)
    assert said.returncode == 0, said.stdout + said.stderr
    for answer in (line.strip() for line in said.stdout.splitlines() if "everstep answer" in line):
        assert typed(answer, folder).returncode == 0, answer
    said = typed(run, folder)
    assert said.returncode == 0, said.stdout + said.stderr
    assert said.stdout.splitlines()[-1].startswith(LAST[kind])


def test_the_workflow_runs_from_the_command_line_too(empty: Shop) -> None:
    empty.call("new", "workflow").ok()
    for line in (
        line.strip() for line in Path("workflow.py").read_text().splitlines() if line.startswith("    everstep ") and "order-2" in line
    ):
        done = typed(line.partition("     ")[0], empty.folder)
        assert done.returncode == 0, line + done.stderr
    assert (
        typed("everstep answer order-2 boss no && everstep resume order-2 --import workflow.py -q", empty.folder).stdout
        == "bought nothing\n"
    )


@pytest.mark.parametrize("taken", ["agent.py", "test_agent.py"])
def test_a_file_that_is_there_is_left_alone_and_none_is_written(taken: str, empty: Shop) -> None:
    Path(taken).write_text("precious")
    refused = empty.call("new", "agent")
    assert refused.code == 2
    assert f"'{taken}' already exists and was not changed" in refused.err
    assert [path.name for path in empty.folder.iterdir()] == [taken]
    assert Path(taken).read_text() == "precious"


def test_a_link_that_leads_nowhere_is_left_alone(empty: Shop) -> None:
    Path("agent.py").symlink_to("elsewhere.py")
    assert empty.call("new", "agent").code == 2
    assert not Path("elsewhere.py").exists()


def test_a_file_in_place_of_the_folder_is_refused(empty: Shop) -> None:
    Path("taken").write_text("precious")
    refused = empty.call("new", "agent", "taken")
    assert (refused.code, "FOLDER must be a folder, got the file 'taken'" in refused.err) == (2, True)


def test_an_unknown_kind_is_refused_with_those_that_exist(empty: Shop) -> None:
    refused = empty.call("new", "robot")
    assert refused.code == 2
    assert all(kind in refused.err for kind in KINDS)
    assert list(empty.folder.iterdir()) == []
