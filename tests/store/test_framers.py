"""The framer of a store: every frame is made by it and opened by it. A framer that scrambles what it wraps proves that no path goes past it."""

from __future__ import annotations

import ast
import json
import sqlite3
from base64 import b64decode
from pathlib import Path
from typing import Any

import apsw
import pytest

import everstep
from everstep.backends.sqlite.files import parts
from everstep.codec.frame import Framer
from everstep.errors import DamagedFrame
from everstep.records import Place, unkeyed
from everstep.snapshot import saver
from everstep.store import lookup
from everstep.store.repair.repair import repair_sealed
from everstep.store.retention import plan
from everstep.store.retention.retention import Retention
from everstep.store.store import frame_with

SOURCE = Path(everstep.__file__).parent
SCRAMBLED, KEY = 8, b"\0\0\0\x07"
_FLIPPED = bytes(255 - n for n in range(256))


class Scrambling(Framer):
    """As an encrypting one would: sets the flag, names a key, and refuses a frame that it did not make."""

    __slots__ = ("opened",)

    def __init__(self) -> None:
        super().__init__()
        self.opened = 0

    def wrap(self, content: bytes, place: Place | None = None, least: int = 0) -> bytes:
        frame = super().wrap(content, place, least)
        return bytes((frame[0], frame[1] | SCRAMBLED)) + KEY + frame[2:].translate(_FLIPPED)

    def unwrap(self, frame: bytes, place: Place | None = None) -> bytes:
        if len(frame) < 6 or not frame[1] & SCRAMBLED or frame[2:6] != KEY:
            raise DamagedFrame("a frame that was not scrambled")
        self.opened += 1
        return super().unwrap(bytes((frame[0], frame[1] & ~SCRAMBLED)) + frame[6:].translate(_FLIPPED))


@everstep.workflow(name="framers.child")
def child(n: int) -> int:
    return int(everstep.current().step("inner", lambda: n * 2))


@everstep.workflow(name="framers.flow", version="1")
def flow(n: int) -> Any:
    run = everstep.current()
    big = run.step("big", lambda: [f"secret {i}" for i in range(n)])
    run.state["big"] = len(big)
    run.checkpoint("made", tags=["kept"])
    run.emit("found", what="secret")
    made = [len(big), child(3), everstep.gate("sure", default="secret default"), everstep.gate("open")]
    everstep.sleep(0.01)
    return made


@everstep.workflow(name="framers.fails")
def fails() -> None:
    everstep.current().step("boom", _boom)


def _boom() -> None:
    raise ValueError("secret trouble")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


def opened(path: Path | str) -> everstep.Store:
    store = everstep.open(path)
    frame_with(store, Scrambling())
    return store


def fill(store: everstep.Store, folder: Path) -> None:
    with store.run("loop", state={"said": []}) as run:
        for n in range(90):
            run.state["said"].append(f"secret turn {n} " * 40)
            run.checkpoint(f"turn {n}", tags=["tenth"] if n % 10 == 0 else [])
    store.prune(Retention(keep_last=2, keep_tagged=["tenth"]), run="loop")
    store.start(flow, 4000, id="flow")
    store.answer("flow", "sure", "secret answer")
    store.start(fails, id="fails")
    store.schedule("nightly", flow, 3, cron="0 3 * * *")
    with sqlite3.connect(folder / "app.db") as connection:
        store.enqueue(child, 21, id="ordered", connection=connection)
    connection.close()
    with store.run("paying") as run:
        add = everstep.step(transactional=folder / "results.db")(_pay)
        add(5)


def _pay(sql: Any, amount: int) -> dict[str, Any]:
    sql.execute("CREATE TABLE IF NOT EXISTS paid (n)")
    sql.execute(f"INSERT INTO paid VALUES ({int(amount)})")
    return {"secret": list(range(amount))}


def test_every_read_and_every_write_goes_through_the_framer(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "WORTH", 1)
    monkeypatch.setattr(saver, "BASE_EVERY", 8)
    with opened(path) as store:
        fill(store, tmp_path)
    with opened(path) as store:
        framer: Any = store.framer
        assert store.load("loop")["said"][89].startswith("secret turn 89")
        assert store.load("loop@81")["said"][80].startswith("secret turn 80")
        assert store.view("loop")["said"][3].startswith("secret turn 3 ")
        assert store.diff("loop@89", "loop@90")
        assert store.blame("loop", ["said", 80]).number == 81
        assert store.backend.bases("loop"), "pruning added no base"
        assert {step.address for step in store.steps("flow")} >= {"big#0"}
        assert store.steps("flow")[0].result[3999] == "secret 3999"
        assert store.steps("fails")[0].error["message"] == "secret trouble"
        assert [event.data["what"] for event in store.events(limit=1000) if event.name == "custom:found"] == ["secret"]
        assert store.schedules()[0].input == ((3,), {})
        store.answer("flow", "open", {"secret": 1})
        assert store.resume("flow").result == [4000, 6, "secret answer", {"secret": 1}]
        assert [gate.answer for gate in store.gates("flow")] == ["secret answer", {"secret": 1}]
        store.worker(orders_in=[tmp_path / "app.db"]).run(until_idle=True)
        assert store.get("ordered").status == "succeeded"
        assert store.wait("ordered").result == 42
        fork = store.fork("loop@81", edit={"more": "secret"})
        assert store.load(fork.id)["more"] == "secret"
        assert store.resume("flow", from_step="big#0").status == "waiting"
        assert store.load("loop", newest_good=True).state["said"]
        assert store.upgrades() == []
        assert lookup.attempts(store, "flow")
        assert store.can_resume("fails") is not None
        assert store.gc().problems == []
        report = store.verify("full")
        assert report.ok, report
        assert store.doctor().findings
        assert framer.opened > 200
        _plain_frames(path, tmp_path)


def test_a_salvage_and_a_repair_go_through_it(path: Path, tmp_path: Path) -> None:
    with opened(path) as store:
        fill(store, tmp_path)
        heads = {info.id: info.checkpoints for info in store.runs(limit=100)}
    connection = apsw.Connection(str(path))
    connection.execute(
        "UPDATE records SET body = zeroblob(9) WHERE id = (SELECT max(id) FROM records WHERE kind = 'checkpoint' AND id >> 31 = 1)"
    )
    connection.execute(
        "UPDATE runs SET key = zeroblob(16), head_digest = zeroblob(32) WHERE id = 'paying'"
    )  # its first record tells the key
    connection.close()
    with opened(path) as store:
        assert store.load("loop", newest_good=True).state["said"][0].startswith("secret turn 0")
    done = repair_sealed(path, tmp_path / "new.db", unkeyed, Scrambling())
    assert {loss.run for loss in done.lost if loss.run is not None} <= {"loop", "paying", None}
    with opened(tmp_path / "new.db") as store:
        report = store.verify("full")
        assert report.ok, report
        assert {info.id for info in store.runs(limit=100)} == set(heads)
        assert store.steps("flow")[0].result[3999] == "secret 3999"
    _plain_frames(tmp_path / "new.db", None)


def test_a_store_of_another_framer_is_not_read(path: Path, tmp_path: Path) -> None:
    with opened(path) as store:
        fill(store, tmp_path)
    with everstep.open(path) as store:
        with pytest.raises(DamagedFrame):
            store.load("loop")
        with pytest.raises(DamagedFrame):
            store.steps("flow")[0].result
        with pytest.raises(DamagedFrame):
            store.schedules()
        assert not store.verify("full").ok
        assert store.verify("records").ok  # what was stored is what was written: for that, nothing has to be opened


def _plain_frames(path: Path, folder: Path | None) -> None:
    """Refuse a stored frame that was not made by the framer."""
    connection = apsw.Connection(str(path))
    parts.attach(connection)
    frames = connection.execute(
        "SELECT body FROM records WHERE body IS NOT NULL UNION ALL SELECT frame FROM chunks UNION ALL SELECT body FROM messages "
        "UNION ALL SELECT body FROM bases"
    ).fetchall()
    schedules = connection.execute("SELECT value FROM properties WHERE name LIKE 'schedule:%'").fetchall()
    connection.close()
    found = [frame for (frame,) in frames if frame != bytes(9)] + [b64decode(json.loads(str(text))["input"]) for (text,) in schedules]
    assert len(found) > 50
    assert all(frame[1] & SCRAMBLED for frame in found)
    data = path.read_bytes()
    assert b"secret turn" not in data
    assert b"secret trouble" not in data
    if folder is not None:
        with sqlite3.connect(folder / "app.db") as orders:
            assert orders.execute("SELECT count(*) FROM everstep_orders").fetchone() == (0,)
        orders.close()


def test_nothing_but_the_framer_makes_or_opens_a_frame() -> None:
    """No module has a function of its own for it: a key could not reach that."""
    found = []
    for file in SOURCE.rglob("*.py"):
        if file == SOURCE / "codec" / "frame.py":
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "everstep.codec.frame":
                found += [f"{file.name}: {name.name}" for name in node.names if name.name in ("unwrap", "_unpacked", "plain", "_PLAIN")]
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in ("unwrap", "wrap")
                and "snapshot" not in file.parts
            ):
                found.append(f"{file.name}:{node.lineno}")
    assert found == []


def test_a_store_gives_its_framer_to_everything_that_reads_through_its_backend() -> None:
    with everstep.open("memory://") as store:
        assert store.backend.framer is store.framer
        frame_with(store, other := Scrambling())
        assert store.backend.framer is store.framer is other


def test_every_frame_says_where_it_belongs() -> None:
    """A call of a framing's `wrap` or `unwrap` without a place could be opened anywhere. Only what is inside of chunks has none."""
    found = []
    for file in SOURCE.rglob("*.py"):
        if {"testing", "backends", "snapshot", "codec"} & set(file.relative_to(SOURCE).parts):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("wrap", "unwrap"):
                owner = ast.unparse(node.func.value)
                if "inner" in owner or "kek" in owner or owner in ("inspect", "textwrap", "ring") or "unwrap()" in ast.unparse(node):
                    continue
                if len(node.args) < 2:
                    found.append(f"{file.relative_to(SOURCE)}:{node.lineno}: {ast.unparse(node)}")
    assert found == [], "\n".join(found)
