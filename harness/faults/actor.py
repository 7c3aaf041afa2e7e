"""A separate process that executes commands, so that it can be stopped, woken up and killed like any worker.

Its function is one of an importable module, and gets one end of a pipe. It is forked from a server that has imported everstep and has no
thread, so that a new one costs milliseconds. Only processes of this program use the pipe.
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
_context.set_forkserver_preload(list(_USED))  # a missing module is left out


def preload(*modules: str) -> None:
    """Let the server import more before it forks the first process: what the module of a function imports, each process would import again."""
    _context.set_forkserver_preload([*_USED, *modules])


class ActorDied(Exception):
    """The process ended where an answer was expected."""


class Actor:
    """One process, killed at the end of its block if it is still alive."""

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
        with suppress(BrokenPipeError):  # it died: the next read from it shows that
            self._pipe.send(message)

    def hear(self, patience: float = PATIENCE) -> Any:
        """Return its next message."""
        if not self._pipe.poll(patience):
            raise TimeoutError(f"process {self.pid} sent nothing for {patience:.0f} s\n{self.where()}")
        try:
            return self._pipe.recv()
        except (EOFError, ConnectionResetError):
            self._process.join(PATIENCE)
            raise ActorDied(f"process {self.pid} ended with code {self._process.exitcode}") from None

    def ask(self, *message: Any) -> Any:
        self.tell(*message)
        return self.hear()

    def silent(self, seconds: float) -> bool:
        """Whether it sends nothing for this long."""
        return not self._pipe.poll(seconds)

    def stop(self) -> None:
        """Stop it with SIGSTOP; return when it has stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        limit = time.monotonic() + PATIENCE
        while _state(self.pid) not in "TtZX":
            if time.monotonic() > limit:
                raise TimeoutError(f"process {self.pid} did not stop")
            time.sleep(0.0005)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def where(self) -> str:
        """Describe its activity: its state, and the Python calls of all its threads."""
        told = [f"state {_state(self.pid)}"]
        with suppress(OSError):
            os.kill(self.pid, signal.SIGUSR1)
            task = Path(f"/proc/{self.pid}")
            told += [f"thread {thread.name}: {(thread / 'syscall').read_text()}" for thread in sorted((task / "task").iterdir())]
            told.append(self._trace(task / "fd"))
        return "\n".join(told)

    def _trace(self, files: Path) -> str:
        """Return the calls that the process writes; it may take long to write them."""
        limit, seen, before = time.monotonic() + _TO_WRITE, "", " "
        while (not seen or seen != before) and time.monotonic() < limit:
            time.sleep(0.2)
            before, seen = seen, "\n".join(fd.read_text() for fd in files.iterdir() if _TRACE in str(fd.readlink()))
        return seen

    def kill(self) -> None:
        """Kill it with kill -9, and wait until it has ended."""
        self._process.kill()
        self._process.join(PATIENCE)

    def ended(self) -> int | None:
        """Return its exit code, once it has ended on its own."""
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
    with suppress(EOFError, BrokenPipeError):  # the other end of the pipe is closed
        play(pipe, *args)


def _state(pid: int) -> str:
    """Return the system's letter for the state of a process; Z if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "Z"
    return stat.rpartition(")")[2].split()[0]
