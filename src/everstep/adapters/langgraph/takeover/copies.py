"""Takes over threads from LangGraph's own savers: each thread whole or not at all, compared with its source before it appears.

A thread is first written under a name of its own, then read back and compared checkpoint by checkpoint. Only when all threads are proved, they
get their ids. If anything fails, everything that was made is removed; after a kill, run it again: finished threads are recognized.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

import everstep
from everstep.adapters.langgraph.history import config_of
from everstep.adapters.langgraph.pending import entry_of
from everstep.adapters.langgraph.saver import Saver
from everstep.adapters.langgraph.takeover.readers import Source, Stored, open_source
from everstep.adapters.langgraph.values import watched
from everstep.errors import EverstepError, InvalidArgument

_STAGED = "langgraph-takeover."
_PAGE = 1_000
Tell = Callable[[str], None]


class Taken(NamedTuple):
    """The counts of what was taken over, and the threads that were there already."""

    threads: int
    checkpoints: int
    writes: int
    known: list[str]


def take_over(
    source: str,
    store: everstep.Store,
    *,
    types: Iterable[type] = (),
    threads: Iterable[str] = (),
    workflow: str = "langgraph",
    tell: Tell = lambda line: None,
) -> Taken:
    """Copy threads from a file of SqliteSaver or a database of PostgresSaver into a store."""
    allowed = list(types)
    serde = JsonPlusSerializer(allowed_msgpack_modules=[(cls.__module__, cls.__name__) for cls in allowed] or None)
    saver = Saver(store, strict=False, types=allowed, workflow=workflow)
    _remove_staged(store)
    try:
        with open_source(source, serde) as opened:
            return _Work(opened, saver, tell).all(list(threads))
    finally:
        _remove_staged(store)


def _remove_staged(store: everstep.Store) -> None:
    after: Any = None
    while True:
        page = store.runs(meta={"adapter": "langgraph"}, limit=_PAGE, **({} if after is None else {"after": after}))
        for one in page:
            if one.id.startswith(_STAGED):
                store.delete(one.id)
        after = page.next
        if after is None:
            return


class _Work:
    def __init__(self, source: Source, saver: Saver, tell: Tell):
        self._source = source
        self._saver = saver
        self._store = saver.store
        self._tell = tell
        self._checkpoints = self._writes = 0

    def all(self, wanted: list[str]) -> Taken:
        there = self._source.threads()
        missing = sorted(set(wanted) - set(there))
        if missing:
            raise InvalidArgument(f"the source has no thread {missing[0]!r}", remedy="Leave --thread out to take over all threads.")
        known: list[str] = []
        staged: dict[str, str] = {}
        for thread in wanted or there:
            if self._exists(thread):
                known.append(thread)
                continue
            staged[thread] = f"{_STAGED}{len(staged)}"
            self._write(thread, staged[thread])
            self._compare(thread, staged[thread])
            self._tell(f"{thread}: compared, equal")
        self._publish(staged)
        return Taken(len(staged), self._checkpoints, self._writes, known)

    def _publish(self, staged: dict[str, str]) -> None:
        """Give the threads their ids; take them back if one fails."""
        made: list[str] = []
        try:
            for thread, name in staged.items():
                self._store.copy(name, everstep.quote(thread))
                made.append(everstep.quote(thread))
        except BaseException:
            for run in made:
                self._store.delete(run)
            raise

    def _exists(self, thread: str) -> bool:
        """Whether the store has this thread already, with the same content."""
        if self._saver.get_tuple({"configurable": {"thread_id": thread}}) is None:
            return False
        try:
            self._compare(thread, thread)
        except EverstepError as error:
            raise InvalidArgument(
                f"the store already has a different thread {thread!r}; nothing was taken over",
                remedy="Delete it (saver.delete_thread), or take over other threads only: --thread ID.",
            ) from error
        return True

    def _write(self, thread: str, name: str) -> None:
        writer = self._saver.thread(everstep.quote(name))
        for one in self._read(thread):
            conf, parent = one.found.config["configurable"], one.found.parent_config
            ns, id = conf["checkpoint_ns"], conf["checkpoint_id"]
            config = config_of(everstep.quote(name), ns, "" if parent is None else parent["configurable"]["checkpoint_id"])
            self._saver.put(config, one.found.checkpoint, one.found.metadata, one.found.checkpoint["channel_versions"])
            number = writer.number_of(ns, id)
            assert number is not None
            for (task, path), writes in one.writes.items():
                stored = [(index, channel, self._saver.encode(value, channel)) for index, channel, value in writes]
                for entry, value in entry_of(task, path, stored).items():
                    writer.attach(number, entry, value)
                self._writes += len(writes)
            self._checkpoints += 1

    def _read(self, thread: str) -> list[Stored]:
        with watched() as blocked:
            found = list(self._source.checkpoints(thread))
        if blocked:
            raise InvalidArgument(
                f"thread {thread!r} has values of type {blocked[0]}, which would come back as plain data",
                remedy=f"Allow the type: --type {':'.join(blocked[0].rsplit('.', 1))}.",
            )
        return found

    def _compare(self, thread: str, name: str) -> None:
        """Compare each checkpoint of a thread with its source."""
        found = {_key(one): one for one in self._saver.list({"configurable": {"thread_id": name}})}
        expected = {_key(one.found): one.found for one in self._read(thread)}
        if set(found) != set(expected):
            raise InvalidArgument(f"thread {thread!r} has {len(expected)} checkpoints in the source and {len(found)} here")
        for key, one in expected.items():
            for what, a, b in _parts(one, found[key]):
                if not (a == b or self._saver.serde.dumps_typed(a) == self._saver.serde.dumps_typed(b)):
                    raise InvalidArgument(
                        f"{what} of checkpoint {key[1]} of thread {thread!r} differs from the source: {a!r:.100}, {b!r:.100}"
                    )


def _key(one: CheckpointTuple) -> tuple[str, str]:
    conf = one.config["configurable"]
    return conf["checkpoint_ns"], conf["checkpoint_id"]


def _parts(one: CheckpointTuple, other: CheckpointTuple) -> list[tuple[str, Any, Any]]:
    """Return what to compare of two checkpoints."""
    a, b = one.parent_config, other.parent_config
    return [
        ("the parent", a and a["configurable"]["checkpoint_id"], b and b["configurable"]["checkpoint_id"]),
        ("the state", dict(one.checkpoint), dict(other.checkpoint)),
        ("the metadata", dict(one.metadata), dict(other.metadata)),
        ("the pending writes", [list(write) for write in one.pending_writes or []], [list(write) for write in other.pending_writes or []]),
    ]
