"""Begins an attempt: takes the run's lease, or creates the run, reads what was recorded, and sets the status to running.

A run that could not be opened is released. A crash of its last process is counted before anything that could kill this process, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING, Any

from everstep.backends.contract.queues import START
from everstep.clock import clock
from everstep.codec import secret_bytes
from everstep.codec.values import decode, encode
from everstep.errors import AttemptLost, Interrupted, InvalidArgument, PlainSecret, RunExists
from everstep.ids import check_id
from everstep.records import RunRow, Status
from everstep.runtime.engine import replay as replays
from everstep.runtime.engine.context import opened
from everstep.runtime.engine.finish import Ending, end, tell_caller
from everstep.runtime.engine.messages import request_in
from everstep.runtime.engine.release import release_unopened
from everstep.runtime.engine.replay import Replay, republish
from everstep.runtime.limits import deaths
from everstep.runtime.limits.account import Account
from everstep.runtime.limits.children_used import know_children
from everstep.snapshot.saver import Saver
from everstep.store.chain import Chain
from everstep.store.journal.driven import driven_in
from everstep.store.load import Loaded, Stretch, checked, load
from everstep.store.refs import find_run, verified
from everstep.store.store import first_commit, new_saver

if TYPE_CHECKING:
    from everstep.runtime.engine.attempt import Attempt


def open_attempt(run: Attempt) -> None:
    """Open an attempt. May be called in another thread than the program's."""
    try:
        _take(run)
    except AttemptLost as lost:
        raise lost.error from lost  # no code of the program has run that could catch it
    opened(1)


def abandon(run: Attempt) -> None:
    """Release a run that was opened and never used."""
    row, _ = run.live()
    run.close()
    run.keeper.release(row)


def _take(run: Attempt) -> None:
    """Take the lease, read what is recorded, and set the status to running."""
    held = run.options.held
    if held is not None and held.row is not None:
        row = held.row
        # The crash before may not be recorded if another worker took the run meanwhile and could not execute it.
        run.unsure = held.before is not None or (held.deaths > 0 and row.status == Status.RUNNING)
        died = held.before is not None
    else:
        first = _find(run) or _create(run)
        if first is None:
            return
        if run.dry:
            _ready(run, verified(first, run.store.backend.seal))
            return
        died = first.worker is not None and run.store.backend.holder(first) is None
        row = verified(run.keeper.acquire(first.id), run.store.backend.seal)
        run.unsure = first.worker is not None or row.epoch > first.epoch + 1  # its last process never released it, or that is unknown
    with _released_on_error(run, row):
        _refuse_overtaken(run, row)
        if died and (run.options.workflow or run.options.framework):
            row = _count_death(run, row)
        run.fire("before_resume" if row.head_seq > 1 else "before_run", row=row)
        _ready(run, row)
        _say_running(run)
    if row.head_seq > 1:
        run.fire("after_resume", row=row)


def _count_death(run: Attempt, row: RunRow) -> RunRow:
    """Record that the last process died, before anything that could kill this one, too. After too many deaths, the run is given up."""
    store, held = run.store, run.options.held
    found = deaths.with_one_more(store.backend, row)
    if held is not None:
        found = found._replace(number=held.deaths)
    if found.number < run.options.max_deaths:
        return deaths.note_death(store, row, found)
    run.row = deaths.bury(store, row, found)
    run.buried = found.number
    raise Interrupted(row.id, deaths.DEAD)


def _find(run: Attempt) -> RunRow | None:
    id = run.given[0]
    return run.store.backend.run(check_id(id)) if id is not None else None


def _create(run: Attempt) -> RunRow | None:
    """Create the run: its lease comes with it, and there is nothing to read. Return the row if another process created it at the same time."""
    id, _, fields = run.given
    lease = {"epoch": 1, "worker": run.keeper.worker.id, "since": clock.now_us()}
    commit = first_commit(run.store, id, fields, run.options.about, run.options.chunks, **lease)
    try:
        run.keeper.create(commit)
    except RunExists:  # another process was faster; the lease decides which of them continues
        return find_run(run.store.backend, commit.run.id)
    with _released_on_error(run, commit.run):
        run.fire("before_run", row=commit.run)
        _ready(run, commit.run, replays.begun(commit.records))
    return None


@contextmanager
def _released_on_error(run: Attempt, row: RunRow) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        run.not_opened()
        run.keeper.released()
        release_unopened(run, row, error)
        raise


def _refuse_overtaken(run: Attempt, row: RunRow) -> None:
    """Refuse a run that another process executed between the check and the lease: its outcome must not be executed once more."""
    seen = run.options.seen
    if seen is None or row.head_seq == seen or row.status in (Status.RUNNING, Status.QUEUED):
        return
    run.row = row
    _refuse_other_input(run, row, replays.content(checked(run.store.backend, row, 1, 1)[0]))
    raise Interrupted(row.id, "another process executed it in the meantime")


def _refuse_other_input(run: Attempt, row: RunRow, said: dict[str, Any]) -> None:
    """Refuse another workflow or input: two processes that start one id at the same time must agree."""
    about, same, recorded = run.options.about, run.options.same, said.get("input_digest")
    if not about:
        return
    good = about["input_digest"] == recorded or (same is not None and same(recorded))
    if about["workflow"] != said.get("workflow") or not good:
        raise RunExists(f"run {row.id!r} was started with another workflow or input at the same time")


def _refuse_workflow(run: Attempt, row: RunRow) -> None:
    """Refuse a workflow's run: another program cannot use its journal."""
    if row.workflow is not None and "workflow" in replays.content(checked(run.store.backend, row, 1, 1)[0]):
        raise InvalidArgument(
            f"run {row.id!r} belongs to the workflow {row.workflow!r} and cannot be opened with store.run()",
            remedy=f"Continue it with store.resume({row.id!r}), or fork it.",
        )


def _ready(run: Attempt, row: RunRow, fresh: Replay | None = None) -> None:
    """Read what was recorded, and open the attempt."""
    backend, options = run.store.backend, run.options
    if not options.workflow and fresh is None:
        _refuse_workflow(run, row)
    run.fire("before_load", row=row)
    replay = fresh or (replays.whole(backend, row) if options.workflow else replays.since_resume_point(backend, row))
    if not options.silent or options.budget is not None:
        replay.count()
    _refuse_other_input(run, row, replay.start)
    number = 0 if options.workflow else replay.number
    read = replay.taken_read()
    counted = None if read is None else read.at.waiting  # a message that comes later is counted by the next commit
    saver = _live_state(run, row, number, read)
    run.replay = replay
    replay.bind(backend, row, run.met_in_step)
    _open_account(run, row, is_new=fresh is not None)
    run.opened_with(row, saver)
    run.owner = get_ident()
    run.unsure = run.unsure or replay.unsure
    run.root.counts.update(replay.counts)
    run.saves.begin_after(number, replay)
    if fresh is None and counted != 0:
        run.messages.look()
    if options.replay == "republish":
        republish(options.hooks, replay.records)
    run.fire("after_load", row=row)


def _open_account(run: Attempt, row: RunRow, is_new: bool) -> None:
    options = run.options
    account = run.account = Account(row.id, run.replay, run.began, options.budget, options.timeout, options.caller)
    if account.limited and not is_new:
        know_children(run.store.backend, row, account)
    if options.caller is not None:
        options.caller.know(row.id, account.for_caller(driven=True))


def _live_state(run: Attempt, row: RunRow, number: int, read: Stretch | None) -> Saver:
    """Return the state of a checkpoint, or the first state of a run without one."""
    saver, state = new_saver(run.store), run.given[1]
    typed = state is not None and state.__class__ is not dict and _is_model(state)
    if not number:
        saver.begin({} if state is None else decode(encode(state)))
        return saver
    known = secret_bytes.decoded()
    loaded = load(run.store.backend, row, number, read)
    if not run.store.framer.inner.keeps_secrets and secret_bytes.decoded() != known:
        _refuse_secret(loaded.value, row.id)
    if number == row.checkpoints:
        continue_from(saver, loaded, row.id, state if typed else None)
    else:
        saver.begin(_restored(loaded, row.id, state) if typed else loaded.revived())
    return saver


def _refuse_secret(state: Any, run: str) -> None:
    """Refuse to continue a state with a Secret that the store was once allowed to keep: a later checkpoint could not be written."""
    from everstep.codec.explain import secret_in

    path = secret_in(state, "state")
    if path is not None:
        raise PlainSecret(f"{path} of run {run!r}")


def _is_model(state: Any) -> bool:
    """Whether a state is an instance of a class whose fields are known; registers that class."""
    from everstep.codec.models import models_of

    return models_of(state) is not None


def _restored(loaded: Loaded, run: str, given: Any) -> Any:
    from everstep.codec.models import restored

    return restored(loaded.value, given, run)


def continue_from(saver: Saver, loaded: Loaded, run: str, given: Any = None) -> None:
    """Take the loaded state; with `given`, as an instance of its class. If an upgrade changed it, it differs from the stored one, so no
    delta can build on it.
    """
    stored = encode(loaded.value) if loaded.objects or given is not None else b""
    state = loaded.revived() if given is None else _restored(loaded, run, given)
    saver.continue_from(state, loaded.deltas, loaded.delta_bytes)
    if stored and encode(state) != stored:
        saver.lost()


def _say_running(run: Attempt) -> None:
    row, _ = run.live()
    messages = run.messages
    about, is_new = _as_driver(run)
    revived = run.options.revived and row.status == Status.CANCELLED
    if "cancel" in messages.waiting and row.status != Status.CANCELLED:
        asked = request_in(run.store.backend, row, messages.waiting["cancel"])
        ending = Ending(Status.CANCELLED, reason=asked.text, about=dict(asked.by))
        end(run, ending)
        tell_caller(run, ending)
        raise Interrupted(row.id, asked.text)
    obeyed = ("pause", "retry", START, "cancel") if revived else ("pause", "retry", START)
    messages.read += [name for name in messages.waiting if name in obeyed or name.startswith("child:")]
    if row.status == Status.RUNNING and not messages.read and not is_new:
        return
    if "pause" in messages.waiting:  # a run that waited when it was paused has no other record of that
        pause = messages.waiting["pause"]
        asked = request_in(run.store.backend, row, pause)
        about["pause"] = {"at": pause.at, "reason": asked.text, **asked.by}
    chain = Chain(run.store.framer, row, row, run.store.backend.seal)
    chain.status(Status.RUNNING, revived, worker=run.worker, **about)
    commit = messages.carry(chain.commit())
    found = run.store.backend.commit(commit).waiting
    run.row = commit.run
    for name in commit.read:
        messages.waiting.pop(name, None)
    messages.known += len(commit.messages) - len(commit.read)
    if found != messages.known:  # one came since they were read
        messages.look()


def _as_driver(run: Attempt) -> tuple[dict[str, Any], bool]:
    """Return what to record about the code that executes the run from here on, and whether it is new.

    Code without a version keeps the version of the process before: the records of that version are still there.
    """
    options, replay = run.options, run.replay
    if not options.workflow:
        return {}, False
    before = driven_in(replay.start, replay.records)
    version = before.version if options.version is None else options.version
    about: dict[str, Any] = {"version": version}
    if not before.ever and options.definition != replay.start.get("definition"):
        about["definition"] = options.definition
    if options.by_hand and deaths.is_buried(replay.status):
        about["allowed_deaths"] = options.max_deaths
    return about, version != before.version
