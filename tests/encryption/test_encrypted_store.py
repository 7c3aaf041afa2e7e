"""An encrypted store does everything that a plain one does, and keeps every value to itself."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from filled import KEY, OTHER, SECRET, WORD, child, fill, flow

import everstep
from everstep.errors import DamagedKey, EverstepError, MissingKey, NotEncrypted, NotSearchable, OldKey, WrongKey
from everstep.snapshot import saver
from everstep.store import lookup
from everstep.store.retention import plan


@pytest.fixture(autouse=True)
def _many_bases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "WORTH", 1)
    monkeypatch.setattr(saver, "BASE_EVERY", 8)


def test_everything_that_was_saved_comes_back(places: Any, tmp_path: Path) -> None:
    with places.open(key=KEY) as store:
        fill(store, tmp_path)
    with places.open(key=KEY) as store:
        _reads(store)
        _goes_on(store, tmp_path)
        _is_kept_small(store)


def _reads(store: everstep.Store) -> None:
    assert store.load("loop")["said"][59].startswith(f"{SECRET} turn 59")
    assert store.load("loop@51")["said"][50].startswith(f"{SECRET} turn 50")
    assert store.view("loop")["said"][3].startswith(f"{SECRET} turn 3 ")
    assert store.diff("loop@59", "loop@60")
    assert store.blame("loop", ["said", 50]).number == 51
    assert store.backend.bases("loop"), "pruning added no base"
    info = store.get("loop")
    assert (info.note, info.tags, info.meta) == (
        f"{SECRET} run note",
        (f"{SECRET}-run-tag",),
        {f"{SECRET} run meta": f"{SECRET} run meta value"},
    )
    assert [run.id for run in store.runs(tag=f"{SECRET}-run-tag")] == ["loop"]
    assert [run.id for run in store.runs(meta={f"{SECRET} run meta": f"{SECRET} run meta value"})] == ["loop"]
    assert not store.runs(meta={f"{SECRET} run meta": "another"})
    with pytest.raises(NotSearchable):
        store.runs(note="hunter")
    made = store.checkpoint("flow@1")
    assert (made.note, made.tags, made.meta) == (f"{SECRET} note", (f"{SECRET}-tag",), {f"{SECRET} meta key": f"{SECRET} meta value"})
    assert [c.ref for c in store.find(meta={f"{SECRET} meta key": f"{SECRET} meta value"})] == ["flow@1"]
    assert [c.ref for c in store.find(tags=f"{SECRET}-late-tag")] == ["loop@3"]
    assert store.checkpoint(f"loop@{SECRET}-late-tag").number == 3
    assert [c.number for c in store.checkpoints("loop", tag="tenth", limit=2)] == [51, 41]
    assert store.checkpoint("loop@3").tags == (f"{SECRET}-late-tag",)
    assert store.steps("flow")[0].result[1999] == f"{SECRET} step input result 1999"
    assert store.steps("fails")[0].error["message"] == f"{SECRET} error text\n{SECRET} error note" or store.steps("fails")[0].error
    events = [event for event in store.events(limit=1000) if event.name == "custom:found"]
    assert [event.data["what"] for event in events] == [f"{SECRET} event"]
    notes = [event.data["note"] for event in store.events(limit=1000) if event.name == "checkpoint_created"]
    assert f"{SECRET} note" in notes
    assert store.schedules()[0].input == ((3, f"{SECRET} schedule input"), {})
    assert [one.value for one in store.attached("line", 1)] == [f"{SECRET} attached value"]


def _goes_on(store: everstep.Store, folder: Path) -> None:
    store.answer("flow", "open", {f"{SECRET} open": 1})
    assert store.resume("flow").result[1] == f"{SECRET} workflow result"
    assert [gate.answer for gate in store.gates("flow")] == [f"{SECRET} answer", {f"{SECRET} open": 1}]
    store.worker(orders_in=[folder / "app.db"]).run(until_idle=True)
    assert store.wait("ordered").result == f"{SECRET} order inner 22"
    assert store.wait("queued").result == f"{SECRET} queued input inner 21"
    fork = store.fork("loop@51", edit={"more": SECRET})
    assert store.load(fork.id)["more"] == SECRET
    assert store.get(fork.id).tags == (f"{SECRET}-run-tag",)
    copy = store.copy("loop")
    assert store.load(f"{copy.id}@51") == store.load("loop@51")
    assert store.checkpoint(f"{copy.id}@3").tags == (f"{SECRET}-late-tag",)
    assert store.checkpoint(f"{copy.id}@1").note == f"{SECRET} turn 0"
    assert store.resume("flow", from_step="big#0").status == "waiting"
    assert store.load("loop", newest_good=True).state["said"]
    assert store.upgrades() == []
    assert lookup.attempts(store, "flow")


def _is_kept_small(store: everstep.Store) -> None:
    assert store.drop("loop", [51]) == 1
    assert store.gc().problems == []
    assert store.cleanup(dry_run=True) is not None
    report = store.verify("full")
    assert report.ok, report
    store.delete("paying")
    assert store.verify("full").ok


def test_nothing_of_it_is_found_in_the_files(tmp_path: Path) -> None:
    for key, name in ((KEY, "encrypted"), (None, "canary")):
        folder = tmp_path / name
        folder.mkdir()
        store = everstep.open(folder / "s.db", key=key)
        fill(store, folder)
        found = {file.name for file in folder.iterdir() if file.is_file() and WORD.encode() in file.read_bytes()}
        store.close()
        found |= {file.name for file in folder.iterdir() if file.is_file() and WORD.encode() in file.read_bytes()}
        assert bool(found) == (key is None), found


def test_nothing_of_it_is_found_in_postgresql(server: Any, tmp_path: Path) -> None:
    for key in (KEY, None):
        folder = tmp_path / ("encrypted" if key else "canary")
        folder.mkdir()
        url = server.database()
        with everstep.open(url, key=key) as store:
            fill(store, folder, turns=20)
        server.execute("CHECKPOINT", url=url)
        rows = server.execute("SELECT oid FROM pg_database WHERE datname = current_database()", url=url)
        pages = _pages(server, rows)
        server.drop(url)
        assert (WORD.encode() in pages) == (key is None)


def _pages(server: Any, rows: Any) -> bytes:
    """Return everything that the server stored of one database."""
    ((oid,),) = rows
    return b"".join(file.read_bytes() for file in (Path(server._folder) / "data" / "base" / str(oid)).iterdir() if file.is_file())


def test_a_store_without_its_key_lists_runs_and_nothing_else(places: Any, tmp_path: Path) -> None:
    kept = places.open(key=KEY)
    fill(kept, tmp_path, turns=20)
    with places.open(key=None) as store:
        infos = {info.id: info for info in store.runs(limit=100)}
        assert infos["loop"].checkpoints == 20
        assert infos["loop"].note == "(encrypted)"
        assert infos["flow"].status == "waiting"
        assert WORD not in repr(list(infos.values()))
        report = store.verify("records")
        assert report.ok, report
        assert store.doctor().findings
        for attempt in (
            lambda: store.load("loop"), lambda: store.view("loop"), lambda: store.diff("loop@19", "loop@20"), lambda: store.steps("flow"),
            lambda: store.blame("loop", ["said"]), lambda: store.fork("loop@20"), lambda: store.copy("loop"), lambda: store.delete("loop"),
            lambda: store.tag("loop@1", "x"), lambda: store.answer("flow", "open", 1), lambda: store.resume("flow"), lambda: store.events(limit=1000),
            lambda: store.prune({"keep_last": 1}), lambda: store.gc(), lambda: store.cleanup(), lambda: store.verify("full"),
            lambda: store.worker().run(until_idle=True), lambda: store.start(flow, 1, "x"), lambda: store.enqueue(child, 1, "x"),
            lambda: store.run("new", state={}).__enter__(), lambda: store.schedules(), lambda: store.schedule("s", child, 1, "x", cron="0 3 * * *"),
            lambda: store.limit("q", concurrency=1), lambda: store.set_retention({"keep_last": 1}), lambda: store.runs(tag="x"),
            lambda: store.drop("loop", [1]), lambda: store.upgrades(),
        ):  # fmt: skip
            with pytest.raises(MissingKey) as refused:
                attempt()
            assert "EVERSTEP_KEY" in refused.value.remedy
    kept.close()
    with places.open(key=KEY) as store:
        assert store.verify("full").ok


def test_a_wrong_key_is_refused_and_changes_nothing(places: Any) -> None:
    with places.open(key=KEY) as store, store.run("r", state={"n": 1}) as run:
        run.checkpoint()
    for _ in range(2):
        with pytest.raises(WrongKey) as refused:
            places.open(key=OTHER)
        assert not isinstance(refused.value, OldKey)
        assert OTHER.hex() not in str(refused.value)
    with places.open(key=OTHER, old_keys=[KEY]) as store:
        assert store.load("r") == {"n": 1}


def test_a_plain_store_is_refused_with_a_key(places: Any) -> None:
    with places.open(key=None) as plain, plain.run("r", state={}) as run:
        run.checkpoint()
        with pytest.raises(NotEncrypted) as refused:
            places.open(key=KEY)
    assert refused.value.remedy
    with places.open(key=None) as store:
        assert store.verify("full").ok


def test_the_environment_gives_the_key_wherever_a_store_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERSTEP_KEY", KEY.hex())
    with everstep.open(tmp_path / "s.db") as store, store.run("r", state={"n": SECRET}) as run:
        run.checkpoint()
    assert WORD.encode() not in (tmp_path / "s.db").read_bytes()
    monkeypatch.delenv("EVERSTEP_KEY")
    with everstep.open(tmp_path / "s.db") as store, pytest.raises(MissingKey):
        store.load("r")


def test_a_plain_writer_does_not_write_into_a_store_that_was_encrypted_meanwhile(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db") as plain, everstep.open(tmp_path / "s.db", key=KEY) as store:
        with pytest.raises(EverstepError) as refused, plain.run("r", state={}) as run:
            run.checkpoint()
        assert isinstance(refused.value, MissingKey)
        assert store.verify("full").ok
        assert not store.runs()


def test_many_processes_open_a_new_store_at_once(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, everstep\n"
        f"with everstep.open({str(tmp_path / 's.db')!r}, key={KEY.hex()!r}) as store, store.run(sys.argv[1], state={{'n': sys.argv[1]}}) as run:\n"
        "    run.checkpoint()\n"
    )
    processes = [subprocess.Popen([sys.executable, str(program), f"r{n}"], stderr=subprocess.PIPE) for n in range(6)]
    assert [process.communicate()[1] for process in processes] == [b""] * 6
    with everstep.open(tmp_path / "s.db", key=KEY) as store:
        assert sorted(store.load(info.id)["n"] for info in store.runs()) == [f"r{n}" for n in range(6)]
        assert store.verify("full").ok


def test_a_passphrase_opens_what_it_made(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db", key="passphrase:four words of noise") as store, store.run("r", state={"n": 1}) as run:
        run.checkpoint()
    with everstep.open(tmp_path / "s.db", key="passphrase:four words of noise") as store:
        assert store.load("r") == {"n": 1}
    with pytest.raises(WrongKey):
        everstep.open(tmp_path / "s.db", key="passphrase:four words of silence")


def test_the_key_of_a_family_is_destroyed_with_its_last_run(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with everstep.open(path, key=KEY) as store:
        for name in ("kept", "gone"):
            with store.run(name, state={"n": name}) as run:
                run.checkpoint()
        store.fork("gone@1", id="fork")
        row = store.backend.run("gone")
        assert row is not None
        wrapped = store.backend.family_keys([row.family])[row.family]
        assert wrapped in path.read_bytes() + path.with_name("s.db-wal").read_bytes()
        store.delete("gone")
        assert store.load("fork") == {"n": "gone"}
        assert store.backend.family_keys([row.family]) == {row.family: wrapped}
        store.delete("fork")
        assert store.backend.family_keys([row.family]) == {}
        with pytest.raises(DamagedKey):
            store.framer.of(row.family, row.key)
        assert wrapped[-40:] not in path.read_bytes()
        assert wrapped[-40:] not in path.with_name("s.db-wal").read_bytes()
        assert store.load("kept") == {"n": "kept"}
        assert store.verify("full").ok
    assert sqlite3.connect(path).execute("SELECT count(*) FROM keys WHERE substr(wrapped, 1, 1) = x'00'").fetchone() == (1,)
