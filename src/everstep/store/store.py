"""A store without the runtime: finds, reads, compares, forks and verifies runs, and makes commits for writers.

Relies on a backend for bytes and on `snapshot` for their meaning. Thread-safe. Reading needs no lease and never waits for a writer.
`everstep.api.Store` adds `run`, which opens a run for writing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from everstep.backends.contract.audit import Audit
from everstep.backends.contract.capability import need, whole
from everstep.backends.contract.core import Backend, Commit
from everstep.backends.contract.feed import Feed
from everstep.backends.contract.index import Index
from everstep.backends.contract.mailbox import Mailbox
from everstep.backends.contract.properties import Properties
from everstep.backends.contract.reclaim import Reclaim
from everstep.codec.frame import Compression, Framer
from everstep.errors import InvalidArgument
from everstep.ids import check_tag, new_id
from everstep.records import Framing, RunRow, Status
from everstep.snapshot.saver import Saver
from everstep.store import load as reading
from everstep.store import query
from everstep.store.chain import Chain, Entry, new_row
from everstep.store.encryption.frames import need_key, sealed_row, shown_row
from everstep.store.refs import add_tag, find_run, resolve
from everstep.store.views import Checkpoint, Listed, Page, RunInfo

if TYPE_CHECKING:  # modules that only some programs use are imported on first use
    from everstep.durations import Duration
    from everstep.redact import Redactor
    from everstep.snapshot.diff import Change
    from everstep.store.encryption.rekey import Rekeyed
    from everstep.store.events.event import Event
    from everstep.store.gates import Gate
    from everstep.store.journal.attached import Attached
    from everstep.store.journal.steps import Step, StepDetail
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
    from everstep.store.verify.signing_keys import SigningKey


class BaseStore:
    """Runs, checkpoints and states in one backend."""

    framer: Framing

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
        plain_secrets: bool = False,
        user: str | None = None,
        framing: Framing | None = None,
    ):
        self.backend = whole(backend)
        self.plain_secrets = plain_secrets
        frame_with(self, framing or Framer(compression, level, threshold))
        self._checking = checking
        self.retention, self.protect = retention, protect
        self.mask: Mask | None = None
        set_redaction(self, redaction)
        self.user = query.user_of(user)

    @property
    def url(self) -> str:
        """The address of the store."""
        return self.backend.url

    @property
    def encrypted(self) -> bool:
        """Whether the store encrypts what it keeps. Only then does it take a `Secret` without being allowed to (`plain_secrets`)."""
        return self.framer.encrypted

    @overload
    def load(self, ref: str, *, at: int | str | None = None, newest_good: Literal[False] = False) -> Any: ...

    @overload
    def load(self, ref: str, *, at: int | str | None = None, newest_good: Literal[True]) -> Salvaged: ...

    def load(self, ref: str, *, at: int | str | None = None, newest_good: bool = False) -> Any:
        """Return the state that a ref names, as a new plain value. `at` may name the checkpoint instead of the ref.

        `newest_good` goes back to the newest undamaged checkpoint at or before it, and returns a `Salvaged`, which lists the skipped ones.
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

    def states(
        self, run_id: str, *, first: int | None = None, last: int | None = None, newest_first: bool = True, shared: bool = False
    ) -> Iterator[tuple[Checkpoint, Any]]:
        """Return the checkpoints first..last (numbers) with their states, in one walk; pruned ones are left out.

        Each state is a new plain value. With `shared`, unchanged parts are the same objects in all of them, which is five times faster: do
        not change them.
        """
        from everstep.store.travel.states import states

        return states(self.backend, find_run(self.backend, run_id), first, last, newest_first, shared)

    def view(self, ref: str, *, at: int | str | None = None) -> Any:
        """Return the state that a ref names, read-only, fetching chunks as they are used."""
        row, number = self._resolve(ref, at)
        return reading.look(self.backend, row, number)

    def _resolve(self, ref: str, at: int | str | None = None) -> tuple[RunRow, int]:
        return resolve(self.backend, ref if at is None else f"{ref}@{at}")

    def get(self, run_id: str) -> RunInfo:
        """Return information about a run; of a failed one also its error."""
        row = find_run(self.backend, run_id)
        return RunInfo.of(shown_row(self.backend, row), reading.last_error(self.backend, row) if row.status == Status.FAILED else None)

    def runs(self, **filters: Unpack[query.RunFilters]) -> Page[RunInfo]:
        """List runs, newest first. Filters: status, workflow, session, parent, prefix, tag (one or several, all must match), note (a part
        of it), meta (a dict of key and value), since, until (datetime or seconds), oldest_first, limit, after (the `next` of the
        previous page). The status "crashed" finds runs whose process died, "interrupted" those whose process closed them before
        their end; the status of both is stored as "running".
        """
        status = filters.get("status")
        if status in (query.CRASHED, query.INTERRUPTED):
            given = {name: value for name, value in filters.items() if name != "status"}
            return query.list_stopped(self.backend, str(status), **given)
        return query.list_runs(self.backend, query.make_query("runs", **filters))

    def checkpoints(self, run_id: str, **filters: Unpack[query.CheckpointFilters]) -> Page[Checkpoint]:
        """List checkpoints of a run, newest first. Filters as for `runs` where they apply: tag, note, meta, since, until."""
        need(self.backend, Index)
        row = find_run(self.backend, run_id)
        given: dict[str, Any] = dict(filters)
        about_run = {name: given.pop(name) for name in ("status", "workflow", "session", "parent") if name in given}
        query.make_query("runs", **about_run)  # rejects invalid values
        if any(getattr(row, name) != value for name, value in about_run.items()):
            return Page()  # these are the same for all checkpoints of a run
        return query.list_checkpoints(self.backend, row, query.make_query("checkpoints", **given))

    def find(
        self, *, meta: Mapping[str, Any] | None = None, tags: Iterable[str] | str = (), limit: int | None = None, after: int | None = None
    ) -> Page[Checkpoint]:
        """Find checkpoints of all runs by metadata and tags, all of which must match: `store.find(meta={"thread": 7})`. Newest run first."""
        need(self.backend, Index)
        wanted = query.make_query("checkpoints", meta=meta, tag=tags, limit=limit, after=after)
        if not wanted.meta and not wanted.tags:
            raise InvalidArgument("find needs meta or tags", remedy="To list the checkpoints of a run: store.checkpoints(run_id).")
        return query.find_checkpoints(self.backend, wanted)

    def checkpoint(self, ref: str) -> Checkpoint:
        """Return one checkpoint."""
        row, number = resolve(self.backend, ref)
        record = reading.checkpoint_record(self.backend, row, number)
        return query.with_tags_and_marks(self.backend, row, [record])[0]

    def attached(self, run_id: str, number: int | None = None, *, prefix: str | None = None) -> list[Attached]:
        """Return the entries attached to a checkpoint, or to any of the run, whose names begin with `prefix`; in the order of attaching."""
        need(self.backend, Index)
        from everstep.store.journal.attached import list_attached

        return list_attached(self.backend, find_run(self.backend, run_id), number, prefix)

    def diff(self, a: str, b: str) -> list[Change]:
        """Return the changes from the state of one ref to that of another, by path."""
        from everstep.store.travel import history

        first = resolve(self.backend, a)
        return Listed(history.diff(self.backend, first, resolve(self.backend, b, first[0])))

    def blame(self, ref: str, path: Sequence[Any]) -> Blame:
        """Return the checkpoint, up to the one that the ref names, that last changed the value at a path: `store.blame("r", ["plan",
        "goal"])`.

        It follows forks to the runs that they were forked from. A `Blame` is a `Checkpoint` that also says whether it is `exact`.
        """
        if not isinstance(path, (str, list, tuple)):
            raise InvalidArgument(
                f"path must be a key or a list of keys, got {path!r:.60}", remedy='Use a key, or a list such as ["messages", 3, "content"].'
            )
        steps = [path] if isinstance(path, str) else list(path)
        row, number = resolve(self.backend, ref)
        from everstep.store.travel.blame import blame

        return blame(self.backend, row, number, steps)

    def tag(self, ref: str, name: str) -> None:
        """Put a tag on a checkpoint. Needs no lease."""
        need(self.backend, Index)
        row, number = resolve(self.backend, ref)
        add_tag(self.backend, row, check_tag(name), number)

    def fork(self, ref: str, id: str | None = None, edit: Edit | None = None) -> RunInfo:
        """Create a run that begins at a checkpoint, optionally with an edited state.

        `edit` sets top-level keys, or is a function that gets the state and changes it or returns another one. That state is the fork's
        first checkpoint; it shares all chunks that did not change. A workflow's fork has the journal up to there.
        """
        row, number = resolve(self.backend, ref)
        self._tell("before_fork", row.id, number=number)
        from everstep.store.travel import forks

        made = forks.fork(self.backend, self.framer, row, number, id, edit, self.mask, self.user)
        self._tell("after_fork", row.id, number=number, fork=made.id)
        return RunInfo.of(shown_row(self.backend, made))

    def copy(self, run_id: str, id: str | None = None) -> RunInfo:
        """Create a run with the whole history of another one, under a new id in the same family; it shares all chunks.

        Checkpoints keep their numbers, times, labels and attached entries. The copy waits, unless the run has ended.
        """
        need(self.backend, Index, Reclaim)
        row = find_run(self.backend, run_id)
        self._tell("before_fork", row.id)
        from everstep.store.travel.copies import copy

        made = copy(self.backend, self.framer, row, id)
        self._tell("after_fork", row.id, fork=made.id)
        return RunInfo.of(shown_row(self.backend, made))

    def delete(self, run_id: str) -> None:
        """Delete a run and everything that belongs only to it. Its forks stay intact."""
        need(self.backend, Reclaim)
        need_key(self.framer)
        self._remove(find_run(self.backend, run_id))

    def _remove(self, row: RunRow) -> None:
        self._tell("before_delete", row.id)
        self.backend.delete(row)
        self.framer.forget(row.family)
        self._tell("after_delete", row.id)

    def _remove_many(self, rows: Sequence[RunRow]) -> set[bytes]:
        for row in rows:
            self._tell("before_delete", row.id)
        gone = self.backend.delete_many(rows)
        for row in rows:
            if row.key in gone:
                self.framer.forget(row.family)
                self._tell("after_delete", row.id)
        return gone

    def _tell(self, name: str, run: str, **data: Any) -> None:
        """Report an event; a store with a runtime has hooks for it."""

    def verify(
        self,
        depth: Depth = "quick",
        *,
        progress: Progress | None = None,
        seconds: Duration | None = None,
        against: str | PathLike[str] | None = None,
        public_key: str | PathLike[str] | None = None,
    ) -> Report:
        """Verify the store: quick, records or full. Others may write meanwhile.

        `progress(done, total, what)` is called now and then; after `seconds` it stops, and the report says how far it came. `against` is a
        file of signed heads to compare with, `public_key` the text or the file of the key that verifies them; see `heads`.
        """
        need(self.backend, Audit, Index, Mailbox, Reclaim, Properties)
        if depth == "full":
            need_key(self.framer)
        from everstep.store.verify.verify import verify

        return verify(self.backend, depth, progress, seconds, against, public_key)

    def heads(self, key: str | PathLike[str] | SigningKey, *, progress: Progress | None = None) -> Iterator[str]:
        """Return the lines of a file that names the newest record of every run, signed: `file.writelines(store.heads("file:signing.key"))`.

        `key` is the source of the signing key: file:PATH, env:NAME or command:COMMAND. Keep the file where people who can write the
        store cannot change it; `verify(against=file)` finds a store that was rolled back, replaced or changed since.
        """
        need(self.backend, Audit, Properties)
        from everstep.store.verify.heads import write_heads

        return write_heads(self.backend, key, progress)

    def doctor(self) -> Checkup:
        """Report unsafe settings, waste and leftovers: findings, each with a level, a sentence and a remedy."""
        need(self.backend, Audit, Properties)
        from everstep.store.verify.doctor import doctor

        return doctor(self.backend, self.framer, self.encrypted)

    def prune(
        self,
        retention: Given = None,
        *,
        run: str | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> PrunePlan:
        """Drop the states of checkpoints that the given retention, or otherwise the stored ones, do not keep. Others may write meanwhile.

        With `run`, only of that run. A dry run changes nothing and reports what would be dropped, and why.
        """
        return self._cleaner().prune(retention, run, dry_run, progress)

    def drop(self, run_id: str, numbers: Iterable[int]) -> int:
        """Drop checkpoints permanently: state, note, tags, metadata and attached entries; return how many. Their numbers stay, without content.

        The newest checkpoint cannot be dropped. `store.gc()` frees the chunks that only they needed. While a process drives the run, this
        raises LeaseHeld.
        """
        need(self.backend, Audit, Index, Reclaim)
        from everstep.store.retention.drop import drop

        return drop(self.backend, find_run(self.backend, run_id), numbers, self.user)

    def gc(self, *, dry_run: bool = False, compact: bool = False, progress: Progress | None = None) -> Collected:
        """Free the chunks that nothing refers to any more, and return the space. Others may write meanwhile.

        `compact` rebuilds the store without any free space, which blocks writers.
        """
        return self._cleaner().gc(dry_run, compact, progress)

    def cleanup(
        self, retention: Given = None, *, dry_run: bool = False, seconds: Duration | None = None, progress: Progress | None = None
    ) -> Cleaned:
        """Delete ended runs as their retention says; prune, gc, and return the space. The store records when this was done.

        After `seconds` it stops, and the next clean-up continues.
        """
        return self._cleaner().clean(retention, dry_run, seconds, self._remove_many, progress)

    def set_retention(self, retention: Given, *, workflow: str | None = None, run: str | None = None) -> None:
        """Store a retention: for every run, for those of a workflow, or for one run. None removes it."""
        need(self.backend, Properties)
        need_key(self.framer)
        from everstep.store.retention.policies import set_retention

        set_retention(self.backend, retention, workflow, run)

    def get_retention(self, run: str | None = None) -> Retention | None:
        """Return the retention of a run (its own, otherwise its workflow's, otherwise the store's), or of the store."""
        from everstep.store.retention.policies import Policies

        policies = Policies(self.backend, self.retention)
        found = policies.of_store() if run is None else policies.of(find_run(self.backend, run))
        return None if found is None else found.retention

    def _cleaner(self) -> Cleaner:
        need(self.backend, Audit, Reclaim, Properties)
        need_key(self.framer)
        from everstep.store.retention.cleanup import Cleaner

        return Cleaner(self.backend, self.retention, self.protect)

    def rekey(self, key: Any, *, dry_run: bool = False, progress: Progress | None = None) -> Rekeyed:
        """Replace the key of an encrypted store, which was opened with the former one: wrap all keys of the store with `key`.

        Others may write meanwhile; no data is written again. If the process is killed, both keys open the store, the former one given in
        `old_keys`, and the next call continues.
        """
        from everstep.store.encryption.rekey import rekey

        return rekey(self.backend, self.framer, key, dry_run, progress)

    def upgrades(self, all_checkpoints: bool = False, *, progress: Progress | None = None) -> list[Upgrade]:
        """Report what a load would upgrade, leave unknown or refuse, over the whole store: a dry run of the types registered here."""
        need_key(self.framer)
        from everstep.store.upgrades import upgrades

        return upgrades(self.backend, all_checkpoints, progress)

    def steps(self, run_id: str) -> list[Step]:
        """Return the recorded steps of a run, failed attempts too, in the order in which they ended."""
        from everstep.store.journal.steps import list_steps

        return Listed(list_steps(self.backend, find_run(self.backend, run_id)))

    def step(self, run_id: str, address: str) -> StepDetail:
        """Return one recorded step of a run, with its input, its output, its error and all its attempts.

        `address` is that of `steps`, such as "ask#0"; a name alone means its first use.
        """
        from everstep.store.journal.steps import step_detail

        return step_detail(self.backend, find_run(self.backend, run_id), address)

    def gates(self, run_id: str) -> list[Gate]:
        """Return the gates that a run has reached, with questions and answers; an answer shows as soon as it is posted."""
        need(self.backend, Mailbox)
        from everstep.store.gates import list_gates, with_posted

        row = find_run(self.backend, run_id)
        return with_posted(self.backend, row, list_gates(self.backend, row))

    def questions(self, workflow: str | None = None, *, limit: int | None = None, after: int | None = None) -> Page[Gate]:
        """Return the open questions of all waiting runs, or of those of a workflow, the oldest run first.

        `after` is the `next` of the previous page.
        """
        need(self.backend, Mailbox, Index)
        query.make_query("runs", workflow=workflow, limit=limit, after=after)  # rejects invalid values
        from everstep.store.gates import questions

        return questions(self.backend, workflow, after or 0, limit)

    def events(self, after: int | str = 0, run: str | None = None, limit: int = 1000) -> Page[Event]:
        """Return the events of the store after a position, in commit order; continue from the page's `next`.

        Any process may follow the events: keep `str(page.next)` and pass it as `after`. If the store was restored from an older backup
        meanwhile, this raises `HistoryChanged`. With `run`, only events of that run; positions are then its record numbers.
        """
        if run is None:
            need(self.backend, Feed)
        from everstep.store.events.feed import events

        return events(self.backend, after, None if run is None else find_run(self.backend, run), limit)

    def stats(self) -> dict[str, int]:
        """Return the numbers of runs, records, chunks and bytes."""
        need(self.backend, Audit)
        return self.backend.stats()

    def close(self) -> None:
        """Close the store."""
        self.backend.close()


# For code that writes runs. Functions, because a user of a store does not need them.


def frame_with(store: BaseStore, framer: Framing) -> None:
    """Use this framer for every frame of this store. Code that reads through the backend finds it there."""
    framer.inner.keeps_secrets = framer.encrypted or store.plain_secrets
    store.framer = store.backend.framer = framer


def fork_before(store: BaseStore, row: RunRow, address: str, id: str | None = None) -> RunRow:
    """Fork a workflow's run just before one of its steps."""
    store._tell("before_fork", row.id, step=address)
    from everstep.store.travel import forks

    made = forks.fork_before(store.backend, store.framer, row, address, id, store.user)
    store._tell("after_fork", row.id, step=address, fork=made.id)
    return made


def first_commit(
    store: BaseStore, id: str | None, fields: dict[str, Any], about: dict[str, Any], chunks: Sequence[tuple[bytes, bytes]], **changes: Any
) -> Commit:
    """Return the commit that creates a run; `changes` override fields of its row."""
    row = new_row(id or new_id(), **fields)
    for name, value in changes.items():
        setattr(row, name, value)
    row = sealed_row(store.framer, row)
    chain = Chain(store.framer, row, None, store.backend.seal)
    chain.start(**about, user=store.user)
    chain.chunks(chunks)
    return chain.commit()


def checkpoint_commit(
    store: BaseStore,
    row: RunRow,
    saver: Saver,
    note: str | None,
    tags: tuple[str, ...],
    meta: str | None,
    own: str | None = None,
    entries: Sequence[Entry] = (),
) -> Commit:
    """Return the commit of one checkpoint of a run, together with the journal entries before it."""
    saved = saver.build()
    try:
        chain = Chain(store.framer, row, row, store.backend.seal)
        if entries:
            chain.entries(entries)
        chain.checkpoint(saved, note, tags, meta, own)
        return chain.commit()
    except BaseException:
        saver.lost()
        raise


def new_saver(store: BaseStore) -> Saver:
    """Return a saver for the state of a run; it masks values if the store does."""
    saver = Saver(store.framer.inner.wrap, store._checking)
    if store.mask is None:
        return saver
    from everstep.store.masking import MaskingSaver

    return MaskingSaver(saver, store.mask)


def set_redaction(store: BaseStore, redaction: Redactor | None) -> None:
    """Mask values before they are stored; None stops this."""
    if redaction is None:
        store.mask = None
        return
    from everstep.store.masking import Mask

    store.mask = Mask(redaction)
