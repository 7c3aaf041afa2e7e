"""User programs under mypy --strict and pyright's strict mode: the right ones are clean, and the wrong ones have an error in each marked line.

A line that must be an error ends with `# error`. Each checker runs once, over all programs. Mypy cannot check everything that pyright can:
`# error in pyright` marks such a line.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import everstep

HERE = Path(__file__).parent
PACKAGES = Path(everstep.__file__).parents[1]
PROGRAMS = sorted(HERE.glob("*/*.py"))
Line = tuple[str, int]


def marked(*marks: str) -> set[Line]:
    """The lines that end with one of these marks."""
    return {
        (program.relative_to(HERE).as_posix(), number)
        for program in PROGRAMS
        for number, line in enumerate(program.read_text().splitlines(), 1)
        if line.endswith(marks)
    }


def found(output: str, pattern: str) -> set[Line]:
    return {(name, int(number)) for name, number in re.findall(pattern, output, flags=re.MULTILINE)}


def test_the_right_programs_are_unmarked_and_the_wrong_ones_are_marked() -> None:
    marks = {name for name, _ in marked("# error", "# error in pyright")}
    assert marks == {p.relative_to(HERE).as_posix() for p in PROGRAMS if p.parent.name == "wrong"}
    assert len(marked("# error")) > 40


def test_mypy_finds_exactly_the_marked_errors(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports", "silent", "--no-error-summary", "--hide-error-context"]
    done = subprocess.run(
        [*command, "--cache-dir", str(tmp_path), "--python-version", "3.11", "right", "wrong"],
        cwd=HERE, env=os.environ | ({} if PACKAGES.name == "site-packages" else {"MYPYPATH": str(PACKAGES)}), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert found(done.stdout, r"^(\S+?):(\d+): error") == marked("# error"), done.stdout + done.stderr


def test_pyright_finds_exactly_the_marked_errors(tmp_path: Path) -> None:
    pytest.importorskip("basedpyright")
    project = tmp_path / "pyrightconfig.json"
    project.write_text(
        json.dumps({"include": [str(HERE)], "extraPaths": [str(PACKAGES)], "typeCheckingMode": "strict", "pythonVersion": "3.11"})
    )
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", "-p", str(project), "--pythonpath", sys.executable],
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    lines = found(done.stdout, rf"^\s*{re.escape(str(HERE))}/(\S+?):(\d+):\d+ - error")
    assert {line for line in lines if "/" in line[0]} == marked("# error", "# error in pyright"), done.stdout + done.stderr
