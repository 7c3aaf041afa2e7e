"""The state of a user or an app that an event has changed while a driver holds the session's run.

A driver saves its own run at once, so the event and the state of its user and app are two commits there. The first one notes what the second one
has to do, in `$adk.owed`: `{"id": …, "user": {…}, "app": {…}}`. The second one has the id in its `meta`; then an entry at the checkpoint of the event
says that it was made. A process that is killed in between leaves a note without an entry, and the next use of the session makes the change.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import everstep
from everstep.adapters.adk.layout import Scopes
from everstep.adapters.adk.runs import ABOUT
from everstep.adapters.adk.values import from_plain, to_plain
from everstep.errors import RunClosed

OWED = "owed"
_META = "adk.owed"
_PAID = "adk-paid"


def is_driven(run: str) -> bool:
    """Whether the calling code is inside a driver of this run."""
    try:
        return bool(everstep.current().id == run)
    except RunClosed:
        return False


def note(state: Any, delta: Scopes) -> None:
    """Note in the live state of a session what its event changes elsewhere; without a change, drop an older note."""
    if delta.user or delta.app:
        state[ABOUT][OWED] = {"id": uuid4().hex, "user": delta.user, "app": delta.app}
    elif OWED in state[ABOUT]:
        del state[ABOUT][OWED]


def noted(state: Any) -> tuple[str, Scopes] | None:
    """Return the id of the note and its changes, if the newest event has left one."""
    found = state[ABOUT].get(OWED)
    # Keys and values are plain data already; they are copied, as the live state must not be part of two runs.
    return None if found is None else (found["id"], Scopes(_copy(found["app"]), _copy(found["user"]), {}))


def is_paid(store: everstep.Store, run: str, number: int, id: str) -> bool:
    """Whether the changes of a note were made."""
    return bool(store.attached(run, number, prefix=_PAID)) or bool(list(store.find(meta={_META: id}, limit=1)))


def paid(line: Any, number: int) -> None:
    """Record that the changes of the note at this checkpoint were made."""
    line.attach(number, _PAID, True)


def meta(id: str) -> dict[str, str]:
    """Return what marks the checkpoint that makes the changes of a note."""
    return {_META: id}


def _copy(values: Any) -> dict[str, Any]:
    return {key: to_plain(from_plain(value), "state") for key, value in values.items()}
