"""Backends that are broken on purpose, for canaries: each breaks one promise and keeps all others. Only harnesses use them.

Each wraps a good backend and passes on every call that it does not break.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from everstep.backends.contract.core import Backend, Commit, Committed, Done
from everstep.errors import Conflict, LostLease
from everstep.records import Kind, RunRow, Worker, make_record


class Wrapper:
    """Passes every call on."""

    def __init__(self, backend: Backend):
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


class Unfenced(Wrapper):
    """A commit that ignores the epoch: it is added on top of the current head, as a saver without fencing does."""

    def commit(self, commit: Commit, *others: Commit) -> Committed:
        while True:
            try:
                return self._backend.commit(self._on_top(commit), *map(self._on_top, others))
            except (LostLease, Conflict):  # another process wrote between the read of the head and the commit
                continue

    def submit(self, commit: Commit, done: Done) -> None:
        done(self.commit(commit))

    def _on_top(self, commit: Commit) -> Commit:
        stored = self._backend.run(commit.run.id) if commit.was is not None else None
        if stored is None or commit.was is None or stored.check == commit.was.check:
            return commit
        return _rebased(commit, stored)


class Unleased(Unfenced):
    """Gives the lease of a run to every caller, and ignores the epoch."""

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
    return Commit(row.sealed(status=commit.run.status), stored, records, commit.chunks, commit.messages, commit.read)


class Forgetful(Wrapper):
    """Reports a commit as durable and keeps the newest one in memory until the next call: a crash loses it."""

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
        return Committed(len(self._backend.messages(commit.run.id)))

    def _write(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            self._backend.commit(kept)

    def crash(self) -> None:
        """Lose the commit in memory, as a crash does."""
        self._kept = None


class Unstamped(Wrapper):
    """Frees the chunks that gc found unreachable, even if they were written again since, after a delay."""

    def sweep(self, family: bytes, digests: Sequence[bytes], stamp: int) -> int:
        limit = time.monotonic() + 2.0
        while self._backend.manifest().writes < stamp + 40 and time.monotonic() < limit:
            time.sleep(0.005)
        return self._backend.sweep(family, digests, self._backend.manifest().writes + 1)
