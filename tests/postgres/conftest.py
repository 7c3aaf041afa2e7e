"""For the tests of the PostgreSQL backend: a wire that can be cut, and programs in processes of their own."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from children import children
from pg_proxy import Proxy


@pytest.fixture
def wire(place: str) -> Iterator[Proxy]:
    """Between the store and its server. Its folder has a short name: that of a socket has a limit."""
    with tempfile.TemporaryDirectory(prefix="wire") as folder:
        proxy = Proxy(place, Path(folder))
        yield proxy
        proxy.close()


child = pytest.fixture(children, name="child")
