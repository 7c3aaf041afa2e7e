"""Real processes for the tests of backends: `child(code, *args)` runs Python code in one of its own."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import warm

import everstep.errors

Child = Callable[..., "subprocess.Popen[str]"]

PREAMBLE = """
import os, sys, time
from everstep.backends.contract.core import Commit, Query
from everstep.backends.registry import open_backend
from everstep.testing.rows import new_run, new_worker, next_commit

def say(*words):
    print(*words, flush=True)
"""


def children() -> Iterator[Child]:
    """Starts processes, and kills those that are left."""
    started: list[subprocess.Popen[str]] = []
    paths = [str(Path(everstep.errors.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}

    def start(code: str, *args: object, prefix: tuple[str, ...] = ()) -> "subprocess.Popen[str]":
        command = [*prefix, sys.executable, "-c", PREAMBLE + code, *map(str, args)]
        process: subprocess.Popen[str] = warm.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, env=environment)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def finish(process: "subprocess.Popen[str]", code: int = 0) -> str:
    """Wait for a child that is to end well, and return what it said."""
    out, _ = process.communicate(timeout=60)
    assert process.returncode == code, out
    return out
