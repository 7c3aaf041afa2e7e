"""The command line on an encrypted store: with its key, without one, and with another one. No output shows a key."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from filled import KEY, OTHER, WORD, fill

import everstep
from everstep.cli.main import main

WITH_VALUES = (
    ("show", "loop"), ("log", "loop"), ("state", "loop"), ("diff", "loop@11", "loop@12"), ("blame", "loop", "said"), ("events",), ("gc",),
    ("prune", "--keep-last", "1"), ("resume", "flow"), ("fork", "loop@12"), ("answer", "flow", "open", "yes"), ("tag", "loop@1", "x"),
    ("worker", "--until-idle"), ("verify", "--depth", "full"), ("delete", "loop", "--yes"), ("retry", "fails"), ("cancel", "flow"), ("schedules",),
)  # fmt: skip
"""Commands that need values or write."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("commands")
    (made / ".everstep").mkdir()
    with everstep.open(made / ".everstep" / "store.db", key=KEY) as store:
        fill(store, made, turns=12)
    return made


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, *words: str, key: bytes | None = None) -> tuple[int, str]:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "200")
    if key is None:
        monkeypatch.delenv("EVERSTEP_KEY", raising=False)
    else:
        monkeypatch.setenv("EVERSTEP_KEY", key.hex())
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(list(words))
    said = out.getvalue() + err.getvalue()
    for secret in (KEY, OTHER):
        assert secret.hex() not in said
    return code, said


def test_runs_are_listed_without_the_key(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, said = run(folder, monkeypatch, "runs")
    assert code == 0, said
    assert "loop" in said
    assert WORD not in said


def test_the_structure_is_verified_without_the_key(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, said = run(folder, monkeypatch, "verify")
    assert code == 0, said
    assert run(folder, monkeypatch, "doctor")[0] in (0, 6)


@pytest.mark.parametrize("words", WITH_VALUES, ids=" ".join)
def test_everything_else_asks_for_the_key(folder: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    code, said = run(folder, monkeypatch, *words)
    assert code != 0
    assert "E421" in said, said
    assert "EVERSTEP_KEY" in said
    assert WORD not in said


@pytest.mark.parametrize("words", [("runs",), ("verify",), ("doctor",), *WITH_VALUES], ids=" ".join)
def test_a_wrong_key_is_refused_by_each(folder: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    code, said = run(folder, monkeypatch, *words, key=OTHER)
    assert code != 0
    assert "E422" in said, said


def test_with_the_key_they_show_everything(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (("show", "loop"), ("log", "loop"), ("state", "loop"), ("diff", "loop@11", "loop@12"), ("blame", "loop", "said")):
        code, said = run(folder, monkeypatch, *words, key=KEY)
        assert code == 0, said
        assert WORD in said, words
    assert run(folder, monkeypatch, "verify", "--depth", "full", key=KEY)[0] == 0


def test_the_settings_never_show_the_key(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (("config", "show"), ("config", "show", "encryption.key"), ("--json", "config", "show"), ("config", "show", "--json")):
        _, said = run(folder, monkeypatch, *words, key=KEY)
        assert KEY.hex() not in said
