"""The commands of the README work as they are typed."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import warm
from test_documents import ROOT, environment

FLOWS = (ROOT / "README.md").read_text().split("```python\n")[1].split("\nstore = ")[0]


def commands() -> list[str]:
    section = (ROOT / "README.md").read_text().split("## At a terminal")[1].split("\n## ")[0]
    return [line.strip() for line in section.splitlines() if line.startswith("    everstep ")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "flows.py").write_text(FLOWS)
    (tmp_path / "s.json").write_text('{"done": 3}')
    (tmp_path / "bin").mkdir()
    warm.command(tmp_path / "bin" / "everstep")
    return tmp_path


def test_the_commands_at_a_terminal_work_one_after_the_other(folder: Path) -> None:
    found = commands()
    assert len(found) == 8
    path = {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    said = ""
    for command in found:
        done = subprocess.run(
            ["bash", "-ec", command.replace(";", " &&").replace("doctor &&", "doctor || test $? = 6 &&")],
            cwd=folder, env=environment() | path, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        said += done.stdout
    assert re.search(r"^70$", said, re.MULTILINE)  # the result of the workflow
    assert "o1@1" in said  # blame and bisect
    assert (folder / "s.json").read_text().split() == ["{", '"done":', "3", "}"]
