"""Gates: waits for a decision from outside, also about a step of which no process knows whether it has run.

A gate's question is recorded and the run releases its process. The answer comes as a message, from anywhere, and is recorded when the run
reads it. The message stays, so that the first answer is the only one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from everstep.backends.contract.capability import need
from everstep.backends.contract.mailbox import Mailbox
from everstep.clock import clock
from everstep.codec.values import decode, encode
from everstep.durations import to_seconds
from everstep.errors import BadAnswer, DamagedFrame, GateTimeout, InvalidArgument, Waiting
from everstep.fields import Shape
from everstep.records import Message
from everstep.runtime.engine.context import current
from everstep.runtime.engine.store_trouble import TROUBLE
from everstep.runtime.steps.options import check_name
from everstep.runtime.waits.answer_check import check
from everstep.runtime.waits.answer_instances import instance_of, plain_of
from everstep.runtime.waits.answer_schema import to_schema
from everstep.store.encryption.frames import content_of_message, new_message
from everstep.store.journal.entries import AnswerEntry, EventEntry, GateEntry, pack

if TYPE_CHECKING:
    from everstep.durations import Duration
    from everstep.runtime.engine.attempt import Attempt
    from everstep.runtime.observe import Span
    from everstep.runtime.steps.ticket import Ticket

T = TypeVar("T")
D = TypeVar("D")
NONE: Any = type("NoDefault", (), {"__repr__": lambda self: "<none>"})()
MOST_SECONDS = 1e9
_YES = frozenset({"yes", "y", "true", "ok", "approve", "approved", "pass", "passed"})


@overload
def gate(name: str, ask: str | None = None, *, schema: type[T], timeout: Duration | None = None) -> T: ...


@overload
def gate(name: str, ask: str | None = None, *, schema: type[T], timeout: Duration | None = None, default: D) -> T | D: ...


@overload
def gate(
    name: str, ask: str | None = None, *, schema: Any = None, choices: Any = None, timeout: Duration | None = None, default: Any = NONE,
    condition: Any = None, on_pass: Any = None, on_fail: Any = None,
) -> Any: ...  # fmt: skip


def gate(
    name: str, ask: str | None = None, *, schema: Any = None, choices: Any = None, timeout: Duration | None = None, default: Any = NONE,
    condition: Any = None, on_pass: Any = None, on_fail: Any = None,
) -> Any:  # fmt: skip
    """Wait for a decision from outside: `if everstep.gate("editor", ask="Publish?", choices=["yes", "no"]) == "yes": ...`.

    The run releases its process until `store.answer(run, name, value)`; the answer must match `schema` (a type, or a JSON Schema) or be one of
    `choices`. With a class as schema, the gate returns an instance of it. After `timeout` (seconds, a timedelta, or "30s") the answer is
    `default`; without a default, `GateTimeout` is raised. With `condition` (a value or a function) the gate decides by itself, once. `on_pass`
    and `on_fail` choose what the gate returns: a value, or a function to call. In async code, await it.
    """
    return current().gate(
        name, ask, schema=schema, choices=choices, timeout=timeout, default=default, condition=condition, on_pass=on_pass, on_fail=on_fail
    )


def sleep(seconds: Duration | None = None, *, until: datetime | float | None = None) -> Awaitable[None]:
    """Wait until a time: `sleep(60)`, `sleep("2h")`, `sleep(until=moment)`. In async code, await it.

    The deadline is recorded: a run that dies or releases its process continues when the time has come. A workflow keeps its process for waits
    of up to a second, and otherwise releases it until `store.wake()`. A program that uses `store.run` waits here.
    """
    return cast("Awaitable[None]", current().sleep(seconds, until=until))


class Question(Shape):
    """The question of a gate. `deadline` is set when it was asked."""

    address: str
    text: str | None
    shape: Any
    timeout: float | None
    default: Any
    condition: Any
    deadline: int | None = None
    kind: Any = None  # the type whose instance the gate returns


def ask(run: Attempt, name: str, question: str | None = None, *, on_pass: Any = None, on_fail: Any = None, **options: Any) -> Any:
    asked = question_of(run, name, question, **options)
    span = begin_span(run, asked)
    try:
        value = decide(run, asked)
    except BaseException as error:
        end_span(run, span, error)
        raise
    end_span(run, span, None)
    return chosen(run, asked, value, on_pass, on_fail)


def begin_span(run: Attempt, asked: Question) -> Span | None:
    """Tell observers of a wait at a gate, unless it is replayed."""
    if not run.observers.active or asked.address in run.replay.answers:
        return None
    return run.observers.begin("gate", run.id, asked.address)


def end_span(run: Attempt, span: Span | None, error: BaseException | None) -> None:
    if span is not None:
        run.observers.end(span, error=error)


def question_of(
    run: Attempt, name: str, question: str | None, *, schema: Any = None, choices: Any = None, timeout: Duration | None = None,
    default: Any = NONE, condition: Any = None,
) -> Question:  # fmt: skip
    check_name(name)
    need(run.store.backend, Mailbox)
    shape = to_schema(schema, choices)
    seconds = to_seconds(timeout, "timeout")
    if seconds is not None and not (isinstance(seconds, (int, float)) and 0 < seconds < MOST_SECONDS):
        raise InvalidArgument(f"timeout must be a number of seconds greater than 0 and below {MOST_SECONDS:,.0f}, got {timeout!r:.60}")
    default = default if default is NONE or shape is None else plain_of(default)
    if default is not NONE and shape is not None and default is not None:
        fault = check(shape, default)
        if fault:
            raise InvalidArgument(f"the default of gate {name!r} is not a valid answer: {fault}")
    kind = None if isinstance(schema, Mapping) or condition is not None else schema
    return Question(address_of(run, name), question, shape, seconds, default, condition, kind=kind)


def chosen(run: Attempt, asked: Question, value: Any, on_pass: Any, on_fail: Any) -> Any:
    """Return what a gate returns for an answer."""
    picked = None if on_pass is None and on_fail is None else on_pass if passed(value) else on_fail
    return picked() if callable(picked) else _instance(run, asked, value) if picked is None else picked


def _instance(run: Attempt, asked: Question, value: Any) -> Any:
    """Return an answer as an instance of the gate's schema, if that is a class."""
    if asked.kind is None or (value is None and asked.default is None):
        return value
    fault = check(asked.shape, value) or _refusal(asked.kind, value)
    if fault is not None:
        raise BadAnswer(
            f"the recorded answer to gate {asked.address!r} of run {run.id!r} does not match {asked.kind!r:.100}: {fault}",
            remedy=f"Let the schema accept it, or fork the run before the gate: store.resume({run.id!r}, from_step={asked.address!r}).",
        )
    return instance_of(asked.kind, value)


def _refusal(kind: Any, value: Any) -> str | None:
    """Return why a class refuses an answer that matches its schema; None if it does not."""
    try:
        instance_of(kind, value)
    except Exception as error:  # noqa: BLE001 - a class may raise any exception
        return f"{type(error).__name__}: {error}"[:500]
    return None


def passed(value: Any) -> bool:
    """Whether an answer means yes."""
    return value.strip().lower() in _YES if isinstance(value, str) else bool(value)


def address_of(run: Attempt, name: str) -> str:
    run.live()
    return run.address(run.here(), name)


def decide(run: Attempt, asked: Question) -> Any:
    """Return the answer of a gate: the recorded one, or the one that has come. If there is none yet, raise `Waiting`, which ends the attempt."""
    address = asked.address
    run.replay.requested.add(address)
    found = run.replay.answers.get(address)
    if found is not None:
        return _value(address, found.entry)
    if run.dry:
        from everstep.runtime.steps import validate

        raise validate.ends_at(run, address, asked=address in run.replay.asked)
    run.boundary()
    if asked.condition is not None:
        condition = asked.condition
        return answered(run, address, bool(condition() if callable(condition) else condition), "condition")
    run.fire("before_gate", gate=address, ask=asked.text)
    known = run.replay.asked.get(address)
    asked.deadline = (
        known.entry.deadline if known is not None else clock.now_us() + int(asked.timeout * 1e6) if asked.timeout is not None else None
    )
    arrived = arrival(run, asked)
    if arrived is not None:
        return arrived[0]
    _put_question(run, asked, known is not None)
    raise waiting_for(run, asked)


def arrival(run: Attempt, asked: Question) -> tuple[Any] | None:
    """Return the answer that has come, recorded; that of the deadline, if it has passed; or None."""
    address, deadline = asked.address, asked.deadline
    message = _message(run, asked)
    if message is None and deadline is not None and clock.now_us() >= deadline:
        _say_expired(run, address, asked.default)
        message = run.messages.waiting.get(f"answer:{address}")
    if message is None:
        return None
    said = _said(run, message)
    if (
        deadline is not None and message.at >= deadline and "expired" not in said
    ):  # late answers are refused when sent; this one was sent without that check
        return (answered(run, address, None if asked.default is NONE else asked.default, "timeout", asked.default is NONE),)
    value = said["value"] if asked.shape is None else plain_of(said["value"])
    return (answered(run, address, value, said.get("by"), bool(said.get("expired"))),)


def waiting_for(run: Attempt, asked: Question) -> Waiting:
    """Return the error that unwinds the program until there is an answer."""
    return run.waiting(asked.address, f"an answer at gate {asked.address!r}", asked.deadline)


def _say_expired(run: Attempt, address: str, default: Any) -> None:
    """Post the outcome of the deadline as an answer. The first answer wins, and this may not be it."""
    try:
        run.store.backend.post(_expired(run, address, default), run.id)
        run.messages.look()
    except TROUBLE as error:
        run.met(error)
        raise


def _message(run: Attempt, asked: Question) -> Message | None:
    """Return the waiting answer, if it is valid. An invalid one that came before the question is discarded, and the gate keeps waiting."""
    address, shape = asked.address, asked.shape
    message = run.messages.waiting.get(f"answer:{address}")
    if message is None or shape is None:
        return message
    said = _said(run, message)
    if "expired" in said:
        return message  # the default, which was checked
    value = plain_of(said["value"])
    fault = check(shape, value) or (_refusal(asked.kind, value) if asked.kind is not None else None)
    if fault is None:
        return message
    run.messages.take(message.name)
    run.writer.put("event", pack(EventEntry.of("answer_refused", {"gate": address, "fault": fault})), None)
    return None


def _said(run: Attempt, message: Message) -> dict[str, Any]:
    said = content_of_message(run.store.backend, run.live()[0], message)
    if not isinstance(said, dict) or "value" not in said or not isinstance(said.get("by"), (str, type(None))):
        raise DamagedFrame(f"the message {message.name!r} does not contain an answer")
    return said


def _expired(run: Attempt, address: str, default: Any) -> Message:
    said = {"value": None if default is NONE else _kept(run, default, address), "by": "timeout", "expired": default is NONE}
    now = clock.now_us()
    return new_message(run.store.backend, run.live()[0], f"answer:{address}", now, now, said)


def _kept(run: Attempt, value: Any, address: str) -> Any:
    """Return a value as this store saves it."""
    mask = run.mask
    return value if mask is None else mask(value, f"answer of {address}")


def _put_question(run: Attempt, asked: Question, known: bool) -> None:
    address, default = asked.address, asked.default
    kept = None if default is NONE else encode(_kept(run, default, address), f"default of {address}")
    mask = run.mask
    text = asked.text if mask is None else mask.text(asked.text)
    if not known:
        with run.writer.lock:
            run.writer.put("gate", pack(GateEntry(text, asked.shape, asked.deadline, kept, {})), address)
    if asked.deadline is not None:
        with run.writer.lock:
            run.messages.send(f"timer:{address}", asked.deadline)  # an existing one stays


def answered(run: Attempt, address: str, value: Any, by: str | None, expired: bool = False) -> Any:
    """Record an answer, with the checkpoint that a policy wants at gates."""
    answer = AnswerEntry(encode(_kept(run, value, address), f"answer of {address}"), by, {"expired": True} if expired else {})
    with run.writer.lock:
        run.writer.put("answer", pack(answer), address)
        run.waits.pop(address, None)
        run.messages.take(f"timer:{address}")
        run.messages.keep_asleep(f"answer:{address}")
    if run.options.policy.due("gate", None, 0, 0.0) is not None:
        run.saves.save("gate", "on gate")
    else:
        run.writer.write_entries()
    run.fire("after_gate", gate=address, value=value, by=by)
    return _value(address, answer)


def give_up(run: Attempt, address: str, seconds: float) -> None:
    """Record that the program cancelled its wait at a gate: a later answer does not count."""
    if run.is_stopping:
        return
    with run.writer.lock:
        run.writer.put("answer", pack(AnswerEntry(encode(None), "the program", {"cancelled": True, "seconds": seconds})), address)
        run.messages.take(f"timer:{address}")
        run.messages.keep_asleep(f"answer:{address}")
    run.branches.cancelled(address, run.branch())


def _value(address: str, answer: AnswerEntry) -> Any:
    if answer.flags.get("expired"):
        raise GateTimeout(f"gate {address!r} was not answered in time")
    return decode(answer.value)


def ask_about(ticket: Ticket) -> Any:
    """Ask a person about an at-most-once step that was running when its process died: run, skip or fail."""
    question = f"Step {ticket.address} was running when its process died. Run it again, skip it, or let it fail?"
    shape = to_schema(None, ["run", "skip", "fail"])
    return decide(ticket.run, Question(f"{ticket.address}?{ticket.attempt}", question, shape, None, NONE, None))
