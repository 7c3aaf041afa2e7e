"""A worker that starts while PostgreSQL is away waits as `patience` says, and then ends with its reason and an exit code."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import warm

import everstep
from everstep.errors import InvalidArgument, StoreUnreachable
from everstep.testing.postgres import Server

FLOW = """
import everstep


@everstep.workflow
def late(n):
    return everstep.current().step("double", lambda n: 2 * n, n)
"""


def worker(url: str, flow: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "everstep", "worker", "--store", url, "--import", str(flow), "--until-idle"]
    return warm.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    path = tmp_path / "late_flow.py"
    path.write_text(FLOW)
    return path


def test_a_worker_waits_for_its_server(flow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_POSTGRES_URL", raising=False)  # one of its own, which may be stopped
    with Server.start(fsync=False) as server:
        url = server.database()
        with everstep.open(url) as store:
            run = store.enqueue("late", 21)
        server.halt()
        with worker(f"{url}&patience=60", flow) as process:
            time.sleep(1.5)
            assert process.poll() is None, process.communicate()
            server.start_again()
            out, error = process.communicate(timeout=60)
        assert process.returncode == 0, error
        assert [json.loads(line)["data"]["event"] for line in out.splitlines()][-2:] == ["succeeded", "stopped"]
        with everstep.open(url) as store:
            assert store.get(run.id).status == "succeeded"


def test_a_worker_whose_server_stays_away_ends_with_its_reason(flow: Path) -> None:
    began = time.monotonic()
    with worker("postgresql://u@127.0.0.1:1/d?patience=1", flow) as process:
        _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "[E410]" in error
    assert time.monotonic() - began >= 1


def test_a_program_chooses_whether_opening_waits() -> None:
    began = time.monotonic()
    with pytest.raises(StoreUnreachable):
        everstep.open("postgresql://u@127.0.0.1:1/d", patience=5)
    assert time.monotonic() - began < 4
    with pytest.raises(StoreUnreachable):
        everstep.open("postgresql://u@127.0.0.1:1/d?patience=0.5", wait=True)
    assert time.monotonic() - began >= 0.5


@pytest.mark.parametrize("patience", ["soon", "-1", "nan", "1e9"])
def test_a_patience_that_is_no_time_is_refused(patience: str) -> None:
    with pytest.raises(InvalidArgument, match="patience must be a number of seconds"):
        everstep.open(f"postgresql://u@127.0.0.1:1/d?patience={patience}")
