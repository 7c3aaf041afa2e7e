"""The commands of the README work as they are typed, and print what it says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import warm
from test_documents import ROOT, environment

import everstep

README = (ROOT / "README.md").read_text()
SECTION = README.split("## Use the command line")[1].split("\n## ")[0]
FLOWS = README.split("```python\n")[1].split("```")[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "flows.py").write_text(FLOWS)
    (tmp_path / "bin").mkdir()
    warm.command(tmp_path / "bin" / "everstep")
    script = tmp_path / "bin" / "python"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    script.chmod(0o755)
    return tmp_path


def typed(command: str, folder: Path) -> str:
    env = environment() | {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-ec", command], cwd=folder, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def test_the_session_prints_what_it_shows_and_the_other_commands_work_after_it(folder: Path) -> None:
    (session,) = re.findall(r"^```console\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)
    shown = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", session, re.MULTILINE)
    assert len(shown) == 8
    for command, expected in shown:
        assert typed(command, folder) == expected, command

    commands = re.findall(r"^    (\S.*)$", SECTION.partition("More commands:")[2], re.MULTILINE)
    assert len(commands) == 8
    said = {command: typed(command.replace(";", " &&").replace("doctor &&", "doctor || test $? = 6 &&"), folder) for command in commands}
    runs, log, blame, bisect, _, saved, restored, _ = said.values()
    assert {line.split()[0] for line in runs.splitlines()[1:]} == {"o1", "cheap"}
    assert "? gate boss#0: Spend 70?" in log
    assert blame.split()[0] == bisect.split()[0] == "o1@3"
    assert (saved, restored.split()) == ("crawl@1\n", ["{", '"page":', "3", "}"])


def test_the_program_resumes_after_kill_9_without_asking_twice(folder: Path) -> None:
    killed = FLOWS.replace(
        "    return 10 * len(item)", "    import os\n    return 10 * len(item) if item == 'tea' else os.kill(os.getpid(), 9)"
    )
    (folder / "killed.py").write_text(killed)
    done = subprocess.run([sys.executable, "killed.py"], cwd=folder, env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == -9, done.stderr
    assert typed("python flows.py", folder) == "o1: waiting (an answer at gate 'boss#0')\n"
    with everstep.open(folder / ".everstep" / "store.db") as store:
        assert [step.address for step in store.steps("o1")] == ["price#0", "price#1"]
