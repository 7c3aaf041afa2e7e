"""Questions of a run that a framework drives: asked without waiting, answered from outside, recorded by the next code that reads the answers.

A question is a gate: its address is NAME#N, where N counts the questions of that name. An answer comes as a message. The code that
reads it records it and leaves the message, without a time, so that the first answer stays the only one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from everstep.backends.contract.core import Commit
from everstep.clock import clock
from everstep.codec.values import encode
from everstep.errors import InvalidArgument, Waiting
from everstep.records import Message, RunRow
from everstep.runtime.engine.messages import verified as verified_message
from everstep.runtime.steps.options import check_name
from everstep.runtime.waits.answer_schema import to_schema
from everstep.runtime.waits.gates import MOST_SECONDS, NONE, Question, arrival
from everstep.store.chain import Entry
from everstep.store.encryption.frames import content_of_message, new_message
from everstep.store.gates import Gate, indexed_gates
from everstep.store.journal.entries import AnswerEntry, GateEntry, pack
from everstep.store.query import check_text, to_us

if TYPE_CHECKING:
    from everstep.runtime.engine.attempt import Attempt
    from everstep.store.store import BaseStore


class Asked(NamedTuple):
    """A question to ask, checked."""

    name: str
    text: str | None
    shape: dict[str, Any] | None
    timeout: float | None

    def entry(self, address: str, now: int) -> tuple[Entry, int | None]:
        """Return its journal entry, and its deadline."""
        deadline = None if self.timeout is None else now + int(self.timeout * 1e6)
        return Entry("gate", pack(GateEntry(self.text, self.shape, deadline, None, {})), address), deadline


def asked_of(store: BaseStore, name: str, text: str | None, schema: Any, choices: Any, timeout: float | None) -> Asked:
    """Check a question, and mask its text."""
    check_name(name)
    if timeout is not None and not (isinstance(timeout, (int, float)) and 0 < timeout < MOST_SECONDS):
        raise InvalidArgument(f"timeout must be a number of seconds greater than 0 and below {MOST_SECONDS:,.0f}, got {timeout!r:.60}")
    check_text(text, "ask", 100_000)
    return Asked(name, text if store.mask is None else store.mask.text(text), to_schema(schema, choices), timeout)


def place_of(gates: Sequence[Gate], name: str) -> tuple[str, Gate | None]:
    """Return the address of a question, and the gate if it was asked and has no recorded answer yet."""
    same = [gate for gate in gates if gate.name == name]
    newest = same[-1] if same else None
    return (newest.address, newest) if newest is not None and newest.open else (f"{name}#{len(same)}", None)


def timer(store: BaseStore, row: RunRow, address: str, deadline: int, now: int) -> Message:
    """Return the message that wakes up a run at the deadline of a question."""
    return new_message(store.backend, row, f"timer:{address}", deadline, now)


# Answers of a run that no process drives.


def expire(store: BaseStore, row: RunRow, gates: Sequence[Gate]) -> None:
    """Post the outcome of each deadline that has passed. The first answer wins, and this may not be it."""
    now = clock.now_us()
    for gate in gates:
        if gate.open and gate.deadline is not None and now >= (to_us(gate.deadline) or 0):
            said = {"value": None, "by": "timeout", "expired": True}
            store.backend.post(new_message(store.backend, row, f"answer:{gate.address}", now, now, said), row.id)


def recorded_answers(store: BaseStore, row: RunRow, gates: Sequence[Gate]) -> tuple[list[Entry], list[str], list[Message]]:
    """Return the journal entries of the answers that have come, the messages to remove, and those to post instead: they wake up no more."""
    found = {message.name: verified_message(row, message, store.backend.seal) for message in store.backend.messages(row.id)}
    entries: list[Entry] = []
    gone: list[str] = []
    stay: list[Message] = []
    for gate in gates:
        message = found.get(f"answer:{gate.address}")
        if not gate.open or message is None:
            continue
        said = content_of_message(store.backend, row, message)
        flags: Any = {"expired": True} if said.get("expired") else {}
        entries.append(Entry("answer", pack(AnswerEntry(encode(said["value"]), said.get("by"), flags)), gate.address))
        gone += [message.name, f"timer:{gate.address}"]
        stay.append(Message.make(message.key, message.name, None, message.at, message.body, store.backend.seal))
    return entries, gone, stay


# The same inside a driver.


def ask_in(run: Attempt, asked: Asked) -> Gate:
    """Ask a question with a commit of the driver, unless it is open already."""
    found: list[str] = []

    def build() -> Commit:
        row, now = run.live()[0], clock.now_us()
        address, known = place_of(indexed_gates(run.store.backend, row), asked.name)
        found.append(address)
        if known is None:
            entry, deadline = asked.entry(address, now)
            run.writer.entries.append(entry)
            if deadline is not None:
                run.messages.outgoing.append(timer(run.store, row, address, deadline, now))
        return run.writer.note()

    run.writer.commit(build)
    run.writer.catch_up()
    return next(gate for gate in indexed_gates(run.store.backend, run.live()[0]) if gate.address == found[-1])


def settle_in(run: Attempt) -> None:
    """Record the answers that have come, so that the framework finds them, and they wake up the run no more."""
    run.messages.look()
    for gate in indexed_gates(run.store.backend, run.live()[0]):
        if gate.open:
            arrival(run, Question(gate.address, gate.ask, gate.schema, None, NONE, None, to_us(gate.deadline)))


def wait_in(run: Attempt) -> Waiting | None:
    """Return the wait of a driver that has ended with open questions; None if there is none."""
    waits = [gate for gate in indexed_gates(run.store.backend, run.live()[0]) if gate.open]
    if not waits:
        return None
    run.replay.requested.update(gate.address for gate in waits)  # an answer that comes now wakes up the run
    deadlines = [due for gate in waits if (due := to_us(gate.deadline)) is not None]
    return run.waiting(waits[0].address, f"an answer at gate {waits[0].address!r}", min(deadlines, default=None))
