"""Delete runs that ended long enough ago, many per transaction, in slices short enough not to block writers.

Relies on `policies` for the retention of a run. Never deletes a run that is open, that has forks, that has a protected tag, or whose caller
may still ask for its result. A crash between two slices leaves a valid store: each slice is one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from everstep.backends.contract.core import Backend
from everstep.backends.deleted_pks import BLOCK, block_of
from everstep.clock import clock
from everstep.errors import Damaged
from everstep.fields import Shape
from everstep.records import CHILD, RunRow, Status
from everstep.store.encryption.frames import shown_row
from everstep.store.events.cursor import REMEMBERED_DAYS
from everstep.store.progress import Pace
from everstep.store.read_ahead import AT_ONCE, ahead_of
from everstep.store.retention.policies import Policies
from everstep.store.retention.retention import Retention
from everstep.store.retention.run_survey import labels_of, proved
from everstep.store.retention.throttle import Slices

_OVER = frozenset({Status.SUCCEEDED.value, Status.CANCELLED.value})
_LEAST, _MOST = 16, 512
_POSITIONS = 2048
_TRIMMED = "feed.trimmed"  # the number of deleted runs when the feed was last trimmed
_DAY_US = 86_400_000_000
Delete = Callable[[Sequence[RunRow]], set[bytes]]


class Deleted(Shape, frozen=True):
    """A deleted run, with the bytes of everything that belonged only to it."""

    run: str
    bytes: int
    reason: str

    def __str__(self) -> str:
        return f"delete {self.run}: {self.reason} ({self.bytes:,} bytes)"


class Deleter:
    """Deletes runs of one store. Without `delete`, it only lists those that would be deleted."""

    def __init__(self, backend: Backend, policies: Policies, protected: Collection[str], delete: Delete | None, pace: Pace):
        self._ahead, self._backend = ahead_of(backend)
        self._policies = policies
        self._protected = frozenset(protected)
        self._delete = delete
        self._pace = pace
        self._slices = Slices(_LEAST, _MOST)
        self._pending: list[tuple[RunRow, Deleted]] = []
        self._there: dict[str, RunRow] = {}
        self._forks: dict[str, set[str]] = {}
        self._family: dict[bytes, int] = {}
        self._done: list[Deleted] = []
        self.gone: set[bytes] = set()

    def all(self, rows: Sequence[tuple[int, RunRow]]) -> list[Deleted]:
        """Delete newest first, so that forks are deleted before the runs that they were forked from."""
        for _, row in rows:
            self._there[row.id] = row
            self._family[row.family] = self._family.get(row.family, 0) + 1
            if row.parent is not None and row.parent_number != CHILD:
                self._forks.setdefault(row.parent, set()).add(row.id)
        for last in range(len(rows), 0, -AT_ONCE):
            page = [pair for pair in reversed(rows[max(0, last - AT_ONCE) : last]) if self._reason(pair[1]) is not None]
            self._ahead.load(page)
            for _, row in page:
                if self._pace.over:
                    break
                self._consider(row)
            self._flush()
        return self._done

    def _consider(self, row: RunRow) -> None:
        waiting = {one.id for one, _ in self._pending}
        if self._forks.get(row.id, set()) & waiting:
            self._flush()  # this run can be deleted only if its fork was
        reason = self._reason(row)
        if reason is None or self._forks.get(row.id) or self._wanted(row):
            return
        try:
            if self._protecting(row):
                return
            weight = _weight(self._backend, row, self._family[row.family] == 1)
        except Damaged:
            return  # prune reports the damage
        self._pending.append((row, Deleted(row.id, weight, reason)))
        self._family[row.family] -= 1
        if len(self._pending) >= self._slices.size:
            self._flush()

    def _flush(self) -> None:
        """Delete the pending runs. A run that is in use again, or that another process deleted, is not in the result."""
        pending, self._pending = self._pending, []
        if not pending:
            return
        rows = [row for row, _ in pending]
        delete = self._delete
        keys = {row.key for row in rows} if delete is None else self._slices.do(lambda: delete(rows))
        for row, about in pending:
            if row.key not in keys:
                self._family[row.family] += 1
                continue
            self.gone.add(row.key)
            self._done.append(about)
            self._there.pop(row.id, None)
            if row.parent is not None:
                self._forks.get(row.parent, set()).discard(row.id)

    def _reason(self, row: RunRow) -> str | None:
        """Return why a run can be deleted, judged by its row; or None."""
        policy = self._policies.of(row)
        retention = Retention() if policy is None else policy.retention
        within = retention.within_us
        if retention.completed != "delete" or row.status not in _OVER or row.worker is not None or within is None:
            return None
        if clock.now_us() - row.updated_at < within:
            return None
        return f"{row.status} longer ago than keep_within={retention.keep_within}"

    def _protecting(self, row: RunRow) -> bool:
        tags = {*shown_row(self._backend, row).tags, *(tag for names in labels_of(self._backend, row).tags.values() for tag in names)}
        framer: Any = self._backend.framer
        stored = {framer.index.tag(tag) for tag in self._protected} if framer.encrypted else set()
        return bool(tags & (self._protected | stored))

    def _wanted(self, row: RunRow) -> bool:
        """Whether an unfinished run called this one: its replay asks for this run's result."""
        caller = self._there.get(row.parent) if row.parent is not None and row.parent_number == CHILD else None
        return caller is not None and caller.status not in _OVER


def _weight(backend: Backend, row: RunRow, last: bool) -> int:
    """Return the bytes that a deletion frees; for the last run of a family, including all its chunks."""
    bodies = sum(len(record.body or b"") for record in proved(backend, row)) + sum(len(base.body) for base in backend.bases(row.id))
    return bodies + (sum(backend.chunk_sizes(row.family).values()) if last else 0)


def forget_deleted(backend: Backend, pace: Pace, problems: list[str]) -> None:
    """Drop the feed entries of deleted runs, and old tombstones. With problems, nothing is dropped: they are evidence."""
    if problems:
        return
    try:
        _forget_deleted(backend, pace)
    except Damaged as error:
        problems.append(f"the entries of deleted runs were left in the feed: {error.message}")


def _forget_deleted(backend: Backend, pace: Pace) -> None:
    manifest = backend.manifest()
    deleted = str(manifest.created - manifest.runs)
    if backend.get_property(_TRIMMED) != deleted:
        trim_feed(backend, pace)
        if not pace.over:
            backend.set_property(_TRIMMED, deleted)
    drop_tombstones(backend, pace)


def drop_tombstones(backend: Backend, pace: Pace) -> int:
    """Drop old tombstones, a block at a time; return their number. Their positions stay known as those of deleted runs."""
    before, pk, gone = clock.now_us() - REMEMBERED_DAYS * _DAY_US, 0, 0
    while not pace.over and (found := backend.tombstones(pk, 1)):
        block = block_of(found[0].pk)
        gone += backend.forget(block, before)
        pk = (block + 1) * BLOCK
    return gone


def trim_feed(backend: Backend, pace: Pace) -> int:
    """Drop the entries of deleted runs from the feed, bit by bit; return their number. Positions do not change.

    Only a backend with a stored feed has a method `trim_feed(after, most)`, which returns the number of dropped entries.
    """
    trim = getattr(backend, "trim_feed", None)
    if trim is None:
        return 0
    slices, gone, position, end = Slices(_POSITIONS, 16 * _POSITIONS), 0, 0, backend.feed_end()
    while position < end and not pace.over:
        size = slices.size
        gone += slices.do(lambda position=position, size=size: trim(position, size))  # type: ignore[misc]
        position += size
    return gone
