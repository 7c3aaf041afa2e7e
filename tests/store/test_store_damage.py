"""Damage is detected, named, and never read as a state."""

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

import everstep
from everstep.errors import Damaged, DamagedChunk, DamagedRecord, DamagedRun, EverstepError, MissingHead
from everstep.store.verify.verify import Report


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed store: a small run, and one whose base has many chunks."""
    rng = random.Random(1)
    file = tmp_path / "s.db"
    with everstep.open(file) as store:
        with store.run("small", tags=["t"], note="n", meta={"m": 1}) as run:
            for i in range(1, 7):
                run.state["n"] = i
                run.checkpoint(note=f"step {i}", tags=[f"v{i}"], meta={"i": i})
        with store.run("big", state={"l": [rng.randbytes(500).hex() for _ in range(1500)]}) as run:
            run.checkpoint()
            run.state["l"].append("last")
            run.checkpoint()
    return file


def tamper(path: Path, statement: str, *bindings: Any) -> int:
    connection = apsw.Connection(str(path))
    connection.execute(statement, bindings)
    changed = connection.changes()
    connection.close()
    return changed


def query(path: Path, statement: str) -> list[Any]:
    connection = apsw.Connection(str(path))
    rows = connection.execute(statement).fetchall()
    connection.close()
    return rows


def verified(path: Path, depth: Any = "full") -> Report:
    with everstep.open(path) as store:
        return store.verify(depth)


def flipped(data: bytes, at: int) -> bytes:
    bad = bytearray(data)
    bad[at % len(bad)] ^= 1 << at % 8
    return bytes(bad)


def test_a_flipped_byte_in_any_column_of_any_record_is_detected(path: Path) -> None:
    """Each column of each record of a small run, one at a time."""
    ids = [row[0] for row in query(path, "SELECT id FROM records WHERE id >> 31 = 1")]
    columns = ["kind", "epoch", "at", "number", "note", "tags", "meta", "own", "labels", "digest", "body"]
    tried = 0
    for record in ids:
        for column in columns:
            (value,) = query(path, f"SELECT {column} FROM records WHERE id = {record}")[0]
            if value is None:
                continue
            bad = flipped(value, tried) if isinstance(value, bytes) else value + 1 if isinstance(value, int) else value + "x"
            tamper(path, f"UPDATE records SET {column} = ? WHERE id = ?", bad, record)
            report = verified(path, "records")
            assert not report.ok, (record, column)
            assert any("small" in problem.where for problem in report.problems)
            assert_never_wrong(path)
            tamper(path, f"UPDATE records SET {column} = ? WHERE id = ?", value, record)
            tried += 1
    assert tried > 50
    assert verified(path).ok


def assert_never_wrong(path: Path) -> None:
    """Every checkpoint loads as what was saved, or is an error about damage."""
    with everstep.open(path) as store:
        for number in range(1, 7):
            with suppress(Damaged):
                assert store.load(f"small@{number}") == {"n": number}


def test_a_flipped_byte_in_any_column_of_a_run_row_is_detected(path: Path) -> None:
    for (column,) in query(path, "SELECT name FROM pragma_table_info('runs')"):
        if column == "pk":
            continue
        quoted = f'"{column}"'
        (value,) = query(path, f"SELECT {quoted} FROM runs WHERE id = 'small'")[0]
        bad = (
            b"x" * 16
            if value is None and column in ("key", "family")
            else "x"
            if value is None
            else flipped(value, 9)
            if isinstance(value, bytes)
            else value + 1
            if isinstance(value, int)
            else value + "x"
        )
        tamper(path, f"UPDATE runs SET {quoted} = ? WHERE pk = 1", bad)
        report = verified(path, "quick")
        assert not report.ok, column
        with everstep.open(path) as store:
            with pytest.raises(EverstepError):
                store.load("small")
            if column != "id":  # an id that is not there is that of a new run
                with pytest.raises(EverstepError), store.run("small"):
                    pass
        tamper(path, f"UPDATE runs SET {quoted} = ? WHERE pk = 1", value)
    assert verified(path).ok


def test_a_damaged_newest_checkpoint_names_itself_and_the_newest_good_one(path: Path) -> None:
    (last,) = query(path, "SELECT max(id) FROM records WHERE id >> 31 = 1 AND kind = 'checkpoint'")[0]
    (body,) = query(path, f"SELECT body FROM records WHERE id = {last}")[0]
    tamper(path, "UPDATE records SET body = ? WHERE id = ?", flipped(body, 3), last)
    with everstep.open(path) as store:
        with pytest.raises(DamagedRecord) as caught:
            store.load("small")
        error = caught.value
        assert (error.run, error.number, error.good) == ("small", 6, 5)
        assert "small@6" in error.message
        assert "small@5" in error.message
        assert "small@5" in error.remedy
        assert store.load(f"small@{error.good}") == {"n": 5}
        with pytest.raises(DamagedRecord), store.run("small"):
            pass
        assert store.load(store.fork("small@5", "saved").id) == {"n": 5}
        with store.run("saved") as run:
            run.state["n"] = "on"
            run.checkpoint()
        report = store.verify("full")
        assert [p.code for p in report.problems] == ["E501"]


def test_when_several_are_damaged_the_newest_good_one_is_further_back(path: Path) -> None:
    ids = [row[0] for row in query(path, "SELECT id FROM records WHERE id >> 31 = 1 AND kind = 'checkpoint' ORDER BY id")]
    for record in (ids[5], ids[3]):
        tamper(path, "UPDATE records SET body = x'0100' WHERE id = ?", record)
    with everstep.open(path) as store:
        with pytest.raises(DamagedRecord) as caught:
            store.load("small")
        assert caught.value.good == 3
        assert store.load("small@3") == {"n": 3}
        with pytest.raises(Damaged):
            store.load("small@4")
        with pytest.raises(Damaged):
            store.load("small@5")


def test_when_nothing_is_good_it_says_so(path: Path) -> None:
    tamper(path, "UPDATE records SET body = x'0100' WHERE id >> 31 = 1")
    with everstep.open(path) as store, pytest.raises(DamagedRecord, match="no older checkpoint is undamaged") as caught:
        store.load("small")
    assert caught.value.good is None


def test_a_missing_head_is_noticed(path: Path) -> None:
    tamper(path, "DELETE FROM records WHERE id = (SELECT max(id) FROM records WHERE id >> 31 = 1)")
    report = verified(path, "quick")
    assert [p.code for p in report.problems] == ["E504"]
    assert not verified(path, "records").ok


def test_a_missing_newest_checkpoint_is_an_error_of_its_own(path: Path) -> None:
    with everstep.open(path) as store:
        run = store.run("open").__enter__()  # dies: its newest record is a checkpoint
        for i in range(1, 4):
            run.state["n"] = i
            run.checkpoint()
    tamper(path, "DELETE FROM records WHERE id = (SELECT max(id) FROM records WHERE id >> 31 = 3)")
    with everstep.open(path) as store:
        with pytest.raises(Damaged) as caught:
            store.load("open")
        assert isinstance(caught.value, MissingHead) or isinstance(caught.value.__cause__, MissingHead)
        assert caught.value.good == 2  # type: ignore[attr-defined]
        assert store.load("open@2") == {"n": 2}
    assert any(p.code == "E504" for p in verified(path, "quick").problems)


def test_a_record_from_the_middle_is_missed(path: Path) -> None:
    tamper(path, "DELETE FROM records WHERE id = (SELECT id FROM records WHERE id >> 31 = 1 AND number = 3 AND kind = 'checkpoint')")
    assert not verified(path, "records").ok
    with everstep.open(path) as store:
        assert store.load("small@2") == {"n": 2}
        for number in (3, 4, 5, 6):
            with pytest.raises(Damaged):
                store.load(f"small@{number}")


def test_records_that_were_exchanged_or_repeated_are_noticed(path: Path) -> None:
    ids = [row[0] for row in query(path, "SELECT id FROM records WHERE id >> 31 = 1 ORDER BY id")]
    one, two = ids[2], ids[3]
    for a, b in [(one, -1), (two, one), (-1, two)]:
        tamper(path, "UPDATE records SET id = ? WHERE id = ?", b, a)
    assert not verified(path, "records").ok
    assert_never_wrong(path)


def test_a_tail_that_was_cut_with_the_row_set_back_is_noticed_by_the_manifest(path: Path, tmp_path: Path) -> None:
    with everstep.open(path) as store, store.run("small") as run:
        older = query(path, "SELECT * FROM runs WHERE pk = 1")[0]
        run.state["n"] = 7
        run.checkpoint()
    names = [row[0] for row in query(path, "SELECT name FROM pragma_table_info('runs')")]
    for name, value in zip(names, older, strict=True):
        tamper(path, f'UPDATE runs SET "{name}" = ? WHERE pk = 1', value)
    report = verified(path, "quick")
    assert not report.ok


@pytest.mark.parametrize("how", ["flip", "delete", "swap", "truncate"])
def test_damage_to_any_chunk_is_found_by_load_and_by_verify(path: Path, how: str) -> None:
    chunks = query(path, "SELECT pk, frame FROM chunks ORDER BY pk")
    assert len(chunks) > 20
    rng = random.Random(4)
    for pk, frame in rng.sample(chunks, 5):
        if how == "flip":
            tamper(path, "UPDATE chunks SET frame = ? WHERE pk = ?", flipped(frame, rng.randrange(len(frame) * 8)), pk)
        elif how == "delete":
            tamper(path, "DELETE FROM chunks WHERE pk = ?", pk)
        elif how == "swap":
            tamper(path, "UPDATE chunks SET frame = (SELECT frame FROM chunks WHERE pk != ?1 LIMIT 1) WHERE pk = ?1", pk)
        else:
            tamper(path, "UPDATE chunks SET frame = ? WHERE pk = ?", frame[: len(frame) // 2], pk)
        with everstep.open(path) as store:
            with pytest.raises(Damaged, match="chunk") as caught:
                store.load("big")
            assert caught.value.good is None  # type: ignore[attr-defined]
            with pytest.raises(DamagedChunk):
                store.load("big@1")
            assert store.verify("records").ok
            report = store.verify("full")
            assert not report.ok
            assert any("chunk" in p.what for p in report.problems)
            with pytest.raises(Damaged):
                list(map(repr, store.view("big")["l"]))
            assert store.load("small") == {"n": 6}
        if how == "delete":
            return
        tamper(path, "UPDATE chunks SET frame = ? WHERE pk = ?", frame, pk)
    assert verified(path).ok


def test_a_vanished_run_is_found_by_verify(path: Path) -> None:
    for statement in ("DELETE FROM runs WHERE pk = 1", "DELETE FROM records WHERE id >> 31 = 1", "DELETE FROM tags WHERE run = 1"):
        tamper(path, statement)
    report = verified(path, "quick")
    assert any(p.where == "manifest" for p in report.problems)


def test_a_run_that_was_smuggled_in_is_found_by_verify(path: Path, tmp_path: Path) -> None:
    columns = ", ".join(f'"{row[0]}"' for row in query(path, "SELECT name FROM pragma_table_info('runs')") if row[0] not in ("pk", "id"))
    tamper(path, f"INSERT INTO runs (pk, id, {columns}) SELECT 9, 'twin', {columns} FROM runs WHERE pk = 1")
    assert not verified(path, "quick").ok


TAG_DAMAGE: dict[str, Callable[[Path], int]] = {
    "moved": lambda path: tamper(path, "UPDATE tags SET number = 2 WHERE name = 'v5'"),
    "renamed": lambda path: tamper(path, "UPDATE tags SET name = 'other' WHERE name = 'v5'"),
    "deleted": lambda path: tamper(path, "DELETE FROM tags WHERE name = 'v5'"),
    "dated": lambda path: tamper(path, "UPDATE tags SET at = at + 1 WHERE name = 'v5'"),
    "check": lambda path: tamper(path, "UPDATE tags SET \"check\" = zeroblob(32) WHERE name = 'v5'"),
    "taken to another run": lambda path: tamper(path, "UPDATE tags SET run = 2, number = 1 WHERE name = 'v5'"),
}


@pytest.mark.parametrize("how", TAG_DAMAGE)
def test_damage_to_a_tag_is_found_and_never_followed(path: Path, how: str) -> None:
    assert TAG_DAMAGE[how](path) == 1
    assert not verified(path, "quick").ok
    with everstep.open(path) as store:
        for ref in ("small@v5", "big@v5", "small@other"):
            with suppress(EverstepError):
                assert store.load(ref) == {"n": 5}


def test_a_damaged_manifest_is_found(path: Path) -> None:
    for statement in ("UPDATE manifest SET total = zeroblob(32)", "UPDATE manifest SET runs = 7"):
        kept = path.read_bytes()
        tamper(path, statement)
        assert not verified(path, "quick").ok
        path.write_bytes(kept)
        Path(f"{path}-seen").unlink(missing_ok=True)
    assert verified(path).ok


def test_a_listing_over_a_damaged_row_is_an_error(path: Path) -> None:
    tamper(path, "UPDATE runs SET status = 'failed' WHERE pk = 1")
    with everstep.open(path) as store:
        with pytest.raises(DamagedRun, match="'small'"):
            store.runs()
        with pytest.raises(DamagedRun):
            store.get("small")
        assert store.load("big")["l"][-1] == "last"


def test_damage_in_memory_is_detected_in_the_same_way() -> None:
    store = everstep.open("memory://")
    with store.run("r") as run:
        for i in range(1, 6):
            run.state["n"] = i
            run.checkpoint()
    records = store.backend._data.runs["r"].records  # type: ignore[attr-defined]
    for record in records:
        good = record.body
        record.body = flipped(good, 5)
        assert not store.verify("records").ok
        record.body = good
    assert store.verify("full").ok
    last = next(r for r in reversed(records) if r.kind == "checkpoint")
    last.body = b"\x01\x00\x90"
    with pytest.raises(DamagedRecord) as caught:
        store.load("r")
    assert caught.value.good == 4
    store.close()
