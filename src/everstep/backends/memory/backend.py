"""The simplest implementation of the contract: dictionaries under one lock. The reference for other backends.

Nothing survives the process. Each open creates a new store, or shares one by name within the process. A lease
is dead when its worker's store was closed or the lease has expired. It returns copies and keeps copies, so that a caller
cannot change stored data by changing a value that it read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from everstep import clock as clocks
from everstep.backends import deleted_pks
from everstep.backends.contract.core import MAX_SEQ, Commit, Committed, Done, Located, Manifest, Query
from everstep.backends.contract.query_semantics import fits_checkpoint, fits_run
from everstep.backends.contract.queues import Claim, Claimed, Depth, QueueEntry, Task
from everstep.backends.contract.types import Census, Cut
from everstep.backends.memory.data import Before, Data, Run, data_of
from everstep.backends.memory.queues import Waiting
from everstep.codec.frame import Framer
from everstep.errors import (
    AlreadyQueued,
    Conflict,
    DamagedRun,
    EverstepError,
    LeaseHeld,
    LostLease,
    MissingKey,
    NotFound,
    RunExists,
    StoreClosed,
)
from everstep.fields import replace
from everstep.records import (
    ENCRYPTION,
    ZERO,
    Base,
    Framing,
    Kind,
    Message,
    Pruned,
    Record,
    RunRow,
    Seal,
    Status,
    Tag,
    Tombstone,
    Worker,
    property_check,
    shift,
    unkeyed,
)
from everstep.seals import is_locked

T = TypeVar("T")


class MemoryBackend:
    """A store in the memory of this process."""

    durable = False

    def __init__(self, name: str | None = None, *, seal: Seal = unkeyed) -> None:
        self.url = f"memory://{name or ''}"
        self.seal = seal
        self.framer: Framing = Framer()
        self._data = data_of(name, seal)
        self._own_workers: set[str] = set()
        self._closed = False

    def commit(self, commit: Commit, *others: Commit) -> Committed:
        data = self._open()
        with data.lock:
            if not others:
                return Committed(self._apply(data, commit))
            before = Before(data, (commit, *others))
            try:
                return Committed(self._apply(data, commit), tuple(self._apply(data, other) for other in others))
            except BaseException:
                before.restore()
                raise

    def _apply(self, data: Data, commit: Commit) -> int:
        """Apply a commit. Operations that may fail or be interrupted come first, on parts that no reader sees yet; then the new row makes
        them count."""
        was, row = commit.was, replace(commit.run)
        self._refuse_plain()
        run = self._new(row, commit.task) if was is None else self._fenced(row.id, was)
        del run.records[was.head_seq if was is not None else 0 :]
        run.records.extend(replace(record) for record in commit.records)
        tags = [tag for tag in _tags_of(commit, self.seal) if (tag.name, tag.number) not in run.tags]
        self._keep_chunks(row.family, commit.chunks)
        messages = _messages_after(run.messages, commit)
        minus = [*([] if was is None else [was.check]), *(message.check for message in run.messages.values())]
        plus = [row.check, *(tag.check for tag in tags), *(message.check for message in messages.values())]
        total = shift(data.total, minus, plus)
        del data.feed[data.fed :]
        data.feed.extend((row.id, run.pk, record.seq) for record in commit.records)
        run.tags.update({(tag.name, tag.number): tag for tag in tags})
        data.runs[row.id], data.total, data.last, run.row, run.messages, data.fed = run, total, row.id, row, messages, len(data.feed)
        data.writes += 1
        if commit.family_key is not None:
            data.keys[row.family] = commit.family_key
        if commit.task is not None:
            twin = self._twin(commit.task)
            run.waiting = Waiting(commit.task if twin in (None, row.id) else commit.task._replace(dedupe=None), run.pk)
        data.queues.settle(run)
        return len(messages)

    def _keep_chunks(self, family: bytes, chunks: Sequence[tuple[bytes, bytes]]) -> None:
        stamp = self._data.writes + 1
        stored = self._data.chunks
        for digest, frame in chunks:
            known, _ = stored.get((family, digest), (b"", 0))
            stored[family, digest] = (known if len(frame) < len(known) else frame, stamp)

    def _new(self, row: RunRow, task: Task | None) -> Run:
        if row.id in self._data.runs:
            raise RunExists(f"a run {row.id!r} already exists")
        if task is not None and task.dedupe is not None and (twin := self._twin(task)) is not None:
            raise AlreadyQueued(task.queue, task.dedupe, twin)
        parent = self._data.runs.get(row.parent) if row.parent is not None else None
        if row.parent is not None and row.family != row.key and (parent is None or parent.row.family != row.family):
            raise NotFound(f"run {row.parent!r} was deleted meanwhile: it can no longer be forked")
        self._data.created += 1
        return Run(self._data.created, row)

    def _fenced(self, name: str, was: RunRow) -> Run:
        run = self._data.runs.get(name)
        if run is None:
            raise LostLease(f"run {name!r} was deleted while this writer had it open")
        if run.row.epoch != was.epoch:
            raise LostLease(f"run {name!r} was taken over: epoch {was.epoch} is now {run.row.epoch}")
        if run.row.head_seq != was.head_seq or run.row.check != was.check:
            raise Conflict(f"run {name!r} has changed: this write follows record {was.head_seq}, the head is {run.row.head_seq}")
        return run

    def _add_tag(self, run: Run, tag: Tag) -> None:
        if (tag.name, tag.number) not in run.tags:
            run.tags[tag.name, tag.number] = tag
            self._data.total = shift(self._data.total, [], [tag.check])
            self._data.writes += 1

    def submit(self, commit: Commit, done: Done) -> None:
        self._open()
        try:
            committed = self.commit(commit)
        except EverstepError as error:
            done(error)
        else:
            done(committed)

    def run(self, run: str) -> RunRow | None:
        data = self._open()
        with data.lock:
            return replace(data.runs[run].row) if run in data.runs else None

    def runs(self, query: Query) -> list[tuple[int, RunRow]]:
        data = self._open()
        with data.lock:
            found = [(run.pk, replace(run.row)) for run in data.runs.values() if fits_run(run.row, query)]
        return _page(found, query, [pk for pk, _ in found])

    def records(self, run: str, first: int, last: int, kinds: Sequence[str] | None = None, newest: int | None = None) -> list[Record]:
        data = self._open()
        with data.lock:
            stored = data.runs[run].records if run in data.runs else []
            found = [replace(r) for r in stored if first <= r.seq <= last and (kinds is None or r.kind in kinds)]
        return found if newest is None else found[max(0, len(found) - newest) :]

    def locate(self, run: str, number: int, upto: int | None = None) -> Located | None:
        data = self._open()
        with data.lock:
            entry = data.runs.get(run)
            stored = [] if entry is None else entry.records
            seq = 1 + bisect_left(stored, number, key=lambda record: record.number)
            if entry is None or seq > len(stored) or (stored[seq - 1].number, stored[seq - 1].kind) != (number, Kind.CHECKPOINT):
                return None
            base = next((r.seq for r in reversed(stored[: seq + 1]) if r.kind == Kind.BASE and r.number <= number), 0)
            added = [base for _, base in sorted(entry.bases.items()) if base.number <= number][-1:]
            found = Located(seq, base, entry.pruned, added[0] if added else None)
            records = () if upto is None else [replace(r) for r in stored[found.first - 1 : found.last(upto)]]
            waiting = len(entry.messages) if upto else None
        return found._replace(records=records, waiting=waiting)

    def checkpoints(self, run: str, query: Query) -> list[Record]:
        data = self._open()
        with data.lock:
            entry = data.runs.get(run)
            stored = [] if entry is None else [r for r in entry.records if r.kind == Kind.CHECKPOINT]
            found = [replace(r, body=None) for r in stored if entry is not None and fits_checkpoint(self._tagged(entry, r), query)]
        return _page(found, query, [record.number for record in found])

    def gates(self, run: str) -> list[Record]:
        return self.records(run, 1, MAX_SEQ, (Kind.GATE.value, Kind.ANSWER.value))

    def unanswered(self, workflow: str | None = None, after: int = 0, limit: int | None = None) -> list[tuple[int, Record]]:
        data = self._open()
        found: list[tuple[int, Record]] = []
        with data.lock:
            for run in sorted(data.runs.values(), key=lambda run: run.pk):
                if run.row.status == Status.WAITING and workflow in (None, run.row.workflow):
                    answered = {r.note for r in run.records if r.kind == Kind.ANSWER}
                    asked = [r for r in run.records if r.kind == Kind.GATE and r.note not in answered]
                    found += [(run.pk << 31 | r.seq, replace(r)) for r in asked]
        return [one for one in found if one[0] > after][:limit]

    def attached(self, run: str, address: str = "") -> list[Record]:
        data = self._open()
        with data.lock:
            stored = data.runs[run].records if run in data.runs else []
            return [replace(r) for r in stored if r.kind == Kind.ATTACHED and str(r.note).startswith(address)]

    def _tagged(self, run: Run, record: Record) -> Record:
        later = tuple(name for name, number in run.tags if number == record.number)
        return replace(record, tags=record.tags + later)

    def digests(self, run: str, seqs: Sequence[int]) -> dict[int, bytes]:
        data = self._open()
        with data.lock:
            records = data.runs[run].records if run in data.runs else []
            return {seq: records[seq - 1].digest for seq in seqs if 1 <= seq <= len(records)}

    def chunks(self, family: bytes, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        data = self._open()
        with data.lock:
            return {digest: data.chunks[family, digest][0] for digest in digests if (family, digest) in data.chunks}

    def find(
        self, tags: Sequence[str], meta: dict[str, Any], after: int | None = None, limit: int | None = None
    ) -> list[tuple[int, Record]]:
        data = self._open()
        query = Query(tags=tuple(tags), meta=meta)
        with data.lock:
            found = [
                (run.pk << 31 | r.seq, replace(r, body=None))
                for run in data.runs.values()
                for r in run.records
                if r.kind == Kind.CHECKPOINT and fits_checkpoint(self._tagged(run, r), query)
            ]
        found.sort(key=lambda one: one[0], reverse=True)
        return [one for one in found if after is None or one[0] < after][:limit]

    def tags(self, run: str, first: int | None = None, last: int | None = None, name: str | None = None) -> list[Tag]:
        data = self._open()
        with data.lock:
            found = [tag for _, tag in sorted(data.runs[run].tags.items())] if run in data.runs else []
        found = [tag for tag in found if name is None or tag.name == name]
        return [tag for tag in found if (first is None or tag.number >= first) and (last is None or tag.number <= last)]

    def tag(self, tag: Tag, run: str) -> None:
        data = self._open()
        with data.lock:
            entry = self._existing(run)
            if not any(r.kind == Kind.CHECKPOINT and r.number == tag.number for r in entry.records):
                raise NotFound(f"run {run!r} has no checkpoint {tag.number}")
            self._add_tag(entry, tag)

    def post(self, message: Message, run: str) -> bool:
        data = self._open()
        with data.lock:
            entry = self._existing(run)
            if entry.row.key != message.key:
                raise NotFound(f"the message {message.name!r} is for a deleted run {run!r}; another run has its id now")
            if message.name in entry.messages:
                return False
            total = shift(data.total, [], [message.check])
            entry.messages, data.total, data.writes = {**entry.messages, message.name: message}, total, data.writes + 1
            if entry.row.worker is None:  # otherwise the holder reads the message; if it has died, the entry is or becomes ready anyway
                data.queues.settle(entry)
            return True

    def messages(self, run: str) -> list[Message]:
        data = self._open()
        with data.lock:
            return [message for _, message in sorted(data.runs[run].messages.items())] if run in data.runs else []

    def due(self, now: int, limit: int | None = None, outside: bool = False) -> list[str]:
        data = self._open()
        with data.lock:
            ready = [
                (min(times), run.pk, run.row.id)
                for run in data.runs.values()
                if run.row.status in (Status.WAITING, Status.FAILED)
                and "pause" not in run.messages
                and not (outside and run.waiting is not None)
                and (times := [message.due for message in run.messages.values() if message.due is not None and message.due <= now])
            ]
        return [name for _, _, name in sorted(ready)[:limit]]

    def feed(self, after: int, limit: int) -> list[tuple[int, Record]]:
        data = self._open()
        found: list[tuple[int, Record]] = []
        with data.lock:
            for position in range(max(after, 0) + 1, data.fed + 1):
                if len(found) >= limit:
                    break
                name, pk, seq = data.feed[position - 1]
                run = data.runs.get(name)
                if run is not None and run.pk == pk:
                    found.append((position, replace(run.records[seq - 1])))
        return found

    def feed_end(self) -> int:
        data = self._open()
        with data.lock:
            return data.fed

    def acquire(self, run: str, worker: Worker) -> RunRow:
        data = self._open()
        with data.lock:
            entry = self._existing(run)
            self._refuse_if_held(entry.row)
            data.workers[worker.id] = replace(worker)
            self._own_workers.add(worker.id)
            return self._reseal(entry, entry.row.epoch + 1, worker.id, clocks.clock.now_us())

    def introduce(self, worker: Worker) -> None:
        data = self._open()
        with data.lock:
            data.workers[worker.id] = replace(worker)
            self._own_workers.add(worker.id)

    def holder(self, row: RunRow) -> Worker | None:
        data = self._open()
        with data.lock:
            return self._holder(row)

    def living(self) -> list[Worker]:
        data = self._open()
        with data.lock:
            alive = [replace(worker) for worker in data.workers.values() if clocks.clock.boot_us() < worker.expires_boot]
        return sorted(alive, key=lambda worker: (worker.started_at, worker.id))

    def release(self, row: RunRow) -> None:
        data = self._open()
        with data.lock:
            entry = data.runs.get(row.id)
            if entry is not None and entry.row.epoch == row.epoch and entry.row.worker is not None:
                self._reseal(entry, row.epoch, None, entry.row.since)

    def renew(self, worker: Worker) -> None:
        data = self._open()
        with data.lock:
            if worker.id in data.workers:
                data.workers[worker.id] = replace(worker)

    def delete(self, row: RunRow) -> None:
        data = self._open()
        with data.lock:
            entry = self._existing(row.id)
            self._refuse_if_held(entry.row)
            if entry.row.check != row.check:
                raise Conflict(f"run {row.id!r} has changed since it was read; it was not deleted")
            tombstone = Tombstone.of(entry.pk, row, clocks.clock.now_us(), self.seal)
            total = shift(data.total, entry.checks(), [tombstone.check])
            del data.runs[row.id]
            data.total, data.writes = total, data.writes + 1
            data.tombstones.append(tombstone)
            data.last = None if data.last == row.id else data.last
            if all(other.row.family != row.family for other in data.runs.values()):
                data.chunks = {key: frame for key, frame in data.chunks.items() if key[0] != row.family}
                data.keys.pop(row.family, None)

    def delete_many(self, rows: Sequence[RunRow]) -> set[bytes]:
        gone: set[bytes] = set()
        for row in rows:
            with suppress(Conflict, LeaseHeld, NotFound):
                self.delete(row)
                gone.add(row.key)
        return gone

    def manifest(self) -> Manifest:
        data = self._open()
        with data.lock:
            return Manifest(data.total, len(data.runs), data.last, data.created, data.writes)

    def stats(self) -> dict[str, int]:
        data = self._open()
        with data.lock:
            records = [record for run in data.runs.values() for record in run.records]
            return {
                "runs": len(data.runs),
                "records": len(records),
                "chunks": len(data.chunks),
                "messages": sum(len(run.messages) for run in data.runs.values()),
                "record_bytes": sum(len(record.body or b"") for record in records),
                "chunk_bytes": sum(len(frame) for frame, _ in data.chunks.values()),
                "file_bytes": 0,
            }

    def check(self, stop: Callable[[], bool] | None = None) -> list[str] | None:
        self._open()
        return []

    def census(self) -> Census:
        data = self._open()
        with data.lock:
            checks = [check for run in data.runs.values() for check in run.checks()]
            properties = [property_check(name, value, self._data.seal) for name, value in data.properties.items()]
            found = shift(ZERO, [], [*checks, *(tombstone.check for tombstone in data.tombstones), *properties])
            gone = len(data.tombstones) + deleted_pks.count(v for name, v in data.properties.items() if name.startswith(deleted_pks.PREFIX))
            return Census(data.total, len(data.runs), data.created, found, len(data.runs), gone)

    def health(self) -> dict[str, object]:
        self._open()
        return {"engine": "memory", "volatile": True, "read_only": None, "writes": self._data.writes}

    def pruned(self, run: str) -> Pruned | None:
        data = self._open()
        with data.lock:
            return data.runs[run].pruned if run in data.runs else None

    def bases(self, run: str, upto: int | None = None) -> list[Base]:
        data = self._open()
        with data.lock:
            found = [base for _, base in sorted(data.runs[run].bases.items())] if run in data.runs else []
        return found if upto is None else [base for base in found if base.number <= upto][-1:]

    def prune(self, cut: Cut) -> None:
        data = self._open()
        with data.lock:
            run = data.runs.get(cut.run)
            if run is None or run.row.key != cut.now.key:
                raise NotFound(f"run {cut.run!r} cannot be pruned: it was deleted")
            if run.pruned != cut.was:
                raise Conflict(f"another process has pruned run {cut.run!r} meanwhile")
            self._keep_chunks(run.row.family, cut.chunks)
            before = run.checks()
            run.pruned = cut.now
            run.bases.update({base.number: base for base in cut.bases})
            for number in cut.gone:
                run.bases.pop(number, None)
            for seq, digest in cut.bodies:
                run.records[seq - 1] = replace(run.records[seq - 1], body=None, body_digest=digest)
            for seq, left in cut.labels:
                record = run.records[seq - 1]
                run.records[seq - 1] = replace(record, note=None, tags=(), meta=None, labels=left)
                run.tags = {key: tag for key, tag in run.tags.items() if tag.number != record.number}
            data.total = shift(data.total, before, run.checks())
            data.writes += 1

    def families(self) -> list[bytes]:
        data = self._open()
        with data.lock:
            return sorted({family for family, _ in data.chunks} | {run.row.family for run in data.runs.values()})

    def chunk_sizes(self, family: bytes) -> dict[bytes, int]:
        data = self._open()
        with data.lock:
            return {digest: len(frame) for (owner, digest), (frame, _) in data.chunks.items() if owner == family}

    def sweep(self, family: bytes, digests: Sequence[bytes], stamp: int) -> int:
        data = self._open()
        with data.lock:
            stored = {digest: data.chunks[family, digest] for digest in digests if (family, digest) in data.chunks}
            old = {digest: len(frame) for digest, (frame, written) in stored.items() if written <= stamp}
            for digest in old:
                del data.chunks[family, digest]
            return sum(old.values())

    def shrink(self, most: int) -> int:  # the system takes unreferenced memory back by itself
        self._open()
        return 0

    def compact(self) -> int:
        self._open()
        return 0

    def tombstones(self, after: int = 0, limit: int | None = None) -> list[Tombstone]:
        data = self._open()
        with data.lock:
            found = sorted((t for t in data.tombstones if t.pk > after), key=lambda tombstone: tombstone.pk)
        return found[:limit]

    def forget(self, block: int, before: int) -> int:
        data = self._open()
        with data.lock:
            old = [stone for stone in data.tombstones if stone.at < before and deleted_pks.block_of(stone.pk) == block]
            if old:
                name = deleted_pks.name_of(block)
                data.note(name, deleted_pks.joined(data.properties.get(name), (stone.pk for stone in old)), self.seal)
                data.total = shift(data.total, [stone.check for stone in old], [])
                data.tombstones = [stone for stone in data.tombstones if stone not in old]
            return len(old)

    def _refuse_plain(self) -> None:
        if self.seal is unkeyed and ENCRYPTION in self._data.properties:
            raise MissingKey(f"{self.url} was encrypted after it was opened here without a key")

    @property
    def header(self) -> str | None:
        """The property `encryption`; None if the store is not encrypted."""
        return self._data.properties.get(ENCRYPTION)

    def encrypt(self, header: str) -> str | None:
        data = self._open()
        with data.lock:
            if not data.properties and not data.created:
                data.note(ENCRYPTION, header, self.seal)
            return data.properties.get(ENCRYPTION)

    def set_seal(self, seal: Seal) -> None:
        self.seal = seal
        if not is_locked(seal):
            self._data.seal = seal

    def family_keys(self, families: Sequence[bytes]) -> dict[bytes, bytes]:
        data = self._open()
        with data.lock:
            return {family: data.keys[family] for family in families if family in data.keys}

    def key_page(self, after: bytes = b"", limit: int = 1000) -> list[tuple[bytes, bytes]]:
        data = self._open()
        with data.lock:
            return sorted((family, wrapped) for family, wrapped in data.keys.items() if family > after)[:limit]

    def replace_keys(self, changes: Sequence[tuple[bytes, bytes, bytes]]) -> int:
        data = self._open()
        with data.lock:
            fitting = {family: new for family, old, new in changes if data.keys.get(family) == old}
            data.keys.update(fitting)
        return len(fitting)

    def replace_header(self, old: str, new: str) -> bool:
        data = self._open()
        with data.lock:
            if data.properties.get(ENCRYPTION) != old:
                return False
            data.note(ENCRYPTION, new, self.seal)
        return True

    def get_property(self, name: str) -> str | None:
        data = self._open()
        with data.lock:
            return data.properties.get(name)

    def properties(self, prefix: str = "") -> dict[str, str]:
        data = self._open()
        with data.lock:
            return {name: value for name, value in sorted(data.properties.items()) if name.startswith(prefix)}

    def set_property(self, name: str, value: str | None) -> None:
        data = self._open()
        with data.lock:
            data.note(name, value, self.seal)

    def create(self, commits: Sequence[Commit], known: Sequence[str] = ()) -> list[bool]:
        data = self._open()
        with data.lock:
            for commit in commits:
                if commit.run.id in data.runs and commit.run.id not in known:
                    raise RunExists(f"a run {commit.run.id!r} already exists")
            return [self._is_created(data, commit) for commit in commits]

    def _is_created(self, data: Data, commit: Commit) -> bool:
        try:
            self._apply(data, commit)
        except (AlreadyQueued, RunExists):
            return False
        return True

    def claim(self, claim: Claim) -> list[Claimed]:
        data = self._open()
        with data.lock:
            taken: list[Claimed] = []
            for run in data.queues.choose(list(data.runs.values()), claim, data.properties):
                queue, before, deaths = run.waiting.task.queue, run.row.worker, run.waiting.deaths
                if run.row.digest(self.seal) != run.row.check:
                    taken.append(Claimed(run.row.id, queue, None, before, deaths))
                    continue
                data.workers[claim.worker.id] = replace(claim.worker)
                self._own_workers.add(claim.worker.id)
                row = self._reseal(run, run.row.epoch + 1, claim.worker.id, clocks.clock.now_us())
                taken.append(Claimed(row.id, queue, row, before, deaths))
            return taken

    def free(self, known_dead: Sequence[str] = ()) -> int:
        data = self._open()
        with data.lock:
            held = [run for run in data.runs.values() if run.waiting is not None and run.waiting.worker is not None]
            dead = [run for run in held if run.row.worker in known_dead or self._holder(run.row) is None]
            for run in dead:
                data.queues.free(run)
            return len(dead)

    def queue_entry(self, run: str) -> QueueEntry | None:
        data = self._open()
        with data.lock:
            entry = data.runs.get(run)
            return None if entry is None or entry.waiting is None else entry.waiting.entry_of(run)

    def held_by(self, worker: str) -> list[str]:
        return [entry.run for entry in self.queue_entries() if entry.worker == worker]

    def queue_entries(self, queue: str | None = None, limit: int | None = None) -> list[QueueEntry]:
        data = self._open()
        with data.lock:
            return data.queues.entries(list(data.runs.values()), queue)[:limit]

    def twin(self, task: Task) -> str | None:
        data = self._open()
        with data.lock:
            return self._twin(task)

    def _twin(self, task: Task) -> str | None:
        known = self._data.queues.entries(list(self._data.runs.values()), task.queue)
        return next((entry.run for entry in known if task.dedupe is not None and entry.task.dedupe == task.dedupe), None)

    def next_ready(self, queues: Sequence[str]) -> int | None:
        return min((entry.ready for entry in self.queue_entries() if entry.task.queue in queues and entry.ready is not None), default=None)

    def depths(self, minutes: int = 5) -> list[Depth]:
        data = self._open()
        with data.lock:
            return data.queues.depths(data.queues.entries(list(data.runs.values())), data.properties, minutes)

    def bell(self, ring: Callable[[], None]) -> Callable[[], None]:
        return self._open().queues.listen(ring)

    def close(self) -> None:
        self._data.lock.check()
        self._closed = True
        with self._data.lock:
            for worker in self._own_workers:
                self._data.workers.pop(worker, None)

    def _open(self) -> Data:
        if self._closed:
            raise StoreClosed(f"the store {self.url} is closed")
        self._data.lock.check()
        return self._data

    def _existing(self, name: str) -> Run:
        if name not in self._data.runs:
            raise NotFound(f"there is no run {name!r}")
        return self._data.runs[name]

    def _holder(self, row: RunRow) -> Worker | None:
        holder = self._data.workers.get(row.worker) if row.worker is not None else None
        return holder if holder is not None and clocks.clock.boot_us() < holder.expires_boot else None

    def _refuse_if_held(self, row: RunRow) -> None:
        holder = self._holder(row)
        if holder is not None:
            raise LeaseHeld(row.id, holder.host, holder.pid, clocks.iso(row.since), clocks.iso(holder.expires_at))

    def _reseal(self, entry: Run, epoch: int, worker: str | None, since: int) -> RunRow:
        before = entry.row
        if before.digest(self.seal) != before.check:
            raise DamagedRun(f"the row of run {before.id!r} does not match its digest")
        entry.row = before.sealed(self.seal, epoch=epoch, worker=worker, since=since)
        self._data.total = shift(self._data.total, [before.check], [entry.row.check])
        self._data.writes += 1
        self._data.queues.settle(entry)
        return replace(entry.row)


def _page(found: list[T], query: Query, positions: list[int]) -> list[T]:
    """Order by position, skip up to the cursor, cut at the limit."""
    ordered = sorted(zip(positions, range(len(found)), strict=True), reverse=not query.oldest_first)
    if query.after is not None:
        beyond = query.after
        ordered = [(pk, i) for pk, i in ordered if (pk > beyond if query.oldest_first else pk < beyond)]
    return [found[i] for _, i in ordered[: query.limit]]


def _messages_after(messages: dict[str, Message], commit: Commit) -> dict[str, Message]:
    """Return the messages of a run after a commit removed some and posted others."""
    if not commit.read and not commit.messages:
        return messages
    left = {name: message for name, message in messages.items() if name not in commit.read}
    for message in commit.messages:
        left.setdefault(message.name, message)
    return left


def _tags_of(commit: Commit, seal: Seal) -> list[Tag]:
    """Return the tags of the checkpoints in a commit."""
    checkpoints = (record for record in commit.records if record.kind == Kind.CHECKPOINT)
    return [Tag.make(commit.run.key, name, record.number, record.at, seal) for record in checkpoints for name in record.tags]
