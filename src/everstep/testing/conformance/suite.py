"""What all capabilities share: the store under test, and short ways to fill it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from everstep.backends.base import Backend, Commit
from everstep.records import Record, RunRow
from everstep.testing.rows import new_run, next_commit

OpenHandle = Callable[[], Backend]


class Suite:
    """What all capabilities share: the store under test."""

    @pytest.fixture
    def open_handle(self) -> OpenHandle:
        raise NotImplementedError("override the fixture open_handle: a function that opens a handle on one and the same store")

    @pytest.fixture
    def backend(self, open_handle: OpenHandle) -> Iterator[Backend]:
        backend = open_handle()
        yield backend
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
    def names(found: list[tuple[int, RunRow]]) -> list[str]:
        return [row.id for _, row in found]

    @staticmethod
    def numbers(found: list[Record]) -> list[int]:
        return [record.number for record in found]
