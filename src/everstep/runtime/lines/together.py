"""Appends of several lines in one commit: all of them are made, or none.

    with store.together():
        session.checkpoint(); index.checkpoint()

Inside the block, appends are built and kept; its end writes them. If the block raises, or a commit is refused, nothing was written, and
every line knows what it knew before. The lines' own runs must not be driven here: a driver saves at once. A block inside a block belongs to
the outer one; if it raises, the outer one writes nothing either. Tasks and threads that outlive the block then write at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from threading import Lock
from typing import TYPE_CHECKING, Any

from everstep.backends.contract.core import Commit
from everstep.errors import Conflict, EverstepError, InvalidArgument, LostLease, RunExists
from everstep.records import Record
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
        self._outer: Together | None = None  # the block around this one, of any store
        self._joined: Together | None = None  # the block around this one that writes what is appended here
        self._lock = Lock()
        self._has_ended = False
        self._is_broken = False  # whether a block inside this one has raised

    def add(self, line: Appender, commit: Commit) -> bool:
        """Keep a commit until the end of the block; return False if it has ended."""
        with self._lock:
            if self._has_ended:
                return False
            kept = self._lines.get(line)
            if kept is None:
                line.remember()
                kept = self._lines[line] = []
            elif commit.was is None or commit.was.check != kept[-1].run.check:
                raise InvalidArgument(
                    f"the line of run {line.id!r} was used outside of this store.together() block meanwhile",
                    remedy="Use a line of its own in each thread or task: store.line(run_id).",
                )
            kept.append(commit)
            return True

    def records(self, line: Appender) -> list[Record]:
        """Return the records of a line that wait for the end of the block."""
        with self._lock:
            return [] if self._has_ended else [record for commit in self._lines.get(line, ()) for record in commit.records]

    def for_store(self, url: str) -> Together | None:
        """Return this block or the next one around it that has not ended and belongs to a store."""
        here: Together | None = self
        while here is not None and (here._has_ended or here.url != url):
            here = here._outer
        return here

    def write(self) -> None:
        """Make all commits, or raise; then none of them was made, as far as is known."""
        commits = [_in_one(commits) for commits in self._lines.values()]
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
        self._outer, self._joined = group.get(), block_of(self._store)
        self._lines, self._has_ended, self._is_broken = {}, False, False
        if self._joined is None:
            group.set(self)
        return self

    def _writes(self, error: BaseException | None) -> bool:
        """Leave the block; return whether its appends are to be written now."""
        if self._joined is not None:
            self._joined._is_broken |= error is not None
            return False
        group.set(self._outer)
        with self._lock:
            self._has_ended = True
        if error is None and not self._is_broken:
            return True
        self.forget()
        if error is None:
            raise InvalidArgument(
                "a store.together() block inside this one raised an error: nothing was written",
                remedy="Do not catch the error inside the outer block, or use one block after the other.",
            )
        return False

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self._writes(error):
            self.write()

    async def __aenter__(self) -> Together:
        return self.__enter__()

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self._writes(error):
            await offload(self.write)


def block_of(store: EngineStore) -> Together | None:
    """Return the block of a store that the calling code is inside of."""
    here = group.get()
    return None if here is None else here.for_store(store.url)


def _in_one(commits: Sequence[Commit]) -> Commit:
    """Return one commit with the content of several of one run."""
    return Commit(
        commits[-1].run, commits[0].was, [r for c in commits for r in c.records], [c for b in commits for c in b.chunks],
        [m for c in commits for m in c.messages], [n for c in commits for n in c.read],
    )  # fmt: skip
