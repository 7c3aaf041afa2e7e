"""Shared by all tests: a store in memory or in a SQLite file, and hypothesis kept quick and repeatable."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import everstep
from everstep.runtime import signals
from everstep.runtime.context import frame

settings.register_profile(
    "suite", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.register_profile("search", parent=settings.get_profile("suite"), derandomize=False, max_examples=2000)
settings.load_profile(os.environ.get("EVERSTEP_HYPOTHESIS", "suite"))


@pytest.fixture(autouse=True)
def _outside_of_runs() -> Iterator[None]:
    """A test that leaves no run, as if its process had died, must not have the next one believe that it is inside of it."""
    yield
    frame.set(None)
    for run in list(signals._open):
        signals.unwatch(run)


class Places:
    """Opens stores of one kind in one place, again and again; closes those that a test left open."""

    def __init__(self, kind: str, folder: Path):
        self.kind = kind
        self.path = folder / "store.db"
        self._opened: list[everstep.Store] = []
        self._url = f"memory://{folder.name}-{os.getpid()}" if kind == "memory" else str(self.path)

    def open(self, **options: Any) -> everstep.Store:
        store = everstep.open(self._url, **options)
        self._opened.append(store)
        return store

    def close(self) -> None:
        for store in self._opened:
            store.close()
        if self.kind == "memory":
            from everstep.backends import memory

            memory._named.pop(self._url.removeprefix("memory://"), None)


@pytest.fixture(params=["memory", "sqlite"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Places]:
    """Where a store may be opened several times: `places.open(**options)`."""
    found = Places(request.param, tmp_path)
    yield found
    found.close()


@pytest.fixture
def store(places: Places) -> everstep.Store:
    return places.open(checking=True)
