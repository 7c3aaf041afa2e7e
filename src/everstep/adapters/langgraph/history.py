"""Reads the checkpoints of threads: one by its id, the newest, a list, and what delta channels need. Writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata, CheckpointTuple, DeltaChannelHistory, PendingWrite

import everstep
from everstep.adapters.langgraph.layout import ADAPTER, EMPTY, ID, METADATA, NS, PARENT, ns_of, part
from everstep.adapters.langgraph.pending import PREFIX, pending_writes
from everstep.adapters.langgraph.runs import adopt, newest, refuse_foreign
from everstep.errors import NotFound

Decode = Callable[[Any], Any]
_PAGE = 100


def config_of(run: str, ns: str, id: str) -> RunnableConfig:
    """Return the config that names a checkpoint. The id of a run is its thread's, quoted; `ns` is as it is stored."""
    return {"configurable": {"thread_id": everstep.unquote(run), "checkpoint_ns": ns_of(ns), "checkpoint_id": id}}


class History:
    """The stored checkpoints of a store's threads."""

    def __init__(self, store: everstep.Store, decode: Decode):
        self._store = store
        self._decode = decode

    def get(self, thread: str, ns: str, id: str | None) -> CheckpointTuple | None:
        """Return a checkpoint, or the newest of a namespace."""
        found = self.find(thread, ns, id)
        if found is None:
            return None
        for checkpoint, state in self._store.states(thread, first=found.number, last=found.number):
            return self._tuple(thread, checkpoint, state)
        return None

    def find(self, thread: str, ns: str, id: str | None) -> everstep.Checkpoint | None:
        """Return the record of a checkpoint, or of the newest one of a namespace."""
        found = newest(self._store, thread, ns) if id is None else self.by_id(thread, id, {NS: ns})
        if found is None and self._adopted(thread):
            found = newest(self._store, thread, ns) if id is None else self.by_id(thread, id, {NS: ns})
        return found

    def by_id(self, thread: str, id: str, more: Mapping[str, Any] | None = None) -> everstep.Checkpoint | None:
        try:
            found = self._store.checkpoints(thread, meta={ID: id, **(more or {})}, limit=1)
        except NotFound:
            return None
        return found[0] if found else None

    def matching(
        self, thread: str, ns: str | None, id: str | None, wanted: Mapping[str, Any], before: str | None, limit: int | None
    ) -> Iterator[CheckpointTuple]:
        """Yield the checkpoints of a thread that match, newest first."""
        meta = {**({} if ns is None else {NS: ns}), **({} if id is None else {ID: id})}
        below = None if before is None else self.by_id(thread, before)
        left = -1 if limit is None else limit
        for page in self._pages(thread, meta):
            numbers = {
                one.number for one in page
                if ID in one.meta
                and (before is None or (one.number < below.number if below is not None else one.meta[ID] < before))
            }  # fmt: skip
            if not numbers:
                continue
            for checkpoint, state in self._store.states(thread, first=min(numbers), last=max(numbers), shared=True):
                if checkpoint.number not in numbers:
                    continue
                if left == 0:
                    return
                if self._matches(checkpoint, state, wanted):
                    left -= 1
                    yield self._tuple(thread, checkpoint, state)

    def _pages(self, thread: str, meta: dict[str, Any]) -> Iterator[Any]:
        filters: dict[str, Any] = {"limit": _PAGE, **({"meta": meta} if meta else {})}
        while True:
            try:
                page = self._store.checkpoints(thread, **filters)
            except NotFound:
                return
            yield page
            if page.next is None:
                return
            filters["after"] = page.next

    def threads(self) -> Iterator[str]:
        """Yield all threads of the store, newest first."""
        after: Any = None
        while True:
            page = self._store.runs(meta=ADAPTER, limit=_PAGE, **({} if after is None else {"after": after}))
            yield from [one.id for one in page]
            after = page.next
            if after is None:
                return

    def deltas(self, thread: str, ns: str, id: str | None, channels: Sequence[str]) -> dict[str, DeltaChannelHistory]:
        """Return the writes to delta channels since their last full values, oldest first, along the parents of a checkpoint."""
        writes: dict[str, list[PendingWrite]] = {channel: [] for channel in channels}
        seeds: dict[str, Any] = {}
        start = self.find(thread, ns, id)
        wanted: Any = None
        if start is not None:
            for checkpoint, state in self._store.states(thread, last=start.number, shared=True):
                if checkpoint.number == start.number:
                    wanted = part(state, ns)[1].get(PARENT)
                    continue
                if wanted is None:
                    break
                if checkpoint.meta.get(ID) != wanted or checkpoint.meta.get(NS) != ns:
                    continue
                self._collect(thread, checkpoint, state, [channel for channel in channels if channel not in seeds], writes, seeds)
                wanted = part(state, ns)[1].get(PARENT)
                if len(seeds) == len(set(channels)):
                    break
        out: dict[str, DeltaChannelHistory] = {}
        for channel in channels:
            out[channel] = {"writes": writes[channel][::-1]}
            if channel in seeds:
                out[channel]["seed"] = seeds[channel]
        return out

    def _collect(
        self,
        thread: str,
        checkpoint: everstep.Checkpoint,
        state: Any,
        channels: Sequence[str],
        writes: dict[str, Any],
        seeds: dict[str, Any],
    ) -> None:
        for write in reversed(self.writes(thread, checkpoint.number)):
            if write[1] in channels:
                writes[write[1]].append(write)
        values, _ = part(state, checkpoint.meta[NS])
        for channel in channels:
            if channel in values:
                seeds[channel] = self._decode(values[channel])

    def writes(self, thread: str, number: int) -> list[PendingWrite]:
        """Return the pending writes of a checkpoint."""
        return pending_writes(self._store.attached(thread, number, prefix=PREFIX), self._decode)

    def _tuple(self, thread: str, checkpoint: everstep.Checkpoint, state: Any) -> CheckpointTuple:
        meta = checkpoint.meta
        ns, id = meta[NS], meta[ID]
        values, stored = part(state, ns)
        about = self._decode(dict(stored))
        metadata, parent = about.pop(METADATA), about.pop(PARENT)
        about.pop(EMPTY)
        about["channel_values"] = self._decode(values)
        return CheckpointTuple(
            config_of(thread, ns, id),
            cast(Checkpoint, about),
            cast(CheckpointMetadata, metadata),
            None if parent is None else config_of(thread, ns, parent),
            self.writes(thread, checkpoint.number),
        )

    def _matches(self, checkpoint: everstep.Checkpoint, state: Any, wanted: Mapping[str, Any]) -> bool:
        metadata = self._decode(part(state, checkpoint.meta[NS])[1].get(METADATA) or {}) if wanted else {}
        return all(key in metadata and metadata[key] == value for key, value in wanted.items())

    def _adopted(self, run: str) -> bool:
        """Refuse a run that is not a thread; adopt a fork of a thread that has no labels yet."""
        try:
            refuse_foreign(self._store, run)
            return newest(self._store, run, "") is None and adopt(self._store, run)
        except NotFound:
            return False
