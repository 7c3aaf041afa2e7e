"""The PostgreSQL backend passes the suite."""

import pytest

from everstep.backends.registry import open_backend
from everstep.testing.conformance import ConformanceSuite, OpenHandle


class TestPostgres(ConformanceSuite):
    @pytest.fixture
    def open_handle(self, emptied: str) -> OpenHandle:
        return lambda: open_backend(emptied)
