"""Appends through the lease of the driver that the calling code is inside of. The driver's live state is the state of the line, too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from everstep.backends.contract.core import Commit
from everstep.errors import EverstepError, InvalidArgument, NotFound
from everstep.store.journal.attached import Given, address_of, addresses, entry_of
from everstep.store.views import Checkpoint

if TYPE_CHECKING:
    from everstep.runtime.engine.attempt import Attempt


class _Taken(EverstepError):
    """All names are taken: nothing is to be written."""


def refuse_workflow(driver: Attempt) -> None:
    """Refuse a workflow's run: a replay would not know what a line has appended."""
    if driver.replays:
        raise InvalidArgument(
            f"run {driver.id!r} belongs to a workflow, whose checkpoints are its own",
            remedy="Use run.checkpoint, or a line of another run.",
        )


def refuse_driver(driver: Attempt | None) -> None:
    """Refuse to set the status of a run inside its driver, which sets it at its end."""
    if driver is not None:
        raise InvalidArgument(
            f"run {driver.id!r} is being driven here: its driver sets its status when it ends", remedy="Return, or raise an error."
        )


def checkpoint_through(
    driver: Attempt, note: str | None, tags: Iterable[str] | str, meta: Mapping[str, Any] | None, state: Any
) -> Checkpoint:
    refuse_workflow(driver)
    made: Checkpoint = driver.handle.checkpoint(note, tags, meta, state)
    return made


def attach_through(driver: Attempt, number: int, given: list[Given], replace: bool) -> list[str]:
    """Attach values with a commit of the driver; return the names of those that were not taken."""
    writer = driver.writer
    try:
        written = [one.name for one in given]
        writer.commit(lambda: _with_entries(driver, number, given, replace, written))
        driver.messages.look_after_commit()
    except _Taken:
        return []
    return written


def _with_entries(driver: Attempt, number: int, given: list[Given], replace: bool, written: list[str]) -> Commit:
    writer, row = driver.writer, driver.live()[0]
    if not 1 <= number <= row.checkpoints:
        raise NotFound(f"{number} is not a checkpoint of run {row.id!r}: it has {row.checkpoints}")
    if not writer.is_sync:
        writer.catch_up()  # the index knows what is stored
    known = set() if replace else addresses(driver.store.backend, row, number)
    new = [one for one in given if address_of(row.key, number, one.name) not in known]
    if not new:
        raise _Taken
    written[:] = [one.name for one in new]
    writer.entries += [entry_of(row.key, number, one) for one in new]
    return writer.note()
