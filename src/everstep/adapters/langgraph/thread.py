"""One thread of a graph, open for writing: a line of its run, and what this process knows about its checkpoints.

Each put is compared with the newest checkpoint of the run, so that two processes never overwrite each other unnoticed. In strict mode a
checkpoint must follow the newest one of its namespace, or one that was asked for by its id (time travel); otherwise its writer is stale and
gets Conflict. Subgraphs that belong to one call are left alone: the graph itself is checked. Threads of a process may share this.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.serde.types import INTERRUPT, RESUME

import everstep
from everstep.adapters.langgraph import channels, gates, layout
from everstep.adapters.langgraph.layout import ABOUT, ADAPTER, ID, NS
from everstep.adapters.langgraph.pending import Entries, entries_of
from everstep.adapters.langgraph.runs import newest, refuse_foreign
from everstep.errors import Conflict, NotFound, RunDeleted

_TRIES = 20
_MOST_KNOWN = 4_096
_NAP_SECONDS = 0.02
_GRACE_SECONDS = 2.0
_MOST_SECONDS = 60.0
_IDLE_SECONDS = 3_600.0


class Encode(Protocol):
    def __call__(self, value: Any, path: str, /) -> Any: ...


class Thread:
    """One thread that a saver writes to."""

    def __init__(self, store: everstep.Store, id: str, workflow: str, strict: bool):
        self.id = id
        self._store = store
        self._redactor = layout.redactor_of(store)
        self._workflow = workflow
        self._strict = strict
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._line: Any = None
        self._state: Any = None  # the live state that the mirrors belong to, and its number
        self._number = -1
        self._mirrors: dict[str, channels.Mirror] = {}
        self._heads: dict[str, str | None] = {}  # the newest checkpoint of a namespace, as of self._number
        self._numbers: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._asked: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._seen: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._found_empty: set[str] = set()
        self._asked_before_first: set[str] = set()
        self._early: dict[tuple[str, str], list[tuple[Entries, Any]]] = {}  # writes and interrupts that came before their checkpoint
        self._failed: tuple[float, BaseException] | None = None
        self._used = time.monotonic()

    # Reading.

    def was_read(self, ns: str, id: str | None, *, asked: bool) -> None:
        """Note that a checkpoint was read: by its id, or as the newest of its namespace. None: there was none."""
        with self._lock:
            self._used = time.monotonic()
            if id is None:
                (self._asked_before_first if asked else self._found_empty).add(ns)
                return
            _remember(self._seen, (ns, id), None)
            if asked:
                _remember(self._asked, (ns, id), None)
            else:
                self._asked.pop((ns, id), None)
                self._asked_before_first.discard(ns)

    # Writing.

    def put(
        self, ns: str, parent: str | None, about: dict[str, Any], values: Mapping[str, Any], new: Mapping[str, Any], encode: Encode
    ) -> None:
        """Append a checkpoint."""
        with self._changed:
            try:
                self._put(ns, parent, about, values, new, encode)
            except BaseException as error:
                self._forget()
                self._failed = (time.monotonic(), error)
                raise
            finally:
                self._changed.notify_all()

    def _put(
        self, ns: str, parent: str | None, about: dict[str, Any], values: Mapping[str, Any], new: Mapping[str, Any], encode: Encode
    ) -> None:
        id, metadata = about["id"], about[layout.METADATA]
        meta = layout.labels(ns, id, metadata)
        empty = layout.empty_channels(values)
        about = {**about, layout.PARENT: parent, layout.EMPTY: empty}
        values = {channel: value for channel, value in values.items() if channel not in empty} if empty else values
        for _ in range(_TRIES):
            line, state = self._live()
            self._refuse_stale(ns, parent, metadata)
            mirror = self._mirrors.setdefault(ns, channels.Mirror())
            note = self._write(state, ns, parent, about, values, new, mirror, encode)
            try:
                made = line.checkpoint(note=note, meta=meta)
            except Conflict:
                self._forget()
                continue
            self._number = made.number
            mirror.id, mirror.versions = id, dict(about["channel_versions"])
            self._heads[ns] = id
            _remember(self._numbers, (ns, id), made.number)
            _remember(self._seen, (ns, id), None)
            if not ns and parent is not None and metadata.get("source") in ("input", "update"):
                gates.close_all(self._store, line)
            for entries, interrupts in self._early.pop((ns, id), ()):
                line.attach_many(made.number, entries.values, replace=entries.replace)
                gates.ask(line, interrupts)
            return
        raise Conflict(
            f"thread {self.id!r} is being written by many processes at once: another one was first at each of {_TRIES} attempts",
            remedy="Try again.",
        )

    def _write(
        self, state: Any, ns: str, parent: str | None, about: dict[str, Any], values: Mapping[str, Any], new: Mapping[str, Any],
        mirror: channels.Mirror, encode: Encode,
    ) -> str:  # fmt: skip
        """Bring the live state up to date; return the note of the checkpoint."""
        versions = about["channel_versions"]
        if not ns:
            layout.forget_calls(state)
            for other in [other for other in self._mirrors if layout.TRANSIENT in other]:
                del self._mirrors[other]
        same: Callable[[str], bool] = lambda channel: mirror.unchanged(channel, parent, versions, new)  # noqa: E731
        channels.write(layout.place(state, ns), values, mirror, same, encode)
        ran = layout.nodes_that_ran(state.get(ABOUT, {}).get(ns, {}), about)
        layout.write_about(state, ns, encode(about, ABOUT), self._redactor)
        source = about[layout.METADATA].get("source")
        if source != "loop":
            return str(source or "checkpoint")[:200]
        if not ran:
            return "start"
        return (ran if not ns else f"{ns.partition(layout.TRANSIENT)[0]}: {ran}")[:500]

    def put_writes(self, ns: str, id: str, writes: Sequence[tuple[str, Any]], task: str, path: str, encode: Encode) -> None:
        """Attach the writes of a task to a checkpoint. If LangGraph has not saved it yet, they are saved together with it."""
        entries = entries_of(task, path, writes, encode if self._redactor is None else partial(self._masked, encode))
        special = {channel: value for channel, value in writes if channel in WRITES_IDX_MAP}
        with self._lock:
            number = self._numbers.get((ns, id)) or self.number_of(ns, id)
            if number is None:
                self._early.setdefault((ns, id), []).append((entries, special.get(INTERRUPT)))
                return
            line = self._line or self._open()
            taken: dict[str, bool] = {}
            if RESUME in special:  # it answers the interrupt that is stored, not one that comes with it
                taken = gates.taken(self._store.attached(self.id, number), task, special.get(INTERRUPT))
                gates.close(self._store, line, taken, special[RESUME])
            line.attach_many(number, {**entries.values, **taken}, replace=entries.replace)
            if INTERRUPT in special:
                gates.ask(line, special[INTERRUPT])

    def _masked(self, encode: Encode, value: Any, channel: str) -> Any:
        """Return what is stored of a write: a list holds it, so the store does not see its name."""
        assert self._redactor is not None
        hidden = value is not None and self._redactor.hides(channel, value)
        return encode(self._redactor.value({channel: value})[channel] if hidden else value, channel)

    def attach(self, number: int, name: str, value: Any) -> bool:
        """Attach a value to a checkpoint; return False if the name is taken."""
        with self._lock:
            line = self._open()
        return bool(line.attach(number, name, value))

    def wait_for(self, ns: str, id: str) -> int:
        """Return the number of a checkpoint that this process is saving, when it is durable."""
        end = time.monotonic() + _MOST_SECONDS
        with self._changed:
            found = self.number_of(ns, id)
            while found is None:
                now = time.monotonic()
                if self._failed is not None and self._failed[0] > now - _MOST_SECONDS and now - self._failed[0] > _GRACE_SECONDS:
                    raise self._failed[1]
                if now > end:
                    raise NotFound(f"checkpoint {id} of thread {self.id!r} was not saved within {_MOST_SECONDS:.0f} seconds")
                self._changed.wait(_NAP_SECONDS * 10)
                found = self._numbers.get((ns, id))
        return found

    def number_of(self, ns: str, id: str) -> int | None:
        """Return the number of a checkpoint; None if it does not exist."""
        with self._lock:
            known = self._numbers.get((ns, id))
            if known is not None:
                return known
            try:
                found = self._store.checkpoints(self.id, meta={ID: id, NS: ns}, limit=1)
            except NotFound:
                return None
            if not found:
                return None
            _remember(self._numbers, (ns, id), found[0].number)
            return found[0].number

    def rest(self) -> None:
        """Drop the live state, unless the thread is in use just now."""
        if self._lock.acquire(blocking=False):
            try:
                self._forget()
            finally:
                self._lock.release()

    @property
    def is_idle(self) -> bool:
        """Whether nothing would be lost if this object was forgotten: no write waits for its checkpoint."""
        return not self._early and self._line is None and time.monotonic() - self._used > _IDLE_SECONDS

    def forget(self) -> None:
        """Close the handle, and forget everything: the thread was deleted or changed."""
        with self._lock:
            self._forget()
            for known in (self._numbers, self._asked, self._seen, self._found_empty, self._asked_before_first, self._early):
                known.clear()

    # Knowing.

    def _open(self) -> Any:
        if self._line is None:
            line = self._store.line(self.id, workflow=self._workflow, meta=ADAPTER)
            if line.exists:
                refuse_foreign(self._store, self.id)
            self._line = line
        return self._line

    def _live(self) -> tuple[Any, Any]:
        """Return the line and its live state; what was remembered is dropped if it belongs to another state."""
        line = self._open()
        try:
            state, number = line.state, line.number
        except RunDeleted:
            self._forget()
            line = self._open()
            state, number = line.state, line.number
        if state is not self._state or number != self._number:
            self._mirrors.clear()
            self._heads.clear()
            self._state, self._number = state, number
        return line, state

    def _forget(self) -> None:
        if self._line is not None:
            self._line.close()
        self._line = self._state = None
        self._number = -1
        self._mirrors.clear()
        self._heads.clear()

    def _refuse_stale(self, ns: str, parent: str | None, metadata: Mapping[str, Any]) -> None:
        if not self._strict or layout.TRANSIENT in ns or metadata.get("source") == "fork":
            return
        head = self._newest(ns)
        if head is None or head == parent or (parent is not None and (ns, parent) in self._asked):
            return
        if parent is None and (ns in self._asked_before_first or (ns not in self._found_empty and (ns, head) in self._seen)):
            return  # the caller knows what is there
        follows = "is the first" if parent is None else f"follows {parent}"
        raise Conflict(
            f"thread {self.id!r} has moved on: the new checkpoint {follows}, but another process has saved {head}; nothing was written",
            remedy="Invoke the graph again: it continues from the newest checkpoint.",
            number=self._number,
        )

    def _newest(self, ns: str) -> str | None:
        if ns not in self._heads:
            found = newest(self._store, self.id, ns) if self._number > 0 else None
            self._heads[ns] = None if found is None else found.meta[ID]
        return self._heads[ns]


def _remember(known: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > _MOST_KNOWN:
        known.popitem(last=False)
