"""`everstep encrypt` and `everstep rekey`: keys come from sources, are never shown, and every error says what to do."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

import everstep


@pytest.fixture
def here(tmp_path: Path) -> Path:
    with everstep.open(tmp_path / "s.db") as store:
        for n in range(3):
            with store.run(f"r{n}", state={"n": n}) as run:
                run.checkpoint()
    for name in ("one", "two"):
        (tmp_path / name).write_text(secrets.token_hex(32))
    return tmp_path


def _everstep(here: Path, *words: str, key: str = "", code: int = 0) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("EVERSTEP_")}
    done = subprocess.run(
        [sys.executable, "-m", "everstep", *words, "--store", "s.db"],
        cwd=here, env={**variables, **({"EVERSTEP_KEY": key} if key else {})}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    for name in ("one", "two"):
        assert (here / name).read_text() not in done.stdout + done.stderr
    return done


def test_a_store_is_encrypted_and_its_key_replaced(here: Path) -> None:
    done = _everstep(here, "encrypt", "--key-source", "file:one")
    assert "3 runs, 3 states compared" in done.stderr
    assert "s.db.plain-" in done.stderr
    _everstep(here, "state", "r1", code=1)
    assert json.loads(_everstep(here, "state", "r1", key="file:one").stdout) == {"n": 1}
    dry = _everstep(here, "rekey", "--key-source", "file:two", "--dry-run", key="file:one")
    assert "Would replace 4 of 4 keys" in dry.stderr
    assert "Replaced 4 of 4 keys" in _everstep(here, "rekey", "--key-source", "file:two", key="file:one").stderr
    assert "E423" in _everstep(here, "state", "r1", key="file:one", code=1).stderr
    assert json.loads(_everstep(here, "state", "r1", key="file:two").stdout) == {"n": 1}


def test_the_new_key_is_the_configured_one_and_the_former_is_in_old_keys(here: Path) -> None:
    _everstep(here, "encrypt", "--key-source", "file:one")
    (here / "everstep.toml").write_text('[encryption]\nkey = "file:two"\nold_keys = ["file:one"]\n')
    said = json.loads(_everstep(here, "rekey", "--json").stdout)
    assert (said["kind"], said["data"]["keys"], said["data"]["replaced"], said["data"]["dry_run"]) == ("rekey", 4, 4, False)
    assert json.loads(_everstep(here, "rekey", "--json").stdout)["data"]["replaced"] == 0
    (here / "everstep.toml").write_text('[encryption]\nkey = "file:two"\n')
    assert json.loads(_everstep(here, "state", "r1").stdout) == {"n": 1}


def test_a_former_key_can_be_named_beside_the_configuration(here: Path) -> None:
    _everstep(here, "encrypt", key="file:one")
    _everstep(here, "rekey", "--old-key-source", "file:one", key="file:two")
    _everstep(here, "state", "r1", key="file:two")


def test_a_wrong_former_key_is_refused_and_nothing_is_changed(here: Path) -> None:
    _everstep(here, "encrypt", key="file:one")
    (here / "three").write_text(secrets.token_hex(32))
    assert "E422" in _everstep(here, "rekey", "--key-source", "file:two", key="file:three", code=1).stderr
    _everstep(here, "state", "r1", key="file:one")


@pytest.mark.parametrize("command", ["encrypt", "rekey"])
def test_a_key_itself_is_refused_as_an_argument_and_not_repeated(here: Path, command: str) -> None:
    key = (here / "one").read_text()
    for given in (key, f"passphrase:{key}"):
        done = _everstep(here, command, "--key-source", given, code=2)
        assert "must not be an argument" in done.stderr


@pytest.mark.parametrize("command", ["encrypt", "rekey"])
def test_a_command_without_a_key_says_how_to_name_one(here: Path, command: str) -> None:
    assert "--key-source file:PATH" in _everstep(here, command, code=1).stderr


@pytest.mark.parametrize("command", ["encrypt", "rekey"])
def test_without_a_terminal_nothing_is_asked(here: Path, command: str) -> None:
    assert "no terminal" in _everstep(here, command, "--key-source", "ask", code=2).stderr


def test_shredding_needs_a_confirmation(here: Path) -> None:
    assert "--yes" in _everstep(here, "encrypt", "--key-source", "file:one", "--shred", code=2).stderr
    done = _everstep(here, "encrypt", "--key-source", "file:one", "--shred", "--yes")
    assert "An SSD" in done.stderr
    assert not list(here.glob("*.plain-*"))


def test_json_says_what_was_done(here: Path) -> None:
    said = json.loads(_everstep(here, "encrypt", "--key-source", "file:one", "--json").stdout)["data"]
    assert (said["runs"], said["states"], said["already"]) == (3, 3, False)
    again = json.loads(_everstep(here, "encrypt", "--key-source", "file:one", "--json").stdout)["data"]
    assert (again["already"], again["plain"]) == (True, said["plain"])


def test_a_plain_store_has_no_key_to_replace(here: Path) -> None:
    assert "everstep encrypt" in _everstep(here, "rekey", "--key-source", "file:one", code=1).stderr


def test_a_path_where_nothing_is_stays_empty(here: Path) -> None:
    (here / "s.db").unlink()
    for left in here.glob("s.db-*"):
        left.rmdir() if left.is_dir() else left.unlink()
    _everstep(here, "encrypt", "--key-source", "file:one", code=1)
    assert not (here / "s.db").exists()
