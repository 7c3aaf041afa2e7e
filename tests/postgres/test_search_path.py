"""A table, type or function of the same name elsewhere never takes the place of ours or of the server's, whatever the search path is."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg
import pytest

import everstep
from everstep.backends.postgres import format as postgres_format
from everstep.backends.postgres.connections.connect import Address
from everstep.testing.postgres import Server

EVIL = """
CREATE SCHEMA evil;
CREATE TABLE evil.runs (id text);
CREATE TABLE evil.pg_class (oid oid, relname name, relnamespace oid, relkind "char");
CREATE TABLE evil.pg_namespace (oid oid, nspname name);
CREATE TABLE evil.everstep_orders (id text);
CREATE FUNCTION evil.boom() RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'evil was called'; END $$;
CREATE FUNCTION evil.hashtextextended(text, integer) RETURNS bigint LANGUAGE sql AS $$ SELECT evil.boom(); SELECT 1::bigint $$;
CREATE FUNCTION evil.encode(bytea, text) RETURNS text LANGUAGE sql AS $$ SELECT evil.boom(); SELECT 'x'::text $$;
CREATE FUNCTION evil.substr(bytea, integer, integer) RETURNS bytea LANGUAGE sql AS $$ SELECT evil.boom(); SELECT ''::bytea $$;
CREATE FUNCTION evil.length(bytea) RETURNS integer LANGUAGE sql AS $$ SELECT evil.boom(); SELECT 1 $$;
CREATE FUNCTION evil.sha256(bytea) RETURNS bytea LANGUAGE sql AS $$ SELECT evil.boom(); SELECT ''::bytea $$;
CREATE FUNCTION evil.cardinality(bigint[]) RETURNS integer LANGUAGE sql AS $$ SELECT evil.boom(); SELECT 1 $$;
CREATE FUNCTION evil.current_setting(text) RETURNS text LANGUAGE sql AS $$ SELECT evil.boom(); SELECT 'off'::text $$;
CREATE FUNCTION evil.current_setting(text, boolean) RETURNS text LANGUAGE sql AS $$ SELECT evil.boom(); SELECT 'off'::text $$;
CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT evil.boom(); SELECT now() $$;
CREATE FUNCTION evil.pg_notify(text, text) RETURNS void LANGUAGE sql AS $$ SELECT evil.boom() $$;
CREATE FUNCTION evil.unnest(bytea[], text[]) RETURNS SETOF record LANGUAGE sql AS $$ SELECT evil.boom(); SELECT 1, 2 $$;
"""


@pytest.fixture
def hostile(server: Server, place: str, database: str) -> Iterator[str]:
    """A store whose database puts a hostile schema before everything else."""
    name = urlsplit(database).path.lstrip("/")
    server.execute(EVIL, url=database)
    server.execute(f'ALTER DATABASE "{name}" SET search_path = evil, pg_catalog, public')
    yield place
    server.execute(f'ALTER DATABASE "{name}" RESET search_path')
    server.execute("DROP SCHEMA evil CASCADE", url=f"{database}&options=-c%20search_path%3Dpublic")


@everstep.workflow
def w9_worked(n: int) -> int:
    return w9_transfer(n)


@everstep.step(transactional=True)
def w9_transfer(tx: psycopg.Connection, n: int) -> int:
    tx.execute("CREATE TEMP TABLE runs (id int) ON COMMIT DROP")
    tx.execute("CREATE TEMP TABLE text (id int) ON COMMIT DROP")
    tx.execute("CREATE TEMP TABLE pg_class (id int) ON COMMIT DROP")
    tx.execute("INSERT INTO runs VALUES (%s)", (n,))
    assert tx.execute("SHOW search_path").fetchone() == ("evil, pg_catalog, public",)
    return n * 2


def use(url: str) -> None:
    with everstep.open(url) as store:
        with store.run("r", state={"n": 1}, tags=["t"], meta={"k": 1}) as run:
            run.checkpoint(tags=["x"])
            run.step("pow", pow, 2, 3)
        assert store.start(w9_worked, 2).result == 4
        handle = store.enqueue(w9_worked, 3)
        store.worker().run(until_idle=True)
        assert handle.wait(0).result == 6
        assert len(store.events()) > 5
        store.prune(everstep.Retention(keep_last=1))
        store.cleanup()
        store.doctor()
        report = store.verify("full")
        assert report.ok, report


def test_a_hostile_search_path_changes_nothing(hostile: str) -> None:
    use(hostile)


def test_the_hostile_schema_is_one(hostile: str, database: str) -> None:
    """The canary: a statement that trusts the search path meets it."""
    with psycopg.connect(database, autocommit=True) as connection, pytest.raises(psycopg.errors.RaiseException, match="evil was called"):
        connection.execute("SELECT length('x'::bytea)")


def test_a_run_is_enqueued_through_a_connection_with_a_hostile_path(hostile: str, database: str) -> None:
    with everstep.open(hostile) as store, psycopg.connect(database) as connection:
        connection.execute("CREATE TEMP TABLE orders (id int)")
        handle = store.enqueue(w9_worked, 4, connection=connection)
        connection.commit()
        store.worker().run(until_idle=True)
        assert handle.wait(0).result == 8


def unguard(server: Server, place: str, database: str) -> None:
    """Make the functions of a store as they were before."""
    home = f"{database}&options=-c%20search_path%3Dpg_catalog"
    found = server.execute(
        "SELECT p.oid::regprocedure::text FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = %s AND proconfig IS NOT NULL",
        Address(place).schema,
        url=home,
    )
    assert len(found) >= 10
    for (function,) in found:
        server.execute(f"ALTER FUNCTION {function} RESET search_path", url=home)


def test_a_store_that_was_made_before_gets_guarded_functions_when_it_is_opened(server: Server, hostile: str, database: str) -> None:
    everstep.open(hostile).close()
    unguard(server, hostile, database)
    use(hostile)


def test_without_the_guard_the_hostile_schema_is_met(server: Server, hostile: str, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The canary of the functions."""
    everstep.open(hostile).close()
    unguard(server, hostile, database)
    monkeypatch.setattr(postgres_format, "_guard_functions", lambda *_: None)
    with everstep.open(hostile) as store, pytest.raises(psycopg.errors.RaiseException, match="evil was called"):
        store.start(w9_worked, 2).unwrap()
