"""The seal of a store: digests of records and checks of rows may be keyed, and everything that makes or proves one goes through it."""

from __future__ import annotations

import ast
import hmac
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep.backends.memory import data as memory
from everstep.backends.registry import open_backend
from everstep.codec.frame import Framer
from everstep.errors import Damaged, InvalidArgument, WrongSeal
from everstep.records import ZERO, Seal, record_fault, unkeyed
from everstep.store.repair.repair import repair_sealed
from everstep.store.retention.retention import Retention

SOURCE = Path(everstep.__file__).parent
SEALED = {
    "digest",
    "sealed",
    "make",
    "of",
    "unknown",
    "property_check",
    "tag_check",
    "make_record",
    "record_fault",
    "chain",
    "property_values",
    "property_from",
}
"""Names of records.py and of rows that take a seal."""


def keyed(key: bytes) -> Seal:
    return lambda data: hmac.digest(key, data, "sha256")


OURS = keyed(b"ours")
Open = Callable[..., everstep.Store]


@pytest.fixture(params=["sqlite", "memory"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens one and the same store, with any seal."""
    url: Any = tmp_path / "s.db" if request.param == "sqlite" else "memory://seals"
    yield lambda **options: everstep.open(url, **options)
    memory._named.pop("seals", None)


@everstep.workflow(name="seals.asks")
def asks(n: int) -> Any:
    run = everstep.current()
    big = run.step("big", lambda: list(range(n)))
    run.checkpoint("made", tags=["kept"], meta={"n": n})
    return [len(big), everstep.gate("sure"), run.step("after", str, n)]


def save(store: everstep.Store) -> None:
    with store.run("r", state={}) as run:
        run.checkpoint()


def fill(store: everstep.Store) -> None:
    for name in ("loop", "gone"):
        with store.run(name, state={"said": []}, tags=["t"], meta={"m": 1}) as run:
            for n in range(70):
                run.state["said"].append(f"turn {n} " * 20)
                run.checkpoint(f"turn {n}", tags=["first"] if not n else [])
    store.tag("loop@3", "late")
    store.prune(Retention(keep_last=3, keep_tagged=["late"]), run="loop")
    store.delete("gone")
    store.start(asks, 20_000, id="asks")
    store.limit("slow", concurrency=1)
    store.schedule("nightly", asks, 3, cron="0 3 * * *")
    store.enqueue(asks, 5, id="queued", queue="slow")


def test_a_store_with_a_keyed_seal_does_everything(opened: Open) -> None:
    with opened(seal=OURS) as store:
        fill(store)
        report = store.verify("full")
        assert report.ok, report
    with opened(seal=OURS) as store:
        assert store.load("loop")["said"][69].startswith("turn 69")
        assert store.load("loop@late")["said"][-1].startswith("turn 2")
        assert [checkpoint.tags for checkpoint in store.checkpoints("loop", tag="late")] == [("late",)]
        assert store.blame("loop", ["said", 0]) is not None
        assert store.diff("loop@69", "loop@70")
        store.answer("asks", "sure", "yes")
        assert store.resume("asks").result == [20_000, "yes", "20000"]
        store.answer("queued", "sure", "no")
        worker = store.worker(queues=["slow"])
        worker.run(until_idle=True)
        assert store.get("queued").status == "succeeded"
        fork = store.fork("asks@1")
        store.answer(fork.id, "sure", "maybe")
        assert store.resume(fork.id).result[1] == "maybe"
        assert {event.run for event in store.events()} >= {"loop", "asks", "queued", fork.id}
        assert store.gc().problems == []
        assert store.verify("full").ok
        assert [finding.sentence for finding in store.doctor().findings if "digest" in finding.sentence] == []


@pytest.mark.parametrize("wrong", [unkeyed, keyed(b"theirs")])
def test_it_is_refused_without_its_key_and_with_another(opened: Open, wrong: Seal) -> None:
    opened(seal=OURS).close()
    for _ in range(2):
        with pytest.raises(WrongSeal, match="key"):
            opened(seal=wrong)
        with opened(seal=OURS) as store:
            save(store)


def test_a_store_without_a_key_is_refused_with_one(opened: Open) -> None:
    with opened() as store:
        save(store)
        with pytest.raises(WrongSeal):
            opened(seal=OURS)


def test_nobody_without_the_key_can_make_a_digest(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db", seal=OURS) as store:
        fill(store)
        row = store.backend.run("loop")
        assert row is not None
        assert row.digest() != row.check == row.digest(OURS)
        first = store.backend.records("loop", 1, 1)[0]
        assert record_fault(ZERO, first, row.key, OURS) is None
        assert record_fault(ZERO, first, row.key) is not None
        for table, things in (
            ("tags", store.backend.tags("loop")),
            ("messages", store.backend.messages("queued")),
            ("pruned", [store.backend.pruned("loop")]),
        ):
            assert things, table
            assert all(thing.digest() != thing.check == thing.digest(OURS) for thing in things)


def test_a_row_that_was_sealed_without_the_key_is_damage(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db", seal=OURS) as store:
        fill(store)
        row = store.backend.run("loop")
        assert row is not None
    with everstep.open(tmp_path / "s.db", seal=OURS) as store:
        forged = row.sealed(note="forged")
        store.backend._writer.call(
            lambda transaction, _: transaction.connection.execute(  # type: ignore[attr-defined]
                'UPDATE runs SET note = ?, "check" = ? WHERE id = ?', (forged.note, forged.check, "loop")
            ),
            None,
        )
    with everstep.open(tmp_path / "s.db", seal=OURS) as store, pytest.raises(Damaged):
        store.load("loop")


def test_a_keyed_store_is_repaired_with_its_key(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db", seal=OURS) as store:
        fill(store)
    done = repair_sealed(tmp_path / "s.db", tmp_path / "new.db", OURS, Framer())
    assert done.ok, done
    with everstep.open(tmp_path / "new.db", seal=OURS) as store:
        assert store.verify("full").ok
        assert store.load("loop")["said"][69].startswith("turn 69")
    with pytest.raises(WrongSeal):
        everstep.open(tmp_path / "new.db")


def test_postgresql_takes_no_seal() -> None:
    with pytest.raises(InvalidArgument, match="seal"):
        open_backend("postgresql://nobody@127.0.0.1:1/none", seal=OURS)


def test_the_default_is_sha256() -> None:
    assert unkeyed(b"x") == sha256(b"x").digest()


def test_no_call_in_the_library_leaves_the_seal_to_its_default() -> None:
    """A call that does would make an unkeyed digest in a keyed store, or take a keyed one for damage."""
    found = []
    for path in SOURCE.rglob("*.py"):
        if {"testing", "postgres", "demo"} & set(path.parts) or path.name == "records.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and _takes_seal(node) and not _has_seal(node):
                found.append(f"{path.relative_to(SOURCE)}:{node.lineno}: {ast.unparse(node)[:100]}")
    assert found == [], "\n".join(found)


def _takes_seal(call: ast.Call) -> bool:
    match call.func:
        case ast.Attribute(value=ast.Name(id="Tag" | "Message" | "Pruned" | "Base" | "Tombstone"), attr="make" | "of" | "unknown"):
            return True
        case ast.Attribute(attr="digest" | "sealed", value=value):
            return not (isinstance(value, ast.Call) or "hash" in ast.unparse(value) or ast.unparse(value) in ("digest", "hmac", "ended"))
        case ast.Name(id=name):
            return name in SEALED and name not in ("of", "make", "digest", "unknown")
    return False


def _has_seal(call: ast.Call) -> bool:
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    return any("seal" in ast.unparse(value) for value in given)
