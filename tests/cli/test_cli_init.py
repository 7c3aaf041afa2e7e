"""`everstep init` creates the store that all other commands use here, and commands that begin something create it themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_helpers import PROGRAMS, Shop


def test_init_creates_the_store_of_the_environment(empty: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERSTEP_STORE", "other.db")
    assert "everstep init" in empty.call("runs").err
    assert empty.json("init") == {"store": "other.db", "new": True, "config": None}
    empty.call("runs").ok()
    assert not empty.path.exists()
    assert empty.json("init")["new"] is False


def test_init_creates_the_store_of_the_configuration(empty: Shop) -> None:
    (empty.folder / "everstep.toml").write_text('store = "conf.db"\n')
    assert "everstep init" in empty.call("runs").err
    empty.call("init").ok()
    empty.call("runs").ok()
    assert (empty.folder / "conf.db").exists()
    assert not empty.path.exists()


def test_init_creates_the_store_of_the_configuration_in_a_subfolder_too(empty: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    (empty.folder / "everstep.toml").write_text('store = "conf.db"\n')
    (empty.folder / "sub").mkdir()
    monkeypatch.chdir(empty.folder / "sub")
    empty.call("init").ok()
    empty.call("runs").ok()
    assert (empty.folder / "conf.db").exists()


def test_a_folder_or_a_store_that_is_named_comes_before_the_configuration(empty: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERSTEP_STORE", "other.db")
    empty.call("init", ".").ok()
    assert empty.path.exists()
    empty.call("init", "-s", "third.db").ok()
    assert (empty.folder / "third.db").exists()
    assert not (empty.folder / "other.db").exists()


def test_init_without_a_configured_store_creates_one_in_this_folder(empty: Shop) -> None:
    (empty.folder / "everstep.toml").write_text("[retention]\nkeep_last = 3\n")
    empty.call("init").ok()
    assert empty.path.exists()


def test_init_creates_the_tables_in_a_database(empty: Shop, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERSTEP_STORE", place)
    missing = empty.call("runs")
    assert missing.code != 0
    assert "Create its tables: `everstep init`" in missing.err
    assert empty.json("init")["new"] is True
    assert empty.json("init")["new"] is False
    empty.call("runs").ok()
    assert not empty.path.exists()


def test_limits_and_schedules_create_the_store_as_enqueue_does(empty: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert empty.call("limit", "items").code != 0  # only asks
    assert not empty.path.exists()
    empty.call("limit", "items", "--rate", "8/1s").ok()
    assert empty.path.exists()
    monkeypatch.setenv("EVERSTEP_STORE", str(tmp_path / "second.db"))
    empty.call("schedule", "report", f"{PROGRAMS}:hello", "--cron", "0 9 * * *").ok()
    assert [one["name"] for one in empty.json("schedules")] == ["report"]
