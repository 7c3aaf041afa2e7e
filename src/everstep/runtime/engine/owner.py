"""Finds the run that the calling code belongs to, if runs were opened inside generators.

A suspended generator leaves its run in the context of its caller. So a run that is opened while a generator is running belongs to that
generator: it is current only for code that the generator calls. `current_frame` finds the nearest such generator on the call stack. If the stack
does not decide (a task or thread that was started while the run was open, the caller of a suspended generator that is in no other run),
`current_frame` raises AmbiguousRun: a step is never recorded in the wrong run.

Generators that `contextlib` or a test framework uses as the two halves of a block are not owners: they are suspended on purpose, and the
code inside the block belongs to the run. If no generator of the process has a run, this costs one check of an empty dict.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from threading import get_ident
from types import FrameType
from typing import Any

from everstep.errors import AmbiguousRun
from everstep.runtime.engine.context import Frame, frame

_SUSPENDABLE = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
_DRIVERS = frozenset({"contextlib", "_pytest", "pytest_asyncio", "anyio"})
_owned: dict[FrameType, list[Frame]] = {}
"""The open runs of each generator, the newest one last."""


def enter(root: Frame) -> None:
    """Make a run current for the code that opens it."""
    root.outer, root.left, root.flow = _still_open(frame.get()), False, _flow()
    root.owner = _generator(sys._getframe(1))
    if root.owner is not None:
        _owned.setdefault(root.owner, []).append(root)
        for host in _around(root):
            host.guests = host.guests or set()
            host.guests.add(root)
    frame.set(root)


def leave(root: Frame) -> None:
    """End the block of a run: make the run around it current again, unless another run was opened since and is still open."""
    root.left = True
    if root.owner is not None:
        _disown(root, root.owner)
    here = frame.get()
    if here is not None and here.run is root.run:
        frame.set(_still_open(here))


def _disown(root: Frame, owner: FrameType) -> None:
    others = [other for other in _owned.get(owner, ()) if other is not root]
    if others:
        _owned[owner] = others
    else:
        _owned.pop(owner, None)
    for host in _around(root):
        if host.guests:
            host.guests.discard(root)


def current_frame() -> Frame | None:
    """Return the frame of the calling code: that of a run, of a step, or None."""
    here = frame.get()
    if not _owned and (here is None or here.owner is None):
        return here
    return _look(here, sys._getframe(1))


def within(run: Any) -> Frame | None:
    """Return the frame of the calling code in this run; None if the context has none. Skips runs that generators opened meanwhile."""
    here = frame.get()
    while here is not None and here.run is not run and here.owner is not None:
        here = here.outer
    return here if here is not None and here.run is run else None


def _look(here: Frame | None, stack: FrameType | None) -> Frame | None:
    while stack is not None and stack not in _owned:
        stack = stack.f_back
    if stack is None:
        return _outside(here)
    at = here
    while at is not None:
        root: Frame = at.run.root
        if root.owner is stack and not root.left:
            return at if at.ticket is not None else root
        at = at.outer
    return _moved(_owned[stack][-1], here)


def _moved(root: Frame, here: Frame | None) -> Frame:
    """Enter a generator's run in another context than the one it was opened in. Tasks that are started from here can't be distinguished."""
    known = Frame(root.run, root.handle, root.path, root.counts)
    known.outer, known.owner, known.flow = _still_open(here), root.owner, _flow()
    frame.set(known)
    return root


def _outside(here: Frame | None) -> Frame | None:
    """Return the nearest run that no generator owns, because no generator with a run is on the call stack."""
    now, passed = _flow(), None
    while here is not None and here.ticket is None:
        if here.owner is None:
            if here.flow != now and (other := _open_beside(here)) is not None:
                raise AmbiguousRun([here.run.id, other.run.id])
            return here
        left = here.run.root.left
        if here.flow != now:
            if left:
                return here  # a task that outlives its run gets an error when it uses it
            raise AmbiguousRun([here.run.id])
        passed = passed or (None if left else here)
        here = here.outer
    if here is None and passed is not None:
        raise AmbiguousRun([passed.run.id])
    return here


def _open_beside(here: Frame) -> Frame | None:
    """Return a generator's run that may have shared the context of this run: either of them may have started the calling task."""
    at = here.outer
    while at is not None and not (at.owner is not None and not at.run.root.left and at.flow == here.flow):
        at = at.outer
    return at or next(iter(here.guests.copy()), None)


def _around(root: Frame) -> Iterator[Frame]:
    """Yield the runs that were current, one inside the other, when this one was opened."""
    at = root.outer
    while at is not None:
        host: Frame = at.run.root
        yield host
        at = host.outer


def _still_open(here: Frame | None) -> Frame | None:
    """Return the nearest frame of a run that has not ended, in the order of this context."""
    while here is not None and here.run.root.left:
        here = here.outer if here.ticket is None else here.run.root.outer
    return here


def _generator(at: FrameType | None) -> FrameType | None:
    """Return the nearest generator on the stack that can be suspended in the middle of the caller's code."""
    while at is not None:
        code, by = at.f_code, at.f_back
        if code.co_flags & _SUSPENDABLE and code.co_name != "<genexpr>" and not (by is not None and _drives(by)):
            return at
        at = by
    return None


def _drives(by: FrameType) -> bool:
    return str(by.f_globals.get("__name__")).partition(".")[0] in _DRIVERS


def _flow() -> tuple[int, Any]:
    """Return the thread, and the asyncio task if there is one."""
    asyncio = sys.modules.get("asyncio")
    task = None
    if asyncio is not None:
        try:
            task = asyncio.current_task()
        except RuntimeError:
            task = None  # no loop is running
    return get_ident(), task
