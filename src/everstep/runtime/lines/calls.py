"""The calls of a line, written once for threads and tasks: each one takes the handle's lock, and then uses the appender."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from everstep.errors import InvalidArgument
from everstep.records import Status
from everstep.runtime.lines.appender import Appender
from everstep.store.journal.attached import Given
from everstep.store.views import Checkpoint
from everstep.threads.at_once import at_once
from everstep.threads.guard import Guard

_WORDS = (Status.WAITING, Status.SUCCEEDED, Status.FAILED, Status.CANCELLED)


async def state(line: Appender) -> Any:
    async with line.ways:
        return (await line.live()).state


def state_in_thread(line: Appender, lock: Guard) -> Any:
    """Do the same in a thread. `lock` is the handle's."""
    lock.check()
    with lock:
        return (line.loaded or at_once(line.live())).state


async def set_state(line: Appender, value: Any) -> None:
    async with line.ways:
        (await line.live()).state = value


async def refresh(line: Appender) -> bool:
    async with line.ways:
        return await line.refresh()


async def checkpoint(line: Appender, note: str | None, tags: Iterable[str] | str, meta: Mapping[str, Any] | None, state: Any) -> Checkpoint:
    labels = line.labels(note, tags, meta)
    async with line.ways:
        made = await line.checkpoint(labels, state)
    line.fire("after_checkpoint", checkpoint=made)
    return made


def checkpoint_in_thread(
    line: Appender, lock: Guard, note: str | None, tags: Iterable[str] | str, meta: Mapping[str, Any] | None, state: Any
) -> Checkpoint:
    """Do the same in a thread. `lock` is the handle's."""
    labels = line.labels(note, tags, meta)
    lock.check()
    with lock:
        found = line.checkpoint_at_once(labels, state)
        made = found if isinstance(found, Checkpoint) else at_once(found)
    line.fire("after_checkpoint", checkpoint=made)
    return made


async def attach(line: Appender, number: int, found: list[Given], replace: bool) -> list[str]:
    async with line.ways:
        return await line.attach(number, found, replace)


def attach_in_thread(line: Appender, lock: Guard, number: int, found: list[Given], replace: bool) -> list[str]:
    """Do the same in a thread. `lock` is the handle's."""
    lock.check()
    with lock:
        done = line.attach_at_once(number, found, replace)
        return at_once(line.attach(number, found, replace)) if done is None else done


async def status(line: Appender, word: Status, reason: str | None) -> None:
    masked = reason if line.store.mask is None else line.store.mask.text(reason)
    async with line.ways:
        await line.entries([], word, **({} if masked is None else {"reason": masked}))


def check_number(number: int) -> None:
    if type(number) is not int or number < 1:
        raise InvalidArgument(f"number must be the number of a checkpoint, got {number!r:.60}")


def check_status(word: str) -> Status:
    if word not in _WORDS:
        raise InvalidArgument(
            f"status must be one of {', '.join(_WORDS)}, got {word!r:.60}", remedy="Only a driver can set a run to running."
        )
    return Status(word)
