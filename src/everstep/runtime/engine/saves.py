"""The checkpoints of one attempt: its resume point, when the next one is due, and the header of each.

A program that uses `store.run` resumes at its resume point, the newest checkpoint that it asked for. Others are made because a policy wants
them: with the end of a step, at a gate or an event, or by the clock in the middle of a long step. A replayed workflow makes none twice.
Relies on `JournalWriter` to build and write them.
"""

from __future__ import annotations

import time
from threading import get_ident
from typing import TYPE_CHECKING, Any

from everstep.backends.contract.core import Commit
from everstep.clock import clock
from everstep.records import Kind, Record
from everstep.runtime.engine.store_trouble import TROUBLE
from everstep.runtime.limits.autosave import Ticker
from everstep.snapshot.in_place import become
from everstep.store.journal.results import load_result
from everstep.store.load import load
from everstep.store.views import Checkpoint, asked_for

if TYPE_CHECKING:
    from everstep.runtime.engine.attempt import Attempt
    from everstep.runtime.engine.replay import Replay
    from everstep.runtime.observe import Span
    from everstep.runtime.steps.ticket import Ticket

MOST_NAMES = 32
_CHECKPOINT = Kind.CHECKPOINT.value


class Saves:
    """The checkpoints of one attempt."""

    def __init__(self, attempt: Attempt):
        self._attempt = attempt
        self.resume_point = 0
        self.steps_since = 0  # steps that ended since the newest checkpoint
        self.saved_at = attempt.began
        self.last_step: str | None = None
        self.progress: tuple[float, float] | None = None
        self.found_at = 0  # the sequence number of the checkpoint that `recorded` found last; 0 if it belongs to another run
        self._asked = 0  # how many the program has asked for
        self._ticker: Ticker | None = None

    def begin_after(self, base: int, replay: Replay) -> None:
        """Start counting after the recorded checkpoints. `base` is the checkpoint that the live state was loaded from."""
        self.resume_point = base
        self.saved_at -= replay.seconds_since()
        self.steps_since = replay.steps_since if not self._attempt.options.silent else len(replay.recent)

    # When one is due.

    def due(self, ticket: Ticket, error: Exception | None) -> tuple[str, str] | None:
        """Return the kind and trigger of a checkpoint that is due with the end of a step, or None. Calls hooks while no lock is held."""
        attempt = self._attempt
        options = attempt.options
        if options.silent or get_ident() != attempt.owner:
            return None
        event, seconds = "error" if error else "step", time.monotonic() - self.saved_at
        trigger = options.policy.due(event, ticket.kind, self.steps_since + 1, seconds)
        if trigger is None:
            return None
        kind = "error" if error else "post_step" if trigger in ("on step", "on post_step") else "automatic"
        ticket.saving = self.announce(kind)
        return kind, trigger

    def before_step(self) -> None:
        """Make the checkpoint that a policy wants before each step, and start the clock of a policy with seconds."""
        attempt = self._attempt
        policy = attempt.options.policy
        if policy.events and "pre_step" in policy.events:
            self.save("pre_step", "on pre_step")
        if policy.seconds is not None and self._ticker is None:
            self._ticker = Ticker(attempt, policy.seconds)

    def stop_clock(self) -> None:
        """Let the clock begin no checkpoint any more, and return when none is being made."""
        if self._ticker is not None:
            self._ticker.stop()

    def change_rhythm(self, seconds: float | None) -> None:
        ticker = self._ticker
        if ticker is not None:
            ticker.change(seconds)

    # Making one.

    def save(self, kind: str, trigger: str, safe: bool = False) -> None:
        """Make a checkpoint that the program did not ask for, in this thread."""
        span = self.announce(kind)
        try:
            commit = self._attempt.writer.commit(lambda: self.built(kind, trigger, safe))
        except BaseException as error:
            self.not_made(span, error)
            raise
        self.made(commit, span)

    def announce(self, kind: str) -> Span | None:
        """Tell hooks and observers that a checkpoint is about to be made."""
        attempt = self._attempt
        attempt.fire("before_checkpoint", kind=kind)
        if not attempt.observers.active:
            return None
        return attempt.observers.begin("checkpoint", attempt.id, str(attempt.live()[0].checkpoints + 1), kind=kind)

    def not_made(self, span: Span | None, error: BaseException) -> None:
        """Tell observers that the checkpoint was not made."""
        if span is not None:
            self._attempt.observers.end(span, error=error)

    def built(self, kind: str, trigger: str | None, safe: bool = False) -> Commit:
        """Return the commit of an automatic checkpoint."""
        return self._attempt.writer.prepare(None, (), None, None, self.header(kind, trigger, safe))

    def header(self, kind: str, trigger: str | None, safe: bool) -> dict[str, Any]:
        """Return the header of a checkpoint, beside the program's metadata; empty for a plain save of a run without steps."""
        attempt = self._attempt
        counts = attempt.root.counts
        base = safe or kind in ("manual", "final")
        if kind == "manual" and not counts and self.progress is None and attempt.options.plain:
            return {}
        header: dict[str, Any] = {} if kind == "manual" else {"kind": kind}
        if not base:
            header["base"] = self.resume_point
        if len(counts) <= MOST_NAMES:
            header["counts"] = counts
        else:
            header["many"] = True
        used = attempt.replay.used
        header["used"] = [round(used.seconds + time.monotonic() - attempt.began, 3), used.steps, used.tokens, used.cost]
        for name, value in (("trigger", trigger), ("safe", safe), ("step", self.last_step), ("progress", self.progress)):
            if value:
                header[name] = value
        return header

    def made(self, commit: Commit, span: Span | None = None) -> Checkpoint:
        """Update the counts after a checkpoint was saved, and call hooks."""
        if span is not None:
            self._attempt.observers.end(span)
        record: Record = next(r for r in commit.records if r.kind == _CHECKPOINT)
        self.steps_since = 0
        self.saved_at = time.monotonic()
        made = Checkpoint(record)
        if asked_for(record.own):
            self.resume_point = record.number
        self._attempt.messages.look_after_commit()
        self._attempt.fire("after_checkpoint", checkpoint=made)
        return made

    # Replaying one.

    def recorded(self, state: Any) -> Checkpoint | None:
        """Return the recorded checkpoint for this call, if there is one: a replayed workflow makes no checkpoint twice."""
        attempt = self._attempt
        attempt.ask()
        if not attempt.options.workflow:
            return None
        try:
            return self._find(state)
        except TROUBLE as error:
            attempt.met(error)
            raise

    def _find(self, state: Any) -> Checkpoint | None:
        attempt, replay, index = self._attempt, self._attempt.replay, self._asked
        row, saver = attempt.live()
        self._asked += 1
        self.found_at = 0
        taken_over = attempt.dry or index < replay.skip_saves
        if state is not None and taken_over:
            saver.state = state
        if taken_over:
            for edited, form, data in replay.start.get("edits", ()):  # of the runs that this one was forked from
                if edited == index:
                    become(saver, load_result(attempt.store.backend, attempt.family, form, data))
            if index == replay.skip_saves - 1 and replay.start.get("edited"):  # last: a fork of a fork may edit the same checkpoint again
                become(saver, load(attempt.store.backend, row, 1).revived())
            first = replay.saves[0] if replay.saves else None
            return Checkpoint(first) if first is not None else self._nothing_saved()
        index -= replay.skip_saves
        own = replay.saves[1:] if replay.start.get("number") else replay.saves
        if index >= len(own):
            return None
        if state is not None:
            saver.state = state
        self.found_at = own[index].seq
        return Checkpoint(own[index])

    def _nothing_saved(self) -> Checkpoint:
        row, _ = self._attempt.live()
        return Checkpoint(Record(row.id, 0, _CHECKPOINT, row.epoch, clock.now_us(), 0, None, (), None, None, None, None, b"", b""))
