"""Parts shared by all suites: the store under test, and short ways to fill it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from everstep.backends.contract.capability import CAPABILITIES, has, methods
from everstep.backends.contract.core import Backend, Commit, Query
from everstep.records import ZERO, Record, RunRow, property_check, shift
from everstep.testing.rows import new_run, next_commit

OpenHandle = Callable[[], Backend]


class Offered:
    """A backend as a suite sees it: a test that uses a missing capability is skipped."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        if name == "submit" and not hasattr(self._backend, name):
            pytest.skip("needs `submit`")
        for capability in CAPABILITIES:
            if name in methods(capability) and not has(self._backend, capability):
                pytest.skip(f"needs the capability {capability.__name__.lower()!r}")
        return getattr(self._backend, name)


class Suite:
    """Base of all suites: the store under test."""

    @pytest.fixture
    def open_handle(self) -> OpenHandle:
        raise NotImplementedError("override the fixture open_handle: it must return a function that opens another handle on the same store")

    @pytest.fixture
    def backend(self, open_handle: OpenHandle) -> Iterator[Backend]:
        backend = open_handle()
        yield cast(Backend, Offered(backend))
        backend.close()

    @staticmethod
    def create(backend: Backend, name: str | None = None, checkpoints: int = 0, **fields: object) -> RunRow:
        row = new_run(name, **fields)
        backend.commit(Commit(row, None))
        for _ in range(checkpoints):
            row = Suite.advance(backend, row)
        return row

    @staticmethod
    def advance(backend: Backend, was: RunRow, body: bytes = b"state", **fields: object) -> RunRow:
        commit = next_commit(was, body, **fields)
        backend.commit(commit)
        return commit.run

    @staticmethod
    def computed(backend: Backend) -> bytes:
        """Return the expected sum of the manifest."""
        checks = [tombstone.check for tombstone in backend.tombstones()]
        checks += [property_check(name, value) for name, value in backend.properties().items()]
        for _, row in backend.runs(Query()):
            mark = backend.pruned(row.id)
            checks += [row.check, *(tag.check for tag in backend.tags(row.id)), *(message.check for message in backend.messages(row.id))]
            checks += [*([] if mark is None else [mark.check]), *(base.check for base in backend.bases(row.id))]
        return shift(ZERO, [], checks)

    @staticmethod
    def names(found: list[tuple[int, RunRow]]) -> list[str]:
        return [row.id for _, row in found]

    @staticmethod
    def numbers(found: list[Record]) -> list[int]:
        return [record.number for record in found]
