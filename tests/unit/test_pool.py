"""The workers that run the tests: what they report reaches pytest, and one that dies takes only its own test with it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pace
import pool
import pytest

PROGRAM = """
import os, pytest, signal, warnings

@pytest.fixture(scope="session")
def made():
    yield os.getpid()
    print("the session ends")

def test_passes(made): assert made == os.getpid()
def test_dies(): os.kill(os.getpid(), signal.SIGKILL)
def test_warns(): warnings.warn("look here")
def test_fails(): print("said before"); assert [1, 2] == [1, 3]
def test_leaves(): os._exit(3)
def test_skips(): pytest.skip("not today")
@pytest.mark.parametrize("n", range(50))
def test_many(n, tmp_path): (tmp_path / "f").write_text("x")
"""


def test_deaths_failures_and_warnings_are_reported_and_all_other_tests_run(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from pool import pytest_cmdline_main\n")
    (tmp_path / "test_it.py").write_text(PROGRAM)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        "-p",
        "no:cacheprovider",
        "-c",
        "/dev/null",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    done = subprocess.run(
        command, cwd=tmp_path, env={**_environment(), "PYTHONPATH": str(pace.TESTS)}, capture_output=True, text=True, check=False
    )
    assert re.search(r"3 failed, 52 passed, 1 skipped, 1 warning", done.stdout), done.stdout
    assert "the process of this test ended: SIGKILL" in done.stdout
    assert "the process of this test ended: exit code 3" in done.stdout
    assert "said before" in done.stdout
    assert "look here" in done.stdout
    assert done.returncode == 1


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}


def test_batches_hold_tests_of_one_file_in_their_order(request: pytest.FixtureRequest) -> None:
    items = request.session.items
    found = pool.batches(items)
    assert [number for batch in found for number in batch] == list(range(len(items)))
    assert all(len({items[number].path for number in batch}) == 1 and len(batch) <= pool.BATCH for batch in found)
