"""A store of format 3: what it held is there, pruned, kept and remembered as it was; its runs go on, and runs can wait in queues from now on.

`format-3.json` says the same as `format-2.json`; of each run also which states were not pruned and which bases were added, and of the store
its sum, how often it was written, what its tombstones know and what is to be kept.
"""

from __future__ import annotations

import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import pytest
from migration_helpers import FROZEN, Frozen, ask, contents, fingerprint, total_of

import everstep
from everstep import clock as clocks
from everstep.backends.contract.core import Commit
from everstep.backends.contract.queues import START, Claim, Task
from everstep.backends.sqlite.backend import SqliteBackend
from everstep.backends.sqlite.files.rollback_guard import Witness
from everstep.errors import PrunedCheckpoint, RolledBack
from everstep.testing.rows import new_letter, new_run, new_worker

FROZEN_3 = FROZEN[3]
HELD: dict[str, Any] = FROZEN_3.held["runs"]
STORE: dict[str, Any] = FROZEN_3.held["store"]


@pytest.fixture
def frozen() -> Frozen:
    return FROZEN_3


@pytest.mark.parametrize("name", HELD)
def test_a_run_is_what_it_was(migrated: Path, name: str) -> None:
    about = HELD[name]
    with everstep.open(migrated) as store:
        info, row, backend = store.get(name), store.backend.run(name), store.backend
        assert row is not None
        assert {key: getattr(info, key) for key in ("workflow", "session", "note", "meta", "parent", "checkpoints")} == {
            key: about[key] for key in ("workflow", "session", "note", "meta", "parent", "checkpoints")
        }
        assert [str(info.status), list(info.tags), row.parent_number] == [about["status"], about["tags"], about["parent_number"]]
        assert states(store, name) == about["states"]
        assert [[tag.name, tag.number] for tag in backend.tags(name)] == about["checkpoint_tags"]
        steps = [[s.address, str(s.status), fingerprint(s.result) if s.error is None else s.error["message"]] for s in store.steps(name)]
        assert steps == about["steps"]
        assert [[gate.name, fingerprint(gate.answer) if gate.answered else None] for gate in store.gates(name)] == about["gates"]
        assert [[letter.name, letter.due, sha256(letter.body).hexdigest()] for letter in backend.letters(name)] == about["letters"]
        assert [base.number for base in backend.bases(name)] == about["bases"]


def states(store: everstep.Store, name: str) -> dict[str, str]:
    """The fingerprint of every state that is there, by the number of its checkpoint."""
    found: dict[str, str] = {}
    for number in range(1, store.get(name).checkpoints + 1):
        try:
            found[str(number)] = fingerprint(store.load(name, at=number))
        except PrunedCheckpoint:
            continue
    return found


def test_the_store_is_what_it_was(migrated: Path) -> None:
    with everstep.open(migrated) as store:
        manifest = store.backend.manifest()
        assert (manifest.total.hex(), manifest.places, manifest.writes) == (STORE["total"], STORE["places"], STORE["writes"])
        assert store.backend.facts("retention") == STORE["facts"]
        assert [tombstone.id for tombstone in store.backend.tombstones()] == STORE["tombstones"]


def test_the_fixture_has_all_that_a_store_can_have() -> None:
    assert {about["status"] for about in HELD.values()} == {"running", "waiting", "succeeded", "failed", "cancelled"}
    held = contents(FROZEN_3.path)
    assert all(held.values()), [name for name, rows in held.items() if not rows]
    kinds = {kind for (kind,) in ask(FROZEN_3.path, "SELECT DISTINCT kind FROM records")}
    assert kinds == {"start", "checkpoint", "base", "status", "step", "gate", "answer", "timer", "event"}
    assert ask(FROZEN_3.path, "PRAGMA auto_vacuum") == [(2,)]
    assert any(about["bases"] for about in HELD.values())
    assert any(len(about["states"]) < about["checkpoints"] for about in HELD.values())
    assert {"twice", "gone-1", "parent"} == set(STORE["tombstones"])
    frames = "SELECT body FROM records WHERE body IS NOT NULL UNION ALL SELECT frame FROM chunks"
    assert {frame[1] & 3 for (frame,) in ask(FROZEN_3.path, frames)} == {0, 1, 2}


def see(path: Path, more: int = 0) -> None:
    """What a program of format 3 leaves beside a store that it has written, perhaps `more` often than the store says."""
    ((identity, writes),) = ask(path, "SELECT identity, writes FROM manifest")
    witness = Witness(str(path))
    witness.begin(identity, writes + more)
    witness.close()
    assert path.with_name("s.db-seen").stat().st_size == 56


def test_a_store_that_was_written_on_this_machine_is_migrated(old: Path) -> None:
    see(old)
    FROZEN_3.has_arrived(old)
    FROZEN_3.has_arrived(old)


def test_what_is_in_the_wal_of_a_killed_program_of_format_3_is_migrated(old: Path, tmp_path: Path) -> None:
    see(old)
    writer = apsw.Connection(str(old))
    writer.wal_autocheckpoint(0)
    writer.execute("UPDATE manifest SET writes = writes + 1")
    (tmp_path / "copy").mkdir()
    left = tmp_path / "copy" / "s.db"
    for end in ("", "-wal", "-seen"):
        shutil.copy(f"{old}{end}", f"{left}{end}")
    writer.close()
    FROZEN_3.has_arrived(left)
    assert ask(left, "SELECT writes FROM manifest") == [(STORE["writes"] + 1,)]


def test_a_store_that_is_older_than_what_was_seen_of_it_is_refused_before_it_is_migrated(old: Path) -> None:
    see(old, 3)
    with pytest.raises(RolledBack, match="3 writes that were seen here are not in it"):
        SqliteBackend(old)
    FROZEN_3.is_untouched(old)
    SqliteBackend(old, accept_older=True).close()
    FROZEN_3.has_arrived(old)


def test_nothing_waits_in_a_queue_after_the_migration(migrated: Path) -> None:
    with everstep.open(migrated) as store:
        assert store.backend.places() == []
        assert store.backend.depths() == []
        assert store.backend.free() == 0
    assert [ask(migrated, f"SELECT count(*) FROM {name}") for name in ("tasks", "starts", "ticks")] == [[(0,)]] * 3


def test_a_new_run_waits_in_a_queue_and_is_taken(old: Path) -> None:
    backend = SqliteBackend(old)
    row, worker = new_run("queued", status="queued", workflow="w"), new_worker()
    letter = new_letter(row, START, clocks.clock.now_us())
    backend.commit(Commit(row, None, letters=[letter], task=Task("q")))
    (taken,) = backend.claim(Claim(worker, ["q"], ["w"], 5))
    assert (taken.run, taken.deaths) == ("queued", 0)
    place = backend.place("queued")
    assert place is not None
    assert place.worker == worker.id
    assert backend.check() == []
    assert backend.manifest().total == total_of(old)
    backend.close()


def test_what_is_due_is_woken_and_a_paused_run_is_not(old: Path) -> None:
    with everstep.open(old) as store:
        assert "answered" in store.due()
        outcomes = {out.run: out for out in store.wake()}
        assert outcomes["answered"].result["answer"] == "no"
        assert store.get("paused").status == "waiting"
        assert store.verify("full").ok


def test_a_pruned_run_goes_on_and_is_pruned_again_as_the_store_remembers(old: Path) -> None:
    with everstep.open(old) as store:
        newest = store.load("chat")
        with store.run("chat") as run:
            run.state["n"] = -1
            run.checkpoint()
        assert store.load("chat") == newest | {"n": -1}
        store.prune()
        assert store.load("chat", at=61) == newest
        with pytest.raises(PrunedCheckpoint):
            store.load("chat", at=45)
        assert store.get_retention("big") == everstep.Retention(keep_last=3)
        assert store.verify("full").ok
        total = store.backend.manifest().total
    assert total == total_of(old)
