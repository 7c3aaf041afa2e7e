"""Records the calls that a store's reads make to its backend, so that only reads that damage can affect are repeated.

The result of a read depends only on the answers of the backend, and an answer of SQLite only on the pages that it read. So a flip in one
page changes no answer that was made without this page, and no read whose answers are the same. This makes it possible to try every bit;
harnesses check on a sample that reading everything has the same result.

Relies on a good store; never writes to it.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import apsw

import everstep
from everstep.api import Store
from harness.faults.broken_backends import Wrapper
from harness.faults.damage.reads import Lines, Read, reads_of
from harness.faults.disk.vfs import RecordedFile

PAGE = 4096
_NAME = "everstep-recall"


@dataclass(slots=True)
class Call:
    """One call to a backend, the answer of the good store, and the reads that made it."""

    method: str
    args: tuple[Any, ...]
    options: dict[str, Any]
    answer: Any
    reads: set[str] = field(default_factory=set)

    def changed(self, backend: Any) -> bool:
        """Whether a backend gives another answer, or none."""
        try:
            return bool(getattr(backend, self.method)(*self.args, **self.options) != self.answer)
        except Exception:  # noqa: BLE001 - errors are checked when the reads are repeated
            return True


class _Asked(Wrapper):
    """Passes every call on and remembers it with its answer."""

    def __init__(self, backend: Any, calls: dict[str, Call]):
        super().__init__(backend)
        self._calls = calls
        self.reading = ""

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._backend, name)
        return partial(self._ask, name, real) if callable(real) else real

    def _ask(self, name: str, real: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
        answer = real(*args, **options)
        key = f"{name} {args!r} {options!r}"
        if key not in self._calls:
            self._calls[key] = Call(name, deepcopy(args), deepcopy(options), deepcopy(answer))
        self._calls[key].reads.add(self.reading)
        return answer


@dataclass(slots=True)
class Recall:
    """All reads of a good store, their results, and the calls behind them."""

    reads: dict[str, Read]
    good: dict[str, Lines]
    calls: list[Call]

    @classmethod
    def of(cls, store: everstep.Store) -> Recall:
        calls: dict[str, Call] = {}
        asked = _Asked(store.backend, calls)
        watched = Store(asked)
        reads, good = reads_of(store), {}
        for asked.reading, read in reads.items():
            good[asked.reading] = read(watched)
        return cls(reads, good, list(calls.values()))

    def touched(self, calls: list[Call]) -> list[str]:
        """Return the reads that depend on some calls."""
        return sorted({read for call in calls for read in call.reads})

    def by_page(self, path: Path) -> dict[int, list[Call]]:
        """Map each page (from 0) of a closed store to the calls that need it; the pages that opening reads count for all calls."""
        found: dict[int, list[Call]] = {}
        vfs = _Vfs(path)
        try:
            for call in self.calls:
                vfs.pages.clear()
                with everstep.open(path) as store:
                    getattr(store.backend, call.method)(*call.args, **call.options)
                for page in vfs.pages:
                    found.setdefault(page, []).append(call)
        finally:
            vfs.unregister()
        return found


class _Vfs(apsw.VFS):
    """SQLite's own VFS, with a list of the pages of one file that were read."""

    def __init__(self, path: Path):
        self.pages: set[int] = set()
        self._path = str(path)
        self._base = apsw.vfs_names()[0]  # the default one until now
        super().__init__(_NAME, base=self._base, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> Any:  # noqa: N802 - SQLite's names
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        return _File(self._base, name, flags, self.pages) if path == self._path else super().xOpen(name, flags)


class _File(RecordedFile):
    def __init__(self, base: str, name: Any, flags: list[int], pages: set[int]):
        self._pages = pages
        super().__init__(base, name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        self._pages.update(range(offset // PAGE, (offset + max(amount, 1) - 1) // PAGE + 1))
        return super().xRead(amount, offset)
