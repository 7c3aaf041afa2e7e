"""Repair: a new store with all that proves itself, a list of what is lost, and a source that is never touched."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import apsw
import pytest
from repair_helpers import Judge, Truth, copy, fill, make, report, text

import everstep
from everstep.backends.sqlite.files import parts
from everstep.errors import InvalidArgument, NewerFormat, NotAStore, PrunedCheckpoint, StoreError, UnknownBackend
from everstep.store.repair.report import Loss, Repaired
from harness.faults.workload import eager


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Truth]:
    return make(tmp_path_factory.mktemp("made"))


@pytest.fixture
def broken(made: tuple[Path, Path, Truth], tmp_path: Path) -> Path:
    """A closed store, to be damaged."""
    copy(made[0], tmp_path / "broken.db")
    return tmp_path / "broken.db"


def tamper(path: Path, statement: str, *bindings: Any) -> int:
    connection = apsw.Connection(str(path))
    connection.execute(statement, bindings).fetchall()
    changed = connection.changes()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    return changed


def query(path: Path, statement: str, *bindings: Any) -> list[Any]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    parts.attach(connection)
    rows = connection.execute(statement, bindings).fetchall()
    connection.close()
    return rows


def erase(path: Path, *pieces: bytes) -> None:
    """Overwrite every copy of some bytes, so that nothing can find them anywhere."""
    for suffix in ("", "-wal"):
        file = Path(f"{path}{suffix}")
        if file.exists():
            data = file.read_bytes()
            for piece in pieces:
                data = data.replace(piece, bytes(len(piece)))
            file.write_bytes(data)


def unprove(path: Path) -> None:
    """Have nothing add up any more, so that repair looks at everything that lies in the pages; the WAL stays, with older versions of them."""
    connection = apsw.Connection(str(path))
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.wal_autocheckpoint(0)
    connection.execute("UPDATE manifest SET total = zeroblob(32)").fetchall()
    connection.close()


def fixed(source: Path) -> tuple[Repaired, Path]:
    target = source.with_name("fixed.db")
    return everstep.repair(source, target), target


def judged(made: tuple[Path, Path, Truth], source: Path) -> tuple[Repaired, Path]:
    done, target = fixed(source)
    assert Judge(made[2], done, target).all() == []
    return done, target


def pk_of(path: Path, run: str) -> int:
    return int(query(path, "SELECT pk FROM runs WHERE id = ?", run)[0][0])


def lost(done: Repaired, what: str, run: str | None = None) -> list[Loss]:
    return [loss for loss in done.lost if loss.what == what and (run is None or loss.run == run)]


@pytest.mark.parametrize("kind", [0, 1])
def test_a_store_that_is_whole_comes_out_the_same(kind: int, made: tuple[Path, Path, Truth], tmp_path: Path) -> None:
    source = tmp_path / "s.db"
    copy(made[kind], source)
    done, target = fixed(source)
    assert done.ok
    assert done.lost == []
    assert "nothing was lost" in str(done)
    tables = ("runs", "records", "tags", "messages", "pruned", "bases", "tombstones", "feed", "run_tags", "run_meta")
    everstep.open(source, accept_older=True).close()  # merges the WAL, so that SQLite shows all of it
    for table in tables:
        assert query(target, f"SELECT * FROM {table} ORDER BY 1, 2") == query(source, f"SELECT * FROM {table} ORDER BY 1, 2"), table
    columns = "total, runs, next, latest, feed, fed"
    assert query(target, f"SELECT {columns} FROM manifest") == query(source, f"SELECT {columns} FROM manifest")
    assert Judge(made[2], done, target).all() == []


def test_the_source_is_not_touched(made: tuple[Path, Path, Truth], tmp_path: Path) -> None:
    source = tmp_path / "s.db"
    copy(made[1], source)
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()}
    everstep.repair(source, tmp_path / "new.db")
    after = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()}
    after.pop("new.db")
    assert after == before


def test_a_store_that_this_process_has_open_keeps_its_locks_and_goes_on(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db") as store, store.run("r", state={"n": 1}) as run:
        run.checkpoint()
        done = everstep.repair(tmp_path / "s.db", tmp_path / "new.db")
        assert done.ok
        locks = Path("/proc/locks").read_text()
        inode = (tmp_path / "s.db").stat().st_ino
        assert f":{inode} " in locks, "SQLite's lock on the store is gone"
        run.state["n"] = 2
        run.checkpoint()
    with everstep.open(tmp_path / "new.db") as store:
        assert store.load("r") == {"n": 1}


def test_the_new_store_is_one_to_go_on_with(made: tuple[Path, Path, Truth], broken: Path) -> None:
    _, target = fixed(broken)
    with everstep.open(target) as store:
        with store.run("loop") as run:
            run.state["n"] = -1
            assert run.checkpoint().number == made[2].runs["loop"].row.checkpoints + 1
        assert store.resume("waits").unwrap()["answer"] == "no"
        assert [event.run for event in store.events(limit=10_000)][-1] == "waits"
        assert store.verify("full").ok
        with pytest.raises(PrunedCheckpoint):
            store.load("pruned@1")


@pytest.mark.parametrize("there", ["new.db", "new.db-wal", "new.db-journal"])
def test_nothing_is_written_over(there: str, made: tuple[Path, Path, Truth], tmp_path: Path) -> None:
    (tmp_path / there).write_bytes(b"mine")
    with pytest.raises(InvalidArgument, match="already exists"):
        everstep.repair(made[0], tmp_path / "new.db")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [(there, b"mine")]


def test_a_store_is_not_repaired_in_place(made: tuple[Path, Path, Truth]) -> None:
    with pytest.raises(InvalidArgument, match="already exists"):
        everstep.repair(made[0], made[0])


@pytest.mark.parametrize("content", [None, b"", b"not a store at all" * 1000, b"SQLite format 3\0" + bytes(8192)])
def test_what_is_no_store_is_refused_and_leaves_nothing(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "s.db").write_bytes(content)
    with pytest.raises(NotAStore):
        everstep.repair(tmp_path / "s.db", tmp_path / "new.db")
    assert {path.name for path in tmp_path.iterdir()} <= {"s.db"}


def test_a_database_of_another_program_is_no_store(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "s.db"))
    connection.execute(
        "CREATE TABLE t (name TEXT PRIMARY KEY, n INTEGER) WITHOUT ROWID; INSERT INTO t VALUES ('a', 1), ('b', 2)"
    ).fetchall()
    connection.close()
    with pytest.raises(NotAStore):
        everstep.repair(tmp_path / "s.db", tmp_path / "new.db")
    assert {path.name for path in tmp_path.iterdir()} == {"s.db"}


@pytest.mark.parametrize("url", ["memory://x", "", 5, "redis://host/db"])
def test_what_names_no_file_is_refused(url: Any, tmp_path: Path) -> None:
    with pytest.raises((InvalidArgument, UnknownBackend)):
        everstep.repair(url, tmp_path / "new.db")
    with pytest.raises((InvalidArgument, UnknownBackend)):
        everstep.repair(tmp_path / "s.db", url)


def test_addresses_and_names_with_odd_characters_are_taken(made: tuple[Path, Path, Truth], tmp_path: Path) -> None:
    folder = tmp_path / "a b%20?#é[x]*"
    folder.mkdir()
    copy(made[1], folder / "s?#[0].db")
    assert everstep.repair(folder / "s?#[0].db", folder / "n*?.db").ok
    assert everstep.repair(f"sqlite:///{made[0]}", f"sqlite:///{tmp_path}/n.db").ok
    assert {path.name for path in folder.iterdir()} == {"s?#[0].db", "s?#[0].db-wal", "s?#[0].db-seen", "n*?.db"}


def test_a_folder_that_is_not_there_is_named(made: tuple[Path, Path, Truth], tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot create a store"):
        everstep.repair(made[0], tmp_path / "nowhere" / "new.db")


def test_a_newer_format_is_refused_but_a_flipped_bit_is_none(made: tuple[Path, Path, Truth], broken: Path) -> None:
    tamper(broken, "PRAGMA user_version = 19")
    done, target = judged(made, broken)
    assert done.ok
    for left in (target, Path(f"{target}-seen")):
        left.unlink(missing_ok=True)
    tamper(broken, "CREATE TABLE future (a TEXT)")
    with pytest.raises(NewerFormat):
        fixed(broken)


def test_an_empty_store_comes_out_empty(tmp_path: Path) -> None:
    everstep.open(tmp_path / "s.db").close()
    done = everstep.repair(tmp_path / "s.db", tmp_path / "new.db")
    assert done.ok
    assert done.runs == 0
    with everstep.open(tmp_path / "new.db") as store:
        assert store.verify("full").ok


# What becomes of each kind of loss.


def test_a_lost_record_keeps_all_numbers_and_later_bases_keep_their_states(made: tuple[Path, Path, Truth], broken: Path) -> None:
    pk = pk_of(broken, "loop")
    [(gone,)] = query(broken, "SELECT id FROM records WHERE id >> 31 = ? AND kind = 'checkpoint' AND number = 10", pk)
    [(digest,)] = query(broken, "SELECT digest FROM records WHERE id = ?", gone)
    tamper(broken, "DELETE FROM records WHERE id = ?", gone)
    erase(broken, digest)
    [(left,)] = query(broken, "SELECT count(*) FROM records")
    done, target = judged(made, broken)
    assert 0 < done.records <= left  # substitutes are not counted
    numbers = [loss.number for loss in lost(done, "checkpoint", "loop")]
    assert 10 in numbers
    assert len(numbers) < 8
    with everstep.open(target) as store:
        assert store.get("loop").checkpoints == 25
        assert [c.number for c in store.checkpoints("loop", limit=100)] == list(range(25, 0, -1))
        assert store.checkpoint("loop@10").note == "lost: its state could not be repaired"
        assert store.load("loop") == made[2].runs["loop"].states[25]
        with pytest.raises(PrunedCheckpoint) as refused:
            store.load("loop@10")
        assert refused.value.before == 9
        assert refused.value.after == numbers[-1] + 1


def test_a_record_with_a_lost_body_loses_no_other_record(made: tuple[Path, Path, Truth], broken: Path) -> None:
    pk = pk_of(broken, "loop")
    [(gone, body)] = query(broken, "SELECT id, body FROM records WHERE id >> 31 = ? AND kind = 'step' LIMIT 1 OFFSET 5", pk)
    tamper(broken, "UPDATE records SET body = ? WHERE id = ?", body[:-2] + bytes([body[-2] ^ 1, body[-1] ^ 1]), gone)
    erase(broken, body)
    done, _ = judged(made, broken)
    assert [(loss.what, loss.seq) for loss in done.lost if loss.run == "loop"] == [("record", gone & 0x7FFFFFFF)]


def test_a_row_that_is_lost_is_rebuilt_from_the_records(made: tuple[Path, Path, Truth], broken: Path) -> None:
    pk = pk_of(broken, "loop")
    key, check = query(broken, 'SELECT key, "check" FROM runs WHERE pk = ?', pk)[0]
    tamper(broken, "UPDATE runs SET stored = stored + 1, note = 'another' WHERE pk = ?", pk)
    erase(broken, check)
    done, target = judged(made, broken)
    assert [loss.what for loss in done.lost if loss.run == "loop"] == ["row"]
    assert done.paused == []
    with everstep.open(target) as store:
        row = store.backend.run("loop")
        assert row is not None
        assert row.key == key  # from its tags
        assert row.status == "succeeded"
        assert row.epoch > made[2].runs["loop"].row.epoch
        assert store.load("loop@milestone") == made[2].runs["loop"].states[5]


def flip(path: Path, table: str, column: str, where: str) -> None:
    """Flip one bit of a value in the middle of a row."""
    [(value,)] = query(path, f'SELECT "{column}" FROM {table} WHERE {where}')
    if isinstance(value, int):
        bad: Any = value ^ 1 << 5
    elif isinstance(value, str):
        bad = value[:-1] + chr(ord(value[-1]) ^ 1)
    else:
        bad = value[:-3] + bytes([value[-3] ^ 16]) + value[-2:]
    assert tamper(path, f'UPDATE {table} SET "{column}" = ? WHERE {where}', bad) == 1


@pytest.mark.parametrize(("table", "columns", "where"), [
    ("runs", ("id", "key", "note", "meta", "created_at", "head_seq", "head_digest", "checkpoints", "epoch", "check"), "pk = 1"),
    ("records", ("kind", "epoch", "at", "number", "note", "meta", "own", "labels", "digest", "body"), "id = (SELECT id FROM records WHERE kind = 'checkpoint' AND id >> 31 = 1 AND number = 8)"),
    ("tags", ("at", "key", "check"), "run = 1 AND number = 7"),
    ("messages", ("at", "body", "check"), "run = (SELECT pk FROM runs WHERE id = 'waits')"),
    ("pruned", ("freed", "check"), "1"),
    ("tombstones", ("id", "family", "head_seq", "check"), "1"),
])  # fmt: skip
def test_one_flipped_bit_is_put_right(
    table: str, columns: tuple[str, ...], where: str, made: tuple[Path, Path, Truth], tmp_path: Path
) -> None:
    for column in columns:
        folder = tmp_path / column
        folder.mkdir()
        copy(made[0], folder / "broken.db")
        flip(folder / "broken.db", table, column, where)
        done, _ = judged(made, folder / "broken.db")
        assert done.lost == [], column
        assert "flipped bit" in str(done) or done.healed == 0


def test_one_flipped_bit_in_a_chunk_is_put_right(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with everstep.open(path) as store, store.run("r", state={"n": 1}) as run:
        run.step("rows", lambda: {i: "row " * i for i in range(400)})
    [(pk, frame)] = query(path, "SELECT pk, frame FROM chunks ORDER BY length(frame) LIMIT 1")
    flip(path, "chunks", "frame", f"pk = {pk}")
    erase(path, frame)
    with everstep.open(path) as store:
        assert not store.verify("full").ok
    done, target = fixed(path)
    assert done.lost == []
    assert done.healed == 1
    assert "1 flipped bits corrected" in str(done)
    with everstep.open(target) as store:
        assert store.steps("r")[0].result == {i: "row " * i for i in range(400)}
        assert store.verify("full").ok


def test_a_record_whose_own_digest_is_damaged_is_proven_by_the_next_one(made: tuple[Path, Path, Truth], broken: Path) -> None:
    tamper(broken, "UPDATE records SET digest = zeroblob(32) WHERE id = (1 << 31 | 20)")
    done, _ = judged(made, broken)
    assert done.ok


def test_where_not_even_the_feed_tells_its_end_that_is_said_and_the_run_is_paused(tmp_path: Path) -> None:
    path = tmp_path / "broken.db"
    with everstep.open(path) as store, store.run("r", state={"n": 0}) as run:
        run.checkpoint()
        run.step("paid", lambda: 5)
        run.state["n"] = 1
        run.checkpoint()
    tamper(path, "UPDATE runs SET note = 'x'")
    tamper(path, "UPDATE manifest SET feed = zeroblob(20)")
    done, target = fixed(path)
    assert {"row", "end", "feed", "manifest"} == {loss.what for loss in done.lost}
    assert done.paused == []  # it had succeeded, and says so itself
    with everstep.open(target) as store:
        assert store.load("r") == {"n": 1}
        assert store.verify("full").ok


def test_a_lost_tail_is_known_by_the_row_and_no_number_is_used_again(tmp_path: Path) -> None:
    path = tmp_path / "broken.db"
    with everstep.open(path) as store, store.run("r", state={"n": 0}) as run:
        for n in range(1, 8):
            run.state["n"] = n
            run.checkpoint()
    head = query(path, "SELECT max(seq) FROM (SELECT id & 2147483647 AS seq FROM records)")[0][0]
    tamper(path, "DELETE FROM records WHERE (id & 2147483647) > ?", head - 3)
    done, target = fixed(path)
    assert [loss.number for loss in lost(done, "checkpoint")] == [6, 7]
    assert done.paused == ["r"]
    with everstep.open(target) as store:
        assert store.get("r").checkpoints == 7
        assert store.load("r@5") == {"n": 5}
        with pytest.raises(PrunedCheckpoint):
            store.load("r")
        with pytest.raises(PrunedCheckpoint), store.run("r"):  # never silently an older state
            pass
        assert store.load("r", newest_good=True).number == 5
        store.fork("r@5", "again")
        assert store.load("again") == {"n": 5}
        assert store.verify("full").ok


def test_a_chunk_that_the_deltas_can_say_again_is_no_loss(made: tuple[Path, Path, Truth], broken: Path) -> None:
    pk = pk_of(broken, "loop")
    bases = query(broken, "SELECT id FROM records WHERE id >> 31 = ? AND kind = 'base' ORDER BY id", pk)
    assert len(bases) > 3
    family = query(broken, "SELECT family FROM runs WHERE pk = ?", pk)[0][0]
    chunks = query(broken, "SELECT digest, frame FROM chunks WHERE family = ? ORDER BY pk", family)
    newest = chunks[-3:]  # of a base in the middle or later, never of the first one
    for digest, frame in newest:
        tamper(broken, "DELETE FROM chunks WHERE digest = ?", digest)
        erase(broken, frame[6:])
    done, target = judged(made, broken)
    assert lost(done, "checkpoint", "loop") == []
    assert query(target, "SELECT count(*) FROM bases WHERE run = ?", pk)[0][0] >= 1


def test_a_step_whose_result_is_lost_pauses_the_run_and_runs_again_only_when_it_is_resumed(
    made: tuple[Path, Path, Truth], broken: Path
) -> None:
    pk = pk_of(broken, "waits")
    [(digest, frame)] = query(
        broken,
        "SELECT digest, frame FROM chunks WHERE family = (SELECT family FROM runs WHERE pk = ?) ORDER BY length(frame) DESC LIMIT 1",
        pk,
    )
    tamper(broken, "DELETE FROM chunks WHERE digest = ?", digest)
    erase(broken, frame[6:])
    done, target = judged(made, broken)
    assert [(loss.what, loss.name) for loss in done.lost if loss.run == "waits"] == [("step", "rows#0")]
    assert "waits" in done.paused
    with everstep.open(target) as store:
        assert store.get("waits").status == "waiting"
        assert store.wake() == []  # an answer lies there, but it is paused
        assert "repaired" in str(store.backend.messages("waits"))
        assert store.resume("waits").unwrap()["answer"] == "no"
        assert store.verify("full").ok


def test_a_result_that_is_lost_is_computed_again_from_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "broken.db"
    calls: list[int] = []

    def flow() -> Any:
        everstep.current().step("paid", lambda: calls.append(1))
        return [text(i, 1000) for i in range(100)]

    made = everstep.workflow(flow, name="tests.repair.flow")
    with everstep.open(path) as store:
        result = store.start(made, id="w").unwrap()
    [(digest, frame)] = query(path, "SELECT digest, frame FROM chunks ORDER BY length(frame) DESC LIMIT 1")
    tamper(path, "DELETE FROM chunks WHERE digest = ?", digest)
    erase(path, frame[6:])
    done, target = fixed(path)
    assert [loss.what for loss in done.lost] == ["status"]
    assert done.paused == ["w"]
    with everstep.open(target) as store:
        assert store.get("w").status == "waiting"
        assert store.resume("w").unwrap() == result
        assert calls == [1]  # it was paid once
        assert store.verify("full").ok


@pytest.mark.parametrize("few", [False, True])
def test_a_pruned_state_does_not_come_back(few: bool, tmp_path: Path) -> None:
    """Neither from bodies in older versions of pages, nor from those that stay because others stand on them."""
    path = tmp_path / "s.db"
    with everstep.open(path) as store, eager() if few else nullcontext(), store.run("r", state={"n": 0}) as run:
        for n in range(1, 12):
            run.state["n"] = n
            run.state[f"part {n}"] = text(n, 2000)
            run.checkpoint()
    bodies = query(path, "SELECT body, id FROM records WHERE kind IN ('checkpoint', 'base')")
    with everstep.open(path) as store:
        store.prune(everstep.Retention(keep_last=2))
        pruned = [c.number for c in store.checkpoints("r", limit=100) if c.pruned]
        mark = store.backend.pruned("r")
        assert mark is not None
        assert bool(mark.ranges) == few
    assert pruned
    for body, id in bodies:
        tamper(path, "UPDATE records SET body = ?, body_digest = NULL WHERE id = ?", body, id)
    done, target = fixed(path)
    assert done.ok
    with everstep.open(target) as store:
        assert store.verify("full").ok
        assert store.backend.pruned("r") == mark
        for number in pruned:
            with pytest.raises(PrunedCheckpoint):
                store.load(f"r@{number}")


def test_neighbours_that_are_lost_for_different_reasons_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with everstep.open(path) as store, store.run("r", state={"n": 1}) as run:
        run.step("rows", lambda: [text(i, 900) for i in range(40)])
        run.checkpoint()
        run.step("small", lambda: 1)
        run.checkpoint()
    tamper(path, "DELETE FROM chunks")
    [(id, digest)] = query(path, "SELECT id, digest FROM records WHERE kind = 'checkpoint' AND number = 1")
    tamper(path, "DELETE FROM records WHERE id = ?", id)
    erase(path, digest)
    done, target = fixed(path)
    assert [(loss.what, loss.number, loss.seq) for loss in done.lost if loss.run == "r"][:2] == [("step", None, 2), ("record", None, 4)]
    with everstep.open(target) as store:
        assert [event.name for event in store.events(run="r")][:3] == ["run_created", "lost", "checkpoint_created"]
        assert store.verify("full").ok


def test_what_a_run_had_come_to_earlier_is_not_taken_for_what_it_came_to(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    for n in (1, 2):
        with everstep.open(path) as store, store.run("r", state={"n": 0}) as run:
            run.state["n"] = n
            run.checkpoint()
    seqs = [seq for (seq,) in query(path, "SELECT id & 2147483647 FROM records WHERE kind = 'status' ORDER BY id")]
    assert len(seqs) == 3  # succeeded, running, succeeded
    tamper(path, "DELETE FROM records WHERE (id & 2147483647) IN (?, ?)", *seqs[1:])
    done, target = fixed(path)
    assert done.paused == ["r"]
    with everstep.open(target) as store:
        assert store.get("r").status == "waiting"
        assert store.verify("full").ok


def test_a_deleted_run_does_not_come_back(made: tuple[Path, Path, Truth], broken: Path) -> None:
    """Its rows may still lie in free pages or in older versions of others."""
    with everstep.open(broken, accept_older=True) as store:
        with store.run("secret", state={"text": text("secret", 30_000)}) as run:
            run.checkpoint()
        store.delete("secret")
        killed = broken.with_name("killed.db")
        copy(broken, killed)
    unprove(killed)
    done = everstep.repair(killed, broken.with_name("fixed.db"))
    with everstep.open(broken.with_name("fixed.db")) as store:
        assert "secret" not in {info.id for info in store.runs(limit=100)}
        assert [stone.id for stone in store.backend.tombstones()] == ["gone", "secret"]
        assert store.verify("full").ok
    assert {loss.what for loss in done.lost} == {"manifest"}


@pytest.mark.parametrize("again", [False, True])
def test_a_deleted_run_does_not_come_back_where_nobody_knows_which_pages_are_free(again: bool, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with everstep.open(path) as store:
        for n in range(30):  # enough runs for their rows to fill pages that become free
            with store.run(f"secret-{n}", state={"n": n, "text": text(n, 9000)}, note="a note " * 60) as run:
                for _ in range(4):
                    run.state["n"] += 1
                    run.checkpoint()
        for n in range(30):
            store.delete(f"secret-{n}")
        if again:
            for n in range(5):
                with store.run(f"secret-{n}", state={"n": -n}) as run:
                    run.checkpoint()
    if again:  # not even their tombstones are left
        checks = [check for (check,) in query(path, 'SELECT "check" FROM tombstones')]
        tamper(path, "DELETE FROM tombstones")
        erase(path, *checks)
    data = bytearray(path.read_bytes())
    assert int.from_bytes(data[36:40]) > 10, "no page is free: this proves nothing"
    data[32:40] = bytes(8)
    path.write_bytes(data)
    unprove(path)
    done, target = fixed(path)
    with everstep.open(target) as store:
        assert store.verify("full").ok
        found = {info.id: info for info in store.runs(limit=100)}
        if again:
            assert all(store.load(f"secret-{n}") == {"n": -n} for n in range(5))
            assert len(found) + len(store.backend.tombstones()) == 35
            assert any(loss.what in ("run", "row", "end") for loss in done.lost)
        else:
            assert found == {}
            assert len(store.backend.tombstones()) == 30


def test_a_deleted_run_does_not_come_back_even_if_its_tombstone_is_lost(made: tuple[Path, Path, Truth], broken: Path) -> None:
    """Older versions of pages are not looked into for a run that nothing of the store as it is now speaks of."""
    killed = broken.with_name("killed.db")
    with everstep.open(broken, accept_older=True) as store:
        with store.run("secret", state={"text": text("secret", 3000)}) as run:
            run.checkpoint()
        key = store.backend.run("secret").key  # type: ignore[union-attr]
        store.delete("secret")
        [stone] = [stone for stone in store.backend.tombstones() if stone.id == "secret"]
        copy(broken, killed)
    data = bytearray(Path(f"{killed}-wal").read_bytes())
    assert data.count(key) > 3, "nothing is left of it anywhere: this proves nothing"
    pk = data.find(stone.check)
    newest = max(i for i in range(len(data)) if data.startswith(stone.check, i)) if pk >= 0 else -1
    assert newest > 0
    while (at := data.find(stone.check)) >= 0:
        data[at : at + 32] = bytes(32)
    Path(f"{killed}-wal").write_bytes(data)
    done = everstep.repair(killed, broken.with_name("fixed.db"))
    assert any(loss.what == "run" for loss in done.lost)
    with everstep.open(broken.with_name("fixed.db")) as store:
        assert "secret" not in {info.id for info in store.runs(limit=100)}
        assert store.verify("full").ok


def test_of_two_runs_with_one_id_the_older_one_was_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them lies in a page that looks as if it were in use."""
    from everstep.backends.sqlite.recovery.damaged import DamagedSqliteStore

    path = tmp_path / "s.db"
    with everstep.open(path) as store:
        with store.run("other") as run:
            run.checkpoint()
        store.delete("other")
        with store.run("r", state={"n": 1}) as run:
            run.checkpoint()
    monkeypatch.setattr(DamagedSqliteStore, "pks", lambda self, deep: [1, 2])
    monkeypatch.setattr(DamagedSqliteStore, "tombstones", lambda self, deep: [])
    for name in ("rows", "records", "tags", "messages", "pruned", "bases"):
        original = getattr(DamagedSqliteStore, name)
        monkeypatch.setattr(DamagedSqliteStore, name, lambda self, pk, *rest, original=original: original(self, 2, *rest))
    done, target = fixed(path)
    assert done.runs == 1
    assert query(target, "SELECT pk, id FROM runs") == [(2, "r")]
    assert query(target, "SELECT DISTINCT id >> 31 FROM records") == [(2,)]


def test_without_its_row_and_tombstone_a_run_is_listed_as_lost(made: tuple[Path, Path, Truth], broken: Path) -> None:
    pk = pk_of(broken, "small-1")
    tamper(broken, "DELETE FROM runs WHERE pk = ?", pk)
    tamper(broken, "DELETE FROM records WHERE id >> 31 = ?", pk)
    done, target = judged(made, broken)
    assert [(loss.what, loss.name) for loss in done.lost if loss.what == "run"] == [("run", f"number {pk}")]
    with everstep.open(target) as store:
        created = store.backend.manifest().created
        with store.run("new") as run:
            run.checkpoint()
        assert pk_of(target, "new") == created + 1 > pk


def test_tags_come_back_from_the_records_and_lost_ones_are_named(made: tuple[Path, Path, Truth], broken: Path) -> None:
    checks = [check for (check,) in query(broken, 'SELECT "check" FROM tags')]
    tamper(broken, "UPDATE tags SET at = at + 1")
    erase(broken, *checks)
    done, target = judged(made, broken)
    assert {(loss.name, loss.number) for loss in lost(done, "tag", "loop")} == {("milestone", 5), ("later", 7)}
    assert {(name, number) for name, number in query(target, "SELECT name, number FROM tags")} == {("even", n) for n in range(2, 24, 2)}


def test_what_was_read_or_replaced_does_not_come_back_from_older_versions(tmp_path: Path) -> None:
    path, killed = tmp_path / "s.db", tmp_path / "broken.db"
    with everstep.open(path, wal_bytes=0) as store:
        for keep in (9, 5):
            store.set_retention(everstep.Retention(keep_last=keep))
        store.set_retention(everstep.Retention(keep_last=1), workflow="w")
        store.set_retention(None, workflow="w")
        store.start(report, 1, id="w")
        store.answer("w", "editor", "yes")
        store.pause("w", "wait")
        store.resume("w")
        names = {message.name for message in store.backend.messages("w")}
        copy(path, killed)
    assert Path(f"{killed}-wal").read_bytes().count(b"pause") > 1, "nothing is left of it: this proves nothing"
    unprove(killed)
    done, target = fixed(killed)
    assert {loss.what for loss in done.lost} == {"manifest"}
    with everstep.open(target) as store:
        assert {message.name for message in store.backend.messages("w")} == names
        assert "pause" not in names
        assert store.get_retention() == everstep.Retention(keep_last=5)
        assert set(store.backend.properties()) == {"retention"}


def test_an_old_wal_or_none_is_told_by_what_this_machine_has_seen(made: tuple[Path, Path, Truth], tmp_path: Path) -> None:
    source = tmp_path / "s.db"
    copy(made[1], source)
    Path(f"{source}-wal").unlink()
    done, _ = judged(made, source)
    [loss] = done.lost
    assert loss.what == "writes"
    assert "writes that this machine has seen are missing" in str(loss)


def test_the_feed_keeps_its_positions_where_it_can_be_proven(made: tuple[Path, Path, Truth], broken: Path) -> None:
    with everstep.open(broken, accept_older=True) as store:
        before = [(e.position, e.run, e.seq) for e in store.events(limit=10_000)]
    pk = pk_of(broken, "small-2")
    tamper(broken, "UPDATE records SET body = x'0100c0' WHERE id = ?", pk << 31 | 3)
    done, target = judged(made, broken)
    assert done.lost
    with everstep.open(target) as store:
        after = [(e.position, e.run, e.seq) for e in store.events(limit=10_000)]
    assert after[: len(before)] == before


def test_a_feed_that_is_lost_is_made_anew_behind_its_old_end(made: tuple[Path, Path, Truth], broken: Path) -> None:
    end = query(broken, "SELECT fed FROM manifest")[0][0]
    with everstep.open(broken, accept_older=True) as store:
        for i in range(120):  # so that there is a full part
            for name in ("a", "b"):
                with store.run(f"{name}{i % 2}", state={"i": i}) as run:
                    run.checkpoint()
        end = store.backend.feed_end()
        runs = {info.id: info.checkpoints for info in store.runs(limit=100)}
    assert query(broken, "SELECT count(*) FROM feed")[0][0] >= 1
    [(blob,)] = query(broken, "SELECT entries FROM feed ORDER BY first LIMIT 1")
    tamper(broken, "DELETE FROM feed WHERE first = (SELECT min(first) FROM feed)")
    erase(broken, blob)
    done, target = fixed(broken)
    assert [loss.what for loss in done.lost] == ["feed"]
    with everstep.open(target) as store:
        assert store.verify("full").ok
        assert {info.id: info.checkpoints for info in store.runs(limit=100)} == runs
        page = store.events(after=end, limit=100_000)
        assert len(page) == query(target, "SELECT count(*) FROM records")[0][0]  # who has followed the old one misses nothing


@pytest.mark.parametrize("headless", [False, True])
def test_what_is_to_be_kept_is_taken_over_and_when_the_old_store_was_verified_is_not(headless: bool, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with everstep.open(path) as store:
        store.set_retention(everstep.Retention(keep_last=9))
        store.set_retention(everstep.Retention(keep_last=5))
        with store.run("r") as run:
            run.checkpoint()
        assert store.verify("full").ok
    if headless:
        data = bytearray(path.read_bytes())
        data[:4096] = bytes(4096)
        path.write_bytes(data)
    done, target = fixed(path)
    assert done.ok
    with everstep.open(target) as store:
        assert store.get_retention() == everstep.Retention(keep_last=5)
        assert set(store.backend.properties()) == {"retention"}


def test_a_retention_that_is_damaged_is_not_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with everstep.open(path) as store:
        store.set_retention(everstep.Retention(keep_last=5))
    tamper(path, "UPDATE properties SET value = replace(value, '5', '1')")
    done, target = fixed(path)
    assert [loss.what for loss in done.lost] == ["manifest"]
    with everstep.open(target) as store:
        assert store.get_retention() is None


def test_bytes_that_the_disk_does_not_give_are_counted(
    made: tuple[Path, Path, Truth], broken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from everstep.backends.sqlite.recovery import copy as sqlite_copy

    bad = range(20 * 4096, 22 * 4096)
    original = sqlite_copy._block

    def failing(read: Any, at: int, size: int) -> tuple[bytes, int]:
        def reading(length: int, offset: int) -> bytes:
            if set(range(offset, offset + length)) & set(bad):
                raise OSError(5, "Input/output error")
            return bytes(read(length, offset))

        return original(reading, at, size)

    monkeypatch.setattr(sqlite_copy, "_block", failing)
    done, _ = judged(made, broken)
    assert [loss.reason for loss in done.lost if loss.what == "bytes"] == ["8,192 bytes of the file could not be read from the disk"]


def test_what_is_lost_can_be_read_by_people(made: tuple[Path, Path, Truth], broken: Path) -> None:
    pk = pk_of(broken, "pruned")
    tamper(broken, "DELETE FROM records WHERE id >> 31 = ? AND (id & 2147483647) BETWEEN 10 AND 40", pk)
    done, _ = judged(made, broken)
    lines = str(done).splitlines()
    assert lines[0].startswith(f"repaired {broken} into ")
    assert lines[1].startswith("lost: ")
    assert len(lines) < 20
    assert any("pruned@" in line and " to " in line for line in lines)


def test_the_async_store_salvages_too(tmp_path: Path) -> None:
    import asyncio

    async def main() -> Any:
        async with everstep.open(tmp_path / "s.db") as store:
            async with store.run("r", state={"n": 1}) as run:
                await run.checkpoint()
            return await store.load("r", newest_good=True)

    found = asyncio.run(main())
    assert (found.state, found.run, found.number, found.skipped) == ({"n": 1}, "r", 1, [])


def test_the_sample_has_what_it_should_have(made: tuple[Path, Path, Truth]) -> None:
    """Otherwise the tests here would prove less than they seem to."""
    truth = made[2].runs
    assert {name: run.row.status for name, run in truth.items()} == {
        "loop": "succeeded", "ended": "succeeded", "waits": "waiting", "fork": "succeeded", "pruned": "succeeded", "late": "waiting",
        "small-0": "succeeded", "small-1": "succeeded", "small-2": "succeeded", "queued": "queued", "taken": "queued", "done": "succeeded",
    }  # fmt: skip
    assert truth["pruned"].pruned
    assert truth["waits"].messages
    assert query(made[0], "SELECT count(*) FROM tasks") == [(2,)]
    assert query(made[0], "SELECT count(*) FROM bases")[0][0]
    assert query(made[0], "SELECT count(*) FROM records WHERE kind = 'base'")[0][0] > 10
    assert query(made[0], "SELECT count(*) FROM chunks")[0][0] > 20
    assert Path(f"{made[1]}-wal").stat().st_size > 100_000
    assert fill.__doc__


def test_a_row_that_claims_a_history_without_end_is_not_believed(tmp_path: Path) -> None:
    """Whoever forges a store can compute any digest. What follows from it must not fill the memory."""
    path = tmp_path / "s.db"
    with everstep.open(path) as store:
        for name in ("good", "bad"):
            with store.run(name, state={"n": 1}) as run:
                run.checkpoint()
        row = store.backend.run("bad")
        assert row is not None
    forged = row.sealed(head_seq=2**31 - 1, checkpoints=2**31 - 3)
    tamper(
        path,
        'UPDATE runs SET head_seq = ?, checkpoints = ?, "check" = ? WHERE id = ?',
        forged.head_seq,
        forged.checkpoints,
        forged.check,
        "bad",
    )
    done, target = fixed(path)
    assert done.records < 100
    assert ("bad", "run") in {(loss.run, loss.what) for loss in done.lost}
    with everstep.open(target) as store:
        assert [info.id for info in store.runs()] == ["good"]
        assert store.verify("full").ok


def test_a_place_without_end_is_not_believed(tmp_path: Path) -> None:
    from everstep.records import Tombstone

    path = tmp_path / "s.db"
    with everstep.open(path) as store, store.run("r", state={"n": 1}) as run:
        run.checkpoint()
    far = Tombstone.unknown(2**32 - 2, 1)
    columns = (far.pk, far.id, far.key, far.family, far.created_at, far.at, far.head_seq, far.head_digest, far.checkpoints, far.check)
    for statement in parts.TOMBSTONES.script.split(";"):
        tamper(path, statement)
    tamper(path, f"INSERT INTO tombstones VALUES ({', '.join('?' * 10)})", *columns)
    tamper(path, "UPDATE manifest SET next = 4294967290")
    done, target = fixed(path)
    assert done.runs == 1
    assert query(target, "SELECT next FROM manifest") == [(2,)]
    assert query(target, "SELECT count(*) FROM tombstones") == [(0,)]


def test_a_run_that_was_forged_into_nonsense_costs_no_other_run(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with everstep.open(path) as store:
        for name in ("good", "bad", "worse"):
            with store.run(name, state={"n": 1}) as run:
                run.checkpoint()
        bad, worse = store.backend.run("bad"), store.backend.run("worse")
        assert bad is not None
        assert worse is not None
    forged = bad.sealed(meta="no JSON")
    tamper(path, 'UPDATE runs SET meta = ?, "check" = ? WHERE id = ?', forged.meta, forged.check, "bad")
    from everstep.records import ZERO, make_record

    start = make_record(ZERO, "worse", worse.key, 1, "start", 1, 1, 0, b"\x01\x00\x93\x01\x02\x03")
    forged = worse.sealed(head_seq=1, head_digest=start.digest, checkpoints=0)
    tamper(
        path,
        'UPDATE runs SET head_seq = 1, head_digest = ?, checkpoints = 0, "check" = ? WHERE id = ?',
        forged.head_digest,
        forged.check,
        "worse",
    )
    tamper(path, "DELETE FROM records WHERE id >> 31 = 3 AND id & 2147483647 > 1")
    tamper(path, "UPDATE records SET epoch = 1, at = 1, body = ?, digest = ? WHERE id = (3 << 31 | 1)", start.body, start.digest)
    done, target = fixed(path)
    assert {loss.run for loss in done.lost if loss.what == "run"} >= {"bad"}
    with everstep.open(target) as store:
        assert store.load("good") == {"n": 1}
        assert "bad" not in {info.id for info in store.runs()}
