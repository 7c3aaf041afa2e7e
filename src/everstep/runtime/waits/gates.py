"""Waiting: for a decision (gates), for a time (timers), and for a person when nobody knows whether a step has run.

A gate's question is recorded and the run lets go of its process; the answer comes as a letter, from anywhere, and is recorded when
the run reads it. The letter stays, so that the first answer is the only one. A timer is a letter to oneself.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from everstep.clock import clock
from everstep.codec.values import decode, encode
from everstep.errors import BadAnswer, DamagedFrame, DamagedRun, GateTimeout, InvalidArgument, StepFailed, Waiting
from everstep.fields import Shape
from everstep.records import Letter, RunRow, Seal
from everstep.runtime.engine.context import current
from everstep.runtime.engine.journal_writer import TROUBLE
from everstep.runtime.steps.options import check_name
from everstep.runtime.waits import answer_schema as shapes
from everstep.runtime.waits.answer_instances import instance_of, plain_of
from everstep.store.journal.entries import FAILED, RUNNING, SUCCEEDED, AnswerEntry, EventEntry, GateEntry, TimerEntry, pack
from everstep.store.query import to_us

if TYPE_CHECKING:
    from everstep.runtime.engine.driver import Driver
    from everstep.runtime.steps.drive import Ticket

NONE: Any = type("NoDefault", (), {"__repr__": lambda self: "<none>"})()
HOLD_SECONDS = 1.0
_MOST_SECONDS = 1e9
_YES = frozenset({"yes", "y", "true", "ok", "approve", "approved", "pass", "passed"})


def gate(
    name: str, ask: str | None = None, *, schema: Any = None, choices: Any = None, timeout: float | None = None, default: Any = NONE,
    condition: Any = None, on_pass: Any = None, on_fail: Any = None,
) -> Any:  # fmt: skip
    """Wait for a decision from outside: `if everstep.gate("editor", ask="Publish?", choices=["yes", "no"]) == "yes": ...`.

    The run lets go of its process until `store.answer(run, name, value)`; the answer must fit `schema` (a type, or a JSON Schema) or be one
    of `choices`. With a class as schema the gate gives an instance of it. After `timeout` seconds the answer is `default`, or `GateTimeout` is raised where there is none. With `condition` (a
    value or a function) the gate decides by itself, once. `on_pass` and `on_fail` pick what comes back: a value, or a function to call.
    """
    return current().gate(
        name, ask, schema=schema, choices=choices, timeout=timeout, default=default, condition=condition, on_pass=on_pass, on_fail=on_fail
    )


def sleep(seconds: float | None = None, *, until: datetime | float | None = None) -> Any:
    """Wait for a time. The deadline is recorded: a run that dies or lets go of its process goes on when it has come.

    A workflow holds its process for waits up to a second and otherwise lets go of it until `store.wake()`; a loop of your own waits here.
    """
    return current().sleep(seconds, until=until)


def verified_letter(row: RunRow, letter: Letter, seal: Seal) -> Letter:
    if letter.digest(seal) != letter.check or letter.key != row.key:
        raise DamagedRun(f"the letter {letter.name!r} to run {row.id!r} does not match its digest")
    return letter


def step_key(row: RunRow, address: str) -> str:
    return sha256(row.key + address.encode()).hexdigest()[:32]


class Question(Shape):
    """What a gate asks. `deadline` is known when it was asked."""

    address: str
    text: str | None
    shape: Any
    timeout: float | None
    default: Any
    condition: Any
    deadline: int | None = None
    kind: Any = None  # the type whose instance the gate gives


def ask(run: Driver, name: str, question: str | None = None, *, on_pass: Any = None, on_fail: Any = None, **options: Any) -> Any:
    asked = question_of(run, name, question, **options)
    return chosen(run, asked, decide(run, asked), on_pass, on_fail)


def question_of(
    run: Driver, name: str, question: str | None, *, schema: Any = None, choices: Any = None, timeout: float | None = None,
    default: Any = NONE, condition: Any = None,
) -> Question:  # fmt: skip
    check_name(name)
    shape = shapes.to_schema(schema, choices)
    if timeout is not None and not (isinstance(timeout, (int, float)) and 0 < timeout < _MOST_SECONDS):
        raise InvalidArgument(f"timeout must be a number of seconds above 0 and below {_MOST_SECONDS:,.0f}, got {timeout!r:.60}")
    default = default if default is NONE or shape is None else plain_of(default)
    if default is not NONE and shape is not None and default is not None:
        fault = shapes.check(shape, default)
        if fault:
            raise InvalidArgument(f"the default of gate {name!r} does not fit it: {fault}")
    kind = None if isinstance(schema, Mapping) or condition is not None else schema
    return Question(_address(run, name), question, shape, timeout, default, condition, kind=kind)


def chosen(run: Driver, asked: Question, value: Any, on_pass: Any, on_fail: Any) -> Any:
    """What a gate gives for an answer."""
    picked = None if on_pass is None and on_fail is None else on_pass if passed(value) else on_fail
    return picked() if callable(picked) else _instance(run, asked, value) if picked is None else picked


def _instance(run: Driver, asked: Question, value: Any) -> Any:
    """An answer as what the gate was asked to give: an instance of its schema, if that is a class."""
    if asked.kind is None or (value is None and asked.default is None):
        return value
    fault = shapes.check(asked.shape, value) or _refusal(asked.kind, value)
    if fault is not None:
        raise BadAnswer(
            f"the recorded answer to gate {asked.address!r} of run {run.id!r} does not fit {asked.kind!r:.100}: {fault}",
            remedy=f"Let the schema take it, or fork the run before the gate: store.resume({run.id!r}, from_step={asked.address!r}).",
        )
    return instance_of(asked.kind, value)


def _refusal(kind: Any, value: Any) -> str | None:
    """What a class says against an answer that fits its schema."""
    try:
        instance_of(kind, value)
    except Exception as error:  # noqa: BLE001 - a class may refuse it in any way
        return f"{type(error).__name__}: {error}"[:500]
    return None


def passed(value: Any) -> bool:
    """Whether an answer means yes."""
    return value.strip().lower() in _YES if isinstance(value, str) else bool(value)


def _address(run: Driver, name: str) -> str:
    run._open()
    return run._address(run._here(), name)


def decide(run: Driver, asked: Question) -> Any:
    """The answer of a gate: the recorded one, or the one that has come. If there is none yet, `Waiting` ends the attempt."""
    address = asked.address
    run._asked.add(address)
    found = run._played.answers.get(address)
    if found is not None:
        return _value(address, found.entry)
    if run._dry:
        from everstep.runtime.steps import validate

        raise validate.ends_at(run, address, asked=address in run._played.asked)
    run._boundary()
    if asked.condition is not None:
        condition = asked.condition
        return answered(run, address, bool(condition() if callable(condition) else condition), "condition")
    run._fire("before_gate", gate=address, ask=asked.text)
    known = run._played.asked.get(address)
    asked.deadline = (
        known.entry.deadline if known is not None else clock.now_us() + int(asked.timeout * 1e6) if asked.timeout is not None else None
    )
    arrived = arrival(run, asked)
    if arrived is not None:
        return arrived[0]
    _put_question(run, asked, known is not None)
    raise waiting_for(run, asked)


def arrival(run: Driver, asked: Question) -> tuple[Any] | None:
    """The answer that has come, recorded; that of the deadline, if it has passed; or None."""
    address, deadline = asked.address, asked.deadline
    letter = _letter(run, asked)
    if letter is None and deadline is not None and clock.now_us() >= deadline:
        _say_expired(run, address, asked.default)
        letter = run._letters.get(f"answer:{address}")
    if letter is None:
        return None
    said = _said(run, letter)
    if (
        deadline is not None and letter.at >= deadline and "expired" not in said
    ):  # such answers are refused; one from elsewhere came too late
        return (answered(run, address, None if asked.default is NONE else asked.default, "timeout", asked.default is NONE),)
    value = said["value"] if asked.shape is None else plain_of(said["value"])
    return (answered(run, address, value, said.get("by"), bool(said.get("expired"))),)


def waiting_for(run: Driver, asked: Question) -> Waiting:
    """What unwinds the program until there is an answer."""
    run._waits[asked.address] = waiting = Waiting(run.id, f"an answer at gate {asked.address!r}", asked.deadline)
    return waiting


def _say_expired(run: Driver, address: str, default: Any) -> None:
    """Nobody answered in time. The first answer wins, and this may not be it."""
    try:
        run._store.backend.post(_expired(run, address, default), run.id)
        run._look_at_letters()
    except TROUBLE as error:
        run._met(error)
        raise


def _letter(run: Driver, asked: Question) -> Letter | None:
    """The answer that waits, if it fits. One that came before the question and does not fit is thrown away, and asked for again."""
    address, shape = asked.address, asked.shape
    letter = run._letters.get(f"answer:{address}")
    if letter is None or shape is None:
        return letter
    said = _said(run, letter)
    if "expired" in said:
        return letter  # the default, which was looked at
    value = plain_of(said["value"])
    fault = shapes.check(shape, value) or (_refusal(asked.kind, value) if asked.kind is not None else None)
    if fault is None:
        return letter
    run._read.append(letter.name)
    run._letters.pop(letter.name)
    run._put("event", pack(EventEntry.of("answer_refused", {"gate": address, "fault": fault})), None)
    return None


def _said(run: Driver, letter: Letter) -> dict[str, Any]:
    said = decode(run._store.framer.unwrap(letter.body))
    if not isinstance(said, dict) or "value" not in said or not isinstance(said.get("by"), (str, type(None))):
        raise DamagedFrame(f"the letter {letter.name!r} is no answer")
    return said


def _expired(run: Driver, address: str, default: Any) -> Letter:
    said = {"value": None if default is NONE else _kept(run, default, address), "by": "timeout", "expired": default is NONE}
    now = clock.now_us()
    return Letter.make(run._open()[0].key, f"answer:{address}", now, now, run._store.framer.wrap(encode(said)), run._store.backend.seal)


def _kept(run: Driver, value: Any, address: str) -> Any:
    """A value as it is stored here."""
    mask = run._mask
    return value if mask is None else mask(value, f"answer of {address}")


def _put_question(run: Driver, asked: Question, known: bool) -> None:
    address, default = asked.address, asked.default
    kept = None if default is NONE else encode(_kept(run, default, address), f"default of {address}")
    mask = run._mask
    text = asked.text if mask is None else mask.text(asked.text)
    if not known:
        with run._lock:
            run._put("gate", pack(GateEntry(text, asked.shape, asked.deadline, kept, {})), address)
    if asked.deadline is not None:
        set_timer(run, address, asked.deadline)


def set_timer(run: Driver, address: str, due: int) -> None:
    """A letter to the run itself, which wakes it. One that is there already stays."""
    letter = Letter.make(
        run._open()[0].key, f"timer:{address}", due, clock.now_us(), run._store.framer.wrap(encode(None)), run._store.backend.seal
    )
    with run._lock:
        run._outgoing.append(letter)


def answered(run: Driver, address: str, value: Any, by: str | None, expired: bool = False) -> Any:
    """Record an answer, with the checkpoint that a policy wants at gates."""
    answer = AnswerEntry(encode(_kept(run, value, address), f"answer of {address}"), by, {"expired": True} if expired else {})
    with run._lock:
        run._put("answer", pack(answer), address)
        run._waits.pop(address, None)
        drop_timer(run, address)
        keep_asleep(run, address)
    if run._mode.policy.due("gate", None, 0, 0.0) is not None:
        run._save("gate", "on gate")
    else:
        run._write_entries()
    run._fire("after_gate", gate=address, value=value, by=by)
    return _value(address, answer)


def give_up(run: Driver, address: str, seconds: float) -> None:
    """The program cancelled its wait at a gate: an answer that comes later is not for it."""
    if run._is_stopping:
        return
    with run._lock:
        run._put("answer", pack(AnswerEntry(encode(None), "the program", {"cancelled": True, "seconds": seconds})), address)
        drop_timer(run, address)
        keep_asleep(run, address)
    run._branches.cancelled(address, run._branch())


def keep_asleep(run: Driver, address: str) -> None:
    """The letter of an answer stays, so that there is never a second one; but it no longer wakes the run."""
    letter = run._letters.get(f"answer:{address}")
    if letter is not None and letter.due is not None:
        run._read.append(letter.name)
        run._outgoing.append(Letter.make(letter.key, letter.name, None, letter.at, letter.body, run._store.backend.seal))


def drop_timer(run: Driver, address: str) -> None:
    if f"timer:{address}" in run._letters:
        run._read.append(f"timer:{address}")
        run._letters.pop(f"timer:{address}")


def _value(address: str, answer: AnswerEntry) -> Any:
    if answer.flags.get("expired"):
        raise GateTimeout(f"nobody answered gate {address!r} in time")
    return decode(answer.value)


def address_of_timer(run: Driver) -> str:
    return _address(run, "sleep")


def sleep_run(run: Driver, seconds: float | None, until: Any) -> None:
    deadline = start_timer(run, seconds, until)
    while deadline is not None and (left := deadline - clock.now_us()) > 0:
        clock.nap(left / 1e6, 0.2)
        run._listen()


def start_timer(run: Driver, seconds: float | None, until: Any) -> int | None:
    """Record a deadline; the deadline if this process is to wait for it, None if it has passed."""
    due = deadline_of(seconds, until)
    address = address_of_timer(run)
    run._asked.add(address)
    found = run._played.asked.get(address)
    if found is not None and found.entry.deadline is not None:
        due = found.entry.deadline
    if run._dry:
        if found is None:
            from everstep.runtime.steps import validate

            validate.note_new(run, address)
        return None
    if due <= clock.now_us():
        if found is None:
            with run._lock:
                run._put("timer", pack(TimerEntry(due)), address)
        drop_timer(run, address)
        return None
    run._boundary()
    if found is None:
        with run._lock:
            run._put("timer", pack(TimerEntry(due)), address)
    if run._mode.workflow and due - clock.now_us() > HOLD_SECONDS * 1e6:
        set_timer(run, address, due)
        raise waiting_until(run, address, due)
    if found is None:
        run._write_entries()
    return due


def waiting_until(run: Driver, address: str, due: int) -> Waiting:
    """What unwinds the program until a time has come."""
    run._waits[address] = waiting = Waiting(run.id, f"the time of {address!r}", due)
    return waiting


def deadline_of(seconds: float | None, until: Any) -> int:
    if (seconds is None) == (until is None):
        raise InvalidArgument("sleep needs either seconds or until", remedy="Use sleep(60) or sleep(until=datetime(...)).")
    if until is not None:
        return to_us(until) or 0
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not 0 <= seconds < _MOST_SECONDS:
        raise InvalidArgument(f"{seconds!r:.60} is no number of seconds")
    return clock.now_us() + int(seconds * 1e6)


def begin_once(run: Driver, ticket: Ticket) -> tuple[Any] | None:
    """Write down that a step begins, which is to run at most once. If one that began has no end, a person decides."""
    if ticket.unsure:
        question = f"Step {ticket.address} was running when its process died. Run it again, skip it, or let it fail?"
        shape = shapes.to_schema(None, ["run", "skip", "fail"])
        answer = decide(run, Question(f"{ticket.address}?{ticket.attempt}", question, shape, None, NONE, None))
        if answer != "run":
            return _settle_once(run, ticket, answer)
    write_intent(run, ticket)
    return None


def write_intent(run: Driver, ticket: Ticket) -> None:
    """Write down that an attempt begins, and how many came before it."""
    ticket.started = clock.now_us()
    ticket.record(RUNNING, flags={"tried": ticket.tried} if ticket.tried else {})
    run._write_entries(ticket)


def _settle_once(run: Driver, ticket: Ticket, answer: str) -> tuple[Any]:
    ticket.started = clock.now_us()
    if answer == "skip":
        ticket.record(SUCCEEDED, flags={"skipped": True})
        run._write_step(ticket, None)
        return (None,)
    error = StepFailed(ticket.address, "ProcessDied", "the process died inside the step, and it was not to be run again")
    ticket.record(FAILED, error=run._error_body(error))
    run._write_step(ticket, error)
    raise error
