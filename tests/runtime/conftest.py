"""For the tests of the runtime: the colour of the program, and a store that is proved whole after every test."""

from collections.abc import Iterator
from typing import Any

import pytest
from runtime_driver import Driver

import everstep


@pytest.fixture(params=["sync", "async"])
def d(request: pytest.FixtureRequest) -> Driver:
    return Driver(request.param == "async")


@pytest.fixture
def store(places: Any) -> Iterator[everstep.Store]:
    store = places.open(checking=True)
    yield store
    found = store.verify("full")
    assert found.ok, str(found)
