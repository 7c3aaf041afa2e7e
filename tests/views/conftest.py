"""Stores in memory and in a SQLite file, and what hides secrets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import everstep
from everstep.views.masking import Masking


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[everstep.Store]:
    with everstep.open("memory://" if request.param == "memory" else tmp_path / "store.db") as opened:
        yield opened


@pytest.fixture
def mask() -> Masking:
    return Masking()
