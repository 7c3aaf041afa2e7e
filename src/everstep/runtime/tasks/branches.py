"""Branches of a program: its tasks and threads, and the calls each made on its run. Finds failed steps that no record depends on. No I/O.

    main ──ask──┬─ branch A ──step fails
                └─ branch B ──ask──ask          B can't have seen A's failure: it began before it, and A does not wait for B
    main ──ask── (a handler: it may depend on A's failure)

A failed step may run again on resume only if no call came after it where its failure can have been seen: in its own branch, in the branches
around it, and in branches that began after it. If the order is unknown, the failure counts as seen: replaying a failure that could have been
retried costs a command, retrying one that was handled undoes recorded work.
"""

from __future__ import annotations

from contextvars import ContextVar
from threading import get_ident
from typing import Any
from weakref import ref


class Branch:
    """One task or thread. `began` and `last` count calls and failures: when the branch was first seen, and its newest call."""

    __slots__ = ("began", "branches", "last", "parent", "task", "thread")

    def __init__(self, branches: Branches, task: Any, parent: Branch | None, began: int):
        self.branches = branches
        self.task = None if task is None else ref(task)
        self.thread = get_ident()
        self.parent = parent
        self.began = began
        self.last = 0

    def is_of(self, task: Any) -> bool:
        """Whether the calling code is in this branch."""
        if task is None:
            return self.task is None and self.thread == get_ident()
        return self.task is not None and self.task() is task


_here: ContextVar[Branch | None] = ContextVar("everstep.branch", default=None)


class Branches:
    """All branches of one attempt at a run."""

    def __init__(self, task: Any = None) -> None:
        self.asks = 0
        self.several = False  # whether more than one task or thread of the program uses the run
        self._root = Branch(self, task, None, 0)
        self._all = [self._root]
        self._failed: dict[str, tuple[Branch, int]] = {}
        self._cancelled: set[str] = set()

    def here(self, task: Any) -> Branch:
        """Return the branch of the calling code: of its task, or of its thread if there is no task."""
        found = _here.get()
        if found is None or found.branches is not self:
            found = self._root
        if found.is_of(task):
            return found
        made = Branch(self, task, found, self.asks)
        self._all.append(made)
        self.several = True
        _here.set(made)
        return made

    def ask_alone(self) -> bool:
        """Do what `ask` does, faster, for a program without tasks and threads; return False if it has some."""
        root = self._root
        if self.several or root.thread != get_ident():
            return False
        self.asks = root.last = self.asks + 1
        return True

    def ask(self, branch: Branch) -> None:
        """Count a call that is recorded: a step, a gate, a timer, a checkpoint, an event, a value."""
        self.asks += 1
        branch.last = self.asks

    def failed(self, address: str, branch: Branch) -> None:
        """Note a step that failed and has no attempt left, and whose error is raised in this branch."""
        self._failed[address] = (branch, self.asks)
        self.asks += 1  # a branch that begins now counts as begun after the failure

    def cancelled(self, address: str, branch: Branch) -> None:
        """Note a step that the program cancelled. It is treated like a failed one."""
        self._cancelled.add(address)
        self.failed(address, branch)

    def succeeded(self, address: str) -> None:
        self._failed.pop(address, None)
        self._cancelled.discard(address)

    def unseen(self, inside: str = "") -> list[str]:
        """Return the failed steps after which no call came where their failure can have been seen."""
        return [
            address
            for address, (branch, at) in self._failed.items()
            if address.startswith(inside) and not self._was_seen(branch, at) and not self._has_consequences(at)
        ]

    def seen(self) -> list[str]:
        """Return the steps whose failure the program may have handled."""
        others = {*self.unseen(), *self._cancelled}
        return [address for address in self._failed if address not in others]

    def _has_consequences(self, at: int) -> bool:
        """Whether a task that was cancelled later made more calls after that: this failure may be why it was cancelled."""
        cancelled = (self._failed[address] for address in self._cancelled if address in self._failed)
        return any(when > at and self._was_seen(branch, when) for branch, when in cancelled)

    def _was_seen(self, branch: Branch, at: int) -> bool:
        around = {id(one) for one in _line(branch)}
        return any(other.last > at and id(_before(other, at)) in around for other in self._all)


def _line(branch: Branch | None) -> list[Branch]:
    """Return a branch and all branches around it."""
    found = []
    while branch is not None:
        found.append(branch)
        branch = branch.parent
    return found


def _before(branch: Branch, at: int) -> Branch:
    """Return the branch itself, or the nearest one around it that had begun by then."""
    while branch.began > at and branch.parent is not None:
        branch = branch.parent
    return branch
