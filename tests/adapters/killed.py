"""Kill -9 in the calls of an agent: a program writes each call to a ledger when it begins, and its process is killed in the one of a number."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import everstep


class Ledger:
    """Writes down each call when it begins, as a provider would; kills the process in the call of that number."""

    def __init__(self, path: Path, deadly: int = 0):
        self._path, self._deadly, self._made = path, deadly, 0

    def enter(self, call: str) -> None:
        with self._path.open("a") as file:
            file.write(f"{call}\n")
        self._made += 1
        if self._made == self._deadly:
            os.kill(os.getpid(), signal.SIGKILL)


def kill(program: ModuleType, url: str, folder: Path, way: str, number: int) -> bool:
    """Run a program until it is killed in its call of this number. False: it ended, because so many calls were not left."""
    import warm  # the programs themselves need only the ledger

    package = str(Path(everstep.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([package, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, str(program.__file__), url, str(folder / "ledger"), way, str(number)]
    done = warm.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode in (-signal.SIGKILL, 0), done.stdout + done.stderr
    return done.returncode != 0


def made(folder: Path) -> Counter[str]:
    """How often each call was begun."""
    ledger = folder / "ledger"
    return Counter(ledger.read_text().splitlines() if ledger.exists() else ())
