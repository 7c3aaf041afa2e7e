"""The feed and the messages of a SQLite store: their bytes, read without the package; damage, refusal, processes, and what a commit pays."""

import signal
import struct
import threading
from collections.abc import Callable
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import apsw
import msgpack
import pytest
from children import Child, finish

from everstep.backends.contract.core import Commit, Committed, Outcome, Query
from everstep.backends.sqlite import feed
from everstep.backends.sqlite.backend import SqliteBackend
from everstep.backends.sqlite.files import parts
from everstep.errors import Damaged, DamagedRecord, DamagedRun, StoreFull
from everstep.records import Message, RunRow
from everstep.store.verify.verify import verify
from everstep.testing.rows import new_message, new_run, new_worker, next_commit


def ask(path: Path, sql: str, *values: Any) -> list[Any]:
    """Look at a store, or change it, behind its back."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(20_000)  # the store's own thread may be busy with the WAL
    parts.attach(connection)
    try:
        return connection.execute(sql, values).fetchall()
    finally:
        connection.close()


def made(path: Path, runs: int, commits: int) -> SqliteBackend:
    """A store whose runs were committed to in turn, so that each commit is an entry of its own."""
    backend = SqliteBackend(path)
    rows = [new_run(f"r{i}") for i in range(runs)]
    for row in rows:
        backend.commit(Commit(row, None))
    for n in range(commits):
        commit = next_commit(rows[n % runs], b"x")
        backend.commit(commit)
        rows[n % runs] = commit.run
    return backend


def seen(backend: SqliteBackend, after: int = 0, limit: int = 10**6) -> list[tuple[int, str, int]]:
    return [(position, record.run, record.seq) for position, record in backend.feed(after, limit)]


def read_by_the_document(path: Path) -> list[tuple[int, int, int]]:
    """(position, pk, seq) of every record in the feed, with nothing but what docs/format.md says."""
    ((newest, fed),) = ask(path, "SELECT feed, fed FROM manifest")
    blobs = [*ask(path, "SELECT first, entries FROM feed ORDER BY first"), (None, newest)]
    events: list[tuple[int, int, int]] = []
    for first, blob in blobs:
        if first is not None:
            assert first == len(events) + 1
        for at in range(8, len(blob), 12):
            pk, seq, count = struct.unpack(">III", blob[at : at + 12])
            events += [(len(events) + 1 + i, pk, seq + i) for i in range(count)]
        assert sha256(blob[8:] + len(events).to_bytes(8, "big")).digest()[:8] == blob[:8]
    assert len(events) == fed
    return events


def test_the_feed_is_read_as_the_document_says(tmp_path: Path) -> None:
    backend = made(tmp_path / "s.db", 3, 350)
    names = {row.id: pk for pk, row in backend.runs(Query())}
    assert read_by_the_document(tmp_path / "s.db") == [(p, names[run], seq) for p, run, seq in seen(backend)]
    assert ask(tmp_path / "s.db", "SELECT count(*), max(length(entries)) FROM feed") == [(3, 1208)]
    backend.close()


def test_messages_and_the_manifest_are_what_the_document_says(tmp_path: Path) -> None:
    backend = made(tmp_path / "s.db", 2, 4)
    for name in ("r0", "r1"):
        row = backend.run(name)
        assert row is not None
        backend.post(Message.make(row.key, "timer:ü", 2**60, 5, b"body"), name)
        backend.post(Message.make(row.key, "answer", None, 2**40, b""), name)
    messages = ask(tmp_path / "s.db", 'SELECT run, name, due, at, key, body, "check" FROM messages')
    assert [(run, name) for run, name, *_ in messages] == [(1, "answer"), (1, "timer:ü"), (2, "answer"), (2, "timer:ü")]
    for _, name, due, at, key, body, check in messages:
        assert sha256(msgpack.packb([key, name, due, at, body], use_bin_type=True)).digest() == check
    checks = ask(tmp_path / "s.db", 'SELECT "check" FROM runs UNION ALL SELECT "check" FROM tags UNION ALL SELECT "check" FROM messages')
    total = sum(int.from_bytes(check, "big") for (check,) in checks) % 2**256
    assert ask(tmp_path / "s.db", "SELECT total FROM manifest") == [(total.to_bytes(32, "big"),)]
    backend.close()


def test_commits_of_one_run_make_one_entry_longer(tmp_path: Path) -> None:
    backend = made(tmp_path / "s.db", 1, 500)
    ((blob, fed),) = ask(tmp_path / "s.db", "SELECT feed, fed FROM manifest")
    assert (len(blob), fed) == (20, 500)
    assert struct.unpack(">III", blob[8:]) == (1, 1, 500)
    assert ask(tmp_path / "s.db", "SELECT count(*) FROM feed") == [(0,)]
    backend.close()
    backend = SqliteBackend(tmp_path / "s.db")
    row = backend.run("r0")
    assert row is not None
    backend.commit(next_commit(row))
    assert len(ask(tmp_path / "s.db", "SELECT feed FROM manifest")[0][0]) == 20
    assert seen(backend, 498) == [(499, "r0", 499), (500, "r0", 500), (501, "r0", 501)]
    backend.close()


def pages_of_each_commit(path: Path, runs: int) -> list[int]:
    backend = made(path, runs, 0)
    rows = [row for _, row in backend.runs(Query())]
    transaction = backend._writer._transaction
    assert transaction is not None
    frames: list[int] = []
    transaction.connection.set_wal_hook(lambda _c, _n, count: (frames.append(count), apsw.SQLITE_OK)[1])
    for n in range(300):
        commit = next_commit(rows[n % runs], bytes(300))
        backend.commit(commit)
        rows[n % runs] = commit.run
    backend.close()
    return [after - before for before, after in pairwise([0, *frames])]


@pytest.mark.parametrize(("runs", "full"), [(1, 0), (2, 2)])
def test_the_feed_costs_no_page_but_when_a_part_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: int, full: int) -> None:
    fed = pages_of_each_commit(tmp_path / "fed.db", runs)
    monkeypatch.setattr(feed.FeedWriter, "add", lambda *_: None)
    bare = pages_of_each_commit(tmp_path / "bare.db", runs)
    assert ask(tmp_path / "fed.db", "SELECT count(*) FROM feed") == [(full,)]
    assert sum(fed) - sum(bare) <= 3 * full + 3 * bool(full)  # the first full part makes its table
    assert sum(one != other for one, other in zip(fed, bare, strict=True)) <= full
    assert min(bare) == 3


def test_every_flipped_bit_in_the_end_of_the_feed_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    made(path, 2, 3).close()
    ((blob, fed),) = ask(path, "SELECT feed, fed FROM manifest")
    backend = SqliteBackend(path)
    looks: list[Callable[[], object]] = [lambda: backend.feed(0, 9), lambda: backend.feed(fed, 9), backend.feed_end]

    def is_damage() -> None:
        for look in looks:
            with pytest.raises(Damaged):
                look()
        assert backend.check() != []

    for bit in range(len(blob) * 8):
        flipped = bytearray(blob)
        flipped[bit // 8] ^= 1 << bit % 8
        ask(path, "UPDATE manifest SET feed = ?", bytes(flipped))
        is_damage()
    ask(path, "UPDATE manifest SET feed = ?", blob)
    for wrong in (fed + 1, fed - 1, fed + 2**32, 0, -1, 2**63 - 1, -(2**63)):
        ask(path, "UPDATE manifest SET fed = ?", wrong)
        is_damage()
    backend.close()


def test_every_flipped_bit_in_a_stored_part_is_damage_where_it_is_read_and_nowhere_else(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    made(path, 2, 250).close()
    (blob,) = ask(path, "SELECT entries FROM feed WHERE first = 1")[0]
    backend = SqliteBackend(path)
    expected = seen(backend)
    for bit in [*range(160), *range(160, len(blob) * 8, 201)]:
        flipped = bytearray(blob)
        flipped[bit // 8] ^= 1 << bit % 8
        ask(path, "UPDATE feed SET entries = ? WHERE first = 1", bytes(flipped))
        for after in (0, 50, 99):
            with pytest.raises(Damaged):
                backend.feed(after, 1)
        assert seen(backend, 100) == expected[100:]
        assert backend.feed_end() == 250
    backend.close()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM feed WHERE first = 1",
        "DELETE FROM feed WHERE first = 101",
        "DELETE FROM feed",
        "UPDATE feed SET first = 2 WHERE first = 1",
        "UPDATE feed SET entries = (SELECT entries FROM feed WHERE first = 101) WHERE first = 1",
        "UPDATE feed SET entries = substr(entries, 1, 20) WHERE first = 101",
        "UPDATE feed SET entries = x''",
        "UPDATE manifest SET feed = x''",
        "UPDATE manifest SET feed = (SELECT entries FROM feed WHERE first = 1)",
        "DELETE FROM manifest",
    ],
)
def test_a_feed_with_a_part_missing_moved_or_cut_is_damaged_and_never_wrong(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "s.db"
    backend = made(path, 2, 250)
    expected = seen(backend)
    ask(path, statement)
    with pytest.raises(Damaged):
        backend.feed(0, 1000)
    for after in range(0, 250, 7):
        try:
            assert seen(backend, after, 5) == expected[after : after + 5]
        except Damaged:
            continue
    assert backend.check() != []
    backend.close()


def test_parts_that_overlap_are_damage_even_if_each_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    backend = made(path, 2, 250)
    one, two = (blob[8:] for (blob,) in ask(path, "SELECT entries FROM feed ORDER BY first"))
    entries = one[50 * 12 :] + two
    ask(path, "INSERT INTO feed VALUES (51, ?)", sha256(entries + (200).to_bytes(8, "big")).digest()[:8] + entries)
    ask(path, "DELETE FROM feed WHERE first = 101")
    with pytest.raises(Damaged):
        backend.feed(0, 1000)
    assert backend.check() != []
    backend.close()


def test_a_record_that_is_gone_is_damage_and_not_a_shorter_feed(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    backend = made(path, 1, 10)
    ask(path, "DELETE FROM records WHERE id = ?", 1 << 31 | 4)
    with pytest.raises(DamagedRecord, match="record 4 of run 'r0'"):
        backend.feed(0, 99)
    assert [seq for _, _, seq in seen(backend, 0, 3)] == [1, 2, 3]
    ask(path, "DELETE FROM records WHERE id > ?", 1 << 31 | 7)
    with pytest.raises(DamagedRecord, match="record 8 of run 'r0'"):
        backend.feed(5, 99)
    backend.close()


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("UPDATE runs SET head_seq = 4 WHERE id = 'r0'", "the feed ends at record 3 of run r0"),
        ("INSERT INTO feed VALUES (2, x'00')", "the feed has parts that hold no position"),
        ("INSERT INTO messages SELECT 99, 'x', 1, 1, key, key, key FROM runs WHERE id = 'r0'", "message x is for run 99"),
    ],
)
def test_the_engines_own_check_looks_at_feed_and_messages(tmp_path: Path, statement: str, sentence: str) -> None:
    backend = made(tmp_path / "s.db", 2, 6)
    assert backend.check() == []
    backend._writer.call(lambda transaction, _: [transaction.need(part) for part in (parts.FEED, parts.MESSAGES)], None)
    ask(tmp_path / "s.db", statement)
    assert any(sentence in found for found in backend.check())
    backend.close()


def test_nothing_is_written_to_a_store_whose_feed_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    backend = made(path, 1, 3)
    ask(path, "UPDATE manifest SET fed = fed + 1")
    row = backend.run("r0")
    assert row is not None
    with pytest.raises(Damaged) as caught:
        backend.commit(next_commit(row))
    assert caught.value.written == "no"
    ask(path, "UPDATE manifest SET fed = fed - 1")
    backend.commit(next_commit(row))
    assert seen(backend, 2) == [(3, "r0", 3), (4, "r0", 4)]
    backend.close()


def test_a_feed_is_read_in_one_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = made(tmp_path / "s.db", 2, 250)
    expected = seen(backend)
    original = feed._name

    def meanwhile(cursor: apsw.Cursor, pk: int) -> str | None:
        monkeypatch.setattr(feed, "_name", original)
        other = SqliteBackend(tmp_path / "s.db")
        second = other.run("r1")
        assert second is not None
        other.delete(second)
        first = other.run("r0")
        assert first is not None
        for _ in range(3):
            commit = next_commit(first)
            other.commit(commit)
            first = commit.run
        other.close()
        return original(cursor, pk)

    monkeypatch.setattr(feed, "_name", meanwhile)
    assert seen(backend) == expected
    assert [run for _, run, _ in seen(backend)] == ["r0"] * 128
    assert seen(backend)[-1][0] == 253
    backend.close()


def submitted(backend: SqliteBackend, commits: list[Commit]) -> dict[int, Outcome]:
    """Settle commits in one batch, and say how each ended."""
    results: dict[int, Outcome] = {}
    finished = threading.Semaphore(0)

    def settle(i: int) -> Callable[[Outcome], None]:
        return lambda error: (results.__setitem__(i, error), finished.release())[0]

    with backend._writer.alone():
        for i, commit in enumerate(commits):
            backend.submit(commit, settle(i))
    for _ in commits:
        assert finished.acquire(timeout=30)
    return results


def test_a_batch_that_is_taken_back_leaves_no_position_and_no_message_behind(tmp_path: Path) -> None:
    backend = SqliteBackend(tmp_path / "s.db")
    rows = [new_run(f"r{i}") for i in range(6)]
    for i, row in enumerate(rows):
        backend.commit(Commit(row, None, messages=[new_message(row, f"{n}") for n in range(i)]))
    transaction = backend._writer._transaction
    assert transaction is not None
    transaction.connection.execute("PRAGMA max_page_count = 60")
    commits = [
        next_commit(row, bytes(500_000 if i == 3 else 10), read=("0",), messages=(new_message(row, "new", i),))
        for i, row in enumerate(rows)
    ]
    results = submitted(backend, commits)
    assert {i: type(error) for i, error in results.items() if not isinstance(error, Committed)} == {3: StoreFull}
    assert seen(backend) == [(1, "r0", 1), (2, "r1", 1), (3, "r2", 1), (4, "r4", 1), (5, "r5", 1)]
    assert [results[i] for i in (0, 1, 2, 4, 5)] == [Committed(n) for n in (1, 1, 2, 4, 5)]
    assert [len(backend.messages(row.id)) for row in rows] == [1, 1, 2, 3, 4, 5]
    assert [message.name for message in backend.messages("r3")] == ["0", "1", "2"]
    transaction.connection.execute("PRAGMA max_page_count = 100000")
    again = next_commit(rows[3])
    assert backend.commit(again).waiting == 3
    assert seen(backend, 5) == [(6, "r3", 1)]
    assert verify(backend, "quick").problems == []
    assert backend.check() == []
    backend.close()


def test_one_batch_with_more_entries_than_a_part_holds_is_fed_whole(tmp_path: Path) -> None:
    backend = SqliteBackend(tmp_path / "s.db")
    rows = [new_run(f"r{i:03}") for i in range(350)]
    assert set(submitted(backend, [Commit(row, None) for row in rows]).values()) == {Committed(0)}
    commits = [next_commit(row, messages=(new_message(row),) if i % 3 == 0 else ()) for i, row in enumerate(rows)]
    results = submitted(backend, commits)
    assert seen(backend) == [(i + 1, f"r{i:03}", 1) for i in range(350)]
    assert [results[i] for i in range(350)] == [Committed(int(i % 3 == 0)) for i in range(350)]
    assert backend.check() == []
    backend.close()


def test_a_run_deleted_in_the_batch_that_wrote_it_keeps_its_positions_empty(tmp_path: Path) -> None:
    backend = made(tmp_path / "s.db", 2, 2)
    row = backend.run("r0")
    assert row is not None
    commit = next_commit(row, messages=(new_message(row, "a"),))
    errors: list[Outcome | None] = []
    with backend._writer.alone():
        backend.submit(commit, errors.append)
        backend._writer.submit(backend._leases.delete, commit.run, errors.append)
    again = new_run("r0")
    created = Commit(again, None)
    assert backend.commit(created).waiting == 0
    backend.commit(next_commit(again))
    assert errors == [Committed(1), None]
    assert seen(backend) == [(2, "r1", 1), (4, "r0", 1)]
    assert ask(tmp_path / "s.db", "SELECT count(*) FROM messages") == [(0,)]
    assert verify(backend, "quick").runs == 2
    assert backend.check() == []
    backend.close()


WRITE = """
from everstep.testing.rows import new_message
backend = open_backend(sys.argv[1])
row = new_run(sys.argv[2]); backend.commit(Commit(row, None))
for i in range(int(sys.argv[3])):
    backend.post(new_message(row, f"{i}"), row.id)
    commit = next_commit(row, b"x", read=(f"{i - 1}",)); waiting = backend.commit(commit).waiting; row = commit.run
    if waiting != 1: say("waiting", waiting)
    say(row.head_seq)
backend.close()
"""


def whole(backend: SqliteBackend, names: list[str]) -> None:
    """The feed has every record of every run once and in order, and nothing is wrong with the store."""
    events = seen(backend)
    assert [position for position, _, _ in events] == list(range(1, backend.feed_end() + 1))
    for name in names:
        row = backend.run(name)
        assert row is not None
        assert [seq for _, run, seq in events if run == name] == list(range(1, row.head_seq + 1))
    assert verify(backend, "quick").runs == len(names)
    assert backend.check() == []


def test_eight_processes_feed_one_feed_and_count_their_own_messages(tmp_path: Path, child: Child) -> None:
    names = [f"run-{i}" for i in range(8)]
    processes = [child(WRITE, tmp_path / "s.db", name, 40) for name in names]
    assert ["waiting" in finish(process) for process in processes] == [False] * 8
    backend = SqliteBackend(tmp_path / "s.db")
    whole(backend, names)
    assert backend.feed_end() == 320
    assert read_by_the_document(tmp_path / "s.db")[-1][0] == 320
    backend.close()


def test_the_feed_is_whole_after_kill_9(tmp_path: Path, child: Child) -> None:
    processes = [child(WRITE, tmp_path / "s.db", name, 100_000) for name in ("a", "b")]
    for process in processes:
        assert process.stdout is not None
        for _ in range(60):
            assert process.stdout.readline()
    for process in processes:
        process.send_signal(signal.SIGKILL)
        process.wait()
    backend = SqliteBackend(tmp_path / "s.db")
    whole(backend, ["a", "b"])
    assert backend.feed_end() >= 120
    backend.close()


def test_messages_posted_by_another_process_are_known_at_the_next_commit(tmp_path: Path, child: Child) -> None:
    backend = made(tmp_path / "s.db", 1, 3)
    row = backend.run("r0")
    assert row is not None
    code = """
from everstep.testing.rows import new_message
backend = open_backend(sys.argv[1])
say(backend.post(new_message(backend.run("r0"), "cancel"), "r0")); backend.close()
"""
    row = backend.acquire("r0", new_worker())
    assert finish(child(code, tmp_path / "s.db")) == "True\n"
    assert finish(child(code, tmp_path / "s.db")) == "False\n"
    commit = next_commit(row)
    assert backend.commit(commit).waiting == 1
    assert backend.commit(next_commit(commit.run, read=("cancel",))).waiting == 0
    backend.close()


def with_message(path: Path) -> tuple[SqliteBackend, RunRow]:
    """A store whose one run passes every check, with a message that does."""
    backend = made(path, 1, 1)
    row = backend.run("r0")
    assert row is not None
    backend.post(Message.make(row.key, "answer", 7, 8, b"\x01\x00a frame"), "r0")
    return backend, row


@pytest.mark.parametrize(
    ("statement", "where"),
    [
        ("UPDATE messages SET body = x'0100'", "run r0, message answer"),
        ("UPDATE messages SET due = 8", "run r0, message answer"),
        ("UPDATE messages SET due = NULL", "run r0, message answer"),
        ("UPDATE messages SET name = 'cancel'", "run r0, message cancel"),
        ("UPDATE messages SET at = at + 1", "run r0, message answer"),
        ("UPDATE messages SET key = zeroblob(16)", "run r0, message answer"),
        ("DELETE FROM messages", "manifest"),
        ("INSERT INTO messages SELECT run, 'twin', due, at, key, body, \"check\" FROM messages", "manifest"),
    ],
)
def test_a_message_that_was_changed_removed_or_added_is_found(tmp_path: Path, statement: str, where: str) -> None:
    backend, _ = with_message(tmp_path / "s.db")
    assert verify(backend, "records").problems == []
    ask(tmp_path / "s.db", statement)
    assert where in [problem.where for problem in verify(backend, "quick").problems]
    backend.close()


def test_a_message_of_another_run_is_found_though_its_check_is_right(tmp_path: Path) -> None:
    backend, _ = with_message(tmp_path / "s.db")
    backend.commit(Commit(other := new_run("other"), None))
    backend.commit(next_commit(other))
    ask(tmp_path / "s.db", "UPDATE messages SET run = 2")
    assert "run other, message answer" in [problem.where for problem in verify(backend, "quick").problems]
    backend.close()


def test_a_message_that_is_no_frame_is_found_by_the_full_check(tmp_path: Path) -> None:
    backend, row = with_message(tmp_path / "s.db")
    before = {problem.where for problem in verify(backend, "full").problems}
    backend.post(Message.make(row.key, "bad", None, 1, b"\xff no frame"), "r0")
    assert verify(backend, "records").ok
    assert {problem.where for problem in verify(backend, "full").problems} - before == {"run r0, message bad"}
    backend.close()


def test_a_message_with_a_column_of_the_wrong_type_is_named(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    backend, row = with_message(path)
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("UPDATE sqlite_master SET sql = replace(sql, 'STRICT, WITHOUT', 'WITHOUT') WHERE name = 'messages'")
    connection.close()
    ask(path, "UPDATE messages SET body = 'text'")
    with pytest.raises(DamagedRun, match="a message of run 'r0'"):
        backend.messages("r0")
    ask(path, "UPDATE messages SET \"check\" = 'text'")
    other = new_run("other")
    backend.commit(Commit(other, None))
    results = submitted(backend, [next_commit(row, read=("answer",)), next_commit(other)])
    assert [type(results[i]) for i in (0, 1)] == [Damaged, Committed]
    assert backend.run("r0") == row
    with pytest.raises(Damaged):
        backend.delete(row)
    assert backend.run("r0") == row
    backend.close()
