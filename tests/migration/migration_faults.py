"""Migrations under the preloaded shim: killed, or failed, at every file call. Runs in a process of its own; `test_interrupted` starts it.

Each fault hits a fresh copy of the frozen store in a forked child. What the child leaves behind is judged here: the old format untouched or
the new one whole, and after the next open the new one in any case.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from migration_helpers import Frozen, ask

from everstep.backends.sqlite.backend import SqliteBackend
from everstep.backends.sqlite.files import format as sqlite_format
from everstep.errors import EverstepError
from harness.faults import format_0
from harness.faults.kills.shim import NEEDS_SPACE, Fault, Shim

FINE, REFUSED, WRONG = 0, 3, 4


def served(asked: dict[str, Any], tell: Callable[[Any], None]) -> dict[str, Any]:
    """Try one sort of fault at every call, or at every `stride`th; `broken` makes the migration one that is not atomic."""
    format_0.register()
    frozen, path = Frozen(Path(asked["frozen"])), Path(asked["folder"]) / "s.db"
    if asked.get("broken"):
        sqlite_format._SQL = sqlite_format._SQL | {"begin": "SELECT 1", "commit": "SELECT 1"}
    make = {"kill": _kill, "eio": _eio, "full": _full}[asked["fault"]]
    calls = _count(frozen, path, make(1).kinds)
    found: dict[str, Any] = {"calls": calls, "killed": 0, "refused": 0, "old": 0, "new": 0, "wrong": []}
    for call in range(1, calls + 1, asked.get("stride", 1)):
        frozen.copy(path)
        fault = make(call)
        code = _in_child(path, fault)
        found["killed"] += code == -signal.SIGKILL
        found["refused"] += code == REFUSED
        try:
            assert code in (-signal.SIGKILL, FINE, REFUSED), f"the child ended with {code}"
            found["old" if _was_old(frozen, path) else "new"] += 1
        except Exception as problem:
            found["wrong"].append(f"{fault}: {type(problem).__name__}: {problem}"[:500])
    return found


def _count(frozen: Frozen, path: Path, kinds: int) -> int:
    """How many file calls there are from opening an old store to closing it."""
    frozen.copy(path)
    shim = Shim()
    shim.arm(path.parent, Fault(kinds=kinds))
    SqliteBackend(path).close()
    shim.disarm()
    return shim.calls


def _kill(call: int) -> Fault:
    return Fault(call, "kill", "half" if call % 2 else "after")


def _eio(call: int) -> Fault:
    return Fault(call, "fail", error=errno.EIO)


def _full(call: int) -> Fault:
    return Fault(call, "fail", "half" if call % 2 else "before", errno.ENOSPC, lasting=True, kinds=NEEDS_SPACE)


def _in_child(path: Path, fault: Fault) -> int:
    """Open the store with a fault armed; then, in the same process, once more without it: where there is space again, all is well."""
    pid = os.fork()
    if pid == 0:
        code = WRONG
        try:
            code = _open_twice(path, fault)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _open_twice(path: Path, fault: Fault) -> int:
    shim = Shim()
    shim.arm(path.parent, fault)
    code = FINE
    try:
        SqliteBackend(path).close()
    except EverstepError:
        code = REFUSED
    shim.disarm()
    backend = SqliteBackend(path)
    backend.manifest()
    backend.close()
    return code


def _was_old(frozen: Frozen, path: Path) -> bool:
    """Whether the old format was still there; raises if it was neither it nor the new one, or if the next open does not go on."""
    old = ask(path, "PRAGMA user_version") == [(frozen.format,)]
    if old:
        frozen.is_untouched(path)
    frozen.has_arrived(path)
    left = {found.name for found in path.parent.iterdir()}
    assert left <= {"s.db", "s.db-seen"}, f"left behind: {left}"
    return old
