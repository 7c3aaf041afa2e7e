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
    """Return how to call this installation of Everstep: by its name, if the shell finds it under that name, else by a path."""
    found, here = shutil.which("everstep"), Path(sys.executable).absolute().parent
    if found is not None and Path(found).parent.absolute() == here:
        return "everstep"
    script = here / "everstep"
    if not script.is_file():
        return f"{shlex.quote(sys.executable)} -m everstep"
    return shlex.quote(str(script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script))
