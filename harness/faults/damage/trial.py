"""Tries damaged files: builds a store from them, opens it normally, and reads everything that the damage can affect.

The worst of all reads counts: wrong, missing (something is missing, and `verify` does not report it), detected, same. `recall` knows which
reads the damage can affect; `thorough` also reads everything and verifies, to check that no read was left out wrongly.

Relies on `sample` for a store and on `reads` for the reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import everstep
from everstep.codec.values import encode
from everstep.errors import EverstepError
from harness.faults.damage.frames import Frames
from harness.faults.damage.reads import DETECTED, MISSING, SAME, WRONG, compare
from harness.faults.damage.recall import Call, Recall
from harness.faults.damage.sample import NAME, Sample, pruned_states

SUFFIXES = ("", "-wal", "-seen", "-shm")
Files = dict[str, bytes]
"""The files of a store, by the suffix of their names."""
Outcome = tuple[str, str]


def files_of(path: Path) -> Files:
    found = {suffix: Path(f"{path}{suffix}") for suffix in SUFFIXES}
    return {suffix: file.read_bytes() for suffix, file in found.items() if file.exists()}


def put(files: Files, path: Path) -> None:
    """Write the files of the store at a path, which no process has open."""
    for suffix in SUFFIXES:
        if suffix in files:
            with open(f"{path}{suffix}", "wb", buffering=0) as file:  # noqa: PTH123 -- a million times
                file.write(files[suffix])
        else:
            Path(f"{path}{suffix}").unlink(missing_ok=True)


class Bench:
    """The tools of one process to try damage to the files of a sample."""

    def __init__(self, sample: Sample, folder: Path):
        folder.mkdir(parents=True)
        self.sample = sample
        self.path = folder / NAME
        self.closed, self.killed, self.earlier, self.earlier_killed, self.other = (
            files_of(path) for path in (sample.closed, sample.killed, sample.earlier, sample.earlier_killed, sample.other)
        )
        put(self.closed, self.path)
        good = folder / "good.db"
        put(self.closed, good)
        self._store = everstep.open(good)
        report = self._store.verify("full")
        if not report.ok:
            raise AssertionError(f"the sample is damaged before any fault: {report}")
        self.recall = Recall.of(self._store)
        self.frames = Frames(self._store, self.recall)
        self._by_page = self.recall.by_page(self.path)
        self._before = {f"state {ref}": [encode(state).hex()] for ref, state in pruned_states().items()}
        self.kept: dict[str, Any] = {}
        """Data that harnesses compute once about this sample."""

    def close(self) -> None:
        self._store.close()

    def calls_of(self, pages: Iterable[int]) -> list[Call]:
        """Return the calls that need one of some pages of the closed store."""
        found = {id(call): call for page in pages for call in self._by_page.get(page, ())}
        return list(found.values())

    def attempt(self, files: Files, calls: list[Call] | None = None, thorough: bool = False) -> Outcome:
        """Return the outcome of reading these files. `calls`: the calls whose answers can have changed; all by default."""
        put(files, self.path)
        try:
            store = everstep.open(self.path)
        except EverstepError as error:
            return DETECTED, f"open: {type(error).__name__}: {error.message}"
        except Exception as error:  # noqa: BLE001 - any other error does not report damage
            return WRONG, f"open: a bare {type(error).__name__}: {error}"
        with store:
            changed = [call for call in (self.recall.calls if calls is None else calls) if call.changed(store.backend)]
            outcome = self._read(store, self.recall.touched(changed))
            return self._thoroughly(store, outcome) if thorough else outcome

    def verified(self) -> bool:
        """Whether `verify` finds no fault in the last attempt."""
        try:
            with everstep.open(self.path) as store:
                return _verified(store)
        except EverstepError:
            return False

    def _read(self, store: everstep.Store, names: list[str]) -> Outcome:
        """Return the worst outcome of some reads."""
        worst: Outcome = (SAME, "")
        for name in names:
            kind, said = compare(self.recall.reads[name], store, self.recall.good[name], self._before.get(name))
            if kind == MISSING and not _verified(store):
                kind = DETECTED
            if kind in (WRONG, MISSING):
                return kind, f"{name}: {said}"
            worst = (kind, f"{name}: {said}") if kind == DETECTED else worst
        return worst

    def _thoroughly(self, store: everstep.Store, quick: Outcome) -> Outcome:
        """Read everything: the outcome must be the same, or the harness cannot be trusted. `verify` must report every damage that a read
        meets.
        """
        whole = self._read(store, list(self.recall.reads))
        if whole[0] != quick[0]:
            return WRONG, f"the harness is wrong: {quick} for the affected reads, {whole} for all reads"
        if whole[0] == DETECTED and _verified(store):
            return WRONG, f"verify reports no damage, but {whole[1]}"
        return quick


def _verified(store: everstep.Store) -> bool:
    """Whether a store reports no fault. Other errors are raised."""
    try:
        return store.verify("full").ok
    except EverstepError:
        return False
