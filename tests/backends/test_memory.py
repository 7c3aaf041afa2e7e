"""The memory backend passes the suite."""

import pytest

from everstep.backends.registry import open_backend
from everstep.ids import new_id
from everstep.testing.conformance import ConformanceSuite, OpenHandle


class TestMemory(ConformanceSuite):
    @pytest.fixture
    def open_handle(self) -> OpenHandle:
        name = new_id()
        return lambda: open_backend(f"memory://{name}")
