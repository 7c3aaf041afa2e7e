"""Where damaged files are tried: a store is put together from them, opened as ever, and all is read that the damage can have touched.

The worst of all reads is what counts: wrong, missing (something is gone, and `verify` does not report it), detected, same. Which reads
damage can have touched is known from `recall`; `thorough` reads everything and verifies, too, to see that no read was left out wrongly.

Relies on `sample` for a store and on `reads` for what there is to read.
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
"""The files of a store, by what their names have after that of the store."""
Outcome = tuple[str, str]


def files_of(path: Path) -> Files:
    found = {suffix: Path(f"{path}{suffix}") for suffix in SUFFIXES}
    return {suffix: file.read_bytes() for suffix, file in found.items() if file.exists()}


def put(files: Files, path: Path) -> None:
    """Make these the files of the store at a path, which nobody has open."""
    for suffix in SUFFIXES:
        if suffix in files:
            with open(f"{path}{suffix}", "wb", buffering=0) as file:  # noqa: PTH123 -- a million times
                file.write(files[suffix])
        else:
            Path(f"{path}{suffix}").unlink(missing_ok=True)


class Bench:
    """What one process needs to try damage to the files of a sample."""

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
            raise AssertionError(f"the sample is damaged before anything was done to it: {report}")
        self.recall = Recall.of(self._store)
        self.frames = Frames(self._store, self.recall)
        self._by_page = self.recall.by_page(self.path)
        self._before = {f"state {ref}": [encode(state).hex()] for ref, state in pruned_states().items()}
        self.kept: dict[str, Any] = {}
        """What harnesses know of this sample and need not find out twice."""

    def close(self) -> None:
        self._store.close()

    def calls_of(self, pages: Iterable[int]) -> list[Call]:
        """The questions that need one of some pages of the closed store."""
        found = {id(call): call for page in pages for call in self._by_page.get(page, ())}
        return list(found.values())

    def attempt(self, files: Files, calls: list[Call] | None = None, thorough: bool = False) -> Outcome:
        """What comes of reading these files. `calls`: the questions whose answers can have changed; all, if not given."""
        put(files, self.path)
        try:
            store = everstep.open(self.path)
        except EverstepError as error:
            return DETECTED, f"open: {type(error).__name__}: {error.message}"
        except Exception as error:  # noqa: BLE001 - whatever it is, it says nothing about damage
            return WRONG, f"open: a bare {type(error).__name__}: {error}"
        with store:
            changed = [call for call in (self.recall.calls if calls is None else calls) if call.changed(store.backend)]
            outcome = self._read(store, self.recall.touched(changed))
            return self._thoroughly(store, outcome) if thorough else outcome

    def verified(self) -> bool:
        """Whether `verify` finds nothing wrong with what was tried last."""
        try:
            with everstep.open(self.path) as store:
                return _verified(store)
        except EverstepError:
            return False

    def _read(self, store: everstep.Store, names: list[str]) -> Outcome:
        """The worst that comes of some reads."""
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
        """What reading everything comes to: the same, or the harness cannot be trusted. What a read meets, verify reports."""
        whole = self._read(store, list(self.recall.reads))
        if whole[0] != quick[0]:
            return WRONG, f"the harness is wrong: {quick} of what was touched, {whole} of all"
        if whole[0] == DETECTED and _verified(store):
            return WRONG, f"verify says that all is well, and yet {whole[1]}"
        return quick


def _verified(store: everstep.Store) -> bool:
    """Whether nothing is wrong with a store, as far as it knows. A bare error is for whoever looks into it: it goes on its way."""
    try:
        return store.verify("full").ok
    except EverstepError:
        return False
