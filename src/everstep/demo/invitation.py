"""The commands that the demo suggests at its end, as they can be typed in this shell. No I/O except the search for the `everstep` script."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path


def commands(store: Path, run: str, fork: str, tag: str) -> list[str]:
    """List commands that show something interesting in the demo's store."""
    asked = ("runs --tree", f"log {run}", f"diff {run} {fork}", f"blame {run} choice", f"state {run}@{tag}", "shell")
    return [f"{program()} {words} -s {shlex.quote(str(store))}" for words in asked]


def program() -> str:
    """Return how to call this installation of Everstep: by its name, if the shell finds it under that name."""
    found, here = shutil.which("everstep"), Path(sys.executable)
    if found is not None and Path(found).parent.absolute() == here.parent.absolute():
        return "everstep"
    return f"{shlex.quote(str(here))} -m everstep"
