"""A process of its own that does what it is told, so that it can be stopped, woken and killed like any worker.

What it does is a function of an importable module that gets one end of a pipe. It is forked from a server that has everstep
imported and no thread, so that a new one costs milliseconds. Only processes of this program talk through the pipe.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

PATIENCE = 60.0
_TO_WRITE = 15.0
_TRACE = "everstep-trace"
_context = multiprocessing.get_context("forkserver")
_USED = (
    "everstep.api", "everstep.backends.sqlite.backend", "everstep.runtime.run", "everstep.runtime.workflow", "everstep.runtime.waits.control",
    "everstep.store.verify.doctor", "everstep.store.verify.verify", "everstep.store.repair.repair", "everstep.store.retention.cleanup",
    "everstep.store.retention.gc", "everstep.store.retention.prune", "harness.faults.actor",
)  # fmt: skip
_context.set_forkserver_preload(list(_USED))  # one that is not there is left out


class ActorDied(Exception):
    """The process ended where an answer was expected."""


class Actor:
    """One process, killed at the end of its block if it still lives."""

    def __init__(self, play: Callable[..., None], *args: Any):
        self._pipe, far = _context.Pipe()
        self._process = _context.Process(target=_begin, args=(play, far, args), daemon=True)
        with _no_main():
            self._process.start()
        far.close()

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    def tell(self, *message: Any) -> None:
        with suppress(BrokenPipeError):  # it died: that shows when it is listened to
            self._pipe.send(message)

    def hear(self, patience: float = PATIENCE) -> Any:
        """The next thing that it says."""
        if not self._pipe.poll(patience):
            raise TimeoutError(f"process {self.pid} said nothing for {patience:.0f} s\n{self.where()}")
        try:
            return self._pipe.recv()
        except (EOFError, ConnectionResetError):
            self._process.join(PATIENCE)
            raise ActorDied(f"process {self.pid} ended with code {self._process.exitcode}") from None

    def ask(self, *message: Any) -> Any:
        self.tell(*message)
        return self.hear()

    def silent(self, seconds: float) -> bool:
        """Whether it says nothing for so long."""
        return not self._pipe.poll(seconds)

    def stop(self) -> None:
        """Stop it in its tracks; return when it stands."""
        os.kill(self.pid, signal.SIGSTOP)
        limit = time.monotonic() + PATIENCE
        while _state(self.pid) not in "TtZX":
            if time.monotonic() > limit:
                raise TimeoutError(f"process {self.pid} did not stop")
            time.sleep(0.0005)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def where(self) -> str:
        """What it is doing: its state, and the Python calls of all its threads."""
        told = [f"state {_state(self.pid)}"]
        with suppress(OSError):
            os.kill(self.pid, signal.SIGUSR1)
            task = Path(f"/proc/{self.pid}")
            told += [f"thread {thread.name}: {(thread / 'syscall').read_text()}" for thread in sorted((task / "task").iterdir())]
            told.append(self._trace(task / "fd"))
        return "\n".join(told)

    def _trace(self, files: Path) -> str:
        """What the process writes of its calls; it may be long in getting to it."""
        limit, seen, before = time.monotonic() + _TO_WRITE, "", " "
        while (not seen or seen != before) and time.monotonic() < limit:
            time.sleep(0.2)
            before, seen = seen, "\n".join(fd.read_text() for fd in files.iterdir() if _TRACE in str(fd.readlink()))
        return seen

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self._process.kill()
        self._process.join(PATIENCE)

    def ended(self) -> int | None:
        """Its exit code, once it has ended by itself."""
        self._process.join(PATIENCE)
        return self._process.exitcode

    def __enter__(self) -> Actor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()
        self._pipe.close()


@contextmanager
def _no_main() -> Iterator[None]:
    """Keep a new process from importing the main program of this one, which may be anything."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _begin(play: Callable[..., None], pipe: Connection, args: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the harness, which then kills its actors
    faulthandler.register(signal.SIGUSR1, os.memfd_create(_TRACE))  # read by `where`
    with suppress(EOFError, BrokenPipeError):  # nobody listens any more
        play(pipe, *args)


def _state(pid: int) -> str:
    """The letter that the system gives to what a process does; Z if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "Z"
    return stat.rpartition(")")[2].split()[0]
