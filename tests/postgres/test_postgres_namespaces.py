"""A namespace is a schema: a role that was given one can neither read nor write another, by our doors or by its own SQL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest
from psycopg import errors as pg

import everstep
from everstep.backends.postgres.connections.connect import Address
from everstep.errors import EverstepError, InvalidArgument
from everstep.ids import new_id
from everstep.testing.postgres import Server

TABLES = (
    "format", "runs", "run_tags", "run_meta", "records", "chunks", "tags", "messages", "pruned", "bases", "tombstones", "properties", "workers",
    "feed_new", "feed", "counters", "feed_end", "manifest",
)  # fmt: skip


@dataclass
class Tenant:
    role: str
    namespace: str
    address: str
    """Of the database, as this role."""

    @property
    def url(self) -> str:
        return f"{self.address}&namespace={self.namespace}"

    @property
    def schema(self) -> str:
        return f"everstep_{self.namespace}"


@pytest.fixture
def tenants(server: Server) -> Iterator[tuple[Tenant, Tenant]]:
    database = server.database()
    made: list[Tenant] = []
    for _ in range(2):
        name = f"t-{new_id().lower()}"
        role = name.replace("-", "_")
        tenant = Tenant(role, name, f"{database}{'&' if '?' in database else '?'}user={role}")
        server.execute(f'CREATE ROLE "{role}" LOGIN', url=database)
        server.execute(f'CREATE SCHEMA "{tenant.schema}" AUTHORIZATION "{role}"', url=database)
        with everstep.open(tenant.url) as store, store.run("r", state={"secret": name}, tags=["t"], meta={"k": 1}) as run:
            run.checkpoint(tags=["kept"])
        made.append(tenant)
    yield made[0], made[1]
    server.drop(database)
    for tenant in made:
        server.execute(f'DROP ROLE "{tenant.role}"')


def test_each_has_its_own_runs_under_the_same_ids(tenants: tuple[Tenant, Tenant]) -> None:
    for tenant in tenants:
        with everstep.open(tenant.address, namespace=tenant.namespace) as store:
            assert store.load("r") == {"secret": tenant.namespace}
            assert store.url.endswith(f"namespace={tenant.namespace}")
            assert len(store.runs()) == len({event.run for event in store.events()}) == 1
            assert store.verify("full").ok


def test_a_role_cannot_open_the_namespace_of_another(tenants: tuple[Tenant, Tenant]) -> None:
    ours, theirs = tenants
    for options in ({}, {"create": False}):
        with pytest.raises(EverstepError) as caught:
            everstep.open(ours.address, namespace=theirs.namespace, **options)
        assert "permission denied" in caught.value.message
        assert caught.value.remedy
    with pytest.raises(EverstepError):
        everstep.repair(f"{ours.address}&namespace={theirs.namespace}", ours.url.replace(ours.namespace, "new"))


def test_a_role_can_neither_read_nor_write_a_table_of_another(tenants: tuple[Tenant, Tenant]) -> None:
    ours, theirs = tenants
    with psycopg.connect(ours.address, autocommit=True) as connection:
        for table in TABLES:
            for sql in (
                'SELECT * FROM "{s}".{t}', 'DELETE FROM "{s}".{t}', 'INSERT INTO "{s}".{t} DEFAULT VALUES', 'TRUNCATE "{s}".{t}',
                'COPY "{s}".{t} TO STDOUT', 'DROP TABLE "{s}".{t}', 'ALTER TABLE "{s}".{t} ADD x int',
            ):  # fmt: skip
                with pytest.raises(pg.InsufficientPrivilege):
                    connection.execute(sql.format(s=theirs.schema, t=table).encode())
    with everstep.open(theirs.url) as store:
        assert store.verify("full").ok


def test_a_role_can_call_no_function_of_another(tenants: tuple[Tenant, Tenant], server: Server) -> None:
    ours, theirs = tenants
    database = ours.address.replace(f"user={ours.role}", "user=postgres") if server.own else ours.address
    found = server.execute(
        "SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = %s", theirs.schema, url=database
    )
    assert len(found) > 10
    with psycopg.connect(ours.address, autocommit=True) as connection:
        for call in ("settle_feed(5)", "durably()", "now_us()", "set_property(0::smallint, 'a', 'b', 'c')", "count(0::smallint, 1)"):
            with pytest.raises(pg.InsufficientPrivilege):
                connection.execute(f'SELECT "{theirs.schema}".{call}'.encode())
        with pytest.raises(pg.InsufficientPrivilege):
            connection.execute(f"SELECT nextval('\"{theirs.schema}\".commits')".encode())


def test_a_role_that_was_given_only_reading_of_another_namespace_reads_and_cannot_write(tenants: tuple[Tenant, Tenant]) -> None:
    ours, theirs = tenants
    with psycopg.connect(theirs.address, autocommit=True) as owner:
        owner.execute(f'GRANT USAGE ON SCHEMA "{theirs.schema}" TO "{ours.role}"'.encode())
        owner.execute(f'GRANT SELECT ON ALL TABLES IN SCHEMA "{theirs.schema}" TO "{ours.role}"'.encode())
    with everstep.open(ours.address, namespace=theirs.namespace) as store:
        assert store.load("r") == {"secret": theirs.namespace}
        with pytest.raises(EverstepError), store.run("new", state={}):
            raise AssertionError("it was created")
        with pytest.raises(EverstepError):
            store.delete("r")
    with everstep.open(theirs.url) as store:
        assert [info.id for info in store.runs()] == ["r"]


@pytest.mark.parametrize("name", ["", "Team", "a b", 'a"b', "a;b", "-a", "ä", "x" * 51, "a.b"])
def test_a_namespace_has_a_plain_name(name: str) -> None:
    with pytest.raises(InvalidArgument):
        Address("postgresql://h/d", namespace=name)


def test_a_namespace_and_a_schema_cannot_both_be_named() -> None:
    assert Address("postgresql://h/d?namespace=team-a").schema == "everstep_team-a"
    assert Address("postgresql://h/d?namespace=team-a", namespace="team-a").url == "postgresql://h/d?namespace=team-a"
    for url, options in (
        ("postgresql://h/d?namespace=a&schema=b", {}),
        ("postgresql://h/d?namespace=a", {"schema": "b"}),
        ("postgresql://h/d?namespace=a", {"namespace": "b"}),
    ):
        with pytest.raises(InvalidArgument):
            Address(url, **options)


@pytest.mark.parametrize("patience", [0, 0.5, 86_400])
def test_patience_is_at_most_a_day(patience: float) -> None:
    assert Address("postgresql://h/d", patience=patience).patience == patience
    for wrong in (-0.1, 86_400.1, "long", float("nan")):
        with pytest.raises(InvalidArgument, match="patience must be"):
            Address("postgresql://h/d", patience=wrong)  # type: ignore[arg-type]
