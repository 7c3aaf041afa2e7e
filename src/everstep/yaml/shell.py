"""Runs a command of a YAML workflow through /bin/sh and keeps its output.

Values reach a command only as environment variables: in the text of the command, a value with a quote, a semicolon or a `$(` would be
executed as code. The command has its own process group, so a Ctrl-C meant for the program does not reach it, and everything that it started
can be ended with it, at a timeout or when the call is abandoned.

The call returns when the command has ended and no process holds its output open: background processes count as part of the command unless
they redirect their output. A program that is killed cannot clean up; then the command continues without it.
"""

from __future__ import annotations

import atexit
import os
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Collection, Mapping
from contextlib import suppress
from threading import Event, Thread
from typing import Any

from everstep.errors import InvalidArgument, StepFailed, StepTimeout

MOST_KEPT = 1 << 20  # the last bytes of each stream that are kept
TAIL = 2_000  # characters of stderr in an error
GRACE_SECONDS = 1.0  # between SIGTERM and SIGKILL for a group
BLINK_SECONDS = 0.5
_BLOCK = 1 << 16
_running: set[int] = set()


class _Tail:
    """The last bytes of a stream, so that no output can exhaust memory."""

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
        """Return the kept text without trailing newlines, and the number of bytes dropped before it."""
        data = b"".join(self._blocks)[-MOST_KEPT:]
        return data.decode("utf-8", "replace").rstrip("\r\n"), self._all - len(data)


class _Command(Thread):
    """A running command: starts it, reads both of its streams to their ends, and waits for it. So one wait with a timeout covers
    everything.

    The process is started in a separate thread because signals raise only in the main thread. Raised in the middle of starting a process,
    one would lose the process before its id is known.
    """

    def __init__(self, command: str, cwd: str | None, environment: Mapping[str, str]):
        super().__init__(name="everstep-shell", daemon=True)
        self._given = (command, cwd, environment)
        self._begun = Event()
        self.over = Event()
        self.called_off = False  # a thread that has not begun yet must not start the process
        self._pid: int | None = None
        self.out, self.err = _Tail(), _Tail()
        self.code = 0
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            if self.called_off:
                return
            process = self._start_process()
            self._begun.set()
            self._listen(process)
            self.code = process.wait()
            _running.discard(process.pid)
        except Exception as error:  # noqa: BLE001 -- raised by `run_command`, in the thread that waits
            self.error = error
        finally:
            self._begun.set()
            self.over.set()

    def _start_process(self) -> subprocess.Popen[bytes]:
        command, cwd, environment = self._given
        process = subprocess.Popen(  # noqa: S603 -- the command comes from a document that the program itself loads
            ["/bin/sh", "-c", command],
            cwd=cwd,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._pid = process.pid
        _running.add(process.pid)
        return process

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        with process.stdout as stdout, process.stderr as stderr, selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ, self.out)
            selector.register(stderr, selectors.EVENT_READ, self.err)
            while selector.get_map():
                for key, _ in selector.select():
                    block = os.read(key.fd, _BLOCK)
                    if block:
                        key.data.add(block)
                    else:
                        selector.unregister(key.fileobj)

    def end(self) -> None:
        """End the whole group: SIGTERM, then SIGKILL, also if its output is already closed. A process that left the group keeps running."""
        self._begun.wait()
        for kill in (signal.SIGTERM, signal.SIGKILL):
            if self._pid is not None:
                _kill(self._pid, kill)
            self.over.wait(GRACE_SECONDS)


def run_command(
    command: str, name: str, *, cwd: str | None, environment: Mapping[str, str], ok: Collection[int] = (0,), timeout: float | None = None
) -> dict[str, Any]:
    """Run a command; the result has stdout, stderr, code, and the number of bytes cut off at the beginning of both.

    Raises StepFailed with the end of stderr if the exit code is not in `ok`, and StepTimeout after `timeout` seconds.
    """
    for key, value in environment.items():
        if "\0" in value:
            raise InvalidArgument(
                f"step {name}: the value for ${key} must not contain a NUL character; environment variables cannot hold one"
            )
    running = _Command(command, cwd, environment)
    try:
        running.start()
        if not wait_for(running.over, timeout):
            raise StepTimeout(f"step {name} took longer than {timeout:g} s; its command and everything that it started were ended")
    finally:
        running.called_off = True
        if running.ident is not None and not running.over.is_set():
            running.end()
    if running.error is not None:
        raise StepFailed(name, type(running.error).__name__, f"the command could not be run: {running.error}") from running.error
    return _result(name, running, ok)


def wait_for(over: Event, timeout: float | None = None) -> bool:
    """Wait for the end of a thread, and wake up regularly: a signal that arrives just before the main thread blocks is handled only when it
    wakes up.

    Does not use `join`: if a signal raises inside it, Python 3.11 and 3.12 treat the thread as ended.
    """
    end = None if timeout is None else time.monotonic() + timeout
    while not over.is_set():
        left = BLINK_SECONDS if end is None else min(BLINK_SECONDS, end - time.monotonic())
        if left <= 0:
            return False
        over.wait(left)
    return True


def _result(name: str, ended: _Command, ok: Collection[int]) -> dict[str, Any]:
    (stdout, cut_out), (stderr, cut_err), code = ended.out.text(), ended.err.text(), ended.code
    if code not in ok:
        error = StepFailed(
            name, f"signal {-code}" if code < 0 else f"exit code {code}", stderr[-TAIL:] or stdout[-TAIL:] or "it printed nothing"
        )
        error.remedy = (
            "Correct the cause, then resume the run: store.resume(run_id). If the code means success, add it to `ok` of the step."
        )
        raise error
    return {"stdout": stdout, "stderr": stderr, "code": code, "cut": cut_out + cut_err}


def _kill(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # the group has already ended
        os.killpg(group, number)


@atexit.register
def _end_all() -> None:
    """End the commands of threads that still wait when the program exits: these daemon threads are not joined."""
    for pid in list(_running):
        _kill(pid, signal.SIGKILL)
