"""Text is UTF-8 on every connection, whatever the environment, the role or a user's function chose; other databases are refused at open."""

from pathlib import Path

import psycopg
import pytest

import everstep
from everstep.errors import UnsuitableEncoding
from everstep.testing.postgres import Server

NAME, NOTE, STEP = "r-日本-é", "naïve \U0001f600", "größe"
ENCODINGS = ["LATIN1", "SQL_ASCII", "EUC_JP", "UTF8"]


@everstep.workflow
def w9_encoded(word: str) -> str:
    return word * 2


def use(store: everstep.Store) -> None:
    """Write and read text of several scripts in every way that has an own connection."""
    with store.run(NAME, state={"word": "ü日"}) as run:
        run.checkpoint(note=NOTE, tags=["étape"])
        assert run.step(STEP, pow, 2, 3) == 8
    assert [run.id for run in store.runs(prefix="r-日")] == [NAME]
    assert [point.note for point in store.checkpoints(NAME)][-1] == NOTE
    assert {event.run for event in store.events()} == {NAME}
    handle = store.enqueue(w9_encoded, "日", id="queued-日")
    store.worker().run(until_idle=True)
    assert handle.wait(0).result == "日日"
    store.cleanup()
    report = store.verify("full")
    assert report.ok, report


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_PGCLIENTENCODING_changes_nothing(place: str, encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", encoding)
    with everstep.open(place) as store:
        use(store)


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_the_settings_of_the_address_and_the_role_change_nothing(server: Server, place: str, encoding: str) -> None:
    server.execute(f"ALTER ROLE postgres SET client_encoding = '{encoding}'")
    try:
        with everstep.open(f"{place}&client_encoding={encoding}&options=-c%20client_encoding%3D{encoding}") as store:
            use(store)
    finally:
        server.execute("ALTER ROLE postgres RESET client_encoding")


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII", "EUC_JP", "WIN1252"])
@pytest.mark.parametrize("create", [True, False])
def test_a_database_that_cannot_hold_every_text_is_refused_at_open(server: Server, encoding: str, create: bool) -> None:
    name = f"w9_{encoding.lower()}_{create}".lower()
    server.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'")
    try:
        with pytest.raises(UnsuitableEncoding) as caught:
            everstep.open(server.url(name), create=create)
        assert encoding in caught.value.message
        assert "createdb -E UTF8 -T template0" in caught.value.remedy
        assert server.execute("SELECT count(*) FROM pg_namespace WHERE nspname = 'everstep'", url=server.url(name)) == [(0,)]
    finally:
        server.drop(server.url(name))


@everstep.step(transactional=True, name=STEP + "日")
def w9_write(tx: psycopg.Connection) -> str:
    tx.execute("SET client_encoding = 'LATIN1'")
    return "日"


def test_a_function_that_sets_another_encoding_does_not_spoil_the_commit_of_its_step(place: str) -> None:
    with everstep.open(place) as store:
        with store.run(NAME):
            assert w9_write() == "日"
        assert [step.name for step in store.steps(NAME)] == [STEP + "日"]


def test_a_result_table_in_another_database_speaks_UTF8(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    url = server.database()

    @everstep.step(transactional=url, name=STEP + "本")
    def write_there(tx: psycopg.Connection) -> str:
        tx.execute("CREATE TABLE notes (note text)")
        tx.execute("INSERT INTO notes VALUES (%s)", ("日本",))
        tx.execute("SET client_encoding = 'LATIN1'")
        return "日"

    try:
        with everstep.open(str(tmp_path / "store.db")) as store, store.run(NAME):
            assert write_there() == "日"
        assert server.execute("SELECT note FROM notes", url=f"{url}&client_encoding=UTF8") == [("日本",)]
    finally:
        server.drop(url)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_run_is_enqueued_through_the_connection_of_a_caller_in_any_encoding(place: str, database: str, encoding: str) -> None:
    with everstep.open(place) as store, psycopg.connect(database, client_encoding=encoding) as connection:
        handle = store.enqueue(w9_encoded, "日", id="ordered-日本", connection=connection)
        connection.commit()
        store.worker().run(until_idle=True)
        assert (handle.id, handle.wait(0).result) == ("ordered-日本", "日日")
