"""A copy of a frozen store, of each earlier format in turn, and processes of one's own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from migration_helpers import FROZEN, Frozen

import everstep

PREAMBLE = """
import os, signal, sys
from everstep.backends.sqlite.files import format as sqlite_format
from everstep.backends.registry import open_backend
def say(*words): print(*words, flush=True)
"""

Child = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(params=sorted(FROZEN), ids=lambda format: f"format-{format}")
def frozen(request: pytest.FixtureRequest) -> Frozen:
    found: Frozen = FROZEN[request.param]
    return found


@pytest.fixture
def old(frozen: Frozen, tmp_path: Path) -> Path:
    """A store of an earlier format of one's own."""
    path = tmp_path / "s.db"
    frozen.copy(path)
    return path


@pytest.fixture
def migrated(frozen: Frozen, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that was migrated, for all to read."""
    if frozen.format not in _migrated:
        path = _migrated[frozen.format] = tmp_path_factory.mktemp("migrated") / "s.db"
        frozen.copy(path)
        everstep.open(path).close()
    return _migrated[frozen.format]


_migrated: dict[int, Path] = {}


@pytest.fixture
def child() -> Iterator[Child]:
    """Starts processes that run some code, and kills those that are left."""
    started: list[subprocess.Popen[str]] = []
    paths = [str(Path(everstep.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]

    def start(code: str, *args: object, **variables: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", PREAMBLE + code, *map(str, args)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | variables
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, env=environment)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
