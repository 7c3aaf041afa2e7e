"""The warm parent: a Python that has Everstep imported and forks a child for each request, as `python -m`, `-c` or a script would start it.

`python warm_parent.py CHANNEL LISTENER`, started and spoken to by warm.py, and by the scripts that `warm.command` writes. It has one thread and never opens a store, so a child begins where a new
interpreter would be after its imports. Each child has its own descriptors, folder, environment and session, and ends as any process does.
"""

import fcntl
import gc
import importlib
import io
import json
import marshal
import os
import runpy
import signal
import socket
import sys
import termios
import time
from pathlib import Path
from types import ModuleType
from typing import Any

LIMIT = 1 << 18
"""Bytes of one request: the command, the folder and the environment."""

# Modules that nearly every child uses. Tests of what a command imports start a real process.
USED = (
    "asyncio", "click", "ormsgpack", "subprocess", "everstep.api", "everstep.agents.loop", "everstep.backends.registry",
    "everstep.backends.sqlite.backend", "everstep.backends.postgres.backend", "everstep.cli.app", "everstep.cli.main", "everstep.runtime.run",
    "everstep.runtime.waits.control", "everstep.runtime.workflow", "everstep.testing.rows",
)  # fmt: skip


def serve(channel: socket.socket, listener: socket.socket) -> dict[str, Any] | None:
    """Fork a child for each request. Returns the request in a child, None when the tests have ended."""
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    waiting: dict[int, int] = {}
    while True:
        ready = _ready(channel, listener, woken)
        if woken in ready:
            _report(woken, waiting)
        by_script = listener.fileno() in ready
        if by_script:
            asked, descriptors = _from_script(listener)
        elif channel.fileno() in ready:
            data, descriptors, _, _ = socket.recv_fds(channel, LIMIT, 4)
            if not data:
                return None
            asked = json.loads(data)
        if not by_script and channel.fileno() not in ready:
            continue
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for other in (woken, wake, channel.detach(), listener.detach(), *waiting.values()):
                os.close(other)
            _take(asked, descriptors)
            return asked
        *standard, waiting[pid] = descriptors
        for descriptor in standard:
            os.close(descriptor)
        if not by_script:
            channel.send(str(pid).encode())


def _from_script(listener: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """A request of a script, which waits for the exit code on its own connection."""
    connection, _ = listener.accept()
    data, descriptors, _, _ = socket.recv_fds(connection, LIMIT, 3)
    words, folder, variables = marshal.loads(data)
    asked = {"command": ["-m", "everstep", *words], "cwd": folder, "env": variables, "session": False, "terminal": False}
    return asked, [*descriptors, connection.detach()]


def _ready(*sources: Any) -> list[int]:
    import select

    found, _, _ = select.select(sources, [], [])
    return [source if isinstance(source, int) else source.fileno() for source in found]


def _report(woken: int, waiting: dict[int, int]) -> None:
    """Tell the test how its children ended."""
    os.read(woken, 4096)
    for pid in list(waiting):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            with open(waiting.pop(pid), "wb") as answer:
                answer.write(str(os.waitstatus_to_exitcode(status)).encode())


def _take(asked: dict[str, Any], descriptors: list[int]) -> None:
    """Become the process that was asked for: signals, session, descriptors, folder, environment."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if asked["session"]:
        os.setsid()
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    for descriptor in descriptors:
        os.close(descriptor)
    if asked["terminal"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    time.tzset()
    _standard_streams()
    importlib.invalidate_caches()
    if "COVERAGE_PROCESS_START" in os.environ:  # a new interpreter reads it at its start, too
        importlib.import_module("coverage").process_startup()


def _standard_streams() -> None:
    """Streams as the interpreter makes them at its start."""
    encoding = sys.stdout.encoding
    sys.stdin = sys.__stdin__ = open(0, encoding=encoding, errors=sys.stdin.errors, closefd=False)  # type: ignore[misc]  # noqa: SIM115
    for name, number, errors in (("stdout", 1, sys.stdout.errors), ("stderr", 2, "backslashreplace")):
        raw = io.BufferedWriter(io.FileIO(number, "w", closefd=False))
        lines = number == 2 or os.isatty(number)
        made = io.TextIOWrapper(raw, encoding=encoding, errors=errors, newline="\n", line_buffering=lines)
        made.mode = "w"
        setattr(sys, name, made)
        setattr(sys, f"__{name}__", made)


def _search(first: str) -> None:
    """Look for modules where a new interpreter would: first beside the program, then in PYTHONPATH."""
    given = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:] = [first, *given, *(entry for entry in sys.path[1:] if entry not in given)]


def run(command: list[str]) -> None:
    """Run `-m module`, `-c code` or a script in this process, as its main program."""
    kind, *rest = command
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    if kind == "-m":
        sys.argv = ["-m", *rest[1:]]
        _search(os.getcwd())
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        _search("")
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    else:
        sys.argv = command
        _search(str(Path(kind).parent))
        main.__dict__["__file__"] = kind
        exec(compile(Path(kind).read_bytes(), kind, "exec"), main.__dict__)


def preload() -> None:
    for name in USED:
        importlib.import_module(name)
    commands = importlib.import_module("everstep.cli.commands")
    for file in sorted(Path(commands.__path__[0]).glob("*.py")):
        if file.stem != "__init__":
            importlib.import_module(f"everstep.cli.commands.{file.stem}")


if __name__ == "__main__":
    number, listening = map(int, sys.argv[1:])
    preload()
    gc.freeze()  # else each child walks through all imported objects once more when it ends
    asked = serve(socket.socket(fileno=number), socket.socket(fileno=listening))
if __name__ == "__main__" and asked is not None:
    run(asked["command"])
