"""Runs steps of a YAML workflow at the same time, each in a thread that knows its run.

When one fails, no further one begins, and running ones are awaited. Then the first error, in the order of the document, is raised. It lists
all steps that failed, so that a resume runs all of them again. A step that waits at a gate blocks only the steps that need it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any

from everstep.errors import Suspended, Waiting
from everstep.fields import Shape, field
from everstep.yaml.shell import wait_for


class Task(Shape):
    """A function to call after the tasks that it needs."""

    do: Callable[[], Any]
    needs: Sequence[Task] = ()
    result: Any = None
    error: BaseException | None = None
    begun: bool = False
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def good(self) -> bool:
        return self.over.is_set() and self.begun and self.error is None


def together(tasks: Sequence[Task], concurrency: int) -> list[Any]:
    """Run the tasks and return their results in order. Every task comes after the tasks that it needs, so the threads never all wait for
    each other.
    """
    line = _Line(tasks)
    if concurrency == 1 or len(tasks) == 1:
        line.work()  # in the thread that executes the run, where checkpoints can be made
    else:
        ends = [threading.Event() for _ in range(min(concurrency, len(tasks)))]
        for over in ends:
            threading.Thread(target=copy_context().run, args=(line.work_until, over), name="everstep-yaml", daemon=True).start()
        _wait(ends, line)
    _raise(tasks)
    return [task.result for task in tasks]


def _wait(ends: Sequence[threading.Event], line: _Line) -> None:
    """Wait for all threads. After a first signal, running tasks finish; after a second one, their threads are abandoned."""
    held: Suspended | None = None
    for over in ends:
        while not over.is_set():
            try:
                wait_for(over)
            except Suspended as signal:
                line.stopped, held = True, signal
            except BaseException:
                line.stopped = True
                raise
    if held is not None:
        raise held


class _Line:
    """Hands out tasks, one after the other, to threads that are idle."""

    def __init__(self, tasks: Sequence[Task]):
        self._left = list(reversed(tasks))
        self._lock = threading.RLock()
        self.stopped = False

    def work_until(self, over: threading.Event) -> None:
        """Work in a thread, and set `over` when no task is left."""
        try:
            self.work()
        finally:
            over.set()

    def work(self) -> None:
        while (task := self._next()) is not None:
            for needed in task.needs:
                needed.over.wait()
            if not self.stopped and all(needed.good for needed in task.needs):
                self._do(task)
            task.over.set()

    def _next(self) -> Task | None:
        with self._lock:
            return self._left.pop() if self._left else None

    def _do(self, task: Task) -> None:
        task.begun = True
        try:
            task.result = task.do()
        except BaseException as error:  # noqa: BLE001 -- raised by `_raise`, in the thread that executes the run
            task.error = error
            self.stopped |= not isinstance(error, Waiting)


def _raise(tasks: Sequence[Task]) -> None:
    """Raise the most important error: one that stops the run before a failure, and a failure before a wait."""
    errors = [task.error for task in tasks if task.error is not None]
    if not errors:
        return
    stopping = [e for e in errors if not isinstance(e, Exception) and not isinstance(e, Waiting)]
    failures = [e for e in errors if isinstance(e, Exception)]
    first = (stopping or failures or errors)[0]
    if failures and first is failures[0] and not isinstance(first, Suspended):
        for other in failures[1:]:
            first.add_note(f"Another step failed at the same time: {type(other).__name__}: {other}")
    raise first
