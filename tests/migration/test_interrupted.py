"""A migration that does not come to its end: killed or failed at any statement and at any file call. The old format, or the new one.

The canaries are migrations that are not one transaction: each harness must catch them.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from migration_helpers import Frozen, ask
from shim_helpers import shim_or_skip

from everstep.backends.sqlite.backend import SqliteBackend
from everstep.backends.sqlite.files import format as sqlite_format
from everstep.errors import StoreError, StoreFull
from harness.faults.kills import shim

KILLED = """
original, point, statements = sqlite_format.migrate, sys.argv[2], 0
if len(sys.argv) > 4:  # a migration that is not one transaction
    sqlite_format._SQL = sqlite_format._SQL | {"begin": "SELECT 1", "commit": "SELECT 1"}
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
def trace(cursor, sql, bindings):
    global statements
    if str(statements) == point: die()
    statements += 1
    return True
def migrate(connection):
    if point == "in COMMIT": connection.set_commit_hook(die)
    if point == "after COMMIT": connection.set_wal_hook(die)
    connection.exec_trace = trace
    original(connection)
sqlite_format.migrate = migrate
if point == "each":  # one process for each statement, forked from this one
    open_backend(sys.argv[3]).close()
    say(statements)
    total, statements = statements, 0
    for point in [*map(str, range(total)), "in COMMIT"]:
        sys.stdin.readline()
        pid = os.fork()
        if pid == 0:
            open_backend(sys.argv[1]); os._exit(0)
        say(point, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
else:
    open_backend(sys.argv[1]).close()
"""


def killed_at_each_statement(frozen: Frozen, path: Path, child: Any, *options: str) -> Iterator[str]:
    """Yields after each kill, with what is left at `path`."""
    counted = path.with_name("counted.db")
    frozen.copy(counted)
    process = child(KILLED, path, "each", counted, *options)
    count = int(process.stdout.readline())
    assert count > 8
    for point in [*map(str, range(count)), "in COMMIT"]:
        frozen.copy(path)
        process.stdin.write("go\n")
        process.stdin.flush()
        assert process.stdout.readline() == f"{point} {-signal.SIGKILL}\n"
        yield point


def test_whoever_is_killed_before_any_statement_leaves_the_old_format_and_the_next_one_migrates(
    frozen: Frozen, old: Path, child: Any
) -> None:
    for _ in killed_at_each_statement(frozen, old, child):
        frozen.is_untouched(old)
        frozen.has_arrived(old)


def test_the_canary_of_statements_is_caught(frozen: Frozen, old: Path, child: Any) -> None:
    caught = 0
    for _ in killed_at_each_statement(frozen, old, child, "broken"):
        try:
            frozen.is_untouched(old)
        except AssertionError:
            caught += 1
    assert caught > 5


def test_whoever_is_killed_after_the_migration_leaves_the_new_format(frozen: Frozen, old: Path, child: Any) -> None:
    process = child(KILLED, old, "after COMMIT")
    assert process.communicate(timeout=60)[0] == ""
    assert process.returncode == -signal.SIGKILL
    assert (old.parent / "s.db-wal").stat().st_size > 0
    assert ask(old, "PRAGMA user_version") == [(sqlite_format.FORMAT,)]
    frozen.has_arrived(old)


@pytest.mark.parametrize("error", [apsw.FullError("no space"), apsw.IOError("bad disk"), MemoryError("none left")])
def test_a_failure_at_any_statement_leaves_the_old_format(
    frozen: Frozen, old: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    original = sqlite_format.migrate
    state = {"left": 0}

    def trace(_cursor: object, sql: str, _bindings: object) -> bool:
        state["left"] -= 1
        if state["left"] < 0 and sql != "ROLLBACK":
            raise error
        return True

    def migrate(connection: apsw.Connection) -> None:
        connection.exec_trace = trace
        original(connection)

    monkeypatch.setattr(sqlite_format, "migrate", migrate)
    expected = StoreFull if isinstance(error, apsw.FullError) else StoreError if isinstance(error, apsw.Error) else MemoryError
    failures = 0
    while failures < 100:
        state["left"] = failures
        try:
            SqliteBackend(old).close()
        except expected:
            frozen.is_untouched(old)
            failures += 1
        else:
            break
    assert 8 < failures < 100
    frozen.has_arrived(old)


def at_each_call(monkeypatch: pytest.MonkeyPatch, folder: Path, **asked: Any) -> dict[str, Any]:
    """What became of a migration under a fault at each file call."""
    shim_or_skip()
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    found: dict[str, Any] = shim.under_shim("migration_faults", {"folder": str(folder), **asked})
    return found


def test_whoever_is_killed_at_any_file_call_leaves_the_old_format_or_the_new_one(
    frozen: Frozen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = at_each_call(monkeypatch, tmp_path, frozen=str(frozen.path), fault="kill")
    assert found["wrong"] == []
    assert found["killed"] == found["calls"] > 50
    assert found["old"] > 20
    assert found["new"] > 20


@pytest.mark.parametrize("fault", ["eio", "full"])
def test_a_disk_that_fails_at_any_call_or_is_full_from_then_on_leaves_a_store_that_can_be_opened_again(
    frozen: Frozen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    found = at_each_call(monkeypatch, tmp_path, frozen=str(frozen.path), fault=fault)
    assert found["wrong"] == []
    assert found["refused"] > 20


def test_the_canary_of_file_calls_is_caught(frozen: Frozen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = at_each_call(monkeypatch, tmp_path, frozen=str(frozen.path), fault="kill", broken=True, stride=5)
    assert found["wrong"]
