from collections.abc import Iterator
from pathlib import Path

import pytest
from replay_helpers import Nursery, World


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.close()


@pytest.fixture
def world(nursery: Nursery, tmp_path: Path) -> Iterator[World]:
    """A store in a file, and processes that use it; what still lives at the end of the test is killed."""
    made = World(nursery, tmp_path)
    yield made
    made.close()
