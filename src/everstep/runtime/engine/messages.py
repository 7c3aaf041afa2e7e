"""The messages of one attempt: those that have come for its run, and those that go with its next commit.

Operators, callers, child runs and timers send messages to a run. An attempt checks them when it is opened, after a commit that finds another
number of them, and while it waits. The next commit removes those in `read` and posts those in `outgoing`. Does not interpret messages,
except for a step that must be retried.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from everstep.backends.contract.core import Backend, Commit
from everstep.clock import clock
from everstep.errors import DamagedRun, StoreError
from everstep.records import Message, RunRow, Seal
from everstep.runtime.engine.replay import forget
from everstep.store.encryption.frames import content_of_message, new_message
from everstep.store.journal.entries import EventEntry, pack

if TYPE_CHECKING:
    from everstep.runtime.engine.attempt import Attempt


class Messages:
    """The messages that came and those to send. Changed under the writer's lock if a commit could be built meanwhile."""

    def __init__(self, attempt: Attempt):
        self._attempt = attempt
        self.waiting: dict[str, Message] = {}  # by name; without those that were read
        self.read: list[str] = []
        self.outgoing: list[Message] = []
        self.known = 0  # how many there were at the last check
        self.looked_at = time.monotonic()

    def take(self, name: str) -> Message | None:
        """Take a message that is handled; the next commit removes it."""
        message = self.waiting.pop(name, None)
        if message is not None:
            self.read.append(name)
        return message

    def send(self, name: str, due: int | None, content: object = None, at: int | None = None) -> None:
        """Send a message to the run itself, with the next commit: a message with `due` wakes it then."""
        attempt = self._attempt
        at = clock.now_us() if at is None else at
        self.outgoing.append(new_message(attempt.store.backend, attempt.live()[0], name, due, at, content))

    def keep_asleep(self, name: str) -> None:
        """Keep a message, so that there is never a second one of its name; but it no longer wakes the run."""
        message = self.waiting.get(name)
        if message is not None and message.due is not None:
            self.read.append(message.name)
            self.outgoing.append(Message.make(message.key, message.name, None, message.at, message.body, self._attempt.store.backend.seal))

    def carry(self, commit: Commit) -> Commit:
        """Add to a commit the messages that go with it."""
        if self.outgoing or self.read:
            commit.messages, self.outgoing = self.outgoing, []
            commit.read, self.read = self.read, []
        return commit

    def put_back(self, commit: Commit) -> None:
        """Restore the messages of a commit that was not made: they go with the next one."""
        self.read[:0] = commit.read
        self.outgoing[:0] = commit.messages

    def put_back_read(self, message: Message) -> None:
        """Restore a message whose request could not be recorded: it is still valid, and no later commit may remove it."""
        self.read = [name for name in self.read if name != message.name]
        self.waiting[message.name] = message

    def look_after_commit(self) -> None:
        """Check the messages if their number changed since the last check. Only commits that are done report the number."""
        count = self._attempt.writer.message_count
        if count is not None and count != self.known:
            self.look_if_possible()

    def look_if_possible(self) -> None:
        """Check the messages, or do it later if they cannot be read now. The next commit gets the same error and reports it."""
        with suppress(StoreError):
            self.look()

    def look(self) -> None:
        attempt = self._attempt
        row = attempt.live()[0]
        self.looked_at = time.monotonic()
        found = attempt.store.backend.messages(row.id)
        self.known = len(found)
        self.waiting = {
            message.name: verified(row, message, attempt.store.backend.seal) for message in found if message.name not in self.read
        }
        for name in [name for name in self.waiting if name.startswith("again:")]:
            self._retry(name.removeprefix("again:"))
            self.take(name)

    def _retry(self, address: str) -> None:
        """Run a failed step again, as an operator asked."""
        replay = self._attempt.replay
        forget(replay.recorded(address))
        replay.retry(address)
        self._attempt.writer.put("event", pack(EventEntry.of("retried", {"steps": [address]})), None)


def verified(row: RunRow, message: Message, seal: Seal) -> Message:
    if message.digest(seal) != message.check or message.key != row.key:
        raise DamagedRun(f"the message {message.name!r} to run {row.id!r} does not match its digest")
    return message


def request_in(backend: Backend, row: RunRow, message: Message) -> str:
    """Return what an operator asked for, and why."""
    reason = content_of_message(backend, row, message)
    return f"{message.name}: {reason}" if reason else message.name
