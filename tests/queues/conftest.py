"""A worker of this process, in a thread, that is stopped with its test; and what it was heard to say."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import everstep
from everstep.queues.worker import Worker

Start = Callable[..., Worker]


@pytest.fixture
def heard() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def work(heard: list[dict[str, Any]]) -> Iterator[Start]:
    """Starts workers: `work(store, queues=…)`."""
    started: list[tuple[Worker, threading.Thread]] = []

    def start(store: everstep.Store, **options: Any) -> Worker:
        worker = store.worker(tell=heard.append, **options)
        thread = threading.Thread(target=worker.run)
        thread.start()
        started.append((worker, thread))
        return worker

    yield start
    for worker, _ in started:
        worker.stop()
    for _, thread in started:
        thread.join()
