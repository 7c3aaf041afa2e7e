"""Processes without the start of an interpreter: `Popen` and `run` as in `subprocess`, for commands that begin with `sys.executable`.

A warm parent (warm_parent.py), one for each process of the tests, has Everstep imported and forks them. Such a child is a real process with its own
pid, descriptors, session and exit code; only the import of Everstep is shared. A command that it cannot start in the same way
runs in a new interpreter: other programs, options of Python, other PYTHON… variables (except PYTHONPATH) than ours, other systems than Linux.
Not for tests of what a program imports or of how long it takes: these start `subprocess` themselves.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT, CalledProcessError, CompletedProcess, TimeoutExpired
from typing import IO, Any

import everstep

_READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC")


def can(command: Sequence[Any], env: dict[str, str] | None) -> bool:
    """Whether a child of the warm parent is the same as a new process."""
    if sys.platform != "linux" or len(command) < 2 or command[0] != sys.executable:
        return False
    option = str(command[1])
    return (option in ("-m", "-c") or not option.startswith("-")) and _read_at_start(env) == _read_at_start(os.environ)


def _read_at_start(env: Mapping[str, str] | None) -> dict[str, str]:
    """The variables that an interpreter reads once, when it starts. PYTHONPATH is read by the child."""
    taken = os.environ if env is None else env
    return {name: value for name, value in taken.items() if name.startswith(_READ_AT_START) and name != "PYTHONPATH"}


class _Parent:
    """The connection to the warm parent of this process."""

    def __init__(self) -> None:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._folder = tempfile.TemporaryDirectory(prefix="warm-")  # the name of a socket has a limit
        self.listens = f"{self._folder.name}/s"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(self.listens)
        listener.listen(20)
        given = [there.fileno(), listener.fileno()]
        command = [sys.executable, str(Path(__file__).with_name("warm_parent.py")), *map(str, given)]
        environment = os.environ | {"PYTHONPATH": str(Path(everstep.__file__).parents[1])}
        self._process = subprocess.Popen(command, pass_fds=given, env=environment, start_new_session=True, stdin=DEVNULL)
        there.close()
        listener.close()
        self._channel = here
        self._pid = os.getpid()
        self._lock = threading.Lock()
        atexit.register(self.close)

    @property
    def mine(self) -> bool:
        """Whether this process started it. A fork of this process needs its own."""
        return self._pid == os.getpid()

    def ask(self, asked: dict[str, Any], descriptors: list[int]) -> int:
        with self._lock:
            socket.send_fds(self._channel, [json.dumps(asked).encode()], descriptors)
            answer = self._channel.recv(64)
        assert answer, "the warm parent has died"
        return int(answer)

    def close(self) -> None:
        if self.mine:
            self._channel.close()
            self._process.wait()
            self._folder.cleanup()


_parent: _Parent | None = None


def _our_parent() -> _Parent:
    global _parent
    if _parent is None or not _parent.mine:
        _parent = _Parent()
    return _parent


_COMMAND = """#!{python} -IS
import _socket, array, marshal, os, sys
s = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
s.connect({place!r})
said = marshal.dumps((sys.argv[1:], os.getcwd(), dict(os.environ)))
s.sendmsg([said], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
code = int(s.recv(64) or b"-9")
if code < 0:
    os.kill(os.getpid(), -code)
os._exit(code)
"""


def command(path: Path) -> None:
    """Write an executable that calls `everstep` in a child of the warm parent: for scripts, in which each call would start an interpreter."""
    if sys.platform == "linux":
        path.write_text(_COMMAND.format(python=sys.executable, place=_our_parent().listens))
    else:
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m everstep "$@"\n')
    path.chmod(0o755)


class WarmProcess:
    """A child of the warm parent, used as a `subprocess.Popen`."""

    def __init__(
        self, args: Sequence[Any], *, stdin: Any = None, stdout: Any = None, stderr: Any = None, cwd: Any = None,
        env: dict[str, str] | None = None, text: bool = False, start_new_session: bool = False, terminal: bool = False,
    ):  # fmt: skip
        self.args = args
        self.returncode: int | None = None
        theirs, ours = self._pipes(stdin, stdout, stderr)
        self.stdin: Any = None if ours[0] is None else _file(ours[0], "w", text)
        self.stdout: Any = None if ours[1] is None else _file(ours[1], "r", text)
        self.stderr: Any = None if ours[2] is None else _file(ours[2], "r", text)
        self._status, status = os.pipe()
        asked = {
            "command": [os.fspath(arg) if isinstance(arg, os.PathLike) else str(arg) for arg in args[1:]], "cwd": os.fspath(cwd or os.getcwd()),
            "env": dict(os.environ if env is None else env), "session": start_new_session, "terminal": terminal,
        }  # fmt: skip
        try:
            self.pid = _our_parent().ask(asked, [*theirs, status])
        finally:
            for descriptor in {status, *theirs[:3]} - self._kept:
                os.close(descriptor)

    def _pipes(self, *given: Any) -> tuple[list[int], list[int | None]]:
        """The child's ends of its streams, and ours."""
        theirs: list[int] = []
        ours: list[int | None] = []
        self._kept: set[int] = set()
        for number, one in enumerate(given):
            mine = None
            if one == PIPE:
                read, write = os.pipe()
                mine, end = (write, read) if number == 0 else (read, write)
            elif one == DEVNULL:
                end = os.open(os.devnull, os.O_RDWR)
            elif one == STDOUT:
                end = os.dup(theirs[1])
            else:
                end = number if one is None else one if isinstance(one, int) else one.fileno()
                self._kept.add(end)
            theirs.append(end)
            ours.append(mine)
        return theirs, ours

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise TimeoutExpired(self.args, timeout or 0)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            self.returncode = int(os.read(self._status, 64) or b"-9")
            os.close(self._status)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def communicate(self, input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:
        """Send the input, read both streams to their ends, and wait."""
        limit = None if timeout is None else time.monotonic() + timeout
        said: dict[str, Any] = {"stdout": None, "stderr": None}
        readers = [
            threading.Thread(target=_read, args=(getattr(self, name), said, name), daemon=True) for name in said if getattr(self, name)
        ]
        for reader in readers:
            reader.start()
        if self.stdin is not None and not self.stdin.closed:
            _send(self.stdin, input)
        for reader in readers:
            reader.join(None if limit is None else max(0.0, limit - time.monotonic()))
            if reader.is_alive():
                raise TimeoutExpired(self.args, timeout or 0)
        self.wait(None if limit is None else max(0.0, limit - time.monotonic()))
        return said["stdout"], said["stderr"]

    def __enter__(self) -> WarmProcess:
        return self

    def __exit__(self, *problem: object) -> None:
        for stream in (self.stdout, self.stderr, self.stdin):
            if stream is not None:
                stream.close()
        self.wait()

    def __del__(self) -> None:
        if self.__dict__.get("returncode", 0) is None and "_status" in self.__dict__:
            os.close(self._status)


def _file(descriptor: int, mode: str, text: bool) -> IO[Any]:
    return open(descriptor, mode, encoding="utf-8") if text else open(descriptor, f"{mode}b", buffering=-1 if mode == "r" else 0)


def _read(stream: IO[Any], said: dict[str, Any], name: str) -> None:
    said[name] = "" if stream.closed else stream.read()
    stream.close()


def _send(stream: IO[Any], given: Any) -> None:
    """Write and close. A child that ends without reading is not an error, as for `subprocess`."""
    try:
        if given:
            stream.write(given)
        stream.close()
    except BrokenPipeError:
        pass


def Popen(args: Sequence[Any], **options: Any) -> Any:
    """A child of the warm parent, or a new interpreter where that would differ."""
    if can(args, options.get("env")):
        return WarmProcess(args, **options)
    assert not options.pop("terminal", False), args
    return subprocess.Popen([str(arg) for arg in args], **options)


def run(
    args: Sequence[Any],
    *,
    input: Any = None,
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,
) -> CompletedProcess[Any]:
    if capture_output:
        options |= {"stdout": PIPE, "stderr": PIPE}
    if input is not None:
        options["stdin"] = PIPE
    process = Popen(args, **options)
    try:
        out, err = process.communicate(input, timeout)
    except BaseException:
        process.kill()
        process.wait()
        raise
    if check and process.returncode:
        raise CalledProcessError(process.returncode, args, out, err)
    return CompletedProcess(args, process.returncode, out, err)
