"""The expected content of a store, in plain dicts: the model that the machine compares with. Knows the rules of loops, steps, gates and
retention; touches no store.

A loop resumes from its resume point, the newest checkpoint that its program asked for. Later records are replayed when it is opened: a step
that is called again returns its recorded result and does not run.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

PROTECTED = frozenset({"milestone", "release", "backup"})
OVER = frozenset({"succeeded"})


@dataclass
class Saved:
    """One checkpoint."""

    state: Any
    counts: dict[str, int]
    tags: set[str] = field(default_factory=set)
    pruned: bool = False


@dataclass
class Entry:
    """One run. `live` is the state of its open handle, None while it is not open."""

    saved: list[Saved] = field(default_factory=list)
    base: int = 0
    first: Any = field(default_factory=dict)
    live: Any = None
    aside: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    journal: list[tuple[str, Any]] = field(default_factory=list)
    """The address and result of every step that ran."""
    mark: int = 0
    """How much of the journal is before the resume point."""
    played: dict[str, Any] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)
    unheard: set[str] = field(default_factory=set)
    """Gates that were answered while a handle was open, which may not have noticed yet."""
    status: str = "running"
    parent: tuple[int, int] | None = None
    serial: int = 0

    def opened(self) -> Any:
        """Return the state with which the run resumes."""
        self.live = copy.deepcopy(self.saved[self.base - 1].state if self.base else self.first)
        self.counts = dict(self.saved[self.base - 1].counts) if self.base else {}
        self.aside = {}
        self.played = dict(self.journal[self.mark :])
        self.status = "running"
        self.unheard.clear()
        return self.live

    def save(self, tags: tuple[str, ...] = (), asked_for: bool = True) -> int:
        self.saved.append(Saved(copy.deepcopy(self.live), dict(self.counts), set(tags)))
        if asked_for:
            self.base, self.mark = len(self.saved), len(self.journal)
        return len(self.saved)

    def lost(self) -> None:
        """Note that its process died."""
        self.live = None

    def address(self, name: str) -> str:
        number = self.counts.get(name, 0)
        self.counts[name] = number + 1
        return f"{name}#{number}"

    def step(self, name: str, result: Any) -> tuple[Any, bool]:
        """Return the result of a step's call, and whether it runs."""
        address = self.address(name)
        if address in self.played:
            return self.played[address], False
        self.journal.append((address, result))
        return result, True

    def tagged(self, tag: str) -> int:
        return max((n for n, saved in enumerate(self.saved, 1) if tag in saved.tags), default=0)

    def newest_kept(self, count: int) -> set[int]:
        return set(range(max(1, len(self.saved) - count + 1), len(self.saved) + 1))


class Model:
    """All runs, in the order of their creation."""

    def __init__(self) -> None:
        self.runs: dict[str, Entry] = {}
        self._made = 0

    def add(self, name: str, entry: Entry) -> Entry:
        self._made += 1
        entry.serial = self._made
        self.runs[name] = entry
        return entry

    def must_stay(self, name: str, keep_last: int, tagged: bool) -> set[int]:
        """Return the checkpoints that no prune may drop."""
        entry = self.runs[name]
        stay = entry.newest_kept(max(1, keep_last)) | ({entry.base} if entry.base else set())
        stay |= {n for n, saved in enumerate(entry.saved, 1) if saved.tags & PROTECTED or (tagged and saved.tags)}
        stay |= {child.parent[1] for child in self.runs.values() if child.parent is not None and child.parent[0] == entry.serial}
        return {n for n in stay if not entry.saved[n - 1].pruned}
