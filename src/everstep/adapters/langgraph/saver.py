"""The checkpointer: `builder.compile(checkpointer=Saver())`. One thread is one run of the store; one checkpoint is one checkpoint of the run.

Thin: `thread` writes, `history` reads, `upkeep` deletes and copies, `values` converts. The async methods run the others in threads, where saves
that happen at the same time share one commit to disk.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import Context, copy_context
from functools import lru_cache, partial
from typing import Any
from uuid import uuid4

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import INTERRUPT

import everstep
from everstep.adapters.langgraph import gates, upkeep
from everstep.adapters.langgraph.history import History, config_of
from everstep.adapters.langgraph.layout import METADATA, redactor_of, stored_ns
from everstep.adapters.langgraph.thread import Thread
from everstep.adapters.langgraph.values import Values
from everstep.errors import InvalidArgument

_MOST_LIVE = 64  # threads whose state is held
_MOST_KNOWN = 4_096  # threads of which anything is known
_WORKERS = 32
_END: Any = object()
_DRIVER = "__everstep_driver"  # in a config: the driver that invoked the graph. LangGraph keeps keys with `__` out of the metadata
_quoted = lru_cache(_MOST_KNOWN)(everstep.quote)


class Saver(BaseCheckpointSaver[Any]):
    """Keeps the threads of LangGraph graphs in an Everstep store.

    `store` is an open store, or a url; by default the configured store. With `strict`, a stale writer gets Conflict instead of overwriting what
    another process has saved. `types` are the classes that values may have besides plain data, messages and LangGraph's own types. `workflow` is
    the label of the runs, for `everstep runs --workflow` and `resume`.
    """

    def __init__(
        self,
        store: everstep.Store | str | os.PathLike[str] | None = None,
        *,
        strict: bool = True,
        types: Iterable[type] = (),
        workflow: str = "langgraph",
    ):
        allowed = list(types)
        self._values = Values(allowed)
        super().__init__(serde=JsonPlusSerializer(allowed_msgpack_modules=None))
        self._owns = not isinstance(store, everstep.Store)
        self.store: everstep.Store = store if isinstance(store, everstep.Store) else everstep.open(store)
        self._redactor = redactor_of(self.store)
        self.strict = strict
        self.workflow = workflow
        self._history = History(self.store, self.decode)
        self._threads: OrderedDict[str, Thread] = OrderedDict()
        self._drivers: dict[str, Context] = {}
        self._lock = threading.Lock()
        # A pool of its own: tools that wait for a save may fill asyncio's, and the save would never start.
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="everstep-langgraph")

    def close(self) -> None:
        """Forget what this saver knows, and close the store if the saver has opened it."""
        with self._lock:
            threads, self._threads = list(self._threads.values()), OrderedDict()
        for thread in threads:
            thread.forget()
        self._pool.shutdown(wait=False)
        if self._owns:
            self.store.close()

    def __enter__(self) -> Saver:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    async def __aenter__(self) -> Saver:
        return self

    async def __aexit__(self, *problem: object) -> None:
        await asyncio.to_thread(self.close)

    def thread(self, id: str) -> Thread:
        """Return the thread whose run has this id, open for writing."""
        with self._lock:
            found = self._threads.get(id)
            if found is None:
                found = self._threads[id] = Thread(self.store, id, self.workflow, self.strict)
                if len(self._threads) > _MOST_LIVE:
                    self._make_room()
            self._threads.move_to_end(id)
            return found

    def _make_room(self) -> None:
        """Drop the state of threads that were not used for long, and forget idle ones altogether if there are too many."""
        names = list(self._threads)
        for id in names[:-_MOST_LIVE]:
            self._threads[id].rest()
        for id in names[:-_MOST_KNOWN]:
            if self._threads[id].is_idle:
                del self._threads[id]

    def answers(self, thread_id: str) -> dict[str, Any]:
        """Return the answers to the interrupts that a thread waits for: `graph.invoke(Command(resume=saver.answers(id)), config)`."""
        run = _quoted(str(thread_id))
        found = self._history.find(run, "", None)
        if found is None:
            return {}
        waiting = [one for _, channel, value in self._history.writes(run, found.number) if channel == INTERRUPT for one in value]
        return gates.answers(self.store, run, found.number, waiting)

    @contextmanager
    def driven(self) -> Iterator[dict[str, str]]:
        """Inside the driver of a run: give what to add to the config, so that all saves of the graph go through the driver's lease.

        LangGraph saves interrupts of parallel nodes in threads without the context of the caller.
        """
        mark = uuid4().hex
        self._drivers[mark] = copy_context()
        try:
            yield {_DRIVER: mark}
        finally:
            del self._drivers[mark]

    def _driver(self, config: RunnableConfig) -> Callable[..., Any]:
        """Return what calls a function in the context of the driver that the config names, or just calls it."""
        driver = self._drivers.get((config.get("configurable") or {}).get(_DRIVER, ""))
        return _call if driver is None else driver.copy().run

    def _where(self, config: RunnableConfig) -> tuple[str, str]:
        """Return the run of the thread, and the namespace as it is stored, that a config names."""
        conf = config.get("configurable") or {}
        thread = conf.get("thread_id")
        if thread is None or thread == "":
            raise InvalidArgument(
                "the config of a graph with a checkpointer must have a thread_id", remedy='{"configurable": {"thread_id": "order-7"}}'
            )
        return _quoted(str(thread)), self.stored_ns(conf.get("checkpoint_ns"))

    def stored_ns(self, ns: Any) -> str:
        """Return a namespace as it is stored."""
        return stored_ns(str(ns or ""), self._redactor)

    # Reading.

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint, or the newest one of the thread."""
        thread, ns = self._where(config)
        id = get_checkpoint_id(config)
        found = self._history.get(thread, ns, id)
        if found is not None or not id:
            self.thread(thread).was_read(ns, None if found is None else found.checkpoint["id"], asked=bool(id))
        return found

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, newest first: those of a thread, or of all threads."""
        conf: Mapping[str, Any] = {} if config is None else config["configurable"]
        threads = [_quoted(str(conf["thread_id"]))] if "thread_id" in conf else self._history.threads()
        bound = None if before is None else get_checkpoint_id(before)
        left = limit
        for thread in threads:
            ns = None if conf.get("checkpoint_ns") is None else self.stored_ns(conf["checkpoint_ns"])
            if bound is not None and ns is not None:
                self.thread(thread).was_read(ns, None, asked=True)
            for found in self._history.matching(thread, ns, conf.get("checkpoint_id"), filter or {}, bound, left):
                if bound is not None:
                    self.thread(thread).was_read(
                        self.stored_ns(found.config["configurable"]["checkpoint_ns"]), found.checkpoint["id"], asked=True
                    )
                left = None if left is None else left - 1
                yield found
            if left == 0:
                return

    def get_delta_channel_history(self, *, config: RunnableConfig, channels: Sequence[str]) -> Mapping[str, DeltaChannelHistory]:
        """Return the writes to delta channels since their last full values."""
        thread, ns = self._where(config)
        return self._history.deltas(thread, ns, get_checkpoint_id(config), channels) if channels else {}

    # Writing.

    def put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        """Save a checkpoint; when this returns, it is durable. Raise Conflict if the thread has moved on."""
        thread, ns = self._where(config)
        about: dict[str, Any] = {key: value for key, value in checkpoint.items() if key != "channel_values"}
        about[METADATA] = dict(get_checkpoint_metadata(config, metadata))
        parent = get_checkpoint_id(config) or None
        self._driver(config)(self.thread(thread).put, ns, parent, about, checkpoint["channel_values"], new_versions, self.encode)
        return config_of(thread, ns, checkpoint["id"])

    def put_writes(self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = "") -> None:
        """Save what a task has written, before its superstep ends. An interrupt becomes a question of the run."""
        thread, ns = self._where(config)
        id = get_checkpoint_id(config)
        if not id:
            raise InvalidArgument("put_writes needs the checkpoint_id of the checkpoint that the writes follow")
        if writes:
            self._driver(config)(self.thread(thread).put_writes, ns, id, list(writes), task_id, task_path, self.encode)

    # Deleting and copying.

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread with all that belongs to it."""
        run = _quoted(str(thread_id))
        upkeep.delete_thread(self.store, run)
        self.thread(run).forget()

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints that LangGraph made in runs with these ids, in all threads."""
        for thread in upkeep.delete_for_runs(self.store, run_ids):
            self.thread(thread).forget()

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread with its whole history."""
        target = _quoted(str(target_thread_id))
        upkeep.copy_thread(self.store, _quoted(str(source_thread_id)), target)
        self.thread(target).forget()

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete all checkpoints of threads but the newest of each namespace and what its delta channels need; or all, with "delete"."""
        for run in [_quoted(str(thread)) for thread in thread_ids]:
            upkeep.prune(self.store, run, strategy)
            self.thread(run).forget()

    # The same for asyncio.

    async def _in_pool(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        run = partial(copy_context().run, function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._pool, run)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        found: CheckpointTuple | None = await self._in_pool(self.get_tuple, config)
        return found

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        found = self.list(config, filter=filter, before=before, limit=limit)
        while (one := await self._in_pool(next, found, _END)) is not _END:
            yield one

    async def aget_delta_channel_history(self, *, config: RunnableConfig, channels: Sequence[str]) -> Mapping[str, DeltaChannelHistory]:
        found: Mapping[str, DeltaChannelHistory] = await self._in_pool(self.get_delta_channel_history, config=config, channels=channels)
        return found

    async def aput(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        made: RunnableConfig = await self._in_pool(self.put, config, checkpoint, metadata, new_versions)
        return made

    async def aput_writes(self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = "") -> None:
        await self._in_pool(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        await self._in_pool(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await self._in_pool(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self._in_pool(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await self._in_pool(self.prune, thread_ids, strategy=strategy)

    # Converting.

    def get_next_version(self, current: Any, channel: None = None) -> Any:
        """Return the version after another one: 1, 2, 3…, or in the form that LangGraph's own savers have given to a thread."""
        if current is None:
            return 1
        if isinstance(current, str):
            head, dot, tail = current.partition(".")
            return f"{int(head) + 1:032}{dot}{tail}"
        return current + 1

    def encode(self, value: Any, path: str) -> Any:
        """Return a value as it is stored; raise Unstorable if that is not possible."""
        return self._values.encode(value, path, self.serde)

    def decode(self, stored: Any) -> Any:
        """Return the value of stored data."""
        return self._values.decode(stored, self.serde)


def _call(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)
