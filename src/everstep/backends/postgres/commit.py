"""Turns a commit into the arguments of one function call and its answer into a result; makes several commits in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from everstep.backends.contract.core import MAX_SEQ, Commit, Committed
from everstep.backends.postgres.connections.connect import Connection
from everstep.backends.postgres.rows import Values, chunk_columns, items_of, items_or_none, record_columns, run_values
from everstep.errors import AlreadyQueued, Conflict, EverstepError, LimitExceeded, LostLease, NotFound, RunExists, Written
from everstep.records import Kind, Record, RunRow, tag_check

DONE, BEFORE, GONE, EPOCH, MOVED, TAKEN, ORPHAN, DOUBLE = range(8)
_NOTHING: tuple[list[Any], ...] = ([],) * 13
_NO_CHUNKS: tuple[list[Any], ...] = ([], [])
_NO_TAGS: tuple[list[Any], ...] = ([],) * 4
_NO_MESSAGES: tuple[list[Any], ...] = ([],) * 6
_NO_LABELS: tuple[list[Any], ...] = ([],) * 4
ADVANCE = 15
FAMILY_KEY = b"family key"  # the name under which the wrapped key of a new family goes with the chunks: sql/functions.sql
NAMES = {ADVANCE: "advance", 42: "commit", 56: "commit_more", 60: "commit_task"}
"""The statement for each number of arguments."""


def arguments(commit: Commit, bucket: int, again: bool) -> Values:
    """Return the arguments of the function that makes the commit, in order: the shortest list that describes it."""
    run, was = commit.run, commit.was
    if run.head_seq > MAX_SEQ:
        raise LimitExceeded(f"run {run.id!r} has {MAX_SEQ} records, the maximum")
    if was is not None and not again and _only_advances(commit, run, was):
        return _advance(commit.records[0], run, was, bucket)
    delta = int.from_bytes(run.check) - (0 if was is None else int.from_bytes(was.check))
    fence = (None, None, None) if was is None else (was.epoch, was.head_seq, was.check)
    records = record_columns(commit.records) if commit.records else _NOTHING
    stored = commit.chunks if commit.family_key is None else [*commit.chunks, (FAMILY_KEY, commit.family_key)]
    chunks = chunk_columns(stored) if stored else _NO_CHUNKS
    messages = _messages(commit) if commit.read or commit.messages else _NO_MESSAGES
    tags, labels = _tags(commit), _labels(run, was)
    core = (bucket, again, delta, *fence, *run_values(run), *records, *chunks)
    plain = tags is _NO_TAGS and messages is _NO_MESSAGES and labels is _NO_LABELS
    if commit.task is not None:
        task = commit.task
        return (*core, *tags, *messages, *labels, task.queue, task.priority, task.key, task.dedupe)
    return core if plain else (*core, *tags, *messages, *labels)


def _only_advances(commit: Commit, run: RunRow, was: RunRow) -> bool:
    """Return whether a commit is one record with its body, and only the head of the row differs, as it follows from the record."""
    if (
        len(commit.records) != 1
        or commit.chunks
        or commit.messages
        or commit.read
        or commit.task is not None
        or commit.family_key is not None
    ):
        return False
    record = commit.records[0]
    if record.tags or record.body is None or record.digest != run.head_digest or record.at != run.updated_at or record.epoch != run.epoch:
        return False
    number = was.checkpoints + (record.kind == Kind.CHECKPOINT)
    if not record.number == run.checkpoints == number or not record.seq == run.head_seq == was.head_seq + 1:
        return False
    return run.stored == was.stored + len(record.body) and _fixed(run) == _fixed(was)


_fixed = attrgetter(
    "key", "family", "workflow", "session", "tags", "note", "meta", "parent", "parent_number", "created_at", "status", "epoch", "worker", "since"
)  # fmt: skip


def _advance(record: Record, run: RunRow, was: RunRow, bucket: int) -> Values:
    delta = int.from_bytes(run.check) - int.from_bytes(was.check)
    return (  # the sum as text: the driver takes longer to convert it to the server's binary form
        bucket, str(delta), was.epoch, was.head_seq, was.check, run.id, record.at, run.check, record.kind, record.note, record.meta,
        record.own, record.labels, record.digest, record.body,
    )  # fmt: skip


def _tags(commit: Commit) -> tuple[list[Any], ...]:
    """Return the tags of the checkpoints in a commit."""
    found = [(name, r.number, r.at) for r in commit.records if r.tags and r.kind == Kind.CHECKPOINT for name in r.tags]
    if not found:
        return _NO_TAGS
    checks = [tag_check(commit.run.key, *tag) for tag in found]
    return ([name for name, _, _ in found], [number for _, number, _ in found], [at for _, _, at in found], checks)


def _messages(commit: Commit) -> tuple[list[Any], ...]:
    new = commit.messages
    bodies = [message.body for message in new]
    return (
        list(commit.read), [message.name for message in new], [message.due for message in new], [message.at for message in new],
        bodies, [message.check for message in new],
    )  # fmt: skip


def _labels(run: RunRow, was: RunRow | None) -> tuple[list[Any], ...]:
    """Return the labels by which listings no longer find the run, and the new ones."""
    old_tags, old_meta = ((), None) if was is None else (was.tags, was.meta)
    if run.tags == old_tags and run.meta == old_meta:
        return _NO_LABELS
    return list(old_tags), list(run.tags), items_or_none(old_meta), items_of(run.meta)


def commit_all(connection: Connection, sql: dict[str, bytes], bucket: int, commits: Sequence[Commit], again: bool) -> Committed:
    """Make commits of several runs in one transaction. If one is refused, none is made."""
    # Create runs first, as the writer does: the lock that all creators of runs share must be taken before the rows of runs.
    order = sorted(range(len(commits)), key=lambda i: commits[i].was is not None)
    calls = [arguments(commits[i], bucket, again) for i in order]
    found: dict[int, Committed] = {}
    with connection.transaction():
        for i, values in zip(order, calls, strict=True):
            cursor = connection.cursor(binary=True)
            answer = cursor.execute(sql[NAMES[len(values)]], values).fetchone() or ()
            made = outcome(commits[i], answer, again)
            if not isinstance(made, Committed):
                raise made
            found[i] = made
    return Committed(found[0].waiting, tuple(found[i].waiting for i in range(1, len(commits))))


def outcome(commit: Commit, answer: Values, again: bool) -> Committed | EverstepError:
    """Return the result or the error that an answer means. If a commit without a record was sent twice, a refusal is ambiguous:
    `written` is then "unknown"."""
    code, waiting, epoch, seq = answer
    if code in (DONE, BEFORE):
        return Committed(waiting)
    name, was = commit.run.id, commit.was
    written: Written = "unknown" if again and not commit.records else "no"
    if code == DOUBLE and commit.task is not None:
        return AlreadyQueued(commit.task.queue, commit.task.dedupe or "")
    if code == GONE or (was is None and code not in (TAKEN, ORPHAN)):
        return LostLease(f"run {name!r} was deleted while this writer had it open", written=written)
    if code == TAKEN:
        return RunExists.of(name)
    if code == ORPHAN:
        return NotFound(f"run {commit.run.parent!r} was deleted meanwhile: it can no longer be forked")
    if code == EPOCH:
        return LostLease(f"run {name!r} was taken over: epoch {was and was.epoch} is now {epoch}", written=written)
    return Conflict(f"run {name!r} has changed: this write follows record {was and was.head_seq}, the head is {seq}", written=written)
