"""A store with a few runs in a folder of its own, made once and copied for each test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_helpers import PROGRAMS, Shop, copy, fill

from everstep.runtime import workflow


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    (folder / ".everstep").mkdir()
    fill(folder / ".everstep" / "store.db")
    return folder


@pytest.fixture(autouse=True)
def _workflows_of_the_programs() -> None:
    """The commands of a process import cli_programs.py once. Tests of other folders may have defined workflows of the same names since."""
    for module in [one for one in list(sys.modules.values()) if getattr(one, "__file__", None) == str(PROGRAMS)]:
        workflow._known.update({flow.name: flow for flow in vars(module).values() if isinstance(flow, workflow.Workflow)})


@pytest.fixture
def empty(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Shop]:
    """A folder without a store; commands in this process run in it."""
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "EVERSTEP_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    made = Shop(tmp_path, capsys)
    yield made
    made.stop()


@pytest.fixture
def shop(template: Path, empty: Shop) -> Shop:
    """A folder with the store."""
    copy(template, empty.folder)
    return empty
