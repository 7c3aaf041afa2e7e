"""Appends to a run without a lease: each append is compared with the row that the handle knows, and refused if the run has moved on.

    row      the newest row of the run that is known; every commit follows it (the backend compares)
    number   the checkpoint that the live state belongs to; a checkpoint is refused if the row counts more

Entries commute: attaching one, asking a question or setting a status is built again on the newer row if another writer was faster. So is a
checkpoint, if only entries were appended meanwhile. While a process drives the run, nothing is appended: its lease says that it alone writes.
If the outcome of a commit is unknown, the next call finds it out first. Writes nothing except commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from everstep.backends.contract.core import Commit
from everstep.clock import clock, iso
from everstep.codec.values import decode, encode
from everstep.errors import (
    Conflict,
    EverstepError,
    IllegalTransition,
    InvalidArgument,
    LeaseHeld,
    LostLease,
    NotFound,
    RunDeleted,
    RunExists,
)
from everstep.records import Kind, Record, RunRow, Status
from everstep.runtime.engine.opening import continue_from
from everstep.runtime.engine.replay import taken_over
from everstep.runtime.lines.catch_up import caught_up
from everstep.runtime.lines.together import block_of
from everstep.snapshot.saver import Saved, Saver
from everstep.store.chain import Chain, Entry, new_row
from everstep.store.encryption.frames import sealed_row
from everstep.store.events.event import Event
from everstep.store.journal.attached import Given, add_to, address_of, addresses
from everstep.store.journal.entries import said_in
from everstep.store.load import checked, load
from everstep.store.query import check_note, check_tags, to_meta
from everstep.store.refs import verified
from everstep.store.store import new_saver
from everstep.store.views import Checkpoint, when
from everstep.threads.guard import interrupts

if TYPE_CHECKING:
    from everstep.runtime.engine_store import EngineStore
    from everstep.runtime.lines.ways import Ways

Labels = tuple[str | None, tuple[str, ...], str | None]
Build = Callable[[RunRow | None], Commit | None]
_TRIES = 100  # each one follows an append of another writer
_MOST_KNOWN = 64
_CHECKPOINT = Kind.CHECKPOINT.value
_REFUSED = (Conflict, LostLease, RunExists)


class Appender:
    """One run, as far as one handle knows it."""

    def __init__(self, store: EngineStore, id: str, state: Any, fields: dict[str, Any], ways: Ways):
        self.store = store
        self.id = id
        self.ways = ways
        self.row: RunRow | None = None
        self.number = 0
        self._first = None if state is None else encode(state)
        self._fields = fields
        self._saver: Saver | None = None  # the live state; loaded when it is first used
        self._unsure: Commit | None = None  # a commit whose outcome is unknown
        self._is_stale = False  # another writer has appended since the last state was built
        self._before: tuple[RunRow | None, int] = (None, 0)
        self._plain_key: bytes | None = None  # the key of the run, if it is known not to be a workflow's
        self._attached: dict[int, set[str]] = {}  # addresses by checkpoint, while no other writer has appended

    # Reading.

    async def open(self) -> None:
        """Read the row of the run, if there is one."""
        self.row = await self.ways.call(self._stored)
        self.number = 0 if self.row is None else self.row.checkpoints

    def _stored(self) -> RunRow | None:
        row = self.store.backend.run(self.id)
        return None if row is None else verified(row, self.store.backend.seal)

    async def live(self) -> Saver:
        """Return the live state, loaded if necessary."""
        if self._saver is None:
            self._saver = await self.ways.call(self._load)
        return self._saver

    def _load(self) -> Saver:
        saver, row = new_saver(self.store), self.row
        if row is None or not self.number:
            saver.begin({} if self._first is None else decode(self._first))
        else:
            continue_from(saver, load(self.store.backend, row, self.number), row.id)
        return saver

    async def refresh(self) -> bool:
        """Catch up with other writers; return whether there was a new checkpoint. Unsaved changes of the state are dropped then."""
        await self._settle()
        if self.kept():
            return False  # what it knows is not stored yet
        before, now = self.row, await self.ways.call(self._stored)
        if now is None:
            if before is None:
                return False
            raise self._deleted()
        if before is not None and now.key == before.key and now.checkpoints == self.number:
            self._moved(now)
            return False
        if before is None or now.key != before.key or not await self._caught_up(before, now):
            self._saver = None
        self._moved(now)
        self.number = now.checkpoints
        return True

    async def refresh_row(self) -> None:
        """Read the newest row, without its state."""
        if self.kept():
            return
        now = await self.ways.call(self._stored)
        if now is None or (self.row is not None and now.key != self.row.key):
            raise self._deleted()
        self._moved(now)

    async def _caught_up(self, before: RunRow, now: RunRow) -> bool:
        if self._saver is None or before.checkpoints != self.number:
            return False
        return await self.ways.call(caught_up, self.store.backend, self._saver, before, now)

    def _moved(self, row: RunRow) -> None:
        """Take a row that another writer may have written."""
        if self.row is None or row.check != self.row.check:
            self._attached.clear()
            self._is_stale = True
            if self._saver is not None:
                self._saver.forget_chunks()
        self.row = row

    # Appending.

    async def checkpoint(self, labels: Labels, state: Any) -> Checkpoint:
        """Append a checkpoint of the live state, or of an object that is handed in."""
        await self._settle()
        if self.row is not None and self.row.checkpoints != self.number:
            raise await self._overtaken()
        await self._refuse_workflow()
        try:
            saver = await self.live()
        except RunDeleted:  # perhaps another run has its id by now
            raise await self._overtaken() from None
        if state is not None:
            saver.hand_in(state)
        saved, self._is_stale = saver.build(), False

        def build(row: RunRow | None) -> Commit:
            nonlocal saved
            if self._is_stale and saved.base is not None:  # it may rely on chunks that the other writer has dropped
                saver.lost()
                saved, self._is_stale = saver.build(), False
            return self._with_checkpoint(row, saved, labels)

        try:
            commit = await self.append(build, alone=True)
        except BaseException:
            saver.lost()
            raise
        assert commit is not None
        self.number = commit.run.checkpoints
        self._know(self.number, set())
        return Checkpoint(next(record for record in commit.records if record.kind == _CHECKPOINT))

    def _with_checkpoint(self, row: RunRow | None, saved: Saved, labels: Labels) -> Commit:
        framer, seal = self.store.framer, self.store.backend.seal
        if row is None:
            chain = Chain(framer, sealed_row(framer, new_row(self.id, **self._fields)), None, seal)
            chain.start()
            chain.status(Status.WAITING)
        else:
            chain = Chain(framer, row, row, seal)
            rest(chain, row)
        chain.checkpoint(saved, *labels)
        return chain.commit(worker=None, since=0)

    async def entries(self, entries: list[Entry], status: Status | None = None, **about: Any) -> Commit:
        """Append journal entries, and a status."""
        await self.begin()
        commit = await self.append(lambda row: self.with_entries(row, entries, status, **about))
        assert commit is not None
        return commit

    async def begin(self) -> None:
        """Find out what is unknown, and refuse the run of a workflow."""
        await self._settle()
        await self._refuse_workflow()

    def with_entries(self, row: RunRow | None, entries: list[Entry], status: Status | None = None, **about: Any) -> Commit:
        """Return the commit of journal entries, and of a status, after this row; without a row, it creates the run."""
        framer, seal = self.store.framer, self.store.backend.seal
        chain = Chain(framer, sealed_row(framer, new_row(self.id, **self._fields)) if row is None else row, row, seal)
        if row is None:
            chain.start()
            chain.status(Status.WAITING)
        elif status is None:
            rest(chain, row)
        chain.entries(entries)
        if status is not None:
            if row is not None and row.status == Status.CANCELLED:
                raise IllegalTransition(row.id, row.status, status)
            chain.status(status, True, **about)
        return chain.commit(worker=None, since=0)

    async def attach(self, number: int, given: list[Given], replace: bool) -> list[str]:
        """Attach values to a checkpoint; return the names of those that were written."""
        await self._settle()
        new: dict[str, Given] = {}

        async def learn(row: RunRow | None) -> None:
            if row is not None and number not in self._attached:
                self._know(number, await self.ways.call(addresses, self.store.backend, row, number))

        await self.append(lambda row: self._with_attached(row, number, given, replace, new), None if replace else learn, any_run=True)
        return self._was_attached(number, new)

    def attach_at_once(self, number: int, given: list[Given], replace: bool) -> list[str] | None:
        """Do the same without a coroutine if nothing has to be found out first, as in a loop that attaches; otherwise write nothing and
        return None. A refused commit is not written either: `attach` builds it again.
        """
        row, new = self.row, dict[str, Given]()
        if row is None or row.worker is not None or self._unsure is not None or (not replace and number not in self._attached):
            return None
        if block_of(self.store) is not None:
            return None
        commit = self._with_attached(row, number, given, replace, new)
        if commit is not None:
            try:
                self.store.backend.commit(commit)
            except BaseException as error:
                self._doubt(commit, error)
                if isinstance(error, _REFUSED) and not interrupts(error):
                    return None
                raise
            self.row = commit.run
        return self._was_attached(number, new)

    def _with_attached(self, row: RunRow | None, number: int, given: list[Given], replace: bool, new: dict[str, Given]) -> Commit | None:
        """Return the commit that attaches values after this row, and put those that it writes into `new`, by address."""
        if row is None or not 1 <= number <= row.checkpoints:
            has = "it has no checkpoint yet" if row is None or not row.checkpoints else f"its checkpoints are 1 to {row.checkpoints}"
            raise NotFound(f"{number!r} is not a checkpoint of run {self.id!r}: {has}")
        known = () if replace else self._attached.get(number, ())
        new.clear()
        chain = Chain(self.store.framer, row, row, self.store.backend.seal)
        for one in given:
            address = address_of(row.key, number, one.name)
            if address not in known:
                new[address] = one
                add_to(chain, address, one)
        return chain.commit() if new else None

    def _was_attached(self, number: int, new: dict[str, Given]) -> list[str]:
        if new and number in self._attached:
            self._attached[number].update(new)
        return [one.name for one in new.values()]

    def _know(self, number: int, found: set[str]) -> None:
        if len(self._attached) >= _MOST_KNOWN:
            self._attached.clear()
        self._attached[number] = found

    async def append(
        self, build: Build, learn: Callable[[RunRow | None], Any] | None = None, alone: bool = False, any_run: bool = False
    ) -> Commit | None:
        """Commit what `build` makes of the newest row. If another writer was faster, build again; with `alone`, only if it appended no
        checkpoint, and raise Conflict otherwise. The run of a workflow is refused, unless `any_run`.
        """
        for _ in range(_TRIES):
            if self.row is not None and self.row.worker is not None:
                await self._refuse_driven()
            if not any_run:  # it may be another run with the same id by now
                await self._refuse_workflow()
            if learn is not None:
                await learn(self.row)
            commit = build(self.row)
            if commit is None:
                return None
            try:
                await self._commit(commit)
            except _REFUSED as error:
                if interrupts(error):
                    raise
                await self._look_again(alone)
                continue
            if commit.was is None:
                self._plain_key = commit.run.key
            self.row = commit.run
            return commit
        raise await self._overtaken()

    async def _commit(self, commit: Commit) -> None:
        together = block_of(self.store)
        if together is not None and together.add(self, commit):
            return
        try:
            await self.ways.commit(self.store.backend, commit)
        except BaseException as error:
            self._doubt(commit, error)
            raise

    def _doubt(self, commit: Commit, error: BaseException) -> None:
        """Note a commit whose outcome is unknown after this error."""
        if not isinstance(error, EverstepError) or interrupts(error) or error.written != "no":
            self._unsure = commit

    # Several lines in one commit.

    def kept(self) -> list[Record]:
        """Return the records that wait for the end of a block."""
        together = block_of(self.store)
        return [] if together is None else together.records(self)

    def remember(self) -> None:
        """Note what is known before the first commit of a block that may be taken back."""
        self._before = (self.row, self.number)

    def take_back(self, unsure: Commit | None) -> None:
        """Know again what was known before the block. `unsure` is its commit, if the outcome is unknown."""
        self.row, self.number = self._before
        self._unsure = unsure
        self._attached.clear()
        if self._saver is not None:
            self._saver.lost()

    def refuse_moved(self) -> None:
        """Raise Conflict if this is the run that has moved on, or LeaseHeld if a live process drives it."""
        now = self._stored()
        if now is None and self.row is not None:
            raise self._deleted()
        if now is not None and (self.row is None or now.check != self.row.check):
            holder = None if now.worker is None else self.store.backend.holder(now)
            if holder is not None:
                raise LeaseHeld(now.id, holder.host, holder.pid, iso(now.since), iso(holder.expires_at))
            raise self._conflict(now)

    async def _look_again(self, alone: bool) -> None:
        """Read the row that was in the way of a commit."""
        before, now = self.row, await self.ways.call(self._stored)
        if now is None or (before is not None and now.key != before.key and not alone):
            raise self._deleted()
        await self._refuse_held(now)
        if alone and (now.checkpoints != self.number or (before is not None and now.key != before.key)):
            raise self._conflict(now)
        self._moved(now)

    async def _overtaken(self) -> EverstepError:
        now = await self.ways.call(self._stored)
        if now is None:
            return self._deleted()
        await self._refuse_held(now)
        return self._conflict(now)

    def _conflict(self, now: RunRow) -> Conflict:
        """Catch up, and return the error that says so."""
        mine, self.number, self._saver = self.number, now.checkpoints, None
        self._moved(now)
        return Conflict(
            f"run {self.id!r} has moved on to checkpoint {now.checkpoints}: this write follows checkpoint {mine}, and was not made",
            remedy="line.state is now the newest state: make your change again, and save it.",
            number=now.checkpoints,
        )

    def _deleted(self) -> RunDeleted:
        return RunDeleted(self.id)

    async def _settle(self) -> None:
        """Find out whether an earlier commit was made: the check of the row identifies it."""
        commit = self._unsure
        if commit is None:
            return
        await self.ways.settled()
        stored = await self.ways.call(self._stored)
        if stored is not None and stored.check == commit.run.check:
            self.row = stored
            self._attached.clear()
            if any(record.kind == _CHECKPOINT for record in commit.records):
                self.number = stored.checkpoints
        self._unsure = None

    # Refusing.

    async def _refuse_driven(self) -> None:
        """Refuse to write while a live process has the run's lease, as far as is known. If it took the lease since, the commit is refused."""
        if self.row is None or self.row.worker is None or self.kept():
            return
        row = await self.ways.call(self._stored)
        if row is not None and row.key == self.row.key:
            self._moved(row)
            await self._refuse_held(row)

    async def _refuse_held(self, row: RunRow) -> None:
        holder = None if row.worker is None else await self.ways.call(self.store.backend.holder, row)
        if holder is not None:
            raise LeaseHeld(row.id, holder.host, holder.pid, iso(row.since), iso(holder.expires_at))

    async def _refuse_workflow(self) -> None:
        """Refuse the run of a workflow: another program cannot add to its journal."""
        row = self.row
        if row is None or row.key == self._plain_key:
            return
        if row.workflow is not None:
            first = await self.ways.call(checked, self.store.backend, row, 1, 1)
            if "workflow" in said_in(first[0]):
                raise InvalidArgument(
                    f"run {row.id!r} belongs to the workflow {row.workflow!r}",
                    remedy="Continue it with store.resume(run_id), or fork it. line.attach works on any run.",
                )
        self._plain_key = row.key

    def labels(self, note: str | None, tags: Iterable[str] | str, meta: Mapping[str, Any] | None) -> Labels:
        """Check and mask the labels of a checkpoint."""
        mask = self.store.mask
        if mask is not None:
            note, meta = mask.text(note), mask.meta(meta)
        return check_note(note), check_tags(tags), to_meta(meta)

    def fire(self, name: str, **data: Any) -> None:
        """Call the hooks of an event."""
        hooks = self.store.hook_registry
        if hooks.wanted(name):
            hooks.fire(name, Event(name, self.id, when(clock.now_us()), data))


def rest(chain: Chain, row: RunRow) -> None:
    """Have a run wait that no process drives. It is not crashed, also if its last process died."""
    if row.status == Status.WAITING:
        return
    if row.status == Status.CANCELLED:
        raise IllegalTransition(row.id, row.status, Status.WAITING)
    if row.worker is not None:
        chain.entries([taken_over()])
    chain.status(Status.WAITING, True)
