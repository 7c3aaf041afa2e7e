"""Starts children: a subject in a process of its own, or any command, with the time that it took."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter_ns
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT = 900


class Failed(Exception):
    """A child failed; the message is its last line of output."""


class Missing(Exception):
    """A child lacks the package named in the message."""


def environment() -> dict[str, str]:
    """Return the parent's environment, with this package importable and the telemetry of peers switched off."""
    paths = [str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    # Without bytecode every start would compile the package again, which an installed one never does.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    quiet = {"LANGSMITH_TRACING": "false", "OPENAI_AGENTS_DISABLE_TRACING": "1", "DO_NOT_TRACK": "1"}
    return {**kept, **quiet, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def subject(action: str, name: str, turns: int, folder: Path, wrapper: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the output of `benchmarks.subject`."""
    command = [*wrapper, sys.executable, "-m", "benchmarks.subject", action, name, str(turns), str(folder)]
    try:
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=TIMEOUT, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise Failed(f"did not end within {TIMEOUT} s") from None
    if done.returncode:
        raise Failed((done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1])
    said: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    if "missing" in said:
        raise Missing(said["missing"])
    return said


def wall(*code: str) -> int:
    """Return the nanoseconds that a new interpreter takes for some code."""
    command = [sys.executable, "-c", "; ".join(code)]
    start = perf_counter_ns()
    subprocess.run(command, env=environment(), check=True, stdin=subprocess.DEVNULL)
    return perf_counter_ns() - start
