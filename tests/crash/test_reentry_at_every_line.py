"""A store is used at every line of a save, step, flush and whole run of the same thread, on three backends.

The program is reentry_sweep; it runs in a process of its own, whose watchdog ends it where an iteration hangs. With EVERSTEP_DEEP=1 it takes
every line with every operation. test_reentry has the canary: a lock without the check, which the watchdog must catch.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("reentry_sweep.py")
DEEP = bool(os.environ.get("EVERSTEP_DEEP"))
STRIDE = 1 if DEEP else 17


@pytest.mark.parametrize("first", range(10) if DEEP else [0])
@pytest.mark.parametrize("kind", ["sqlite", "memory", "postgres"])
def test_a_store_used_in_the_middle_of_a_save_serves_or_refuses(
    kind: str, first: int, memory_folder: Path, request: pytest.FixtureRequest
) -> None:
    place = str(memory_folder / "s.db") if kind == "sqlite" else "memory://sweep" if kind == "memory" else request.getfixturevalue("place")
    ended = subprocess.run(
        [sys.executable, str(PROGRAM), place, str(STRIDE), str(first)], capture_output=True, text=True, timeout=600, check=False
    )
    assert ended.returncode == 0, f"{ended.stdout[-500:]}\n{ended.stderr[-3000:]}"
    counts = ast.literal_eval(ended.stdout)
    assert counts["points"] > 100
    assert counts["refused"] > 10
    assert sum(many for name, many in counts.items() if name.endswith(" done")) > counts["refused"]
