"""The labels of checkpoints are a part of their own: they can be dropped, and a run can get another id, and the chain still proves itself."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

import everstep
from everstep.errors import Damaged
from everstep.records import shift


def execute(path: Path, sql: str, *values: object) -> int:
    connection = apsw.Connection(str(path))
    try:
        connection.execute(sql, values)
        return connection.changes()
    finally:
        connection.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "s.db"
    with everstep.open(path) as store:
        for name in ("r", "other"):
            with store.run(name, state={"n": 0}) as run:
                run.step("load", str, 1)
                for n in range(3):
                    run.state["n"] = n
                    run.checkpoint(f"secret {n}", meta={"who": "Ann"})
                run.state["n"] = 9
                run.checkpoint()
    return path


def test_labels_can_be_dropped_and_the_chain_still_proves_itself(path: Path) -> None:
    with everstep.open(path) as store:
        records = [record for record in store.backend.records("r", 1, 99) if record.note is not None and record.kind == "checkpoint"]
        dropped = [record.without_labels() for record in records]
        before = [store.load("r", at=n) for n in range(1, 5)]
    assert len(dropped) == 3
    for record in dropped:
        changed = "UPDATE records SET note = NULL, tags = NULL, meta = NULL, labels = ? WHERE id = (1 << 31 | ?)"
        assert execute(path, changed, record.labels, record.seq) == 1
    with everstep.open(path) as store:
        assert store.verify("full").ok
        assert [store.load("r", at=n) for n in range(1, 5)] == before
        assert [checkpoint.note for checkpoint in store.checkpoints("r")] == [None] * 4
        with store.run("r") as run:  # what the runtime knows about a checkpoint is not among them
            assert run.state == {"n": 9}
            assert run.used["steps"] == 1
            run.state["n"] = 10
        assert store.verify("full").ok
    assert b"secret 1" not in b"".join(record.labels or b"" for record in dropped)


def test_equal_labels_have_different_digests(path: Path) -> None:
    """Whoever has only the digest of a dropped note cannot find out by trying whether a guess is right."""
    with everstep.open(path) as store:
        one, other = (store.backend.records(run, 1, 99) for run in ("r", "other"))
    notes = [(record.note, record.without_labels().labels) for record in (*one, *other) if record.kind == "checkpoint" and record.note]
    assert len(notes) == 6
    assert len({note for note, _ in notes}) == 3
    assert len({digest for _, digest in notes}) == 6


@pytest.mark.parametrize(
    "damage",
    [
        "note = 'another'",
        "note = NULL",
        "meta = '{}'",
        "labels = zeroblob(16)",
        "labels = NULL",
        'own = \'{"kind":"final"}\'',
        "own = NULL",
    ],
)
def test_changed_labels_are_damage(path: Path, damage: str) -> None:
    assert execute(path, f"UPDATE records SET {damage} WHERE kind = 'checkpoint' AND id >> 31 = 1 AND number = 2") == 1
    with everstep.open(path) as store:
        assert [problem.code for problem in store.verify("full").problems] == ["E501"]
        with pytest.raises(Damaged):
            store.load("r", at=2)


@pytest.mark.parametrize("damage", ["meta = '{}'", "tags = '[\"a\"]'", "own = '{}'", "labels = zeroblob(16)", "labels = zeroblob(32)"])
def test_a_record_that_is_no_checkpoint_has_no_labels(path: Path, damage: str) -> None:
    assert execute(path, f"UPDATE records SET {damage} WHERE kind = 'step' AND id >> 31 = 1") == 1
    with everstep.open(path) as store:
        assert [problem.code for problem in store.verify("full").problems] == ["E501"]


@pytest.mark.parametrize("damage", ["labels = zeroblob(16)", "labels = zeroblob(32)", "tags = '[]'"])
def test_a_checkpoint_without_labels_has_nothing_about_them(path: Path, damage: str) -> None:
    execute(path, f"UPDATE records SET {damage} WHERE kind = 'checkpoint' AND id >> 31 = 1 AND number = 4")
    with everstep.open(path) as store:
        assert store.verify("full").ok is (damage == "tags = '[]'")


def test_a_run_can_get_another_id(path: Path) -> None:
    """No command does it yet: the row is sealed again, and nothing else changes."""
    with everstep.open(path) as store:
        row = store.backend.run("r")
        assert row is not None
        renamed = row.sealed(id="renamed")
        total = shift(store.backend.manifest().total, [row.check], [renamed.check])
        states = [store.load("r", at=n) for n in range(1, 5)]
    execute(path, 'UPDATE runs SET id = ?, "check" = ? WHERE id = ?', "renamed", renamed.check, "r")
    execute(path, "UPDATE manifest SET total = ?", total)
    with everstep.open(path) as store:
        assert store.verify("full").ok
        assert [store.load("renamed", at=n) for n in range(1, 5)] == states
        with store.run("renamed") as run:
            run.state["n"] = 11
        assert store.verify("full").ok


def test_a_record_that_was_moved_to_another_run_is_damage(path: Path) -> None:
    """The same content at the same place of a run with another key."""
    columns = "kind, epoch, at, number, note, tags, meta, own, labels, digest, body_digest, body"
    execute(path, "DELETE FROM records WHERE id >> 31 = 2")
    moved = execute(path, f"INSERT INTO records (id, {columns}) SELECT id + (1 << 31), {columns} FROM records WHERE id >> 31 = 1")
    with everstep.open(path) as store:
        row = store.backend.run("r")
        assert row is not None
        assert moved == row.head_seq
        other = store.backend.run("other")
        assert other is not None
        forged = other.sealed(head_digest=row.head_digest, head_seq=row.head_seq)
        total = shift(store.backend.manifest().total, [other.check], [forged.check])
    execute(
        path,
        'UPDATE runs SET head_digest = ?, head_seq = ?, "check" = ? WHERE id = ?',
        forged.head_digest,
        forged.head_seq,
        forged.check,
        "other",
    )
    execute(path, "UPDATE manifest SET total = ?", total)
    with everstep.open(path) as store:
        found = store.verify("records").problems
        assert found
        assert all("other" in problem.where for problem in found)
        with pytest.raises(Damaged):
            store.load("other")
        assert store.load("r") == {"n": 9}


def test_events_of_runs_whose_ids_were_exchanged_are_damage(path: Path) -> None:
    """The chain does not have the id: only the row proves whose records these are."""
    execute(path, "UPDATE runs SET id = 'x' WHERE id = 'r'")
    execute(path, "UPDATE runs SET id = 'r' WHERE id = 'other'")
    execute(path, "UPDATE runs SET id = 'other' WHERE id = 'x'")
    with everstep.open(path) as store, pytest.raises(Damaged):
        store.events()
