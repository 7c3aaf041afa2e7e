"""Backends that are broken on purpose, for canaries: each breaks one promise and keeps all others. Never used but by harnesses.

Each wraps a good backend and hands on all that it does not break.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from everstep.backends.contract.core import Backend, Commit, Committed, Done
from everstep.errors import Conflict, LostLease
from everstep.records import Kind, RunRow, Worker, make_record


class Wrapper:
    """Hands everything on."""

    def __init__(self, backend: Backend):
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


class Unfenced(Wrapper):
    """A commit that ignores the epoch: it is put on top of whatever the head is by now, as a saver without fencing does."""

    def commit(self, commit: Commit, *others: Commit) -> Committed:
        while True:
            try:
                return self._backend.commit(self._on_top(commit), *map(self._on_top, others))
            except (LostLease, Conflict):  # somebody wrote between the look at the head and the commit
                continue

    def submit(self, commit: Commit, done: Done) -> None:
        done(self.commit(commit))

    def _on_top(self, commit: Commit) -> Commit:
        stored = self._backend.run(commit.run.id) if commit.was is not None else None
        if stored is None or commit.was is None or stored.check == commit.was.check:
            return commit
        return _rebased(commit, stored)


class Unleased(Unfenced):
    """Gives the lease of a run to whoever asks for it, and ignores the epoch."""

    def acquire(self, run: str, worker: Worker) -> RunRow:
        row = self._backend.run(run)
        if row is not None:
            self._backend.release(row)
        return self._backend.acquire(run, worker)


def _rebased(commit: Commit, stored: RunRow) -> Commit:
    row, records = stored.copy(), []
    for r in commit.records:
        row.checkpoints += r.kind == Kind.CHECKPOINT
        row.head_seq += 1
        body = r.body or b""
        made = make_record(
            row.head_digest,
            r.run,
            row.key,
            row.head_seq,
            r.kind,
            row.epoch,
            r.at,
            row.checkpoints,
            body,
            r.note,
            r.tags,
            r.meta,
            r.own,
            r.labels,
        )
        row.head_digest = made.digest
        records.append(made)
    return Commit(row.sealed(status=commit.run.status), stored, records, commit.chunks, commit.letters, commit.read)


class Forgetful(Wrapper):
    """Says that a commit is durable and keeps the newest one in memory until something else is asked for: a crash loses it."""

    def __init__(self, backend: Backend):
        super().__init__(backend)
        self._kept: Commit | None = None

    def __getattr__(self, name: str) -> Any:
        self._write()
        return super().__getattr__(name)

    def commit(self, commit: Commit, *others: Commit) -> Committed:
        self._write()
        if commit.was is None or others:
            return self._backend.commit(commit, *others)
        self._kept = commit
        return Committed(len(self._backend.letters(commit.run.id)))

    def _write(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            self._backend.commit(kept)

    def crash(self) -> None:
        """What a crash does."""
        self._kept = None


class Unstamped(Wrapper):
    """Frees what gc found unreachable, whether it was written again since or not, and takes its time before it does."""

    def sweep(self, family: bytes, digests: Sequence[bytes], stamp: int) -> int:
        limit = time.monotonic() + 2.0
        while self._backend.manifest().writes < stamp + 40 and time.monotonic() < limit:
            time.sleep(0.005)
        return self._backend.sweep(family, digests, self._backend.manifest().writes + 1)
