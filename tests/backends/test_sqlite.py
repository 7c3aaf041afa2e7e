"""The SQLite backend passes the suite."""

from pathlib import Path

import pytest

from everstep.backends.registry import open_backend
from everstep.testing.conformance import ConformanceSuite, OpenHandle


class TestSqlite(ConformanceSuite):
    @pytest.fixture
    def open_handle(self, tmp_path: Path) -> OpenHandle:
        return lambda: open_backend(tmp_path / "store.db")
