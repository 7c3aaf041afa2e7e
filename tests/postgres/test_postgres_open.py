"""How a store in PostgreSQL is opened: by many at once, with few rights, in a schema of its own, and what is refused."""

import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
import warm
from children import Child

import everstep
from everstep.backends.postgres.connections.connect import Address
from everstep.backends.registry import open_backend
from everstep.errors import InvalidArgument, NewerFormat, NotAStore, ReadOnly, StoreError, StoreUnreachable, UnknownBackend
from everstep.testing.conformance.suite import Suite
from everstep.testing.postgres import Server
from everstep.testing.rows import next_commit

create, advance = Suite.create, Suite.advance


def as_user(url: str, name: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{name}@"))


def schema_of(url: str) -> str:
    return url.rpartition("schema=")[2]


def test_twenty_processes_open_an_empty_database_at_once(place: str, child: Child) -> None:
    code = """
sys.stdin.readline()
backend = open_backend(sys.argv[1])
row = new_run(sys.argv[2]); backend.commit(Commit(row, None)); backend.commit(next_commit(row))
say("done"); backend.close()
"""
    processes = [child(code, place, f"r{n}") for n in range(20)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        out, _ = process.communicate(timeout=120)
        assert (process.returncode, out) == (0, "done\n")
    backend = open_backend(place)
    assert backend.manifest().runs == backend.manifest().created == backend.feed_end() == 20
    census = backend.census()
    assert (census.total, census.found_runs) == (census.found_total, 20)
    backend.close()


def test_a_store_of_a_newer_format_is_refused_and_left_alone(server: Server, place: str, database: str) -> None:
    open_backend(place).close()
    server.execute(f'UPDATE "{schema_of(place)}".format SET version = 99', url=database)
    with pytest.raises(NewerFormat):
        open_backend(place)
    assert server.execute(f'SELECT version FROM "{schema_of(place)}".format', url=database) == [(99,)]


def test_a_store_that_is_not_there_is_not_made_unless_asked(place: str) -> None:
    with pytest.raises(NotAStore) as caught:
        open_backend(place, create=False)
    assert caught.value.missing
    open_backend(place).close()
    open_backend(place, create=False).close()


def test_two_schemas_of_one_database_are_two_stores(place: str, server: Server, database: str) -> None:
    one, two = open_backend(place), open_backend(place.replace("schema=", "schema=other_"))
    create(one, "r")
    assert two.run("r") is None
    assert one.url != two.url
    one.close()
    two.close()
    server.execute(f'DROP SCHEMA "other_{schema_of(place)}" CASCADE', url=database)


@pytest.fixture
def user(server: Server, database: str) -> Any:
    name = "everstep_few_rights"
    server.execute(f'CREATE ROLE "{name}" LOGIN')
    server.execute(f'REVOKE CREATE ON DATABASE "{urlsplit(database).path[1:]}" FROM PUBLIC')
    yield name
    server.execute(f'DROP OWNED BY "{name}" CASCADE', url=database)
    server.execute(f'DROP ROLE "{name}"')


def test_one_who_may_not_make_a_schema_is_told_what_the_owner_has_to_do(server: Server, place: str, database: str, user: str) -> None:
    with pytest.raises(StoreError) as caught:
        open_backend(as_user(place, user))
    assert f'CREATE SCHEMA "{schema_of(place)}" AUTHORIZATION {user}' in caught.value.remedy
    server.execute(f'CREATE SCHEMA "{schema_of(place)}" AUTHORIZATION "{user}"', url=database)
    backend = open_backend(as_user(place, user))
    create(backend, "r", checkpoints=2)
    backend.close()


def test_the_rights_in_the_manual_are_enough_to_write_and_those_of_a_reader_to_read(
    server: Server, place: str, database: str, user: str
) -> None:
    owner = open_backend(place)
    row = create(owner, "r", checkpoints=2)
    schema = schema_of(place)
    server.execute(f'GRANT USAGE ON SCHEMA "{schema}" TO "{user}"', url=database)
    server.execute(f'GRANT SELECT ON ALL TABLES IN SCHEMA "{schema}" TO "{user}"', url=database)
    assert owner.feed_end() == 2
    reader = open_backend(as_user(place, user))
    row = advance(owner, row)
    assert reader.run("r") == row
    assert len(reader.feed(0, 9)) == 2, "what has no position yet is not shown to one who may not give it one"
    assert reader.health()["read_only"] is not None
    with pytest.raises(ReadOnly) as caught:
        advance(reader, row)
    assert caught.value.written == "no"
    server.execute(f'GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "{schema}" TO "{user}"', url=database)
    server.execute(f'GRANT USAGE ON ALL SEQUENCES IN SCHEMA "{schema}" TO "{user}"', url=database)
    row = advance(reader, row)
    assert (reader.feed_end(), reader.health()["read_only"]) == (4, None)
    reader.close()
    owner.close()


@pytest.mark.parametrize(
    "url",
    ["postgresql://h/d?schema=Bad", "postgresql://h/d?schema=pg_x", "postgresql://h/d?schema=a;b", "postgresql://h/d?nonsense=1"],
)
def test_an_address_that_makes_no_sense_is_refused_before_connecting(url: str) -> None:
    with pytest.raises(InvalidArgument):
        open_backend(url)


def test_a_schema_that_is_named_twice_must_be_the_same() -> None:
    assert Address("postgresql://h/d?schema=a", "a").schema == "a"
    with pytest.raises(InvalidArgument):
        Address("postgresql://h/d?schema=a", "b")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("postgresql://u:secret@h:5/d", "postgresql://u@h:5/d"),
        ("postgres://u:secret@h/d?sslmode=require&schema=x", "postgresql://u@h/d?sslmode=require&schema=x"),
        ("postgresql://u@h/d?password=secret", "postgresql://u@h/d"),
        ("postgresql:///d?host=/run/pg", "postgresql:///d?host=%2Frun%2Fpg"),
    ],
)
def test_a_password_is_never_shown(given: str, shown: str) -> None:
    assert Address(given).url == shown


def test_a_server_that_is_not_there_is_said_to_at_once() -> None:
    with pytest.raises(StoreUnreachable) as caught:
        everstep.open("postgresql://u:secret@127.0.0.1:1/d")
    assert caught.value.written == "no"
    assert "secret" not in str(caught.value)


def test_a_database_that_is_not_there_is_said_to(server: Server) -> None:
    with pytest.raises(StoreError) as caught:
        open_backend(server.url("nobody"))
    assert "nobody" in caught.value.message


def test_without_the_driver_it_says_what_to_install() -> None:
    code = """
import sys
sys.modules["psycopg"] = None
from everstep.backends.registry import open_backend
try: open_backend("postgresql://u:secret@h/d")
except Exception as error: print(type(error).__name__, error)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.startswith(UnknownBackend.__name__)
    assert "pip install 'everstep[postgres]'" in said
    assert "secret" not in said


def test_a_value_that_the_server_cannot_hold_is_refused_and_writes_nothing(place: str) -> None:
    backend = open_backend(place)
    row = create(backend, "r")
    before = backend.manifest()
    for fields in ({"note": "a\x00b"}, {"note": "\ud800"}, {"at": 2**63}):
        commit = next_commit(row, b"x")
        for name, value in fields.items():
            setattr(commit.records[0], name, value)
        with pytest.raises(InvalidArgument):
            backend.commit(commit)
    with pytest.raises(InvalidArgument):
        backend.run("a\x00b")
    assert backend.manifest() == before
    advance(backend, row)
    backend.close()


def test_a_forked_child_is_refused_and_the_parent_goes_on(place: str, child: Child) -> None:
    code = """
from everstep.errors import StoreClosed
backend = open_backend(sys.argv[1])
row = new_run("r"); backend.commit(Commit(row, None))
if (pid := os.fork()) == 0:
    try: backend.run("r")
    except StoreClosed: say("refused")
    own = open_backend(sys.argv[1]); say(own.run("r").id); own.close()
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
backend.commit(next_commit(row)); say("parent"); backend.close()
"""
    out, _ = child(code, place).communicate(timeout=60)
    assert out.split() == ["refused", "r", "parent"]


def everstep_says(*words: str) -> tuple[int, str]:
    done = warm.run([sys.executable, "-m", "everstep", *words], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_the_command_line_makes_a_store_looks_at_it_and_leaves_passwords_out(place: str) -> None:
    assert everstep_says("runs", "--store", place)[0] != 0, "nothing is made by looking"
    assert everstep_says("migrate", "--dry-run", "--store", place) == (0, "Would migrate the store from format 0 to format 1.\n")
    assert everstep_says("migrate", "--store", place) == (0, "Migrated the store from format 0 to format 1.\n")
    with everstep.open(place) as store, store.run("r", state={"n": 1}) as run:
        run.checkpoint(note="first")
    for words in (("runs",), ("show", "r"), ("log", "r"), ("verify", "--depth", "full"), ("doctor",), ("stats",), ("gc",), ("migrate",)):
        code, said = everstep_says(*words, "--store", place)
        assert code in (0, 6), said
    code, said = everstep_says("repair", "postgresql://u:secret@127.0.0.1:1/d", "out.db")
    assert code == 1, said
    assert "secret" not in said


def test_no_command_that_names_its_store_tells_the_password(place: str, tmp_path: Path) -> None:
    secret = place.replace("postgresql://postgres@", "postgresql://postgres:hidden@")
    for words in (("init", "--store", secret), ("init", "--json", "--store", secret), ("repair", secret, str(tmp_path / "new.db"))):
        code, said = everstep_says(*words)
        assert code == 0, said
        assert "postgresql://" in said
        assert "hidden" not in said
