"""Transactional steps: the statements of a function and the record of its step are committed together or not at all.

In the store's own database (`transactional=True`, PostgreSQL) the record is the last statement of the function's transaction. In any other
database, a row with the result is committed with the function's statements and the record follows; if it is missing, the next attempt takes
the result from the row. Decides nothing about retries: `runtime.steps` does.
"""

from __future__ import annotations

import inspect
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ormsgpack import packb, unpackb

from everstep.backends.contract.capability import has
from everstep.backends.contract.core import Commit, Committed
from everstep.backends.contract.transactions import Session, StepResults, Transaction, Transactional, Undone
from everstep.clock import clock
from everstep.errors import (
    AttemptLost,
    Damaged,
    InvalidArgument,
    LostLease,
    NonDeterminism,
    RunClosed,
    StoreError,
    StoreUnreachable,
)
from everstep.fields import Shape
from everstep.runtime.engine_store import at_close
from everstep.runtime.steps.lookup import kept as count_kept
from everstep.runtime.steps.record import after_step, succeeded
from everstep.runtime.steps.ticket import Unrecorded
from everstep.store.chain import Entry
from everstep.store.encryption.frames import frames_of
from everstep.store.journal.entries import SUCCEEDED, StepEntry, unpack_step
from everstep.store.journal.results import show_input
from everstep.transactions.results import address_of, open_results

if TYPE_CHECKING:
    from everstep.runtime.engine.attempt import Attempt
    from everstep.runtime.steps.drive import Ways
    from everstep.runtime.steps.ticket import Ticket

inside: ContextVar[str | None] = ContextVar("everstep-transaction", default=None)
"""The address of the transactional step that is executing."""


class TransactionalStep(Shape, frozen=True):
    """Steps in transactions: `address` is True for the store's own database, or the address of another one."""

    address: Any

    @classmethod
    def of(cls, given: Any) -> TransactionalStep:
        return cls(True if given is True else address_of(given))

    def check(self, ticket: Ticket) -> None:
        check(ticket)

    async def attempt(self, ticket: Ticket, ways: Ways) -> Any:
        return await transact(ticket, ways)

    def skip(self, ticket: Ticket) -> None:
        close_to_earlier(ticket)

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return call_bare(self.address, function, args, kwargs)


class InStore:
    """A transaction in the store's own database."""

    kept: tuple[StepEntry, Entry] | None = None
    inside = True

    def __init__(self, transaction: Transaction):
        self._transaction: Transaction | None = transaction
        self.connection = transaction.connection

    def keep(self, ticket: Ticket) -> None:
        """Do nothing: the record is part of the commit."""

    def commit(self, commit: Commit) -> Committed:
        transaction, self._transaction = self._transaction, None
        assert transaction is not None
        return transaction.commit(commit)

    def recorded(self, ticket: Ticket) -> None:
        """Do nothing: there is no row to delete."""

    def rollback(self, abandoned: bool = False) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            transaction.rollback(abandoned)


class Beside:
    """A transaction in a user's database."""

    inside = False

    def __init__(self, results: StepResults, session: Session, ticket: Ticket):
        self._session: Session | None = session
        self._results = results
        self.connection = session.connection
        self.kept = _opened(results, session.kept, ticket) if session.kept is not None else None

    def keep(self, ticket: Ticket) -> None:
        """Commit the function's statements together with the result."""
        run, entry, session = ticket.run, ticket.entry, self._session
        assert entry is not None and session is not None  # noqa: PT018
        content = frames_of(run.store.backend, run.live()[0]).wrap(
            packb([entry.content, [list(chunk) for chunk in entry.chunks]]), ("result", ticket.address)
        )
        self._session, done = None, taken(self._results)
        try:
            session.commit(content, _digest(run, ticket.address, content), done)
        except BaseException:
            self._results.done.extend(done)
            raise

    def commit(self, commit: Commit) -> Committed:
        raise NotImplementedError  # the record is committed with all others, in the store

    def recorded(self, ticket: Ticket) -> None:
        """Mark the row for deletion: the journal has the record, or will have it when the run ends."""
        row = ticket.run.live()[0].key, ticket.address
        if ticket.run.writer.is_sync:
            self._results.done.append(row)
        else:
            ticket.run.at_end.append(partial(self._results.done.append, row))

    def rollback(self, abandoned: bool = False) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.rollback(abandoned)


Work = InStore | Beside


def taken(results: StepResults) -> list[tuple[bytes, str]]:
    """Return the rows that may be deleted, and remove them from the list."""
    found = []
    with suppress(IndexError):
        while True:
            found.append(results.done.popleft())
    return found


def check(ticket: Ticket) -> None:
    """Refuse an invalid transactional step before anything is recorded about it."""
    outer, address, url = inside.get(), ticket.options.transactional.address, ticket.run.store.backend.url
    if outer is not None:
        raise InvalidArgument(
            f"transactional step {ticket.address} was called inside transactional step {outer}",
            remedy="Call it after that one, or make it a plain function that takes the connection.",
        )
    if address is True and not has(ticket.run.store.backend, Transactional):
        raise InvalidArgument(f"the store {url} cannot hold your tables", remedy=_WHERE)
    if address is not True:
        _refuse_store(url, address)


_WHERE = 'transactional=True needs a store in PostgreSQL. Name the database of your tables: transactional="app.db".'


def _refuse_store(url: str, address: str) -> None:
    """Refuse the file of a store: it must contain only the store, because verify and repair would trip over other tables."""
    path = unquote(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else None
    if path is not None and Path(path).exists() and Path(address).exists() and Path(address).samefile(path):
        raise InvalidArgument(
            f"{address} is the file of the store, which cannot hold your tables", remedy="Keep your tables in a file of their own."
        )


def open_work(ticket: Ticket) -> Work:
    """Begin the transaction of one attempt at a step. An error of the database fails the attempt."""
    ticket.started = clock.now_us()
    try:
        return _open_work(ticket)
    except (Damaged, LostLease, NonDeterminism, RunClosed) as error:
        raise Unrecorded(error) from error
    except StoreError as error:
        if ticket.options.transactional.address is not True:
            raise  # the user's database does not answer: the step failed
        raise Unrecorded(error) from error


def _open_work(ticket: Ticket) -> Work:
    run, address = ticket.run, ticket.options.transactional.address
    if address is True:
        backend: Any = run.store.backend
        return InStore(backend.transaction())
    results, (row, _) = _entered(run, address), run.live()
    session = results.begin(row.key, row.id, row.epoch, ticket.address)
    try:
        return Beside(results, session, ticket)
    except BaseException:
        session.rollback()
        raise


def _entered(run: Attempt, address: str) -> StepResults:
    """Return the step results of a database, with earlier attempts at this run fenced off."""
    results, (row, _) = open_results(address), run.live()
    if address not in run.databases:
        results.enter(row.key, row.id, row.epoch, lambda step: _is_recorded(run, step))
        run.databases.add(address)
        at_close(run.store, address, lambda: _tidy(results))
    return results


def close_to_earlier(ticket: Ticket) -> None:
    """Fence off earlier attempts when a step is skipped: one that was stopped in the middle of it must not complete it later."""
    if ticket.options.transactional.address is not True:
        _entered(ticket.run, ticket.options.transactional.address)


def _tidy(results: StepResults) -> None:
    """Delete the rows that may be deleted. Best effort: a row that stays is harmless, and is deleted when its run is next executed."""
    done = taken(results)
    if done:
        with suppress(Exception):
            results.clear(done)
    results.rest()


def _is_recorded(run: Attempt, address: str) -> bool:
    found = run.replay.entries.get(address)
    return found is not None and found.entry.status == SUCCEEDED


async def transact(ticket: Ticket, ways: Ways) -> Any:
    """Make one attempt at a transactional step. An error of the function or of its database is raised as it is.

    In a task, all calls that wait for a database run in threads; an async function executes its statements in the event loop.
    """
    work: Work = await ways.apart(open_work, ticket, undo=lambda opened: opened.rollback())
    ticket.work = work
    try:
        result = None if work.kept is not None else await call_inside(ticket, ways)
    except BaseException as error:
        lost = lost_store(ticket, work)
        await ways.apart(ticket.undo, error)
        if lost is not None and isinstance(error, Exception):
            raise Unrecorded(lost) from error
        raise
    try:
        if work.kept is not None:
            return await adopt(ticket, work, ways)
        await ways.apart(keep, ticket, work, result)
        await (ways.write_inside(ticket) if work.inside else _write(ticket, ways))
    except AttemptLost:
        await ways.apart(take_away, ticket)
        raise
    except Exception as error:
        raise await ways.apart(trouble, ticket, error) from error
    work.recorded(ticket)
    return result


async def _write(ticket: Ticket, ways: Ways) -> None:
    """Record the result in the store, like that of any step."""
    commit = await ways.commit(ticket, ticket.run.saves.due(ticket, None))
    after_step(ticket, None, commit)


def take_away(ticket: Ticket) -> None:
    """Roll back: the attempt ended before the transaction did."""
    work, ticket.work = ticket.work, None
    if work is not None:
        work.rollback()


async def call_inside(ticket: Ticket, ways: Ways) -> Any:
    token = inside.set(ticket.address)
    try:
        return await ways.call(ticket)
    finally:
        with suppress(ValueError):  # a coroutine that is never awaited is closed in another context, see `context.leave`
            inside.reset(token)


def keep(ticket: Ticket, work: Work, result: Any) -> None:
    """Prepare the record of a result; in a user's database, commit the result with the function's statements."""
    succeeded(ticket, result)
    work.keep(ticket)


def trouble(ticket: Ticket, error: Exception) -> Exception:
    """Return what an error at the end of a transaction means: the attempt failed and left nothing, or it could not be recorded."""
    ticket.undo(error)
    return error.error if isinstance(error, Undone) else Unrecorded(error)


def lost_store(ticket: Ticket, work: Work) -> StoreError | None:
    """Return the error if the connection to the store's server was lost inside a step: then the step did not fail."""
    if not work.inside or not work.connection.closed:
        return None
    url = ticket.run.store.backend.url
    return StoreUnreachable(f"{url}: the connection was lost in step {ticket.address}; its transaction was rolled back").of(url)


async def adopt(ticket: Ticket, work: Work, ways: Ways) -> Any:
    """Take the result that an earlier attempt committed together with the function's statements."""
    work.rollback()
    ticket.work, ticket.entry = None, _of_row(work)[1]
    await _write(ticket, ways)
    run, step = ticket.run, _of_row(work)[0]
    run.report.executed -= 1  # nothing was executed
    count_kept(run, ticket.address, step)
    work.recorded(ticket)
    return run.replay.loaded(step)


def _of_row(work: Work) -> tuple[StepEntry, Entry]:
    assert work.kept is not None
    return work.kept


def _digest(run: Attempt, address: str, content: bytes) -> bytes:
    return sha256(b"everstep step 1\0" + run.live()[0].key + address.encode() + b"\0" + content).digest()


def _opened(results: StepResults, kept: tuple[bytes, bytes], ticket: Ticket) -> tuple[StepEntry, Entry]:
    """Return the row of a step; raise if it does not match its digest."""
    run, address = ticket.run, ticket.address
    content, digest = bytes(kept[0]), bytes(kept[1])
    if _digest(run, address, content) != digest:
        raise Damaged(
            f"the row of step {address} of run {run.id!r} in everstep_steps of {results.url} does not match its digest",
            remedy="The step's own writes are committed. Restore the row from a backup, or set the result: store.skip(run_id, step, result).",
        )
    packed, chunks = unpackb(frames_of(run.store.backend, run.live()[0]).unwrap(content, ("result", address)))
    step = unpack_step(packed)
    if step.digest != ticket.digest and step.digest and ticket.digest and address not in run.options.accept:
        raise run.diverge(address, show_input(step.input), show_input(ticket.input))
    return step, Entry("step", packed, address, [(bytes(name), bytes(frame)) for name, frame in chunks])


def call_bare(address: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a transactional step where nothing is recorded: only its transaction is left."""
    if address is True:
        raise InvalidArgument("transactional=True needs a store, and nothing is recorded here", remedy=_WHERE)
    if inspect.iscoroutinefunction(function):
        return _acall_bare(open_results(address), function, args, kwargs)
    with open_results(address).bare() as connection:
        return function(connection, *args, **kwargs)


async def _acall_bare(results: StepResults, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with results.bare() as connection:
        return await function(connection, *args, **kwargs)
