"""Every test stands in an empty folder of its own, and the environment has no settings."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from everstep.config.find import variables


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in variables(list(os.environ)):
        monkeypatch.delenv(name)
    return folder
