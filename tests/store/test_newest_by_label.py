"""A listing by metadata whose newest checkpoint was lost to damage: it says so, and never gives an older one as the newest."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import everstep
from everstep.errors import DamagedRecord


def test_a_lost_newest_checkpoint_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with everstep.open(path) as store, store.line("r", state={"n": 0}) as line:
        for n in range(3):
            line.state["n"] = n
            line.checkpoint(meta={"graph": "a"})
    db = sqlite3.connect(path)
    with db:
        db.execute("DELETE FROM records WHERE number = 3 AND kind = 'checkpoint'")
    db.close()
    with everstep.open(path) as store:
        with pytest.raises(DamagedRecord, match="missing from the listing"):
            store.checkpoints("r", meta={"graph": "a"}, limit=1)
        with pytest.raises(DamagedRecord, match="missing from the listing"):
            store.checkpoints("r", meta={"graph": "a"})


def test_a_newest_checkpoint_that_does_not_fit_is_left_out(store: everstep.Store) -> None:
    with store.line("r", state={"n": 0}) as line:
        line.checkpoint(meta={"graph": "a"})
        line.checkpoint(meta={"graph": "b"})
    assert [one.number for one in store.checkpoints("r", meta={"graph": "a"}, limit=1)] == [1]
    assert store.checkpoints("r", meta={"graph": "c"}) == []
    assert [one.number for one in store.checkpoints("r", meta={"graph": "a"}, after=2)] == [1]
