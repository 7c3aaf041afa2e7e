"""The PostgreSQL backend behind PgBouncer in transaction mode, which gives each transaction another session and forgets what was set in one."""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import pytest

import everstep
from everstep.backends.registry import open_backend
from everstep.errors import StoreError
from everstep.testing.conformance import FeedSuite, FencingSuite, GroupCommitSuite, LeaseSuite, OpenHandle, RunsSuite, SweepSuite
from everstep.testing.postgres import Server, _as_nobody

PROGRAM = shutil.which("pgbouncer") or ""
if not PROGRAM:
    pytest.skip("pgbouncer is not installed: apt-get install pgbouncer", allow_module_level=True)

SETTINGS = """
[databases]
* = host={server}
[pgbouncer]
pool_mode = transaction
listen_addr =
listen_port = 5432
unix_socket_dir = {folder}
auth_type = trust
auth_file = {folder}/users
server_reset_query = DISCARD ALL
server_reset_query_always = 1
"""


@pytest.fixture(scope="module")
def pooler(database: str) -> Iterator[str]:
    """The address of the database through a pooler."""
    parts = urlsplit(database)
    with tempfile.TemporaryDirectory(prefix="pooler") as name:
        folder = Path(name)
        folder.chmod(0o777)
        (folder / "users").write_text('"postgres" ""\n')
        (folder / "settings").write_text(SETTINGS.format(server=dict(parse_qsl(parts.query))["host"], folder=folder))
        with (folder / "log").open("w") as log:
            process = subprocess.Popen([PROGRAM, folder / "settings"], stdout=log, stderr=log, **_as_nobody())
        while not (folder / ".s.PGSQL.5432").exists():
            assert process.poll() is None, (folder / "log").read_text()
            time.sleep(0.02)
        yield f"postgresql://postgres@{parts.path}?host={quote(str(folder), safe='')}"
        process.terminate()
        process.wait()


class TestThroughAPooler(RunsSuite, FencingSuite, LeaseSuite, GroupCommitSuite, FeedSuite, SweepSuite):
    @pytest.fixture
    def open_handle(self, place: str, pooler: str) -> OpenHandle:
        return lambda: open_backend(pooler, schema=place.rpartition("schema=")[2])


def test_a_database_that_the_pooler_does_not_reach_is_said_to(pooler: str) -> None:
    with pytest.raises(StoreError):
        open_backend(pooler.replace("postgresql://postgres@/", "postgresql://postgres@/no_"), patience=0)


def test_transactional_steps_work_through_a_pooler(place: str, pooler: str, server: Server, database: str) -> None:
    name = place.rpartition("schema=")[2]
    server.execute(f"CREATE TABLE {name}_bank (n integer)", url=database)
    options = {"schema": name}
    with everstep.open(pooler, **options) as store:
        for where in (True, pooler):

            @everstep.step(transactional=where)
            def put(sql: Any, number: int) -> int:
                sql.execute(f"INSERT INTO {name}_bank VALUES (%s)", [number])
                if number == 7:
                    raise ValueError("no")
                return number

            with store.run(f"run-{where is True}") as run:
                assert run.map(put, range(6)) == list(range(6))
                with pytest.raises(ValueError, match="no"):
                    put(7)
    assert server.execute(f"SELECT count(*) FROM {name}_bank", url=database) == [(12,)]
    server.execute(f"DROP TABLE {name}_bank, everstep_steps, everstep_runs", url=database)
