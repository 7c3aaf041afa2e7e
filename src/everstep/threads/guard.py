"""The locks of stores, and a check that refuses a thread that would wait for itself.

A signal handler, a finalizer or a weakref callback interrupts its thread at any point, perhaps during a save. If it uses a store there, it
may wait for a lock that its own thread holds, or see a run between two states. `enter` raises Reentered instead.

Locks have ranks, and a thread that holds one waits only for locks of a higher rank: a run, then the store's leases, then the writer. Code
that interrupts a thread begins with the lowest rank again. So a thread that is already inside the same rank or a higher one, of any store,
was interrupted, and is refused. This also keeps two threads from waiting for each other.

`enter` only notes that a lock may be held from now on; the lock itself knows whether it is. So Ctrl-C between the two leaves nothing to
clean up.
"""

from __future__ import annotations

import os
from _thread import RLock
from collections.abc import Callable
from threading import local
from typing import Protocol

from everstep.errors import EverstepError, Reentered

RUN, LEASES, WRITER = 1, 2, 3
_WHAT = {RUN: "saving a run", LEASES: "taking or keeping leases", WRITER: "writing to a store"}
_OURS = frozenset({"everstep", "apsw", "psycopg", "psycopg_binary", "contextlib"})


class Section(Protocol):
    """A section that one thread at a time is inside of."""

    @property
    def rank(self) -> int: ...

    @property
    def owned(self) -> Callable[[], bool]:
        """Whether the calling thread is inside."""


def _never() -> bool:
    return False


class _Entered(local):
    """For each rank, a function that tells whether this thread is still inside the section it entered last. It can't be inside two sections
    of one rank.
    """

    def __init__(self) -> None:
        self.slots: list[Callable[[], bool]] = [_never, _never, _never, _never]


_entered = _Entered()


def forget() -> None:
    """Forget the sections of the parent in a forked child: they are abandoned there, with their locks held for the fork."""
    _entered.slots[:] = [_never] * len(_entered.slots)


os.register_at_fork(after_in_child=forget)


def enter(section: Section) -> None:
    """Refuse a thread that is inside a section of this rank or a higher one; note that it may be inside this one soon."""
    slots, rank, owned = _entered.slots, section.rank, section.owned
    if slots[WRITER]() or (rank <= LEASES and slots[LEASES]()) or (rank == RUN and slots[RUN]()) or owned():
        raise Reentered(_said())
    slots[rank] = owned


class Guard(RLock):  # type: ignore[misc]  # typeshed calls it final; Python does not
    """A reentrant lock with a rank. Call `check` before the outermost `with`; code that runs with the lock held needs no check."""

    def __new__(cls, _rank: int) -> Guard:
        return super().__new__(cls)

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.owned: Callable[[], bool] = self._is_owned  # type: ignore[attr-defined]  # what threading's own Condition asks

    check = enter


def inside() -> bool:
    """Whether this thread was interrupted in the middle of a section."""
    return any(owned() for owned in _entered.slots)


def refuse_inside() -> None:
    """Refuse calls that wait for other threads, which may wait for a lock that this thread holds."""
    if inside():
        raise Reentered(_said())


def interrupts(error: BaseException) -> bool:
    """Whether our error was raised by foreign code, a signal handler, in the middle of our own code: it says nothing about the interrupted
    call.
    """
    if not isinstance(error, EverstepError):
        return False
    trace = error.__traceback__
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0] not in _OURS:
            return True
        trace = trace.tb_next
    return False


def _said() -> str:
    doing = next((what for rank, what in _WHAT.items() if _entered.slots[rank]()), _WHAT[RUN])
    return (
        f"this thread was interrupted while it was {doing}, by a signal handler or a finalizer that uses a store; "
        "this second call wrote nothing"
    )
