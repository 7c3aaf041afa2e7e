"""Runs that are enqueued inside a transaction of the caller's own."""

from __future__ import annotations

import sqlite3
from hashlib import sha256
from pathlib import Path
from typing import Any

import psycopg
import pytest

import everstep
from everstep.errors import DamagedRun, InvalidArgument
from everstep.queues.outbox import carry_out
from everstep.testing.postgres import Server


@everstep.workflow
def queued_twice(number: int) -> int:
    return number * 2


def tables(file: Path) -> list[str]:
    with sqlite3.connect(file) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]


def test_in_a_sqlite_file_of_ones_own_it_happens_with_the_commit(store: everstep.Store, work: Any, tmp_path: Path) -> None:
    file = tmp_path / "app.db"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE sales (n INTEGER)")
    work(store, orders_in=[file])
    connection.execute("INSERT INTO sales VALUES (1)")
    handle = store.enqueue(queued_twice, 4, connection=connection)
    assert handle.wait(0.3).status == "queued"
    connection.commit()
    assert handle.wait(30).result == 8
    assert connection.execute("SELECT count(*) FROM sales").fetchone() == (1,)
    connection.close()


def test_what_is_taken_back_never_was(store: everstep.Store, tmp_path: Path) -> None:
    file = tmp_path / "app.db"
    connection = sqlite3.connect(file)
    lost = store.enqueue(queued_twice, 4, connection=connection)
    connection.rollback()
    kept = store.enqueue(queued_twice, 5, connection=connection)
    connection.commit()
    store.worker(orders_in=[file, tmp_path / "nothing.db"]).run(until_idle=True)
    assert (lost.wait(0).status, kept.wait(0).result) == ("queued", 10)
    assert [run.id for run in store.runs()] == [kept.id]
    assert connection.execute("SELECT count(*) FROM everstep_orders").fetchone() == (0,)
    connection.close()


def test_an_order_that_is_carried_out_twice_makes_one_run(store: everstep.Store, tmp_path: Path) -> None:
    file = tmp_path / "app.db"
    connection = sqlite3.connect(file)
    store.enqueue(queued_twice, 4, id="one", connection=connection)
    connection.execute("INSERT INTO everstep_orders (run, body, digest) SELECT run, body, digest FROM everstep_orders")
    connection.commit()
    store.worker(orders_in=[file]).run(until_idle=True)
    assert [(run.id, run.status) for run in store.runs()] == [("one", "succeeded")]
    connection.close()


def test_orders_that_nothing_can_come_of_are_told_and_hold_up_nobody(store: everstep.Store, heard: list[Any], tmp_path: Path) -> None:
    file = tmp_path / "app.db"
    connection = sqlite3.connect(file)
    store.enqueue(queued_twice, 1, id="taken")
    store.enqueue(queued_twice, 2, id="taken", connection=connection)
    store.enqueue(queued_twice, 3, id="damaged", connection=connection)
    connection.execute("UPDATE everstep_orders SET body = zeroblob(length(body)) WHERE run = 'damaged'")
    connection.execute(
        "INSERT INTO everstep_orders (run, body, digest) VALUES ('foreign', ?, ?)", (b"no frame", sha256(b"no frame").digest())
    )
    store.enqueue(queued_twice, 4, id="good", connection=connection)
    connection.commit()
    store.worker(orders_in=[file], tell=heard.append).run(until_idle=True)
    assert {(said["run"], said["code"]) for said in heard if said["event"] == "refused"} == {
        ("taken", "E203"),
        ("damaged", "E500"),
        ("foreign", "E500"),
    }
    assert {run.id: run.status for run in store.runs()} == {"taken": "succeeded", "good": "succeeded"}
    connection.close()


def test_an_order_stays_where_it_is_while_the_store_is_damaged(
    store: everstep.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = sqlite3.connect(tmp_path / "app.db")
    store.enqueue(queued_twice, 6, id="ordered", connection=connection)
    connection.commit()

    def damaged(commit: Any) -> None:
        raise DamagedRun("the page that the row is to go to cannot be read")

    with monkeypatch.context() as patch:
        patch.setattr(store.backend, "commit", damaged)
        with pytest.raises(DamagedRun):
            list(carry_out(store, [tmp_path / "app.db"]))
    assert [done.error for done in carry_out(store, [tmp_path / "app.db"])] == [None]
    assert store.get("ordered").status == "queued"
    connection.close()


def test_what_is_no_connection_is_refused(store: everstep.Store) -> None:
    with pytest.raises(InvalidArgument):
        store.enqueue(queued_twice, 4, connection=object())
    assert list(store.runs()) == []


def test_in_the_database_of_the_store_it_happens_with_the_commit(place: str, database: str) -> None:
    with everstep.open(place) as store, psycopg.connect(database) as connection:
        lost = store.enqueue(queued_twice, 3, connection=connection)
        connection.rollback()
        handle = store.enqueue(queued_twice, 4, connection=connection)
        store.worker().run(until_idle=True)
        assert (handle.wait(0).status, handle.status) == ("queued", "queued")
        connection.commit()
        store.worker().run(until_idle=True)
        assert handle.wait(0).result == 8
        assert lost.wait(0).status == "queued"
        assert store.backend.orders(10) == []


def test_a_long_transaction_that_has_enqueued_holds_up_nobody(place: str, database: str, server: Server) -> None:
    with everstep.open(place) as store, everstep.open(place) as other, psycopg.connect(database) as connection:
        store.enqueue(queued_twice, 3, connection=connection)
        assert other.start(queued_twice, 4).result == 8
        other.enqueue(queued_twice, 5)
        other.worker().run(until_idle=True)
        connection.rollback()
