"""What was changed or moved in an encrypted store is refused; what is whole can be repaired with its key."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from filled import KEY, OTHER, SECRET, fill
from pace import ALL

import everstep
from everstep.backends.sqlite.files import parts
from everstep.errors import Damaged, DamagedFrame, DamagedKey, EverstepError, MissingKey, WrongKey
from everstep.records import Message
from everstep.snapshot import saver

STATE = {"n": SECRET}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


def save(store: everstep.Store, *names: str) -> None:
    for name in names:
        with store.run(name, state={"n": name, "long": [f"{name} {i}" for i in range(3000)]}) as run:
            for n in range(10):
                run.state["n"] = name if n == 9 else n
                run.checkpoint(f"note of {name}")


@pytest.fixture(autouse=True)
def _many_bases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saver, "BASE_EVERY", 4)


def is_refused(read: Callable[[], object]) -> bool:
    try:
        read()
    except Damaged:
        return True
    return False


def change(path: Path, *statements: str) -> None:
    """Change rows behind the store's back, without knowing any key."""
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement).fetchall()
    connection.close()


MOVED = {
    "the body of a record": "UPDATE records SET body = (SELECT body FROM records WHERE id = (2 << 31) | 2) WHERE id = (1 << 31) | 2",
    "a record": "UPDATE records SET (kind, epoch, at, number, note, labels, digest, body) = "
    "(SELECT kind, epoch, at, number, note, labels, digest, body FROM records WHERE id = (2 << 31) | 2) WHERE id = (1 << 31) | 2",
    "labels": "UPDATE records SET note = (SELECT note FROM records WHERE id = (2 << 31) | 2) WHERE id = (1 << 31) | 2",
    "a wrapped key": "UPDATE keys SET wrapped = (SELECT wrapped FROM keys WHERE pk = 2) WHERE pk = 1",
    "a row": 'UPDATE runs SET (note, "check") = (SELECT note, "check" FROM runs WHERE pk = 2) WHERE pk = 1',
    "chunks": "UPDATE chunks SET frame = (SELECT c.frame FROM chunks c WHERE c.family <> chunks.family LIMIT 1) WHERE family = (SELECT family FROM runs WHERE pk = 1)",
}


@pytest.mark.parametrize("what", MOVED)
def test_what_is_moved_from_one_run_to_another_is_refused(path: Path, what: str) -> None:
    with everstep.open(path, key=KEY) as store:
        save(store, "one", "two")
    change(path, MOVED[what])
    with everstep.open(path, key=KEY) as store:
        reads = (lambda: store.load("one"), lambda: store.load("one@1"), lambda: store.checkpoint("one@1").note, lambda: store.get("one"))
        assert any(is_refused(read) for read in reads)
        assert store.load("two")["n"] == "two"
        assert not store.verify("full").ok


def test_a_message_of_another_run_is_refused_even_if_its_check_is_right(path: Path) -> None:
    with everstep.open(path, key=KEY) as store:

        @everstep.workflow(name="encryption.asks")
        def asks() -> Any:
            return everstep.gate("sure")

        for name in ("one", "two"):
            store.start(asks, id=name)
        store.answer("two", "sure", "no")
        one, message = store.backend.run("one"), store.backend.messages("two")[0]
        assert one is not None
        forged = Message.make(
            one.key, message.name, message.due, message.at, message.body, store.backend.seal
        )  # only a key holder can do this
        store.backend.post(forged, "one")
        with pytest.raises(DamagedFrame):
            store.gates("one")


def test_nothing_of_another_store_is_accepted(tmp_path: Path) -> None:
    for name in ("a.db", "b.db"):
        with everstep.open(tmp_path / name, key=KEY) as store:
            save(store, "one")
    change(tmp_path / "a.db", f"ATTACH '{tmp_path / 'b.db'}' AS b", "UPDATE keys SET wrapped = (SELECT wrapped FROM b.keys)")
    with everstep.open(tmp_path / "a.db", key=KEY) as store, pytest.raises(DamagedKey, match="another store"):
        store.load("one")


def test_a_property_of_another_store_opens_nothing(tmp_path: Path) -> None:
    for name in ("a.db", "b.db"):
        with everstep.open(tmp_path / name, key=KEY) as store:
            save(store, "one")
    change(
        tmp_path / "a.db", f"ATTACH '{tmp_path / 'b.db'}' AS b",
        "UPDATE properties SET (value, \"check\") = (SELECT value, \"check\" FROM b.properties WHERE name = 'encryption') WHERE name = 'encryption'",
    )  # fmt: skip
    with everstep.open(tmp_path / "a.db", key=KEY) as store, pytest.raises(Damaged):
        store.load("one")


def test_a_run_whose_key_is_lost_does_not_hide_the_others(path: Path) -> None:
    with everstep.open(path, key=KEY) as store:
        save(store, "one", "two")
    change(path, "DELETE FROM keys WHERE pk = 1")
    with everstep.open(path, key=KEY) as store:
        with pytest.raises(DamagedKey):
            store.load("one")
        assert store.load("two")["n"] == "two"
        assert "E506" in {problem.code for problem in store.verify("full").problems}


def test_a_plain_record_is_refused_even_if_its_digest_is_right(path: Path) -> None:
    from everstep.codec.frame import Framer
    from everstep.store.chain import Chain

    class Plain(Framer):
        """What a faulty program would use."""

    with everstep.open(path, key=KEY) as store:
        save(store, "one")
        row = store.backend.run("one")
        assert row is not None
        chain = Chain(Plain(), row, row, store.backend.seal)
        chain.add("event", b"\x90")
        store.backend.commit(chain.commit())
        assert "not encrypted" in str(store.verify("full"))


def flips(size: int) -> Iterator[int]:
    """Bits of a file: all of them, or some on a push."""
    return iter(range(size * 8)) if ALL else iter(sorted(random.Random(7).sample(range(size * 8), 300)))


def test_no_flipped_bit_gives_a_wrong_state(path: Path, tmp_path: Path) -> None:
    with everstep.open(path, key=KEY) as store:
        with store.run("one", state=STATE) as run:
            run.checkpoint("a note", tags=["t"])
        store.backend.compact()
    whole = path.read_bytes()
    outcomes = {"same": 0, "refused": 0}
    bad = tmp_path / "bad.db"
    for bit in flips(len(whole)):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        for file in tmp_path.glob("bad.db*"):
            file.unlink() if file.is_file() else None
        bad.write_bytes(data)
        try:
            with everstep.open(bad, key=KEY) as store:
                assert store.load("one") == STATE
                assert store.checkpoint("one@1").note == "a note"
            outcomes["same"] += 1
        except EverstepError:
            outcomes["refused"] += 1
    assert outcomes["refused"] > 5, outcomes


def test_an_encrypted_store_is_repaired_with_its_key(path: Path, tmp_path: Path) -> None:
    with everstep.open(path, key=KEY) as store:
        fill(store, tmp_path, turns=40)
        heads = {info.id: info.checkpoints for info in store.runs(limit=100)}
    change(
        path, "UPDATE records SET body = zeroblob(9) WHERE id = (SELECT max(id) FROM records WHERE kind = 'checkpoint' AND id >> 31 = 1)"
    )
    for keys, error in (({}, MissingKey), ({"key": OTHER}, WrongKey)):
        with pytest.raises(error):
            everstep.repair(path, tmp_path / "new.db", **keys)
    done = everstep.repair(path, tmp_path / "new.db", key=KEY)
    assert {loss.run for loss in done.lost} <= {"loop", None}
    with everstep.open(tmp_path / "new.db", key=KEY) as store:
        report = store.verify("full")
        assert report.ok, report
        assert {info.id for info in store.runs(limit=100)} == set(heads)
        assert store.load("loop@39")["said"][0].startswith(f"{SECRET} turn 0")
        assert store.steps("flow")[0].result[1999] == f"{SECRET} step input result 1999"
        assert store.get("loop").note == f"{SECRET} run note"
        assert store.schedules()
    assert SECRET.encode() not in (tmp_path / "new.db").read_bytes()


def test_a_run_without_its_row_is_found_by_its_family(path: Path, tmp_path: Path) -> None:
    with everstep.open(path, key=KEY) as store:
        save(store, "one", "two")
    change(path, "UPDATE runs SET key = zeroblob(16), head_digest = zeroblob(32) WHERE id = 'one'")
    everstep.repair(path, tmp_path / "new.db", key=KEY)
    with everstep.open(tmp_path / "new.db", key=KEY) as store:
        assert store.load("one")["n"] == "one"


def test_a_damaged_chunk_is_recovered(path: Path, tmp_path: Path) -> None:
    with everstep.open(path, key=KEY) as store:
        save(store, "one")
    connection = apsw.Connection(str(path))
    parts.attach(connection)
    ((frame, pk),) = connection.execute("SELECT frame, pk FROM chunks ORDER BY length(frame) LIMIT 1").fetchall()
    bad = bytearray(frame)
    bad[len(bad) // 2] ^= 4
    connection.execute("UPDATE chunks SET frame = ? WHERE pk = ?", (bytes(bad), pk))
    connection.close()
    done = everstep.repair(path, tmp_path / "new.db", key=KEY)
    assert done.lost == []
    with everstep.open(tmp_path / "new.db", key=KEY) as store:
        assert store.load("one")["n"] == "one"
