"""A store without the runtime: finds, reads, compares, forks and proves runs, and commits for those who write them.

Relies on a backend for bytes and on `snapshot` for what they mean. Thread-safe. Reading needs no lease and never waits for a writer.
`everstep.api.Store` adds `run`, which opens a run for writing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from everstep.backends.contract.audit import Audit
from everstep.backends.contract.capability import need, whole
from everstep.backends.contract.core import Backend, Commit
from everstep.backends.contract.facts import Facts
from everstep.backends.contract.feed import Feed
from everstep.backends.contract.index import Index
from everstep.backends.contract.mailbox import Mailbox
from everstep.backends.contract.reclaim import Reclaim
from everstep.clock import clock
from everstep.codec.frame import Compression, Framer
from everstep.errors import InvalidArgument
from everstep.ids import check_tag, new_id
from everstep.records import RunRow, Status, Tag
from everstep.snapshot.saver import Saver
from everstep.store import load as reading
from everstep.store import query
from everstep.store.chain import Chain, Entry, new_row
from everstep.store.refs import find_run, resolve
from everstep.store.views import Checkpoint, Page, RunInfo

if TYPE_CHECKING:  # what only some programs use is imported when they do
    from everstep.redact import Redactor
    from everstep.snapshot.diff import Change
    from everstep.store.events.event import Event
    from everstep.store.gates import Gate
    from everstep.store.journal.steps import Step
    from everstep.store.masking import Mask
    from everstep.store.progress import Progress
    from everstep.store.repair.salvage import Salvaged
    from everstep.store.retention.cleanup import Cleaned, Cleaner, Given
    from everstep.store.retention.gc import Collected
    from everstep.store.retention.prune import PrunePlan
    from everstep.store.retention.retention import Retention
    from everstep.store.travel.blame import Blame
    from everstep.store.travel.forks import Edit
    from everstep.store.upgrades import Upgrade
    from everstep.store.verify.findings import Checkup
    from everstep.store.verify.report import Depth, Report


class BaseStore:
    """Runs, checkpoints and states in one backend."""

    def __init__(
        self,
        backend: Backend,
        *,
        compression: Compression = "zstd",
        level: int | None = None,
        threshold: int = 256,
        checking: bool = False,
        retention: Retention | None = None,
        protect: tuple[str, ...] = (),
        redaction: Redactor | None = None,
    ):
        self.backend = whole(backend)
        self.frame_with(Framer(compression, level, threshold))
        self._checking = checking
        self.retention, self.protect = retention, protect
        self.set_redaction(redaction)

    @property
    def url(self) -> str:
        return self.backend.url

    @overload
    def load(self, ref: str, *, at: int | str | None = None, newest_good: Literal[False] = False) -> Any: ...

    @overload
    def load(self, ref: str, *, at: int | str | None = None, newest_good: Literal[True]) -> Salvaged: ...

    def load(self, ref: str, *, at: int | str | None = None, newest_good: bool = False) -> Any:
        """The state that a ref names, as a plain fresh value. `at` may name the checkpoint instead of the ref.

        `newest_good` goes back to the newest checkpoint up to there that is not damaged, and gives a `Salvaged`, which says what it passed over.
        """
        row, number = self._resolve(ref, at)
        self._tell("before_load", row.id, number=number)
        if newest_good:
            from everstep.store.repair.salvage import salvage

            salvaged = salvage(self.backend, row, number)
            self._tell("after_load", row.id, number=salvaged.number)
            return salvaged
        state = reading.load(self.backend, row, number).revived()
        self._tell("after_load", row.id, number=number)
        return state

    def view(self, ref: str, *, at: int | str | None = None) -> Any:
        """The state that a ref names, read-only, fetching chunks as they are touched."""
        row, number = self._resolve(ref, at)
        return reading.look(self.backend, row, number)

    def _resolve(self, ref: str, at: int | str | None = None) -> tuple[RunRow, int]:
        return resolve(self.backend, ref if at is None else f"{ref}@{at}")

    def frame_with(self, framer: Framer) -> None:
        """Wrap and unwrap every frame of this store with a framer. All that read through the backend find it there."""
        self.framer = self.backend.framer = framer

    def get(self, run_id: str) -> RunInfo:
        """What is known about a run; of a failed one also its error."""
        row = find_run(self.backend, run_id)
        return RunInfo.of(row, reading.last_error(self.backend, row) if row.status == Status.FAILED else None)

    def runs(self, **filters: Any) -> Page[RunInfo]:
        """Runs, newest first. Filters: status, workflow, session, parent, prefix, tag (one or several, all must fit), note (a part of it),
        meta (a dict of key and value), since, until (datetime or seconds), oldest_first, limit, after (the `next` of the page before)."""
        return query.list_runs(self.backend, query.make_query("runs", **filters))

    def checkpoints(self, run_id: str, **filters: Any) -> Page[Checkpoint]:
        """Checkpoints of a run, newest first. Filters as for `runs`, where they make sense: tag, note, meta, since, until."""
        need(self.backend, Index)
        row = find_run(self.backend, run_id)
        about_run = {name: filters.pop(name) for name in ("status", "workflow", "session", "parent") if name in filters}
        query.make_query("runs", **about_run)  # refuses what makes no sense
        if any(getattr(row, name) != value for name, value in about_run.items()):
            return Page()  # they are the same for all checkpoints of a run
        return query.list_checkpoints(self.backend, row, query.make_query("checkpoints", **filters))

    def checkpoint(self, ref: str) -> Checkpoint:
        """One checkpoint."""
        row, number = resolve(self.backend, ref)
        record = reading.checkpoint_record(self.backend, row, number)
        return query.with_tags_and_marks(self.backend, row, [record])[0]

    def diff(self, a: str, b: str) -> list[Change]:
        """The changes from the state of one ref to that of another, by path."""
        from everstep.store.travel import history

        first = resolve(self.backend, a)
        return history.diff(self.backend, first, resolve(self.backend, b, first[0]))

    def blame(self, ref: str, path: Sequence[Any]) -> Blame:
        """The checkpoint, up to the one that the ref names, which last changed the value at a path: `store.blame("r", ["plan", "goal"])`.

        It follows forks to the runs that they began in. A `Blame` is a `Checkpoint` that also says whether it is `exact`.
        """
        if not isinstance(path, (str, list, tuple)):
            raise InvalidArgument(f"{path!r:.60} is no path", remedy='Give a key, or a list such as ["messages", 3, "content"].')
        steps = [path] if isinstance(path, str) else list(path)
        row, number = resolve(self.backend, ref)
        from everstep.store.travel.blame import blame

        return blame(self.backend, row, number, steps)

    def tag(self, ref: str, name: str) -> None:
        """Put a tag on a checkpoint. Needs no lease."""
        need(self.backend, Index)
        row, number = resolve(self.backend, ref)
        self.backend.tag(Tag.make(row.key, check_tag(name), number, clock.now_us(), self.backend.seal), row.id)

    def fork(self, ref: str, id: str | None = None, edit: Edit | None = None) -> RunInfo:
        """A new run that begins at a checkpoint, perhaps with an edited state.

        `edit` sets top-level keys, or is a function that gets the state and changes it or returns another one. The fork's
        first checkpoint is that state; it shares all chunks that did not change. A workflow's fork has the journal up to there.
        """
        row, number = resolve(self.backend, ref)
        self._tell("before_fork", row.id, number=number)
        from everstep.store.travel import forks

        made = forks.fork(self.backend, self.framer, row, number, id, edit, self.mask)
        self._tell("after_fork", row.id, number=number, fork=made.id)
        return RunInfo.of(made)

    def fork_before(self, row: RunRow, address: str, id: str | None = None) -> RunRow:
        """A fork of a workflow's run that begins just before one of its steps."""
        self._tell("before_fork", row.id, step=address)
        from everstep.store.travel import forks

        made = forks.fork_before(self.backend, self.framer, row, address, id)
        self._tell("after_fork", row.id, step=address, fork=made.id)
        return made

    def delete(self, run_id: str) -> None:
        """Remove a run and all that is its own. Forks of it stay whole."""
        need(self.backend, Reclaim)
        self._remove(find_run(self.backend, run_id))

    def _remove(self, row: RunRow) -> None:
        self._tell("before_delete", row.id)
        self.backend.delete(row)
        self._tell("after_delete", row.id)

    def _remove_many(self, rows: Sequence[RunRow]) -> set[bytes]:
        for row in rows:
            self._tell("before_delete", row.id)
        gone = self.backend.delete_many(rows)
        for row in rows:
            if row.key in gone:
                self._tell("after_delete", row.id)
        return gone

    def _tell(self, name: str, run: str, **data: Any) -> None:
        """Something happened; a store with a runtime has hooks for it."""

    def verify(self, depth: Depth = "quick", *, progress: Progress | None = None, seconds: float | None = None) -> Report:
        """Prove the store whole: quick, records or full. Others may write meanwhile.

        `progress(done, total, what)` is called now and then; after `seconds` it stops, and the report says how far it came.
        """
        need(self.backend, Audit, Index, Mailbox, Reclaim, Facts)
        from everstep.store.verify.verify import verify

        return verify(self.backend, depth, progress, seconds)

    def doctor(self) -> Checkup:
        """Look for what is unsafe, wasteful or left over: findings, each with a level, a sentence and a remedy."""
        need(self.backend, Audit, Facts)
        from everstep.store.verify.doctor import doctor

        return doctor(self.backend, self.framer)

    def prune(
        self,
        retention: Given = None,
        *,
        run: str | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> PrunePlan:
        """Drop the states of checkpoints that are not kept by a retention, or else by those that were set. Others may write meanwhile.

        With `run`, only of that one. A dry run changes nothing and says what would go and why.
        """
        return self._cleaner().prune(retention, run, dry_run, progress)

    def gc(self, *, dry_run: bool = False, compact: bool = False, progress: Progress | None = None) -> Collected:
        """Free the chunks that nothing refers to any more, and give the space back. Others may write meanwhile.

        `compact` rebuilds the store without any free space, which keeps writers out.
        """
        return self._cleaner().gc(dry_run, compact, progress)

    def cleanup(self, retention: Given = None, *, dry_run: bool = False, seconds: float | None = None) -> Cleaned:
        """Delete runs that have ended, where their retention says so; prune, gc, and give the space back. The store remembers when that was.

        After `seconds` it stops, and the next one goes on.
        """
        return self._cleaner().clean(retention, dry_run, seconds, self._remove_many)

    def set_retention(self, retention: Given, *, workflow: str | None = None, run: str | None = None) -> None:
        """Have the store remember what is kept: of every run, of those of a workflow, or of one run. None forgets it."""
        need(self.backend, Facts)
        from everstep.store.retention.policies import set_retention

        set_retention(self.backend, retention, workflow, run)

    def get_retention(self, run: str | None = None) -> Retention | None:
        """What holds for a run (its own, else that of its workflow, else that of the store), or for the store."""
        from everstep.store.retention.policies import Policies

        policies = Policies(self.backend, self.retention)
        found = policies.of_store() if run is None else policies.of(find_run(self.backend, run))
        return None if found is None else found.retention

    def _cleaner(self) -> Cleaner:
        need(self.backend, Audit, Reclaim, Facts)
        from everstep.store.retention.cleanup import Cleaner

        return Cleaner(self.backend, self.framer, self.retention, self.protect)

    def upgrades(self, all_checkpoints: bool = False) -> list[Upgrade]:
        """What a load would upgrade, leave unknown or refuse, over the whole store: a dry run of the types registered here."""
        from everstep.store.upgrades import upgrades

        return upgrades(self.backend, all_checkpoints)

    def steps(self, run_id: str) -> list[Step]:
        """The recorded steps of a run, failed attempts too, in the order in which they ended."""
        from everstep.store.journal.steps import list_steps

        return list_steps(self.backend, find_run(self.backend, run_id))

    def gates(self, run_id: str) -> list[Gate]:
        """The gates that a run has come to: what they ask, and what was answered."""
        need(self.backend, Mailbox)
        from everstep.store.gates import list_gates

        return list_gates(self.backend, find_run(self.backend, run_id))

    def events(self, after: int | str = 0, run: str | None = None, limit: int = 1000) -> Page[Event]:
        """What happened in the store beyond a position, in the order in which it was committed; the page's `next` is where to go on.

        Any process may follow it: keep `str(page.next)` and give it as `after`. If the store was restored from an older backup meanwhile, it
        is refused with `HistoryChanged`. With `run`, only what happened to that run, by its own places.
        """
        if run is None:
            need(self.backend, Feed)
        from everstep.store.events.feed import events

        return events(self.backend, after, None if run is None else find_run(self.backend, run), limit)

    def stats(self) -> dict[str, int]:
        """How much there is: runs, records, chunks and bytes."""
        need(self.backend, Audit)
        return self.backend.stats()

    def first_commit(
        self, id: str | None, fields: dict[str, Any], about: dict[str, Any], chunks: Sequence[tuple[bytes, bytes]], **changes: Any
    ) -> Commit:
        """What makes a run, with a row that says so much more of it than that it is new."""
        row = new_row(id or new_id(), **fields)
        for name, value in changes.items():
            setattr(row, name, value)
        chain = Chain(self.framer, row, None, self.backend.seal)
        chain.start(**about)
        chain.chunks(chunks)
        return chain.commit()

    def commit(
        self,
        row: RunRow,
        saver: Saver,
        note: str | None,
        tags: tuple[str, ...],
        meta: str | None,
        own: str | None = None,
        entries: Sequence[Entry] = (),
    ) -> Commit:
        """What one checkpoint of a run writes, together with the journal's entries before it."""
        saved = saver.build()
        try:
            chain = Chain(self.framer, row, row, self.backend.seal)
            if entries:
                chain.entries(entries)
            chain.checkpoint(saved, note, tags, meta, own)
            return chain.commit()
        except BaseException:
            saver.lost()
            raise

    def saver(self) -> Saver:
        saver = Saver(self.framer.wrap, self._checking)
        if self.mask is None:
            return saver
        from everstep.store.masking import MaskingSaver

        return MaskingSaver(saver, self.mask)

    def set_redaction(self, redaction: Redactor | None) -> None:
        """Have values masked before they are stored, or no longer."""
        self.mask: Mask | None = None
        if redaction is not None:
            from everstep.store.masking import Mask

            self.mask = Mask(redaction)

    def close(self) -> None:
        self.backend.close()
