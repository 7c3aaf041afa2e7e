"""The data of a store in memory, shared by its handles; and a copy of earlier data, to undo a commit. No backend logic here."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TypeVar

from everstep.backends.contract.core import Commit
from everstep.backends.memory.queues import MemoryQueues, Waiting
from everstep.errors import WrongSeal
from everstep.fields import Shape, field, replace
from everstep.records import ENCRYPTION, ZERO, Base, Message, Pruned, Record, RunRow, Seal, Tag, Tombstone, Worker, property_check, shift
from everstep.threads.guard import WRITER, Guard

K = TypeVar("K")
V = TypeVar("V")


class Run(Shape):
    """One run with its rows; `pk` is its cursor."""

    pk: int
    row: RunRow
    records: list[Record] = field(default_factory=list)
    tags: dict[tuple[str, int], Tag] = field(default_factory=dict)
    messages: dict[str, Message] = field(default_factory=dict)
    pruned: Pruned | None = None
    bases: dict[int, Base] = field(default_factory=dict)
    waiting: Waiting | None = None

    def checks(self) -> list[bytes]:
        """Return the checks of this run in the manifest."""
        mark = [] if self.pruned is None else [self.pruned.check]
        others = [*(tag.check for tag in self.tags.values()), *(message.check for message in self.messages.values())]
        return [self.row.check, *mark, *others, *(base.check for base in self.bases.values())]


class Data:
    """The data that the handles of one store share. Position n of the feed is `feed[n - 1]`: id and position of a run, seq of its record."""

    def __init__(self, seal: Seal) -> None:
        self.seal = seal
        self.lock = Guard(WRITER)
        self.runs: dict[str, Run] = {}
        self.chunks: dict[tuple[bytes, bytes], tuple[bytes, int]] = {}  # frame and stamp
        self.tombstones: list[Tombstone] = []
        self.properties: dict[str, str] = {}
        self.keys: dict[bytes, bytes] = {}
        self.writes = 0
        self.workers: dict[str, Worker] = {}
        self.total = ZERO
        self.last: str | None = None
        self.created = 0
        self.feed: list[tuple[str, int, int]] = []
        self.fed = 0
        self.queues = MemoryQueues()

    def note(self, name: str, value: str | None, seal: Seal) -> None:
        """Set a property; None removes it."""
        minus = [property_check(name, self.properties[name], seal)] if name in self.properties else []
        self.total = shift(self.total, minus, [] if value is None else [property_check(name, value, seal)])
        self.properties = {known: said for known, said in {**self.properties, name: value}.items() if said is not None}
        self.writes += 1


_named: dict[str, Data] = {}
_named_lock = threading.Lock()


def data_of(name: str | None, seal: Seal) -> Data:
    """Return a new store, or the one of this process that has a name. Refused if its digests were made with another seal."""
    with _named_lock:
        found = Data(seal) if name is None else _named.setdefault(name, Data(seal))
    if ENCRYPTION not in found.properties and found.seal(ZERO) != seal(ZERO):
        raise WrongSeal(f"memory://{name} must be opened with the key that it was created with, or without one if it had none")
    return found


_CHANGED = ("row", "messages", "pruned", "bases")  # parts of a run that a commit replaces and never changes in place


class Before:
    """The parts of a store that several commits touch, as they were before. The caller holds the store's lock."""

    def __init__(self, data: Data, commits: Sequence[Commit]) -> None:
        self._data = data
        self._runs = {commit.run.id: data.runs.get(commit.run.id) for commit in commits}
        self._parts = [(entry, _parts_of(entry)) for entry in self._runs.values() if entry is not None]
        touched = [(commit.run.family, digest) for commit in commits for digest, _ in commit.chunks]
        self._chunks = {key: data.chunks.get(key) for key in touched}
        self._fields = {name: getattr(data, name) for name in ("writes", "total", "last", "created", "fed")}
        self._keys = dict(data.keys)
        self._ticks = data.queues.ticks()

    def restore(self) -> None:
        data = self._data
        for entry, parts in self._parts:
            for name, part in parts.items():
                setattr(entry, name, part)
        _put_back(data.runs, self._runs)
        _put_back(data.chunks, self._chunks)
        vars(data).update(self._fields)
        data.keys = self._keys
        data.queues.set_ticks(self._ticks)


def _parts_of(entry: Run) -> dict[str, object]:
    """Return the parts of a run, with copies of those that a commit changes in place."""
    waiting = None if entry.waiting is None else replace(entry.waiting)
    kept = {name: getattr(entry, name) for name in _CHANGED}
    return {**kept, "records": list(entry.records), "tags": dict(entry.tags), "waiting": waiting}


def _put_back(stored: dict[K, V], before: dict[K, V | None]) -> None:
    for key, value in before.items():
        if value is None:
            stored.pop(key, None)
        else:
            stored[key] = value
