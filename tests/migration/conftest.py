"""A copy of a store of an older format, and processes of one's own that know that format."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import warm
from migration_helpers import Frozen

import everstep
from everstep.backends.sqlite.files import format as sqlite_format
from harness.faults import format_0

PREAMBLE = """
import os, signal, sys
from everstep.backends.sqlite.files import format as sqlite_format
from everstep.backends.registry import open_backend
from harness.faults import format_0
format_0.register()
def say(*words): print(*words, flush=True)
"""

Child = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of the older format that all tests copy."""
    path = tmp_path_factory.mktemp("format-0") / "s.db"
    format_0.make(path)
    return path


@pytest.fixture
def frozen(made: Path) -> Iterator[Frozen]:
    """The same, in a process that knows its format."""
    format_0.register()
    yield Frozen(made)
    del sqlite_format.OLDER[format_0.OLD]


@pytest.fixture
def old(frozen: Frozen, tmp_path: Path) -> Path:
    """One of one's own."""
    path = tmp_path / "s.db"
    frozen.copy(path)
    return path


@pytest.fixture
def child() -> Iterator[Child]:
    """Starts processes that run some code, and kills those that are left."""
    started: list[subprocess.Popen[str]] = []
    paths = [str(Path(everstep.__file__).parents[1]), str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]

    def start(code: str, *args: object, **variables: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", PREAMBLE + code, *map(str, args)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | variables
        process: subprocess.Popen[str] = warm.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, env=environment)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
