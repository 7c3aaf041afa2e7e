"""For the tests of workers: a store in SQLite and one in PostgreSQL, and workers in threads and in processes of their own."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from worker_helpers import Hand, Notes, Working

import everstep
from harness.faults import actor

actor.preload("pytest", "psycopg", "everstep.backends.postgres.backend", "everstep.queues.worker")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store may be opened, by many processes."""
    return str(tmp_path / "store.db") if request.param == "sqlite" else request.getfixturevalue("emptied")


@pytest.fixture
def store(url: str) -> Iterator[everstep.Store]:
    with everstep.open(url) as store:
        yield store
        found = store.verify("full")
        assert found.ok, str(found)


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(tmp_path / "notes")


@pytest.fixture
def working() -> Iterator[Callable[..., Working]]:
    """Starts workers in threads of this process; they stop at the end of the test."""
    started: list[Working] = []

    def start(store: everstep.Store, **options: Any) -> Working:
        started.append(Working(store, **options))
        return started[-1]

    yield start
    for one in started:
        one.stop()


@pytest.fixture
def hands(url: str, notes: Notes, tmp_path: Path) -> Iterator[Callable[..., Hand]]:
    """Starts workers in processes of their own; they are killed at the end of the test."""
    with ExitStack() as stack:

        def start(*flows: str, worker: dict[str, Any] | None = None, **options: Any) -> Hand:
            return stack.enter_context(Hand(url, notes.path, flows, worker or {}, options))

        yield start
