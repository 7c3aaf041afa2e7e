"""A standby, a read-only role, a statement-mode pooler and an emptied table are named as what they are."""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlsplit

import psycopg
import pytest

import everstep
from everstep.errors import Damaged, NotAStore, ReadOnly, StoreError
from everstep.testing.postgres import Server, _as_nobody

POOLER = shutil.which("pgbouncer") or ""
SETTINGS = """
[databases]
* = host={server}
[pgbouncer]
pool_mode = statement
listen_addr =
listen_port = 5432
unix_socket_dir = {folder}
auth_type = trust
auth_file = {folder}/users
ignore_startup_parameters = options
"""


def write(store: everstep.Store, name: str = "r") -> None:
    with store.run(name, state={"n": 1}) as run:
        run.checkpoint()


def use(place: str) -> None:
    with everstep.open(place) as store:
        store.events()
        write(store, "s")


@everstep.step(transactional=True)
def w9_inside(tx: psycopg.Connection) -> int:
    tx.execute("SELECT 1")
    return 1


def test_a_standby_is_called_a_standby() -> None:
    with Server.start(fsync=False) as server:
        if not server.own:
            pytest.skip("the server that TEST_POSTGRES_URL names cannot be made a standby")
        url, empty = server.database(), server.database()
        with everstep.open(url) as store:
            write(store)
            before = len(store.events())
        server.halt()
        signal = Path(dict(parse_qsl(urlsplit(url).query))["host"]) / "data" / "standby.signal"
        signal.touch()
        server.start_again()
        with everstep.open(url) as store:
            assert store.load("r") == {"n": 1}
            assert len(store.events()) == before
            for change in (lambda: write(store, "s"), lambda: store.tag("r", "seen"), lambda: store.cleanup()):
                with pytest.raises(ReadOnly) as caught:
                    change()
                assert "the server is a standby" in caught.value.message
                assert "target_session_attrs=read-write" in caught.value.remedy
        with pytest.raises(ReadOnly, match="the server is a standby"):
            everstep.open(empty)


def test_a_read_only_setting_is_called_so(server: Server, place: str, database: str) -> None:
    with everstep.open(place) as store:
        write(store)
    name = urlsplit(database).path.lstrip("/")
    server.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    try:
        with everstep.open(place) as store, pytest.raises(ReadOnly) as caught:
            write(store, "s")
    finally:
        server.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
    assert "this session is read-only" in caught.value.message
    assert "default_transaction_read_only" in caught.value.remedy


@pytest.fixture
def statements(database: str) -> Iterator[str]:
    """The address of the database through a pooler that gives each statement another session."""
    if not POOLER:
        pytest.skip("pgbouncer is not installed: apt-get install pgbouncer")
    parts = urlsplit(database)
    with tempfile.TemporaryDirectory(prefix="pooler") as name:
        folder = Path(name)
        folder.chmod(0o777)
        (folder / "users").write_text('"postgres" ""\n')
        (folder / "settings").write_text(SETTINGS.format(server=dict(parse_qsl(parts.query))["host"], folder=folder))
        with (folder / "log").open("w") as log:
            process = subprocess.Popen([POOLER, folder / "settings"], stdout=log, stderr=log, **_as_nobody())
        while not (folder / ".s.PGSQL.5432").exists():
            assert process.poll() is None, (folder / "log").read_text()
            time.sleep(0.02)
        yield f"postgresql://postgres@{parts.path}?host={quote(str(folder), safe='')}"
        process.terminate()
        process.wait()


def test_a_statement_mode_pooler_is_named(place: str, statements: str) -> None:
    through = f"{statements}&schema={place.rpartition('schema=')[2]}"
    with pytest.raises(StoreError, match="statement pooling mode") as caught:
        everstep.open(through)
    assert "pool_mode = transaction" in caught.value.remedy
    with everstep.open(place):
        pass
    with everstep.open(through) as store, pytest.raises(StoreError, match="statement pooling mode") as caught, store.run("r"):
        w9_inside()
    assert "pool_mode = transaction" in caught.value.remedy


@pytest.mark.parametrize("table", ["counters", "manifest", "feed_end", "format"])
@pytest.mark.parametrize("how", ["TRUNCATE", "DROP TABLE"])
def test_a_truncated_or_dropped_table_is_named(server: Server, place: str, database: str, table: str, how: str) -> None:
    schema = place.rpartition("schema=")[2]
    with everstep.open(place) as store:
        write(store)
    server.execute(f'{how} "{schema}".{table}', url=database)
    with pytest.raises((Damaged, NotAStore), match=table):
        use(place)
