"""Calls the command line in three ways: in this process, through a pipe, and on a real pseudo-terminal; and fills a store for it."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import warm
from terminal import Terminal

import everstep
from everstep.cli.main import main

PROGRAMS = Path(__file__).with_name("cli_programs.py")
DOCUMENT = Path(__file__).parents[2] / "docs" / "cli.md"
LONG = ("conversation-with-alice-2026-11-15", "conversation-with-bob-2026-11-15")
SGR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Called:
    """What came of a command."""

    code: int
    out: str
    err: str = ""

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def data(self) -> Any:
        return self.json["data"]

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    def ok(self) -> Called:
        assert self.code == 0, self.out + self.err
        return self


def environment(**more: str) -> dict[str, str]:
    """That of a person at a terminal with colours, whatever the one who runs the tests has set."""
    package = str(Path(everstep.__file__).parents[1])
    taken = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "EVERSTEP_STORE", "COLUMNS", "LINES", "FORCE_COLOR")}
    taken["XDG_STATE_HOME"] = os.environ.get("XDG_STATE_HOME", "/nonexistent")  # what was typed in other tests is not suggested
    return taken | {"PYTHONPATH": os.pathsep.join([package, os.environ.get("PYTHONPATH", "")]), "TERM": "xterm-256color"} | more


class Shop:
    """A folder with a store in it, and the three ways to call a command there."""

    def __init__(self, folder: Path, capsys: Any = None):
        self.folder = folder
        self._capsys = capsys
        self._spawned: list[Terminal] = []

    @property
    def path(self) -> Path:
        return self.folder / ".everstep" / "store.db"

    def open(self) -> everstep.Store:
        return everstep.open(self.path)

    def call(self, *args: str) -> Called:
        """In this process."""
        self._capsys.readouterr()
        code = main([str(arg) for arg in args])
        said = self._capsys.readouterr()
        return Called(code, said.out, said.err)

    def json(self, *args: str, code: int = 0) -> Any:
        """The data of a JSON answer, whose envelope is looked at, too."""
        called = self.call(*args, "--json")
        assert called.code == code, called.out + called.err
        assert called.json.keys() == {"everstep", "kind", "data"}
        assert called.json["everstep"] == 1
        return called.data

    def pipe(self, *args: str, stdin: str | bytes = "", new: bool = False, **more: str) -> Called:
        """In a process of its own; with `new`, in a new interpreter that has nothing imported."""
        given = stdin.encode() if isinstance(stdin, str) else stdin
        command = [sys.executable, "-m", "everstep", *map(str, args)]
        run = subprocess.run if new or Busy.now else warm.run
        done = run(command, cwd=self.folder, env=environment(**more), input=given, capture_output=True, timeout=60)
        return Called(done.returncode, done.stdout.decode(), done.stderr.decode())

    def spawn(self, *args: str, columns: int = 100, **more: str) -> Terminal:
        """A command that a person can talk with."""
        return self.at_terminal(
            sys.executable, "-m", "everstep", *map(str, args), columns=columns, new=bool(Busy.now), env=environment(**more)
        )

    def at_terminal(self, *command: str, **options: Any) -> Terminal:
        """Any program, in the folder."""
        self._spawned.append(Terminal(*command, cwd=self.folder, **options))
        return self._spawned[-1]

    def stop(self) -> None:
        """End what a test left running."""
        for child in self._spawned:
            child.stop()

    def terminal(self, *args: str, columns: int = 100, **more: str) -> Called:
        """On a terminal, where data and talk arrive in one stream."""
        return ended(self.spawn(*args, columns=columns, **more))

    def counts(self) -> dict[str, Any]:
        """What is stored, to see that nothing changed."""
        with self.open() as store:
            runs = [(r.id, r.status, r.checkpoints, r.stored_bytes, r.updated_at) for r in store.runs(limit=None)]
            states = [(c.ref, c.pruned, c.tags) for r in runs for c in store.checkpoints(r[0], limit=None)]
            return {"stats": {k: v for k, v in store.stats().items() if k != "file_bytes"}, "runs": runs, "states": states}


class Busy:
    """How much of a processor the commands in a block took: other than the time on the wall, it does not grow when others work, too.

    Inside of it, commands run in new interpreters: only the time of our own children is counted.
    """

    now = 0

    def __enter__(self) -> Busy:
        Busy.now += 1
        self._before = _used()
        return self

    def __exit__(self, *_: object) -> None:
        Busy.now -= 1
        self.seconds = _used() - self._before


def _used() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def ended(child: Terminal) -> Called:
    code = child.ended()
    return Called(code, child.before.replace("\r\n", "\n"))


def plain(text: str) -> str:
    """Without our own colours."""
    return SGR.sub("", text)


def fill(path: Path) -> None:
    """Runs of every kind: done after a retry, waiting at a gate, failed, a loop with session, note, meta and tags, a fork, two long ids."""
    from cli_programs import broken, order

    with everstep.open(path) as store:
        store.start(order, "tea", "milk", id="done")
        store.answer("done", "boss", "yes", by="ann")
        store.resume("done")
        store.start(order, "tea", id="waits")
        store.start(broken, id="broken")
        with store.run("loop", session="monday", note="a chat about tea", tags=["chat", "prod"], meta={"who": "ann", "n": 3}) as run:
            run.state.update(messages=[], total=0, topic="tea")
            for n in range(1, 7):
                run.state["messages"].append({"role": "user", "content": f"message {n}"})
                run.state["total"] = run.step("add", lambda n=n: n * 10)
                run.checkpoint(f"turn {n}", tags=["half"] if n == 3 else ())
        store.fork("loop@3", "alternative", {"topic": "coffee"})
        for name in LONG:
            with store.run(name) as run:
                run.state["name"] = name
                run.checkpoint()


def copy(template: Path, folder: Path) -> None:
    shutil.copytree(template, folder, dirs_exist_ok=True)
