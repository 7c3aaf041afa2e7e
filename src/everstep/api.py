"""The public face: `open` and `Store`. All the work is done below."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from everstep.backends.base import Backend
from everstep.backends.url import open_backend
from everstep.codec.frame import Compression, Framer
from everstep.errors import InvalidArgument
from everstep.runtime.lease import TTL_SECONDS, Keeper
from everstep.runtime.run import Durability, Run
from everstep.store.query import check_note, check_tags, check_text, to_meta
from everstep.store.store import BaseStore


class Store(BaseStore):
    """Durable runs and their states. Made by `everstep.open`; may be used by many threads."""

    def __init__(self, backend: Backend, *, lease_seconds: float = TTL_SECONDS, **options: Any):
        if not isinstance(lease_seconds, (int, float)) or not 0.01 <= lease_seconds <= 86_400:
            raise InvalidArgument(f"lease_seconds={lease_seconds!r:.60} is no number between 0.01 and 86,400")
        super().__init__(backend, **options)
        self._keeper = Keeper(backend, lease_seconds)

    def run(
        self,
        id: str | None = None,
        *,
        state: Any = None,
        workflow: str | None = None,
        tags: Iterable[str] | str = (),
        session: str | None = None,
        note: str | None = None,
        meta: Mapping[str, Any] | None = None,
        durability: Durability = "sync",
    ) -> Run:
        """Open a run for writing: `with store.run("id") as run`, or `async with`. A new one, or one that goes on from its head.

        `state` is the initial value of a run without checkpoints, and is copied; workflow, tags, session, note and meta describe a new run.
        """
        fields = {
            "workflow": check_text(workflow, "workflow"),
            "session": check_text(session, "session"),
            "tags": check_tags(tags),
            "note": check_note(note),
            "meta": to_meta(meta),
        }
        return Run(self, self._keeper, id, state, durability, fields)

    def __repr__(self) -> str:
        return f"<everstep.Store {self.url}>"

    def close(self) -> None:
        """Let go of the store. Open runs can no longer be saved."""
        self._keeper.close()
        super().close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Any:
        from everstep.runtime.aio import AsyncStore

        return AsyncStore(self, self.run)

    async def __aexit__(self, *problem: Any) -> None:
        import asyncio

        await asyncio.to_thread(self.close)


def open(
    url: str | os.PathLike[str] | None = None,
    *,
    compression: Compression = "zstd",
    level: int | None = None,
    threshold: int = 256,
    lease_seconds: float = TTL_SECONDS,
    checking: bool = False,
    **options: Any,
) -> Store:
    """Open a store: a path, sqlite:///path, memory://, or nothing for .everstep/store.db, found upward like .git.

    `compression` is none, zstd or gzip for content of `threshold` bytes or more; `checking` encodes every state twice and compares
    (slow, for tests); further options go to the backend.
    """
    Framer(compression, level, threshold)  # refuses bad choices before anything is opened
    backend = open_backend(url, **options)
    return Store(backend, lease_seconds=lease_seconds, compression=compression, level=level, threshold=threshold, checking=checking)
