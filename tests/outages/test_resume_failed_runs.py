"""Runs that an outage made fail before can be found and resumed in bulk, in code and on the command line."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import warm

import everstep
from everstep.errors import InvalidArgument, StoreUnreachable

AWAY = [True]


@everstep.workflow
def failed_before(how: str) -> str:
    run = everstep.current()
    first = run.step("first", lambda: "paid")
    if AWAY:
        try:
            raise StoreUnreachable("the server was away")  # what such a run ended with; it names no store, so it is an error like any other
        except StoreUnreachable as error:
            if how == "wrapped":
                raise RuntimeError("no luck") from error
            raise
    return first


@everstep.workflow
def failed_otherwise() -> None:
    raise ValueError("Store, Unreachable or not")


@pytest.fixture
def store(tmp_path: Path) -> Any:
    AWAY[:] = [True]
    with everstep.open(tmp_path / "s.db") as store:
        for how in ("plain", "wrapped"):
            assert store.start(failed_before, how, id=how).status == "failed"
        assert store.start(failed_otherwise, id="other").status == "failed"
        AWAY.clear()
        yield store


def test_failed_runs_are_found_by_their_error_and_resumed(store: everstep.Store) -> None:
    assert [run.id for run in store.failed_by("StoreUnreachable")] == ["plain", "wrapped"]
    assert [run.id for run in store.failed_by("StoreUnreachable", limit=1)] == ["plain"]
    assert store.resume_failed("StoreUnreachable") == ["plain", "wrapped"]
    store.worker().run(until_idle=True)
    store.wake()
    assert [store.get(run).status for run in ("plain", "wrapped", "other")] == ["succeeded", "succeeded", "failed"]
    assert [len(store.steps(run)) for run in ("plain", "wrapped")] == [1, 1]
    assert store.failed_by("StoreUnreachable") == []


def test_the_command_line_does_the_same(store: everstep.Store, tmp_path: Path) -> None:
    def call(*words: str) -> Any:
        command = [sys.executable, "-m", "everstep", *words, "--store", str(tmp_path / "s.db"), "--json"]
        done = warm.run(command, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)["data"]

    assert [run["id"] for run in call("runs", "--failed-by", "StoreUnreachable")["runs"]] == ["plain", "wrapped"]
    assert call("resume", "--failed-by", "StoreUnreachable")["runs"] == ["plain", "wrapped"]
    assert len(store.wake()) == 2


@pytest.mark.parametrize("error", ["", "a b", None, "Store.*"])
def test_a_name_that_is_no_class_is_refused(store: everstep.Store, error: Any) -> None:
    with pytest.raises(InvalidArgument, match="error must be the name of a class"):
        store.failed_by(error)
