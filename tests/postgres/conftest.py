"""For the tests of the PostgreSQL backend: a wire that can be cut, and programs in processes of their own."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pg_proxy import Proxy

import everstep.errors

Child = Callable[..., "subprocess.Popen[str]"]

PREAMBLE = """
import os, sys, time
from everstep.backends.base import Commit, Query
from everstep.backends.url import open_backend
from everstep.testing.rows import new_run, new_worker, next_commit

def say(*words):
    print(*words, flush=True)
"""


@pytest.fixture
def wire(place: str) -> Iterator[Proxy]:
    """Between the store and its server. Its folder has a short name: that of a socket has a limit."""
    with tempfile.TemporaryDirectory(prefix="wire") as folder:
        proxy = Proxy(place, Path(folder))
        yield proxy
        proxy.close()


@pytest.fixture
def child() -> Iterator[Child]:
    started: list[subprocess.Popen[str]] = []
    paths = [str(Path(everstep.errors.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}

    def start(code: str, *args: object) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", PREAMBLE + code, *map(str, args)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, env=environment)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
