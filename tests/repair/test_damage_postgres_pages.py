"""Pages of a PostgreSQL server that the disk lost: verify says so, and repair saves what the server can still read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pg_damage import ask
from repair_helpers import Judge, Truth, fill

import everstep
from everstep.errors import Damaged
from everstep.testing.postgres import Server
from harness.faults.workload import eager

PAGE = 8192


@pytest.fixture(scope="module")
def own() -> Iterator[Server]:
    with Server.start(fsync=False, autovacuum="off", jit="off") as server:
        if not server.own:
            pytest.skip("the disk of the server that TEST_POSTGRES_URL names is not ours to damage")
        yield server


@pytest.mark.parametrize("content", [b"\0", b"\xa5"], ids=["zeros", "garbage"])
@pytest.mark.parametrize("table", ["records", "runs", "chunks", "tags", "manifest", "pg_toast"])
def test_what_stands_beside_a_lost_page_is_saved(own: Server, tmp_path: Path, table: str, content: bytes) -> None:
    url = own.database()
    with everstep.open(url) as store, eager():
        fill(store)
        truth = Truth.of(store)
    kept = "everstep.chunks" if table == "pg_toast" else f"everstep.{table}"
    relation = f"(SELECT reltoastrelid::regclass FROM pg_class WHERE oid = '{kept}'::regclass)" if table == "pg_toast" else f"'{kept}'"
    ((name,),) = ask(url, f"SELECT pg_relation_filepath({relation})")
    ask(url, "CHECKPOINT")
    own.halt()
    assert own._folder is not None
    with (own._folder / "data" / name).open("r+b") as file:
        file.write(content * PAGE)
    own.start_again()
    with everstep.open(url, create=False) as store:
        assert not store.verify("full").ok
        store.doctor()
    target = tmp_path / "new.db"
    done = everstep.repair(url, target)
    assert not done.ok
    assert Judge(truth, done, target).all() == []
    assert done.runs + sum(loss.what == "run" for loss in done.lost) >= 8
    own.drop(url)


def test_a_page_that_the_server_cannot_read_is_damage_to_a_reader(own: Server) -> None:
    url = own.database()
    with everstep.open(url) as store, store.run("r", state={"n": 1}) as run:
        run.checkpoint()
    ((name,),) = ask(url, "SELECT pg_relation_filepath('everstep.records')")
    ask(url, "CHECKPOINT")
    own.halt()
    assert own._folder is not None
    with (own._folder / "data" / name).open("r+b") as file:
        file.write(b"\xa5" * PAGE)
    own.start_again()
    with everstep.open(url, create=False) as store, pytest.raises(Damaged):
        store.load("r")
    own.drop(url)
