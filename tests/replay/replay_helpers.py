"""Starts the programs of programs.py as processes, and looks at what they left behind."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import everstep

PATIENCE = 60.0
"""Seconds after which a child that says or does nothing fails its test. Nothing waits that long unless it hangs."""


class Nursery:
    """The process that forks the children: Everstep is imported once for all of them."""

    def __init__(self) -> None:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        paths = [str(Path(everstep.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
        command = [sys.executable, "-W", "ignore::DeprecationWarning", str(Path(__file__).with_name("programs.py")), str(there.fileno())]
        self._process = subprocess.Popen(command, pass_fds=[there.fileno()], env=environment, start_new_session=True)
        there.close()
        here.settimeout(PATIENCE)
        self._channel = here

    def ask(self, asked: dict[str, Any], descriptors: list[int] | None = None) -> Any:
        socket.send_fds(self._channel, [json.dumps(asked).encode()], descriptors or [])
        return json.loads(self._channel.recv(1 << 16))

    def close(self) -> None:
        self._channel.close()
        self._process.wait(PATIENCE)


class Child:
    """One process that runs one program."""

    def __init__(self, nursery: Nursery, errors: Path, asked: dict[str, Any]):
        self._nursery, self._errors = nursery, errors
        stdin, self._in = os.pipe()
        self._out, stdout = os.pipe()
        stderr = os.open(errors, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.pid: int = nursery.ask(asked, [stdin, stdout, stderr])
        for descriptor in (stdin, stdout, stderr):
            os.close(descriptor)
        self._text = b""
        self.code: int | None = None

    def heard(self) -> str:
        """The next line that it says; empty at its end."""
        deadline = time.monotonic() + PATIENCE
        while b"\n" not in self._text:
            if not self._more(deadline):
                return ""
        line, _, self._text = self._text.partition(b"\n")
        return line.decode()

    def _more(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._out], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"the child says nothing any more; stderr:\n{self._errors.read_text()}"
        data = os.read(self._out, 1 << 16)
        self._text += data
        return bool(data)

    def expect(self, line: str) -> "Child":
        heard = self.heard()
        assert heard == line, f"heard {heard!r} instead of {line!r}; stderr:\n{self._errors.read_text()}"
        return self

    def tell(self) -> None:
        os.write(self._in, b"go\n")

    def signal(self, number: int) -> None:
        assert self.code is None
        os.kill(self.pid, number)

    def wait(self) -> int:
        """Its exit code; negative if a signal ended it."""
        deadline = time.monotonic() + PATIENCE
        while self.code is None:
            self.code = self._nursery.ask({"reap": self.pid})
            if self.code is None:
                assert time.monotonic() < deadline, f"the child does not end; stderr:\n{self._errors.read_text()}"
                time.sleep(0.002)
        return self.code

    def outcome(self) -> dict[str, Any]:
        """What the program said at its end. It must have ended well."""
        said = list(iter(self.heard, ""))
        assert self.wait() == 0, f"exit code {self.code}; stderr:\n{self._errors.read_text()}"
        found: dict[str, Any] = json.loads(said[-1])
        return found

    def died(self) -> None:
        """It was killed, as it was meant to be."""
        assert self.wait() == -signal.SIGKILL, f"exit code {self.code}; stderr:\n{self._errors.read_text()}"

    def close(self) -> None:
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()
        os.close(self._in)
        os.close(self._out)


class World:
    """A store, the notes of what was done outside of it, and the processes that use both."""

    def __init__(self, nursery: Nursery, folder: Path):
        self._nursery = nursery
        self._folder = folder
        self.path = folder / "store.db"
        self.children: list[Child] = []

    def start(self, program: str, run: str = "r", **options: Any) -> Child:
        asked = {"program": program, "run": run, "store": str(self.path), "effects": str(self._notes(run)), **options}
        child = Child(self._nursery, self._folder / "stderr", asked)
        self.children.append(child)
        return child

    def _notes(self, run: str) -> Path:
        return self._folder / f"effects-{run}"

    def effects(self, run: str = "r") -> list[dict[str, Any]]:
        """Every execution of a step, in the order in which they happened."""
        notes = self._notes(run)
        return [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []

    def counts(self, run: str = "r") -> Counter[str]:
        return Counter(effect["what"] for effect in self.effects(run))

    def open(self) -> everstep.Store:
        return everstep.open(self.path)

    def recorded(self, run: str = "r") -> list[str]:
        """The addresses of the steps that have a result."""
        with self.open() as store:
            return [step.address for step in store.steps(run) if step.status == "succeeded"]

    def events(self, run: str = "r") -> list[Any]:
        with self.open() as store:
            return list(store.events(run=run, limit=100_000))

    def timers(self, run: str = "r") -> list[tuple[str, Any]]:
        return [(event.data["timer"], event.data["deadline"]) for event in self.events(run) if event.name == "timer_set"]

    def errors(self) -> str:
        """What the children wrote to stderr."""
        return (self._folder / "stderr").read_text()

    def verify(self) -> None:
        with self.open() as store:
            report = store.verify("full")
            assert report.ok, str(report)

    def close(self) -> None:
        for child in self.children:
            child.close()
