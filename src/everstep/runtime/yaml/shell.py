"""Run a command of a YAML workflow through /bin/sh and keep what it printed.

Values reach a command only as environment variables: a text put into the command itself would be read as code as soon as it holds a quote, a
semicolon or a `$(`. The command gets a process group of its own: a Ctrl-C for the program doesn't hit the command that the program waits for, and
all that the command started can be ended with it, at a timeout and when the call is left early.

The call returns when the command has ended and nobody holds its output open: what it left in the background counts as a part of it, unless its
output goes elsewhere. A program that is killed by force can't clean up; then the command goes on by itself.
"""

from __future__ import annotations

import atexit
import os
import selectors
import signal
import subprocess
from collections import deque
from collections.abc import Collection, Mapping
from contextlib import suppress
from threading import Thread
from typing import Any

from everstep.errors import InvalidArgument, StepFailed, StepTimeout

MOST_KEPT = 1 << 20  # bytes of each stream, the last ones
TAIL = 2_000  # characters of stderr in an error
GRACE_SECONDS = 1.0  # between asking a group to end and ending it
_BLOCK = 1 << 16
_running: set[int] = set()


class _Tail:
    """The last bytes of a stream, so that no output can fill the memory."""

    def __init__(self) -> None:
        self._blocks: deque[bytes] = deque()
        self._kept = 0
        self._all = 0

    def add(self, block: bytes) -> None:
        self._blocks.append(block)
        self._kept += len(block)
        self._all += len(block)
        while self._kept - len(self._blocks[0]) >= MOST_KEPT:
            self._kept -= len(self._blocks.popleft())

    def text(self) -> tuple[str, int]:
        """What was kept, without the newlines at its end, and how many bytes before it were not."""
        data = b"".join(self._blocks)[-MOST_KEPT:]
        return data.decode("utf-8", "replace").rstrip("\r\n"), self._all - len(data)


class _Listener(Thread):
    """Reads both streams to their ends, then waits for the process; so that one `join` with a timeout waits for all of it."""

    def __init__(self, process: subprocess.Popen[bytes]):
        super().__init__(name=f"everstep-shell-{process.pid}", daemon=True)
        self._process = process
        self.out, self.err = _Tail(), _Tail()
        self.start()

    def run(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        with self._process.stdout as stdout, self._process.stderr as stderr, selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ, self.out)
            selector.register(stderr, selectors.EVENT_READ, self.err)
            while selector.get_map():
                for key, _ in selector.select():
                    self._read(selector, key.fileobj, key.data)
        self._process.wait()

    @staticmethod
    def _read(selector: selectors.BaseSelector, stream: Any, tail: _Tail) -> None:
        block = os.read(stream.fileno(), _BLOCK)
        if block:
            tail.add(block)
        else:
            selector.unregister(stream)


def run_command(
    command: str, name: str, *, cwd: str | None, environment: Mapping[str, str], ok: Collection[int] = (0,), timeout: float | None = None
) -> dict[str, Any]:
    """The result of a command: stdout, stderr, code, and how many bytes of both were cut off at their beginning.

    StepFailed with the end of stderr if the exit code is none of `ok`, StepTimeout if it takes longer than `timeout` seconds.
    """
    process = _start(command, name, cwd, environment)
    listener = _Listener(process)
    _running.add(process.pid)
    try:
        listener.join(timeout)
        if listener.is_alive():
            raise StepTimeout(f"step {name} took longer than {timeout:g} s; its command and all that it had started were ended")
    finally:
        if listener.is_alive():
            _end(process, listener)
        _running.discard(process.pid)
    (stdout, cut_out), (stderr, cut_err) = listener.out.text(), listener.err.text()
    code = process.returncode
    if code not in ok:
        raise StepFailed(
            name, f"signal {-code}" if code < 0 else f"exit code {code}", stderr[-TAIL:] or stdout[-TAIL:] or "it printed nothing"
        )
    return {"stdout": stdout, "stderr": stderr, "code": code, "cut": cut_out + cut_err}


def _start(command: str, name: str, cwd: str | None, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    for key, value in environment.items():
        if "\0" in value:
            raise InvalidArgument(f"step {name}: the value for ${key} holds a NUL character, which no environment variable can")
    try:
        return subprocess.Popen(  # noqa: S603 -- the command stands in a document that the program itself loads
            ["/bin/sh", "-c", command],
            cwd=cwd,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise StepFailed(name, type(error).__name__, f"the command could not be started: {error}") from error


def _end(process: subprocess.Popen[bytes], listener: _Listener) -> None:
    """End the whole group: first ask, then by force, also those that keep silent. Who left the group by itself goes on."""
    for kill in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):  # nobody is left
            os.killpg(process.pid, kill)
        listener.join(GRACE_SECONDS)


@atexit.register
def _end_all() -> None:
    """A program that exits while a thread of it waits for a command: the thread is not waited for, so its command is ended here."""
    for pid in list(_running):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
