"""The commands that the demo ends with, as a person types them in this shell. No I/O but a look for the `everstep` script."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path


def commands(store: Path, run: str, fork: str, tag: str) -> list[str]:
    """What is worth a look in the store that the demo leaves."""
    asked = ("runs --tree", f"log {run}", f"diff {run} {fork}", f"blame {run} choice", f"state {run}@{tag}", "shell")
    return [f"{program()} {words} -s {shlex.quote(str(store))}" for words in asked]


def program() -> str:
    """How this very Everstep is called: by its name, if the shell finds it under that."""
    found, here = shutil.which("everstep"), Path(sys.executable)
    if found is not None and Path(found).parent.absolute() == here.parent.absolute():
        return "everstep"
    return f"{shlex.quote(str(here))} -m everstep"
