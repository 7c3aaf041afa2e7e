"""For the tests of transactional steps."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from transactional_helpers import KINDS, World, make_world


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    server = None if request.param == "sqlite" else request.getfixturevalue("server")
    made = make_world(request.param, tmp_path, server)
    yield made
    made.close()
    for url in {made.url, made.tables}:
        if url.startswith("postgresql"):
            server.drop(url)
