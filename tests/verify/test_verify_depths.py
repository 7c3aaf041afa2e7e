"""Each kind of damage is found at the depth that promises it, and at every deeper one; nothing else is."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import count
from pathlib import Path

import apsw
import pytest
from upkeep_helpers import grow, many_bases
from verify_helpers import DEPTHS, flipped, make, query, tamper, verified

import everstep
from everstep.backends.contract.core import Backend
from everstep.records import RunRow
from everstep.store.verify.report import Depth, Problem
from everstep.store.verify.side_rows import Beside

Damage = Callable[[Path], int]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "s.db"
    make(path)
    return path


@pytest.fixture
def path(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(whole, tmp_path / "s.db"))


def statement(sql: str) -> Damage:
    return lambda path: tamper(path, sql)


PRUNED = "(SELECT pk FROM runs WHERE id = 'pruned')"
LOOP = "(SELECT pk FROM runs WHERE id = 'loop')"

QUICK: dict[str, Damage] = {
    "a run row": statement("UPDATE runs SET note = 'another' WHERE id = 'loop'"),
    "a vanished run": statement("DELETE FROM runs WHERE id = 'fork'"),
    "a head that is gone": statement(f"DELETE FROM records WHERE id = (SELECT max(id) FROM records WHERE id >> 31 = {LOOP})"),
    "a record behind the head": statement(
        f"INSERT INTO records SELECT id + 1, kind, epoch, at, number, note, tags, meta, own, labels, digest, body_digest, body FROM records "
        f"WHERE id = (SELECT max(id) FROM records WHERE id >> 31 = {LOOP})"
    ),
    "a tag that was moved": statement("UPDATE tags SET number = number + 1 WHERE name = 'early'"),
    "a tag that is gone": statement("DELETE FROM tags WHERE name = 'early'"),
    "a message": statement("UPDATE messages SET body = x'0100c3'"),
    "a message that is due at another time": statement("UPDATE messages SET due = 1"),
    "a message that is gone": statement("DELETE FROM messages"),
    "a prune mark": statement("UPDATE pruned SET freed = freed + 1"),
    "a prune mark that is gone": statement("DELETE FROM pruned"),
    "a prune mark of another run": statement(f"UPDATE pruned SET run = {LOOP}"),
    "an added base": statement("UPDATE bases SET body = x'0100c0' WHERE number = (SELECT min(number) FROM bases)"),
    "an added base that is gone": statement("DELETE FROM bases WHERE number = (SELECT min(number) FROM bases)"),
    "an added base of another checkpoint": statement("UPDATE bases SET number = number - 1 WHERE number = (SELECT min(number) FROM bases)"),
    "a tombstone": statement("UPDATE tombstones SET checkpoints = checkpoints + 1"),
    "a tombstone that is gone": statement("DELETE FROM tombstones"),
    "a tombstone too many": statement(
        'INSERT INTO tombstones SELECT pk + 100, id, key, family, created_at, at, head_seq, head_digest, checkpoints, "check" FROM tombstones'
    ),
    "a property": statement("UPDATE properties SET value = replace(value, '50', '5')"),
    "a property that is gone": statement("DELETE FROM properties"),
    "the sum of the manifest": statement("UPDATE manifest SET total = zeroblob(32)"),
    "the count of the manifest": statement("UPDATE manifest SET runs = runs + 1"),
    "how many runs there ever were": statement("UPDATE manifest SET next = next + 1"),
}


def null(where: str) -> Damage:
    """Take a body away as pruning does, without telling the mark."""
    return lambda path: sum(
        tamper(path, "UPDATE records SET body = NULL, body_digest = ? WHERE id = ?", digest(body), id)
        for id, body in query(path, f"SELECT id, body FROM records WHERE body IS NOT NULL AND {where} LIMIT 1")
    )


def digest(body: bytes) -> bytes:
    return sha256(body).digest()


RECORDS: dict[str, Damage] = {
    "a body": lambda path: flip(path, "records", "body", "kind = 'step' AND number = 7"),
    "a record from the middle": statement(f"DELETE FROM records WHERE id = {LOOP} << 31 | 9"),
    "a time": statement(f"UPDATE records SET at = at + 1 WHERE id = {LOOP} << 31 | 9"),
    "a digest": lambda path: flip(path, "records", "digest", f"id = ({LOOP} << 31 | 9)"),
    "a delta that was not pruned": null(f"kind = 'checkpoint' AND number = 5 AND id >> 31 = {LOOP}"),
    "a base that was not pruned": null(f"kind = 'base' AND id >> 31 = {LOOP}"),
    "a step of a pruned run": null(f"kind = 'step' AND number = 5 AND id >> 31 = {PRUNED}"),
    "a status": null(f"kind = 'status' AND id >> 31 = {PRUNED}"),
    "a checkpoint that a pruned run should have kept": null(f"kind = 'checkpoint' AND id >> 31 = {PRUNED} AND number = 60"),
}


def flip(path: Path, table: str, column: str, where: str) -> int:
    id, value = query(path, f"SELECT rowid, {column} FROM {table} WHERE {column} IS NOT NULL AND {where} LIMIT 1")[0]
    return tamper(path, f"UPDATE {table} SET {column} = ? WHERE rowid = ?", flipped(value, len(value) * 4), id)


FULL: dict[str, Damage] = {
    "a chunk": lambda path: flip(path, "chunks", "frame", "length(frame) > 2000"),
    "a chunk that is gone": statement("DELETE FROM chunks WHERE pk = (SELECT max(pk) FROM chunks)"),
    "a chunk in the place of another": statement(
        "UPDATE chunks SET frame = (SELECT frame FROM chunks ORDER BY pk LIMIT 1) WHERE pk = (SELECT max(pk) FROM chunks)"
    ),
    "a chunk that was cut": statement(
        "UPDATE chunks SET frame = substr(frame, 1, length(frame) / 2) WHERE pk = (SELECT max(pk) FROM chunks)"
    ),
    "the feed": statement("UPDATE manifest SET feed = x'af5570f5a1810b7a', fed = 0"),
    "a listed tag that no run has": statement("INSERT INTO run_tags VALUES ('smuggled', 1)"),
    "a listed value that no run has": statement("INSERT INTO run_meta VALUES ('team', '\"u\"', 1)"),
    "a value that is not listed": statement("DELETE FROM run_meta WHERE key = 'size'"),
    "a value of a run that has none": statement("INSERT INTO run_meta VALUES ('team', '\"u\"', 2)"),
    "an index": lambda path: break_index(path),
}


def break_index(path: Path) -> int:
    """Rows that an index does not know: only the engine's own check sees that."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = DELETE").fetchall()
    (root,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'runs_note'").fetchone() or (0,)
    connection.close()
    with path.open("r+b") as file:
        file.seek((root - 1) * 4096)
        page = file.read(4096)
        text = page.index(b"a loop")
        file.seek((root - 1) * 4096 + text)
        file.write(b"A")
    return 1


TABLE: list[tuple[Depth, str, Damage]] = [
    *(("quick", name, damage) for name, damage in QUICK.items()),
    *(("records", name, damage) for name, damage in RECORDS.items()),
    *(("full", name, damage) for name, damage in FULL.items()),
]


@pytest.mark.parametrize(("promised", "name", "damage"), TABLE, ids=[f"{depth}: {name}" for depth, name, _ in TABLE])
def test_damage_is_found_at_the_depth_that_promises_it(path: Path, promised: Depth, name: str, damage: Damage) -> None:
    assert damage(path) >= 1
    for depth in DEPTHS:
        report = verified(path, depth)
        assert report.complete
        if DEPTHS.index(depth) >= DEPTHS.index(promised):
            assert not report.ok, f"{name} is not found at depth {depth}"
        else:
            assert report.ok, f"{depth} found it, too, so the table is wrong: {report}"


def test_a_store_that_has_one_of_everything_is_whole_at_every_depth(path: Path) -> None:
    for depth in DEPTHS:
        report = verified(path, depth)
        assert report.ok, str(report)
        assert report.runs == 5
    assert (report.records, report.chunks) == query(path, "SELECT (SELECT count(*) FROM records), (SELECT count(*) FROM chunks)")[0]


def test_a_body_that_should_be_pruned_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with everstep.open(path) as store, many_bases():
        grow(store, "pruned", 30)
        before = query(path, "SELECT id, body FROM records")
        store.prune(everstep.Retention(keep_last=1), run="pruned")
    id, _ = query(path, "SELECT id, body FROM records WHERE body IS NULL LIMIT 1")[0]
    tamper(path, "UPDATE records SET body = ?, body_digest = NULL WHERE id = ?", dict(before)[id], id)
    assert verified(path, "quick").ok
    for depth in ("records", "full"):
        report = verified(path, depth)  # type: ignore[arg-type]
        assert [problem.what for problem in report.problems] == ["its body is present although it was pruned"]


def test_every_chunk_is_looked_at(path: Path) -> None:
    """Also those of results, of inputs, and those that only an added base refers to."""
    for pk, frame in query(path, "SELECT pk, frame FROM chunks"):
        tamper(path, "UPDATE chunks SET frame = ? WHERE pk = ?", frame[:-1], pk)
        report = verified(path, "full")
        assert any(problem.code == "E502" for problem in report.problems), pk
        assert {problem.code for problem in report.problems} == {"E502"}
        tamper(path, "UPDATE chunks SET frame = ? WHERE pk = ?", frame, pk)
    assert verified(path, "full").ok


def test_a_problem_whose_words_differ_from_look_to_look_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = count(1)

    def problems(self: Beside, row: RunRow, opening: bool, backend: Backend) -> Iterator[Problem]:
        if row.id == "loop":
            yield Problem("E501", "run loop", f"damage, as look {next(looks)} describes it")

    monkeypatch.setattr(Beside, "problems", problems)
    assert [problem.code for problem in verified(path, "quick").problems] == ["E501"]


def test_a_problem_that_the_second_look_does_not_find_is_not_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = count(1)

    def problems(self: Beside, row: RunRow, opening: bool, backend: Backend) -> Iterator[Problem]:
        if row.id == "loop" and next(looks) == 1:
            yield Problem("E501", "run loop", "read while another process pruned")

    monkeypatch.setattr(Beside, "problems", problems)
    assert verified(path, "quick").ok
