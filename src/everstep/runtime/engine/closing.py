"""The last commit of an attempt: the checkpoint that ends it, the status and the lease. What it says was decided in `ending`."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from everstep.backends.contract.core import Commit
from everstep.errors import EverstepError
from everstep.records import CHILD, Kind, RunRow, Status
from everstep.runtime.driving_store import Host
from everstep.runtime.engine.ending import Ending
from everstep.runtime.limits import signals
from everstep.runtime.waits.wake_callers import tell
from everstep.snapshot.saver import Saved, Saver
from everstep.store.chain import Chain
from everstep.store.load import checkpoint_record
from everstep.store.views import Checkpoint, asked_for, own_text

if TYPE_CHECKING:
    from everstep.runtime.run import Run

_CHECKPOINT = Kind.CHECKPOINT.value
_ENDED = (Status.SUCCEEDED, Status.FAILED, Status.CANCELLED)
_EMPTY = b"\x90"


def announce(run: Run, ending: Ending) -> Saved | None:
    """Tell hooks of the checkpoint that ends an attempt, if there will be one. Gives what had to be built to know that, for `end`."""
    if ending.kind is None or run._failure is not None or not run._hooks.wanted("before_checkpoint"):
        return None
    saved, saver = None, run._open()[1]
    with run._lock:
        new = True if run._stale else _is_new(run, saver, ending.kind)
        if new is None:
            saved = _built(saver)
            new = saved is not None and not _is_empty(run, saved)
    if not new:
        return saved
    run._fire("before_checkpoint", kind=ending.kind)
    if saved is None:
        return None
    with run._lock:
        again = _built(saver)
        if again is not None and again.delta == _EMPTY:
            return saved
        saver.lost()  # a hook changed the state: what is saved has to say everything
        return None


def _built(saver: Saver) -> Saved | None:
    try:
        return saver.build(thorough=True)
    except EverstepError:
        return None  # `end` meets the same trouble, and reports it


def end(run: Run, ending: Ending, saved: Saved | None = None) -> Checkpoint | None:
    """The last checkpoint, the status and the lease, in one commit."""
    run._catch_up()
    row, saver = run._open()
    if run._stale:
        saver.lost()
        saved = None
    _find_base(run, row)
    chain = Chain(run._store.framer, row, row, run._store.backend.seal)
    chain.entries(run._entries)
    chain.chunks(ending.chunks)
    unsaved = _add_last_checkpoint(run, chain, saver, ending, saved)
    if ending.status is not None:
        chain.status(ending.status, **ending.about)
    commit = run._carry(chain.commit(worker=None, since=0, **ending.changes))
    commit.letters = [*commit.letters, *ending.letters]
    run._store.backend.commit(commit)
    run._entries = []
    run._row = commit.run
    if ending.status in _ENDED and (commit.waiting or _has_caller(run)):
        tell(run._store.backend, run._store.framer, commit.run)
    elif ending.status not in _ENDED and commit.waiting != _expected(run, commit):
        _obey_late(run)
    if unsaved is not None:
        raise unsaved
    return next((Checkpoint(r) for r in commit.records if r.kind == _CHECKPOINT), None)


def _expected(run: Run, commit: Commit) -> int:
    """How many letters there are after a commit, if none came since this attempt last looked."""
    return len(run._letters.keys() - set(commit.read) | {letter.name for letter in commit.letters})


def _obey_late(run: Run) -> None:
    """A cancellation that came while the attempt ended found its lease held, and nobody would read its letter."""
    assert run._row is not None
    letter = next((one for one in run._store.backend.letters(run._row.id) if one.name == "cancel"), None)
    if letter is not None:
        from everstep.runtime.waits.control import obey_cancel

        obey_cancel(cast(Host, run._store), run._row, letter)
        run._row = run._store.backend.run(run._row.id) or run._row


def _has_caller(run: Run) -> bool:
    """Whether this is a child run that was resumed by itself, so that its caller may wait for it."""
    row = run._open()[0]
    return row.parent is not None and row.parent_number == CHILD and not run._mode.driven


def _find_base(run: Run, row: RunRow) -> None:
    """A signal may have come when the program's newest checkpoint was made, and before that was noted here."""
    if signals.seen(run) is None or not row.checkpoints or run._base == row.checkpoints:
        return
    if asked_for(checkpoint_record(run._store.backend, row, row.checkpoints).own):
        run._base = row.checkpoints


def _add_last_checkpoint(run: Run, chain: Chain, saver: Saver, ending: Ending, saved: Saved | None) -> EverstepError | None:
    """The checkpoint that ends an attempt, unless the newest one says the same. A state that cannot be stored is reported, not obeyed."""
    if ending.kind is None:
        return None
    try:
        saved = saved or saver.build(thorough=True)
    except EverstepError as error:
        if ending.status == Status.SUCCEEDED:
            ending.fail(run._error_body(error))
        return error
    new = _is_new(run, saver, ending.kind)
    if new is False or (new is None and _is_empty(run, saved)):
        return None
    chain.checkpoint(saved, own=own_text(run._header(ending.kind, None, False)))
    return None


def _is_new(run: Run, saver: Saver, kind: str) -> bool | None:
    """Whether a last checkpoint would say something new; None if only building it can tell. A workflow that was only played back says nothing new."""
    row = run._open()[0]
    if run._steps_since or run._entries:
        return True
    if run._mode.workflow:
        return kind in ("final", "error") or not row.checkpoints
    if not row.checkpoints:
        return bool(saver.state != {})
    return None


def _is_empty(run: Run, saved: Saved) -> bool:
    return saved.delta == _EMPTY and saved.base is None and run._base == run._open()[0].checkpoints
