"""Fills a store with commits through its backend, all in flight at once: executing real runs would take minutes."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from everstep.backends.contract.core import Backend, Commit, Outcome


def submit_all(backend: Backend, commits: Iterable[Commit]) -> None:
    """Submit all and wait until the last one is settled; raises the first error."""
    settled, errors = threading.Semaphore(0), []

    def done(outcome: Outcome) -> None:
        if isinstance(outcome, BaseException):
            errors.append(outcome)
        settled.release()

    submitted = 0
    for commit in commits:
        backend.submit(commit, done)
        submitted += 1
    for _ in range(submitted):
        settled.acquire()
    if errors:
        raise errors[0]
