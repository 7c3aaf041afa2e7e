"""Appends of several lines in one commit: all of them are made, or none.

    with store.together():
        session.checkpoint(); index.checkpoint()

Inside the block, appends are built and kept; its end writes them. If the block raises, or a commit is refused, nothing was written, and
every line knows what it knew before. The lines' own runs must not be driven here: a driver saves at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from everstep.backends.contract.core import Commit
from everstep.errors import Conflict, EverstepError, LostLease, RunExists
from everstep.threads.guard import interrupts
from everstep.threads.offload import offload

if TYPE_CHECKING:
    from everstep.runtime.engine_store import EngineStore
    from everstep.runtime.lines.appender import Appender

group: ContextVar[Together | None] = ContextVar("everstep-together", default=None)


class Together:
    """One block of appends to runs of one store."""

    def __init__(self, store: EngineStore):
        self.url = store.url
        self._store = store
        self._lines: dict[Appender, list[Commit]] = {}
        self._outer: Together | None = None

    def add(self, line: Appender, commit: Commit) -> None:
        """Keep a commit until the end of the block."""
        if line not in self._lines:
            line.remember()
        self._lines.setdefault(line, []).append(commit)

    def write(self) -> None:
        """Make all commits, or raise; then none of them was made, as far as is known."""
        commits = [_joined(commits) for commits in self._lines.values()]
        if not commits:
            return
        try:
            self._store.backend.commit(*commits)
        except BaseException as error:
            refused = isinstance(error, (Conflict, LostLease, RunExists)) and not interrupts(error)
            known = isinstance(error, EverstepError) and not interrupts(error) and error.written == "no"
            for line, commit in zip(self._lines, commits, strict=True):
                line.take_back(None if known else commit)
            if refused:
                for line in self._lines:
                    line.refuse_moved()
            raise

    def forget(self) -> None:
        """Have the lines of a block that raised know what they knew before."""
        for line in self._lines:
            line.take_back(None)

    def __enter__(self) -> Together:
        self._outer = group.get()
        if self._outer is None or self._outer.url != self.url:
            group.set(self)
        return self

    def _left(self) -> bool:
        """Leave the block; return whether it is the outermost, which writes."""
        outermost = group.get() is self
        if outermost:
            group.set(self._outer)
        return outermost

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self._left():
            self.forget() if error is not None else self.write()

    async def __aenter__(self) -> Together:
        return self.__enter__()

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self._left():
            if error is not None:
                self.forget()
            else:
                await offload(self.write)


def _joined(commits: Sequence[Commit]) -> Commit:
    """Return one commit with the content of several of one run."""
    return Commit(
        commits[-1].run, commits[0].was, [r for c in commits for r in c.records], [c for b in commits for c in b.chunks],
        [m for c in commits for m in c.messages], [n for c in commits for n in c.read],
    )  # fmt: skip
