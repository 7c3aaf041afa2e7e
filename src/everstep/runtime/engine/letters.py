"""The letters of one attempt: those that have come for its run, and those that go with its next commit.

Operators, callers, child runs and timers write to a run by letter. An attempt looks when it is opened, after a commit that finds more or fewer of
them than before, and while it waits. `read` and `outgoing` go with the next commit, which removes the one and posts the other. Decides
nothing about what a letter means, but for a step that is to be retried.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from everstep.backends.contract.core import Commit
from everstep.clock import clock
from everstep.codec.frame import Framer
from everstep.codec.values import decode, encode
from everstep.errors import DamagedRun, StoreError
from everstep.records import Letter, RunRow, Seal
from everstep.runtime.engine.replay import forget
from everstep.store.journal.entries import EventEntry, pack

if TYPE_CHECKING:
    from everstep.runtime.engine.attempt import Attempt


class Letters:
    """What has come and what is to go. Changed under the writer's lock where a commit could be built meanwhile."""

    def __init__(self, attempt: Attempt):
        self._attempt = attempt
        self.waiting: dict[str, Letter] = {}  # by name; without those that were read
        self.read: list[str] = []
        self.outgoing: list[Letter] = []
        self.known = 0  # how many there were at the last look
        self.looked_at = time.monotonic()

    def take(self, name: str) -> Letter | None:
        """A letter that is dealt with; the next commit removes it."""
        letter = self.waiting.pop(name, None)
        if letter is not None:
            self.read.append(name)
        return letter

    def send(self, name: str, due: int | None, content: object = None, at: int | None = None) -> None:
        """Write to the run itself, with the next commit: a letter with `due` wakes it then."""
        attempt = self._attempt
        body = attempt.store.framer.wrap(encode(content))
        self.outgoing.append(
            Letter.make(attempt.live()[0].key, name, due, clock.now_us() if at is None else at, body, attempt.store.backend.seal)
        )

    def keep_asleep(self, name: str) -> None:
        """Keep a letter, so that there is never a second one of its name; but it no longer wakes the run."""
        letter = self.waiting.get(name)
        if letter is not None and letter.due is not None:
            self.read.append(letter.name)
            self.outgoing.append(Letter.make(letter.key, letter.name, None, letter.at, letter.body, self._attempt.store.backend.seal))

    def carry(self, commit: Commit) -> Commit:
        """Give a commit the letters that go with it."""
        if self.outgoing or self.read:
            commit.letters, self.outgoing = self.outgoing, []
            commit.read, self.read = self.read, []
        return commit

    def put_back(self, commit: Commit) -> None:
        """A commit was not made: its letters go with the next one."""
        self.read[:0] = commit.read
        self.outgoing[:0] = commit.letters

    def put_back_read(self, letter: Letter) -> None:
        """What a letter asks for could not be recorded: it still holds, and no later commit may take it away."""
        self.read = [name for name in self.read if name != letter.name]
        self.waiting[letter.name] = letter

    def look_after_commit(self) -> None:
        """Look, if there are more or fewer letters than at the last look. A commit that is on its way cannot tell: the last one that was made does."""
        heard = self._attempt.writer.heard
        if heard is not None and heard != self.known:
            self.look_if_possible()

    def look_if_possible(self) -> None:
        """Letters that cannot be read now are read later. The next commit meets the same trouble and reports it."""
        with suppress(StoreError):
            self.look()

    def look(self) -> None:
        attempt = self._attempt
        row = attempt.live()[0]
        self.looked_at = time.monotonic()
        found = attempt.store.backend.letters(row.id)
        self.known = len(found)
        self.waiting = {letter.name: verified(row, letter, attempt.store.backend.seal) for letter in found if letter.name not in self.read}
        for name in [name for name in self.waiting if name.startswith("again:")]:
            self._retry(name.removeprefix("again:"))
            self.take(name)

    def _retry(self, address: str) -> None:
        """An operator wants a failed step tried again."""
        replay = self._attempt.replay
        forget(replay.recorded(address))
        replay.retry(address)
        self._attempt.writer.put("event", pack(EventEntry.of("retried", {"steps": [address]})), None)


def verified(row: RunRow, letter: Letter, seal: Seal) -> Letter:
    if letter.digest(seal) != letter.check or letter.key != row.key:
        raise DamagedRun(f"the letter {letter.name!r} to run {row.id!r} does not match its digest")
    return letter


def told(letter: Letter, framer: Framer) -> str:
    """What an operator wants, and why."""
    reason = decode(framer.unwrap(letter.body))
    return f"{letter.name}: {reason}" if reason else letter.name
