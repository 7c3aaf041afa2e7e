"""For the tests of outages: a wire to the server that breaks at a chosen message."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from outage_wire import Outage


@pytest.fixture
def outage(place: str) -> Iterator[Outage]:
    with tempfile.TemporaryDirectory(prefix="wire") as folder:  # the name of a socket has a limit
        wire = Outage(place, Path(folder))
        yield wire
        wire.close()
