"""A plain store becomes an encrypted one: with everything that is in it, in one step, and never beside a program that uses it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from filled import KEY, OTHER, SECRET, WORD, child, fill, flow

import everstep
from everstep.backends.registry import open_backend
from everstep.backends.sqlite.recovery import exchange
from everstep.errors import Conflict, Damaged, InvalidArgument, MissingKey, NotAStore, NotEncrypted, StoreBusy, StoreFull, WrongKey
from everstep.queues.schedules import FIRED, PREFIX
from everstep.snapshot import saver
from everstep.store.encryption import encrypt as change
from everstep.store.retention import plan
from everstep.store.retention.retention import Retention


@pytest.fixture(autouse=True)
def _many_bases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "WORTH", 1)
    monkeypatch.setattr(saver, "BASE_EVERY", 8)


def _filled(path: Any, folder: Path) -> dict[str, Any]:
    """Make a plain store with something in every place; return what a program sees of it."""
    with everstep.open(path) as store:
        fill(store, folder)
        store.copy("loop", "copied")
        store.fork("loop@51", "forked")
        store.delete("yaml")
        store.set_retention(Retention(keep_last=5), workflow="encryption.flow")
        store.limit("default", concurrency=3)
        store.enqueue(child, 1, "held back", id="second", queue="other", priority=7, key="k", dedupe="d")
        text = store.backend.get_property(PREFIX + "nightly") or ""
        from everstep.queues.schedules import _digest

        store.backend.set_property(FIRED + "nightly", f"{_digest(text)} 4102444800000000")
        return _seen(store)


def _seen(store: everstep.Store) -> dict[str, Any]:
    runs = store.runs(limit=100)
    return {
        "runs": [
            (r.id, r.status, r.workflow, r.session, r.tags, r.note, r.meta, r.created_at, r.updated_at, r.checkpoints, r.parent)
            for r in runs
        ],
        "checkpoints": {r.id: [(c.number, c.note, c.tags, c.meta, c.at, c.pruned) for c in store.checkpoints(r.id)] for r in runs},
        "states": {r.id: [(c.number, state) for c, state in store.states(r.id)] for r in runs if r.checkpoints},
        "steps": {r.id: [(s.address, s.status) for s in store.steps(r.id)] for r in runs},
        "gates": {r.id: [(g.address, g.ask, g.answer, g.by) for g in store.gates(r.id)] for r in runs},
        "attached": {r.id: [(a.number, a.name, a.value) for a in store.attached(r.id)] for r in runs},
        "events": [(e.position, e.run, e.name, e.data) for e in store.events(limit=10_000)],
        "schedules": store.schedules(),
        "retention": store.get_retention("flow"),
        "queues": [(e.run, e.task, e.ready) for e in store.backend.queue_entries()],
        "limits": store.backend.get_property("queue:default"),
        "blame": (store.blame("forked", ["said", 50]).run, store.blame("forked", ["said", 50]).number),
        "deleted": [(stone.pk, stone.id, stone.key) for stone in store.backend.tombstones()],
        "manifest": (store.backend.manifest().runs, store.backend.manifest().created, store.backend.manifest().last),
    }


def test_everything_in_a_plain_store_is_in_the_encrypted_one(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    before = _filled(path, tmp_path)
    done = everstep.encrypt(path, KEY)
    assert done.runs == len(before["runs"])
    assert done.states == sum(len(states) for states in before["states"].values())
    with everstep.open(path, key=KEY) as store:
        after = _seen(store)
        for name, said in before.items():
            assert after[name] == said, name
        assert store.verify("full").ok
        assert {finding.name for finding in store.doctor() if finding.level == "bad"} == set()
        assert (store.doctor()["keys"].level, store.doctor()["manifest"].level) == ("ok", "ok")
        assert {run.id for run in store.runs(tag=f"{SECRET}-run-tag")} == {"loop", "copied", "forked"}
        assert store.checkpoint(f"loop@{SECRET}-late-tag").number == 3
    with everstep.open(done.plain or "") as store:
        assert _seen(store)["states"] == before["states"]


def test_runs_go_on_where_they_stopped(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    _filled(path, tmp_path)
    everstep.encrypt(path, KEY)
    with everstep.open(path, key=KEY) as store:
        store.answer("flow", "open", "go")
        assert store.start(flow, 2000, f"{SECRET} workflow input", id="flow").result[1] == f"{SECRET} workflow result"
        store.worker(queues=["default", "other"]).run(until_idle=True)
        assert store.outcome("second").result == "held back inner 1"
        with store.run("loop") as run:
            run.state["said"].append("more")
            run.checkpoint()
        store.prune(Retention(keep_last=1), run="loop")
        store.gc()
        assert store.load("loop")["said"][-1] == "more"
        assert store.verify("full").ok


def test_no_plain_value_is_in_the_encrypted_store(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    _filled(path, tmp_path)
    assert WORD.encode() in path.read_bytes(), "the search finds nothing at all"
    everstep.encrypt(path, KEY, shred=True)
    beside = [found for found in tmp_path.rglob("*") if found.is_file() and found.name.startswith((".s.db", "s.db"))]
    assert {found.name for found in beside} <= {"s.db", "s.db-seen", "s.db-wal", "s.db-shm"}
    assert not any(WORD.encode() in found.read_bytes() for found in beside)


def test_a_plain_digest_of_what_was_pruned_or_deleted_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    _filled(path, tmp_path)
    connection = sqlite3.connect(path)
    digests = [
        one for (one,) in connection.execute("SELECT body_digest FROM records WHERE body IS NULL UNION SELECT head_digest FROM tombstones")
    ]
    connection.close()
    assert len(digests) > 5
    everstep.encrypt(path, KEY, shred=True)
    content = path.read_bytes()
    assert not any(digest in content for digest in digests)


def test_the_plain_store_stays_under_a_name_of_its_own(tmp_path: Path) -> None:
    for n in range(2):
        path = tmp_path / "s.db"
        path.unlink(missing_ok=True)
        with everstep.open(path, accept_older=True) as store, store.run(f"r{n}", state={"n": n}) as run:
            run.checkpoint()
        done = everstep.encrypt(path, KEY)
        assert Path(done.plain or "").name.startswith("s.db.plain-")
        with everstep.open(done.plain or "") as store:
            assert store.load(f"r{n}") == {"n": n}
        path.rename(tmp_path / f"old{n}")
        for left in tmp_path.glob("s.db-*"):
            left.rmdir() if left.is_dir() else left.unlink()


def test_permissions_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    _run(path)
    path.chmod(0o640)
    everstep.encrypt(path, KEY)
    assert path.stat().st_mode & 0o777 == 0o640


def _run(path: Any, id: str = "r", **options: Any) -> None:
    with everstep.open(path, **options) as store, store.run(id, state={"here": True}) as run:
        run.checkpoint()


def test_a_second_call_finds_that_it_is_done(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    _run(path)
    first = everstep.encrypt(path, KEY)
    again = everstep.encrypt(path, KEY)
    assert (again.already, again.plain) == (True, first.plain)
    with pytest.raises(WrongKey):
        everstep.encrypt(path, OTHER)
    shredded = everstep.encrypt(path, KEY, shred=True)
    assert shredded.plain is None
    assert not list(tmp_path.glob("*.plain-*"))


def test_a_store_that_this_process_has_open_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    _run(path)
    with everstep.open(path) as store:
        with pytest.raises(StoreBusy, match="is open"):
            everstep.encrypt(path, KEY)
        assert store.load("r") == {"here": True}
        _goes_on(store)
    _plain_still(path)


_HOLDER = """
import sys, everstep
store = everstep.open(sys.argv[1])
if sys.argv[2] == "runs":
    with store.run("held", state={}) as run:
        run.checkpoint()
        print("ready", flush=True)
        sys.stdin.read()
else:
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["open", "runs"])
def test_a_store_that_another_process_has_open_is_refused(tmp_path: Path, how: str) -> None:
    path = tmp_path / "s.db"
    _run(path)
    with subprocess.Popen([sys.executable, "-c", _HOLDER, str(path), how], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        with pytest.raises(StoreBusy):
            everstep.encrypt(path, KEY)
        holder.communicate(b"")
    _plain_still(path)
    everstep.encrypt(path, KEY)


def test_a_store_that_was_written_meanwhile_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.db"
    _run(path)
    compare = change._compare

    def write(*given: Any) -> int:
        states = compare(*given)
        _run(path, "late")
        return states

    monkeypatch.setattr(change, "_compare", write)
    with pytest.raises(Conflict, match="was written meanwhile"):
        everstep.encrypt(path, KEY)
    _plain_still(path, "late")
    monkeypatch.undo()
    everstep.encrypt(path, KEY)
    with everstep.open(path, key=KEY) as store:
        assert store.load("late") == {"here": True}


def test_a_copy_that_differs_is_not_put_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.db"
    _run(path)
    content = change.Conversion._content
    monkeypatch.setattr(
        change.Conversion,
        "_content",
        lambda self, old: content(self, old).replace(b"here", b"hare") if old.kind == "checkpoint" else content(self, old),
    )
    with pytest.raises(Damaged, match="differs in the encrypted store"):
        everstep.encrypt(path, KEY)
    _plain_still(path)


def test_a_damaged_store_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    _run(path)
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE records SET body = CAST(x'00' || substr(body, 2) AS BLOB) WHERE kind = 'checkpoint'")
    connection.close()
    with pytest.raises(Damaged, match="is damaged"):
        everstep.encrypt(path, KEY)
    assert not list(tmp_path.glob("*.plain-*"))
    assert not list(tmp_path.glob(".s.db*"))


def test_a_disk_without_space_is_noticed_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.db"
    _run(path)
    monkeypatch.setattr(exchange, "_SPARE", 1 << 60)
    with pytest.raises(StoreFull, match="needs about"):
        everstep.encrypt(path, KEY)
    _plain_still(path)


def test_what_cannot_be_encrypted_in_its_place_says_so(tmp_path: Path) -> None:
    _run(tmp_path / "s.db")
    with pytest.raises(MissingKey):
        everstep.encrypt(tmp_path / "s.db")
    with pytest.raises(InvalidArgument, match="cannot be replaced in its place"):
        everstep.encrypt("postgresql://nobody@nowhere/base", KEY)
    with pytest.raises(InvalidArgument, match="shred needs"):
        everstep.encrypt(tmp_path / "s.db", KEY, to=tmp_path / "t.db", shred=True)
    with pytest.raises(NotAStore):
        everstep.encrypt(tmp_path / "none.db", KEY)
    assert not (tmp_path / "none.db").exists()


def test_another_file_can_be_the_target(tmp_path: Path) -> None:
    before = _filled(tmp_path / "s.db", tmp_path)
    done = everstep.encrypt(tmp_path / "s.db", KEY, to=tmp_path / "t.db")
    assert done.states > 10
    with everstep.open(tmp_path / "t.db", key=KEY) as store:
        assert _seen(store)["states"] == before["states"]
    with pytest.raises(InvalidArgument, match="already exists"):
        everstep.encrypt(tmp_path / "s.db", KEY, to=tmp_path / "t.db")


def test_postgresql_is_encrypted_into_another_schema(place: str, tmp_path: Path) -> None:
    before = _filled(place, tmp_path)
    new = f"{place}_new" if "?" in place else f"{place}?namespace=encrypted_new"
    done = everstep.encrypt(place, KEY, to=new)
    assert done.runs == len(before["runs"])
    with everstep.open(new, key=KEY) as store:
        after = _seen(store)
        for name, said in before.items():
            assert after[name] == said, name
        assert store.verify("full").ok
        store.rekey(OTHER)
        store.answer("flow", "open", "go")
    with everstep.open(new, key=OTHER) as store:
        assert store.start(flow, 2000, f"{SECRET} workflow input", id="flow").result[1] == f"{SECRET} workflow result"
    with pytest.raises(NotEncrypted):
        everstep.open(place, key=KEY)


def _plain_still(path: Path, *more: str) -> None:
    with everstep.open(path) as store:
        assert all(store.load(id) == {"here": True} for id in ("r", *more))
        _goes_on(store)
    assert not list(path.parent.glob("*.plain-*"))
    assert not list(path.parent.glob(".s.db*"))


def _goes_on(store: everstep.Store) -> None:
    with store.run() as run:
        run.state["n"] = 1
        run.checkpoint()


def test_a_kept_store_that_a_killed_call_left_gets_its_name_from_the_next(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    _run(path)
    done = everstep.encrypt(path, KEY)
    left = tmp_path / f".s.db.{2**22 - 1}.abcdefabcdef.new"
    os.rename(done.plain or "", left)
    again = everstep.encrypt(path, KEY)
    assert again.plain == done.plain
    assert open_backend(Path(done.plain or ""), create=False).run("r") is not None
