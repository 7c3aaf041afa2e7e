"""A SQLite store on a full disk, with flipped bits, locked, and interrupted."""

import os
import random
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest
from children import Child, finish

from everstep.backends.contract.core import Commit, Committed, Outcome, Query
from everstep.backends.sqlite.backend import SqliteBackend
from everstep.backends.sqlite.transaction import Transaction
from everstep.errors import Damaged, EverstepError, InvalidArgument, StoreBusy, StoreFull
from everstep.records import Tag
from everstep.testing.rows import new_message, new_run, new_worker, next_commit


def tamper(path: Path, statement: str) -> None:
    """Change a store behind its back: through the same SQLite library, whose locks know of each other within a process."""
    connection = apsw.Connection(str(path))
    connection.execute(statement)
    connection.close()


def without_types(path: Path, table: str) -> None:
    """Let a table hold what a flipped bit makes of a column's type."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("UPDATE sqlite_master SET sql = replace(sql, 'STRICT', '') WHERE name = ?", (table,))
    connection.close()


def test_a_file_that_may_not_grow_is_full_and_the_handle_goes_on_when_it_may(tmp_path: Path, child: Child) -> None:
    code = """
import resource
from everstep.errors import EverstepError
backend = open_backend(sys.argv[1], wal_bytes=0)
row = new_run("r"); backend.commit(Commit(row, None))
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
for i in range(1000):
    commit = next_commit(row, os.urandom(5000))
    try: backend.commit(commit)
    except EverstepError as error:
        say(type(error).__name__, error.written); break
    row = commit.run
say(backend.run("r") == row)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
commit = next_commit(row, b"after"); backend.commit(commit)
say(backend.run("r") == commit.run, backend.check())
backend.close()
"""
    assert finish(child(code, tmp_path / "s.db")) == "StoreFull no\nTrue\nTrue []\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small disk")
def test_a_full_disk_says_so_and_the_handle_goes_on_when_there_is_space(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], check=False, capture_output=True).returncode:
        pytest.skip("cannot mount a tmpfs here: run as root with CAP_SYS_ADMIN (docker run --cap-add SYS_ADMIN)")
    try:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(1 << 20))
        backend = SqliteBackend(disk / "s.db")
        row = new_run()
        backend.commit(Commit(row, None))
        error = None
        while error is None:
            commit = next_commit(row, os.urandom(5000))
            try:
                backend.commit(commit)
                row = commit.run
            except StoreFull as full:
                error = full
        assert error.written == "no"
        assert backend.run(row.id) == row
        ballast.unlink()
        commit = next_commit(row)
        backend.commit(commit)
        assert backend.run(row.id) == commit.run
        assert backend.check() == []
        backend.close()
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_a_commit_that_does_not_fit_does_not_fail_those_that_wait_with_it(tmp_path: Path) -> None:
    backend = SqliteBackend(tmp_path / "s.db")
    rows = [new_run() for _ in range(6)]
    for row in rows:
        backend.commit(Commit(row, None))
    transaction = backend._writer._transaction
    assert transaction is not None
    transaction.connection.execute("PRAGMA max_page_count = 60")
    results: dict[int, Outcome] = {}
    finished = threading.Semaphore(0)

    def settle(i: int) -> Callable[[Outcome], None]:
        return lambda error: (results.__setitem__(i, error), finished.release())[0]

    with backend._writer.alone():
        for i, row in enumerate(rows):
            backend.submit(next_commit(row, bytes(500_000 if i == 3 else 10)), settle(i))
    for _ in rows:
        assert finished.acquire(timeout=30)
    assert {i: type(error) for i, error in results.items() if not isinstance(error, Committed)} == {3: StoreFull}
    assert [len(backend.records(row.id, 0, 9)) for row in rows] == [1, 1, 1, 0, 1, 1]
    backend.close()


@pytest.mark.parametrize("bad", [{"note": "\ud800"}, {"at": 2**70}, {"meta": object()}])
def test_a_value_that_sqlite_cannot_hold_is_refused_and_nothing_is_written(tmp_path: Path, bad: dict[str, object]) -> None:
    backend = SqliteBackend(tmp_path / "s.db")
    row = new_run()
    backend.commit(Commit(row, None))
    commit = next_commit(row)
    for name, value in bad.items():
        setattr(commit.records[0], name, value)
    with pytest.raises(InvalidArgument):
        backend.commit(commit)
    assert backend.run(row.id) == row
    backend.commit(next_commit(row))
    backend.close()


def test_a_store_that_stays_locked_is_busy(tmp_path: Path) -> None:
    backend = SqliteBackend(tmp_path / "s.db", busy_ms=100)
    row = new_run()
    backend.commit(Commit(row, None))
    blocker = apsw.Connection(str(tmp_path / "s.db"))
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy) as caught:
        backend.commit(next_commit(row))
    assert caught.value.written == "no"
    assert backend.run(row.id) == row
    blocker.execute("ROLLBACK")
    blocker.close()
    backend.commit(next_commit(row))
    backend.close()


def read_everything(path: Path) -> int:
    """Ask for all there is; how many calls were answered with an error of ours. Any other error comes out."""
    refused = 0
    backend = SqliteBackend(path, busy_ms=100)
    try:
        calls: list[Callable[[], object]] = [
            lambda: backend.runs(Query()),
            lambda: backend.runs(Query(status="running", note="n", meta={"k": 1})),
            lambda: backend.records("r", 0, 99),
            lambda: backend.records("r", 0, 99, ["checkpoint"], 3),
            lambda: backend.checkpoints("r", Query(note="n", meta={"k": 1}, after=4)),
            lambda: backend.checkpoints("r", Query(tags=("t",))),
            lambda: backend.chunks(b"f" * 16, [b"d" * 32]),
            lambda: backend.tags("r"),
            lambda: backend.messages("r"),
            lambda: backend.due(100),
            lambda: backend.feed(0, 99),
            backend.feed_end,
            lambda: backend.run("r"),
            backend.manifest,
            backend.stats,
            backend.families,
            backend.check,
            lambda: backend.acquire("r", new_worker()),
        ]
        for call in calls:
            try:
                call()
            except EverstepError:
                refused += 1
    finally:
        backend.close()
    return refused


def test_flipped_bits_are_errors_of_ours_and_nothing_else(tmp_path: Path) -> None:
    original = tmp_path / "s.db"
    backend = SqliteBackend(original)
    row = new_run("r", family=b"f" * 16, note="note", tags=("x",), meta='{"k": 1}', session="s", workflow="w")
    backend.commit(Commit(row, None))
    for i in range(6):
        commit = next_commit(row, b"body" * 20, note=f"n{i}", tags=("t",), meta='{"k": 1}', chunks=((b"d" * 32, b"frame"),))
        backend.commit(commit)
        row = commit.run
        backend.post(new_message(row, f"message {i}", i), "r")
    backend.close()
    content = original.read_bytes()
    used = [i for i, byte in enumerate(content) if byte]
    chance = random.Random(7)
    damaged = tmp_path / "damaged.db"
    assert read_everything(original) == 0
    refused = not_opened = 0
    for place in chance.sample(used, 1000):
        flipped = bytearray(content)
        flipped[place] ^= 1 << chance.randrange(8)
        damaged.write_bytes(flipped)
        try:
            refused += read_everything(damaged) > 0
        except EverstepError:
            not_opened += 1
        for name in ("damaged.db-wal", "damaged.db-shm", "damaged.db-seen"):
            (tmp_path / name).unlink(missing_ok=True)
    assert refused > 30  # the flips were met, not read past
    assert not_opened > 30


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("UPDATE runs SET tags = '[1'", "E503"),
        ("UPDATE runs SET note = CAST(x'ff' AS TEXT)", "E5"),
        ("UPDATE records SET tags = '{}'", "E501"),
        ("UPDATE records SET body = NULL", "E501"),
        ("UPDATE records SET meta = '{'", "E5"),
    ],
)
def test_a_damaged_row_is_named(tmp_path: Path, statement: str, error: str) -> None:
    backend = SqliteBackend(tmp_path / "s.db")
    row = new_run("r", note="note")
    backend.commit(Commit(row, None))
    backend.commit(next_commit(row, meta='{"k": 1}'))
    tamper(tmp_path / "s.db", statement)
    with pytest.raises(Damaged) as caught:
        (backend.run("r"), backend.records("r", 0, 9), backend.checkpoints("r", Query(meta={"k": 1})))
    assert caught.value.code.startswith(error)
    backend.close()


def test_a_checkpoint_number_of_the_wrong_type_is_damage_where_it_is_searched_by(tmp_path: Path) -> None:
    backend = SqliteBackend(tmp_path / "s.db")
    row = new_run("r")
    backend.commit(Commit(row, None))
    backend.commit(next_commit(row))
    without_types(tmp_path / "s.db", "records")
    tamper(tmp_path / "s.db", "UPDATE records SET number = 'text'")
    with pytest.raises(Damaged):
        backend.checkpoints("r", Query(after=1))
    with pytest.raises(Damaged):
        backend.tag(Tag.make(row.key, "t", 1, 1), "r")
    backend.close()


def test_an_interrupted_leader_loses_nobodys_work_but_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = SqliteBackend(tmp_path / "s.db")
    rows = [new_run() for _ in range(4)]
    for row in rows:
        backend.commit(Commit(row, None))
    results: list[Outcome] = []
    settled = threading.Semaphore(0)

    def done(error: Outcome) -> None:
        results.append(error)
        settled.release()

    original = Transaction.flush
    interrupted = threading.Event()

    def interrupt_once(self: Transaction) -> None:
        original(self)
        if not interrupted.is_set():
            interrupted.set()
            raise KeyboardInterrupt

    with backend._writer.alone():
        monkeypatch.setattr(backend._writer._thread, "start", lambda: None)
        for row in rows[1:]:
            backend.submit(next_commit(row), done)
        monkeypatch.undo()
    monkeypatch.setattr(Transaction, "flush", interrupt_once)
    with pytest.raises(KeyboardInterrupt):
        backend.commit(next_commit(rows[0]))
    monkeypatch.undo()
    backend.submit(Commit(new_run(), None), done)
    for _ in range(4):
        assert settled.acquire(timeout=30)
    assert results == [Committed(0)] * 4
    assert [len(backend.records(row.id, 0, 9)) for row in rows] == [0, 1, 1, 1]
    backend.commit(next_commit(rows[0]))
    backend.close()


def test_a_tag_on_a_damaged_run_is_refused(tmp_path: Path) -> None:
    backend = SqliteBackend(tmp_path / "s.db")
    row = new_run("r")
    backend.commit(Commit(row, None))
    backend.commit(next_commit(row))
    tamper(tmp_path / "s.db", "UPDATE runs SET stored = stored + 1")
    with pytest.raises(Damaged):
        backend.tag(Tag.make(row.key, "t", 1, 1), "r")
    backend.close()
