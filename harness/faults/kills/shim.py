"""Faults at the nth file call: builds shim.c, starts Python under it, arms it from within.

Relies on Linux and a C compiler. Without one, `NoCompiler` says how to install it; a test then skips with that message, and fails with it
if EVERSTEP_REQUIRE_CC=1. Faults are armed in a forked child, which is lost anyway, never in the process that counts.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from harness.children import environment

SOURCE = Path(__file__).with_name("shim.c")
Action = Literal["count", "kill", "fail"]
Moment = Literal["before", "half", "after"]
MAKE, OPEN, WRITE, SYNC, NAME, UNLINK, SIZE, READ = (1 << i for i in range(8))
CHANGES = MAKE | OPEN | WRITE | SYNC | NAME | UNLINK | SIZE
NEEDS_SPACE = MAKE | WRITE | SYNC | NAME | SIZE
"""The calls that fail on a full disk: not the opening and removing of files."""
_folders: list[tempfile.TemporaryDirectory[str]] = []  # removed when the process ends


class NoCompiler(Exception):
    """There is no C compiler, so faults at file calls cannot be tried here. Install one: apt install gcc libc6-dev."""

    def __init__(self, why: str = ""):
        super().__init__(f"{type(self).__doc__} {why}".strip())


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, and the call at which it happens."""

    call: int = 0
    action: Action = "count"
    moment: Moment = "before"
    error: int = 0
    lasting: bool = False
    kinds: int = CHANGES

    def __str__(self) -> str:
        if self.action == "kill":
            return f"kill -9 {self.moment} call {self.call}"
        name = errno.errorcode.get(self.error, str(self.error))
        half = ", half of it written," if self.moment == "half" else ""
        return f"{name} {'from' if self.lasting else 'at'} call {self.call}{half}{' on' if self.lasting else ''}"


class Shim:
    """The shim in this process."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._library.everstep_arm.argtypes = [ctypes.c_char_p, ctypes.c_long, *[ctypes.c_int] * 6]
        self._library.everstep_calls.restype = self._library.everstep_fired.restype = ctypes.c_long

    def arm(self, folder: Path, fault: Fault, trace: int = -1) -> None:
        """Count calls below a folder from now on, and trigger the fault."""
        action = ("count", "kill", "fail").index(fault.action)
        moment = ("before", "half", "after").index(fault.moment)
        self._library.everstep_arm(
            os.fsencode(os.path.realpath(folder)), fault.call, action, moment, fault.error, fault.lasting, fault.kinds, trace
        )

    def disarm(self) -> None:
        self._library.everstep_disarm()

    @property
    def lasts(self) -> bool:
        """Whether a fault is armed that does not go away by itself."""
        return bool(self._library.everstep_lasts())

    @property
    def error(self) -> int:
        """Return the error number that was armed last."""
        return int(self._library.everstep_error())

    @property
    def calls(self) -> int:
        return int(self._library.everstep_calls())

    @property
    def fired(self) -> int:
        return int(self._library.everstep_fired())


def why_not() -> str | None:
    """Return why the shim cannot run here; None if it can."""
    if not sys.platform.startswith("linux"):
        return "Faults at file calls need Linux: they are preloaded before its C library."
    return None if shutil.which("cc") or shutil.which("gcc") else str(NoCompiler())


@cache
def build(source: Path = SOURCE) -> Path:
    """Build the shared library, once in a process."""
    if (reason := why_not()) is not None:
        raise NoCompiler(reason)
    folder = tempfile.TemporaryDirectory(prefix="everstep-shim-")
    _folders.append(folder)
    target = Path(folder.name) / f"{source.stem}.so"
    compiler = shutil.which("cc") or shutil.which("gcc") or "cc"
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(target), str(source), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 -- our own source
    if done.returncode:
        raise NoCompiler(f"({' '.join(command)}: {done.stderr.strip()[-500:]})")
    return target


def under_shim(module: str, arguments: dict[str, Any], progress: Callable[[Any], None] | None = None) -> Any:
    """Run a module's `served(arguments, tell)` in a new process that has the shim, and return its result. `tell` reports progress."""
    return apart(module, arguments, progress, LD_PRELOAD=str(build()))


def apart(module: str, arguments: dict[str, Any], progress: Callable[[Any], None] | None = None, **variables: str) -> Any:
    """Run it without the shim, or with another library: in a process without threads, which can be forked."""
    command = [sys.executable, "-m", "harness.faults.kills.shim", module, json.dumps(arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(**variables)) as child:  # noqa: S603
        assert child.stdout is not None
        result: Any = None
        for line in child.stdout:
            kind, said = json.loads(line)
            if kind == "result":
                result = said
            elif progress is not None:
                progress(said)
    if child.returncode:
        raise RuntimeError(f"{module} ended with {child.returncode}")
    return result


def _serve(module: str, arguments: str) -> None:
    from importlib import import_module

    preload = os.environ.get("LD_PRELOAD", "")
    if preload not in Path("/proc/self/maps").read_text():
        raise SystemExit(f"{preload} is not preloaded")
    output = os.dup(1)
    os.dup2(2, 1)  # other output must not become part of the answer

    def tell(kind: str, said: Any) -> None:
        os.write(output, json.dumps([kind, said]).encode() + b"\n")

    tell("result", import_module(module).served(json.loads(arguments), lambda said: tell("progress", said)))


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2])
