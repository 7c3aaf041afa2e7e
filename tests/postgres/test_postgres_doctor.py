"""The doctor looks at a PostgreSQL server: settings that lose saves, connections, clocks, leases of the dead; and what a server needs is said for a server."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from children import Child

import everstep
from everstep.ids import new_id
from everstep.store.verify.findings import Checkup
from everstep.store.verify.server import findings
from everstep.testing.clock import FakeClock
from everstep.testing.postgres import Server

NAMES = [
    "engine", "sync", "pages", "connections", "server clock", "wire", "transactions", "vacuum", "manifest", "clock", "unfinished runs",
    "leases", "size", "verify", "cleanup", "credentials",
]  # fmt: skip


@pytest.fixture(scope="module")
def safe_server() -> Iterator[Server]:
    with Server.start(fsync=True) as server:
        if not server.own:
            pytest.skip("the settings of the server that TEST_POSTGRES_URL names are not ours to change")
        yield server


@pytest.fixture
def safe_place(safe_server: Server) -> Iterator[str]:
    url = safe_server.database()
    yield url
    safe_server.drop(url)


def looked_at(url: str) -> Checkup:
    with everstep.open(url, create=False) as store:
        return store.doctor()


def test_a_healthy_server_has_nothing_but_good_findings(safe_place: str, safe_server: Server) -> None:
    with everstep.open(safe_place) as store:
        with store.run("r", state={"n": 1}) as run:
            run.checkpoint()
        store.verify("full")
        found = store.doctor()
    assert [finding.name for finding in found] == NAMES
    assert found.ok, str(found)
    assert all(finding.sentence and "None" not in finding.sentence and "SQLite" not in finding.sentence for finding in found)
    assert found["engine"].sentence.startswith("PostgreSQL ")
    assert "every commit is synced" in found["sync"].sentence


def test_a_plain_connection_is_never_called_encrypted(safe_place: str) -> None:
    everstep.open(safe_place).close()
    found = looked_at(safe_place)["wire"]
    assert (found.level, found.sentence) == ("ok", "the connection is not encrypted; the server sees it come from its own machine")


@pytest.mark.parametrize(
    ("encrypted", "local", "level", "said"),
    [(True, True, "ok", "is encrypted"), (True, False, "ok", "is encrypted"), (False, True, "ok", "not encrypted"), (False, False, "warn", "not encrypted")],
)  # fmt: skip
def test_only_a_plain_connection_from_another_machine_is_a_warning(encrypted: bool, local: bool, level: str, said: str) -> None:
    (found,) = findings({"encrypted": encrypted, "local": local})
    assert found.level == level
    assert said in found.sentence


def test_a_server_without_fsync_is_bad(place: str, server: Server) -> None:
    if not server.own:
        pytest.skip("the settings of the server that TEST_POSTGRES_URL names are not ours")
    everstep.open(place).close()
    found = looked_at(place)["sync"]
    assert found.level == "bad"
    assert "fsync = off" in found.sentence
    assert found.remedy == "Set fsync = on in postgresql.conf."


def test_a_user_whose_commits_need_not_wait_for_the_disk_waits_all_the_same(safe_place: str, safe_server: Server) -> None:
    everstep.open(safe_place).close()
    joint = "&" if "?" in safe_place else "?"
    assert looked_at(f"{safe_place}{joint}options=-csynchronous_commit%3Doff")["sync"].level == "ok"


def test_one_who_may_only_read_is_told_whom_to_ask(place: str, server: Server, database: str) -> None:
    everstep.open(place).close()
    schema, user = place.rpartition("=")[2], f"u_{new_id().lower()}".replace("-", "_")
    server.execute(f'CREATE ROLE "{user}" LOGIN', url=database)
    try:
        server.execute(f'GRANT USAGE ON SCHEMA "{schema}" TO "{user}"', url=database)
        server.execute(f'GRANT SELECT ON ALL TABLES IN SCHEMA "{schema}" TO "{user}"', url=database)
        joint = "&" if "?" in place else "?"
        found = looked_at(f"{place}{joint}user={user}")
        assert found["writing"].level == "warn"
        assert "rights" in str(found["writing"].remedy)
    finally:
        server.execute(f'DROP OWNED BY "{user}"', url=database)
        server.execute(f'DROP ROLE "{user}"', url=database)


def test_the_leases_of_the_dead_and_the_runs_that_they_left_are_named(place: str, child: Child) -> None:
    everstep.open(place).close()
    code = """
import everstep
store = everstep.open(sys.argv[1])
run = store.run("left", state={"n": 1}); run.__enter__(); run.checkpoint(); say("ready"); time.sleep(600)
"""
    process = child(code, place)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    assert looked_at(place)["leases"].level == "ok"
    process.send_signal(signal.SIGKILL)
    process.wait()
    found = looked_at(place)
    assert "left" in found["leases"].sentence
    assert "left" in found["unfinished runs"].sentence


def test_a_clock_that_differs_is_said_to(place: str) -> None:
    everstep.open(place).close()
    with FakeClock():
        found = looked_at(place)["server clock"]
    assert found.level == "warn"
    assert "seconds" in found.sentence


def test_a_transaction_that_somebody_forgot_is_seen(place: str) -> None:
    everstep.open(place).close()
    with psycopg.connect(place.replace("?schema=", "?application_name=").replace("&schema=", "&application_name=")) as forgotten:
        forgotten.execute("SELECT 1")
        with everstep.open(place) as store:
            told = store.backend.health()
    assert isinstance(told["oldest_seconds"], int)
    assert [f.level for f in findings({"oldest_seconds": told["oldest_seconds"]})] == ["ok"]
    assert [f.level for f in findings({"oldest_seconds": 7200})] == ["warn"]


@pytest.mark.parametrize(
    ("told", "name", "level"),
    [
        ({"full_page_writes": False}, "pages", "bad"),
        ({"connections": 95, "most_connections": 97}, "connections", "warn"),
        ({"clock_ahead_us": -5_000_000}, "server clock", "warn"),
        ({"encrypted": False}, "wire", "warn"),
        ({"dead_rows": 10, "live_rows": 10, "autovacuum": False}, "vacuum", "warn"),
        ({"dead_rows": 10**6, "live_rows": 10, "autovacuum": True}, "vacuum", "warn"),
    ],
)
def test_what_is_wrong_with_a_server_comes_with_a_remedy(told: dict[str, Any], name: str, level: str) -> None:
    (found,) = findings(told)
    assert (found.name, found.level) == (name, level)
    assert found.remedy


def test_a_store_whose_tables_are_damaged_is_looked_at_to_the_end(place: str, server: Server, database: str) -> None:
    with everstep.open(place) as store, store.run("r", state={"n": 1}) as run:
        run.checkpoint()
    schema = place.rpartition("=")[2]
    server.execute(f"UPDATE \"{schema}\".manifest SET total = 'NaN' WHERE bucket = 1", url=database)
    server.execute(f'DROP TABLE "{schema}".properties', url=database)
    found = looked_at(place)
    assert (found["manifest"].level, found["verify"].level) == ("bad", "bad")
    assert found["size"].level == "ok"
