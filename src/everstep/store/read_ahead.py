"""Reads a page of runs ahead of code that checks them one by one: a server then needs a few queries per page instead of several per run.

Replaces a backend in verify, gc and clean-up. Gathered data is slightly older than the backend's, but never older than the rows of the
page. On finding a fault, a caller calls `forget` and reads again. Writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

from everstep.backends.contract.core import Backend, Query
from everstep.backends.contract.types import Gathered
from everstep.errors import Damaged
from everstep.records import Base, Message, Pruned, Record, RunRow, Tag

AT_ONCE = 500


class Ahead:
    """A backend with data of some runs in memory. Every other call is passed to the backend itself."""

    def __init__(self, backend: Backend):
        self._backend = backend
        self._found = Gathered()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def load(self, page: Sequence[tuple[int, RunRow]], heads: bool = False) -> None:
        """Gather these runs and drop the previous ones; with `heads`, only the newest record of each, and no chunks.

        A backend without round trips gains nothing from this and gathers nothing.
        """
        gather = getattr(self._backend, "gather", None)
        self._found = Gathered()
        if gather is not None and page:
            with suppress(Damaged):  # single reads report the damage, and of which run
                self._found = gather(page, heads)

    def forget(self, run: str) -> bool:
        """Read this run from the backend itself from now on; return False if that was so before."""
        row = self._found.rows.pop(run, None)
        if row is None:
            return self._found.records.pop(run, None) is not None
        self._found.records.pop(run, None)
        self._found.sizes.pop(row.family, None)
        self._found.frames.pop(row.family, None)
        return True

    def run(self, run: str) -> RunRow | None:
        return self._found.rows.get(run) or self._backend.run(run)

    def runs(self, query: Query) -> list[tuple[int, RunRow]]:
        known = query.parent is not None and query.parent in self._found.rows and query.parent not in self._found.parents
        return [] if known else self._backend.runs(query)

    def tags(self, run: str, first: int | None = None, last: int | None = None, name: str | None = None) -> list[Tag]:
        if run in self._found.rows and first is None and last is None and name is None:
            return self._found.tags.get(run, [])
        return self._backend.tags(run, first, last, name)

    def messages(self, run: str) -> list[Message]:
        return self._found.messages.get(run, []) if run in self._found.rows else self._backend.messages(run)

    def pruned(self, run: str) -> Pruned | None:
        return self._found.marks.get(run) if run in self._found.rows else self._backend.pruned(run)

    def bases(self, run: str, upto: int | None = None) -> list[Base]:
        if run in self._found.rows and upto is None:
            return self._found.bases.get(run, [])
        return self._backend.bases(run, upto)

    def records(self, run: str, first: int, last: int, kinds: Sequence[str] | None = None, newest: int | None = None) -> list[Record]:
        found = self._found.records.get(run)
        if found is None or kinds is not None or newest is not None:
            return self._backend.records(run, first, last, kinds, newest)
        return [record for record in found if first <= record.seq <= last]

    def chunk_sizes(self, family: bytes) -> dict[bytes, int]:
        found = self._found.sizes.get(family)
        return self._backend.chunk_sizes(family) if found is None else found

    def chunks(self, family: bytes, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        found = self._found.frames.get(family)
        if found is None or not all(digest in found for digest in digests):
            return self._backend.chunks(family, digests)
        return {digest: found[digest] for digest in digests}


def ahead_of(backend: Backend) -> tuple[Ahead, Backend]:
    """Return the same object twice: as reader ahead, and typed as the backend that it replaces."""
    made = Ahead(backend)
    return made, cast(Backend, made)
