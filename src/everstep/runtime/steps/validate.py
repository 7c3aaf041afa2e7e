"""`replay="validate"`: calls the recorded steps again and compares, and writes nothing.

The program always gets the recorded result or error, also where the step gives something else now: so the steps after a difference can be
compared, too. Never called again: a step whose input differs, a step that may run only once or that writes in a transaction, a
step that the program had cancelled. A step that is not recorded is never called: the comparison of its branch ends there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from everstep.codec.values import decode, encode
from everstep.errors import EverstepError, Interrupted, NonDeterminism, Suspended
from everstep.records import Kind, Status
from everstep.runtime.engine.replay import content
from everstep.runtime.steps.difference import NOTHING, Difference, difference, of_texts
from everstep.runtime.steps.drive import Ticket, call_once, given_again, is_other_input
from everstep.store.journal.entries import FAILED, RUNNING, SUCCEEDED, StepEntry
from everstep.store.journal.results import load_result, show_input
from everstep.store.load import newest_of

if TYPE_CHECKING:
    from everstep.runtime.engine.driver import Driver
    from everstep.runtime.run import Run

END = "the workflow"


class JournalEnds(Interrupted):
    """The program asks for something that is not recorded."""

    def __init__(self, run: Driver, address: str):
        self.address = address
        super().__init__(run.id, f"the journal ends before {address}")


def ends_at(run: Driver, address: str, asked: bool = False) -> JournalEnds:
    """Note that something has no recorded end. `asked`: a gate whose question is recorded, and only the answer is missing."""
    if not asked:
        note_new(run, address)
    return JournalEnds(run, address)


def note_new(run: Driver, address: str) -> None:
    if address not in run._report.new:
        run._report.new.append(address)


def check(ticket: Ticket) -> Any:
    """Call a step of a sync program, compare, and give what is recorded."""
    if not ticket.done:
        return _unfinished_child(ticket)
    if is_to_be_called(ticket):
        try:
            compare(ticket, call_once(ticket))
        except JournalEnds:
            pass  # a step inside asked for something new; this one has a recorded end all the same
        except Exception as error:  # noqa: BLE001 - it is compared
            compare_error(ticket, error)
        finally:
            ticket.run._flight.pop(ticket.address, None)
    return given_again(ticket)


async def acheck(ticket: Ticket, handle: Any) -> Any:
    """The same in a task. Ends are handed out in their recorded order."""
    from everstep.runtime.steps.adrive import acall, wait_for_place

    run = ticket.run
    if not ticket.done:
        if _is_child(ticket):
            return await acall(ticket, handle)
        if "/" not in ticket.address:  # other tasks may still get recorded ends
            await handle._completions.new()
        raise ends_at(run, ticket.address)
    if is_to_be_called(ticket):
        try:
            compare(ticket, await acall(ticket, handle))
        except JournalEnds:
            pass
        except Exception as error:  # noqa: BLE001 - it is compared
            compare_error(ticket, error)
        finally:
            run._flight.pop(ticket.address, None)
    try:
        await wait_for_place(ticket, handle)
    except NonDeterminism as error:  # it had been cancelled, and is not now: there is no result that the program could get
        run._report.differences.append(Difference(ticket.address, error.recorded, error.now, what="cancelled"))
        raise JournalEnds(run, ticket.address) from error
    return given_again(ticket)


def _is_child(ticket: Ticket) -> bool:
    return getattr(ticket.function, "is_child", False)


def _unfinished_child(ticket: Ticket) -> Any:
    """A child run that has begun is compared as far as it came, also if its caller has no record of its end."""
    if not _is_child(ticket):
        raise ends_at(ticket.run, ticket.address)
    try:
        return call_once(ticket)
    finally:
        ticket.run._flight.pop(ticket.address, None)


def is_to_be_called(ticket: Ticket) -> bool:
    """Whether a recorded step is called again. Notes an input that differs."""
    run, found = ticket.run, ticket.found
    assert found is not None
    step, options = found.entry, ticket.options
    if is_other_input(ticket, step):
        run._report.differences.append(_input_difference(ticket, step.input))
        return False
    if step.flags.get("cancelled") or step.flags.get("skipped") or options.at_most_once or options.transactional is not None:
        return False
    run._report.executed += 1
    run._called_again.add(ticket.address)
    return True


def _input_difference(ticket: Ticket, kept: Any) -> Difference:
    now = ticket.input
    if isinstance(kept, bytes) and isinstance(now, bytes):
        try:
            found = difference(ticket.address, _arguments(kept), _arguments(now), "input")
        except EverstepError:
            found = None
        if found is not None:
            return found
    return of_texts(ticket.address, show_input(kept), show_input(now), "input")


def _arguments(kept: bytes) -> Any:
    args = decode(kept)
    rest = kept[len(encode(args)) :]
    return [*args, decode(rest)] if rest else args


def compare(ticket: Ticket, now: Any) -> None:
    """What a step gives now against what was recorded."""
    run, found = ticket.run, ticket.found
    assert found is not None
    step, mask = found.entry, run._mask
    try:
        kept = now if mask is None else mask(now, f"result of {ticket.address}")
        encode(kept, f"result of {ticket.address}")
    except EverstepError as error:  # a result that can't be stored is a failure of the step
        compare_error(ticket, error)
        return
    if step.status != SUCCEEDED:
        run._report.differences.append(of_texts(ticket.address, _words(step.error), repr(kept)))
        return
    differs = difference(ticket.address, load_result(run._store.backend, run._family, step.form, step.result), kept)
    if differs is not None:
        run._report.differences.append(differs)


def compare_error(ticket: Ticket, error: Exception) -> None:
    """A failure against what was recorded: the class and the text count."""
    run, found = ticket.run, ticket.found
    assert found is not None
    step, now = found.entry, _words(run._error_body(error))
    if step.status != SUCCEEDED:
        recorded = _words(step.error)
        if recorded == now:
            return
    else:
        recorded = repr(load_result(run._store.backend, run._family, step.form, step.result))
    run._report.differences.append(of_texts(ticket.address, recorded, now))


def _words(error: Any) -> str:
    """The class and the text of a recorded error."""
    error = error if isinstance(error, dict) else {}
    return f"{error.get('type')}: {error.get('message')}"


def skipped(ticket: Ticket) -> None:
    """The program skips a step, and does not ask for its result."""
    if ticket.found is None:
        note_new(ticket.run, ticket.address)
    elif is_other_input(ticket, ticket.found.entry):
        ticket.run._report.differences.append(_input_difference(ticket, ticket.found.entry.input))


def conclude(run: Run, error: BaseException | None) -> None:
    """After the program: what it asked for and did not ask for, and how it ended."""
    assert run._row is not None
    report, row = run.report, run._row
    missing = _not_asked_for(run)
    over = row.status in (Status.SUCCEEDED, Status.FAILED)
    for address in report.new:
        if over or missing or "/" in address:
            report.differences.append(Difference(address, NOTHING, "a new step, which was not called", what="new"))
    if isinstance(error, Suspended):
        report.not_reached = missing  # the program might have asked for them later
        return
    for address in missing:
        report.differences.append(Difference(address, "a step, gate or timer", "not asked for", what="missing"))
    if over:
        _compare_end(run, error)


def _not_asked_for(run: Run) -> list[str]:
    played, asked = run._played, run._asked
    steps = [address for address, found in played.entries.items() if address not in asked and _counts(run, address, found.entry)]
    others = [
        address for address in {**played.asked, **played.answers} if address not in asked and "/" not in address and "?" not in address
    ]
    return [*steps, *others]


def _counts(run: Run, address: str, step: StepEntry) -> bool:
    """Whether a program that does the same must ask for a step: also inside a step that was called, if that was tried only once."""
    if "@" in address or step.status == RUNNING or (step.status == FAILED and step.flags.get("next")):
        return False
    outer = address.rpartition("/")[0]
    around = run._played.entries.get(outer)
    return not outer or (outer in run._called_again and around is not None and not around.attempts)


def _compare_end(run: Run, error: BaseException | None) -> None:
    """How the workflow ended, against how its run ended."""
    assert run._row is not None
    found = newest_of(run._store.backend, run._row, Kind.STATUS)
    said = content(found) if found is not None else {}
    differences = run.report.differences
    failed = _words(run._error_body(error)) if isinstance(error, Exception) else None
    if run._row.status == Status.FAILED:
        recorded = _words(said.get("error"))
        if failed != recorded:
            differences.append(of_texts(END, recorded, failed or repr(run._result), "end"))
        return
    before = load_result(run._store.backend, run._family, *said.get("result", (0, None)))
    if failed is not None:
        differences.append(of_texts(END, repr(before), failed, "end"))
        return
    if run._mask is None:  # otherwise the program had seen what is masked in the recorded results now
        differs = difference(END, before, run._result, "end")
        differences += [] if differs is None else [differs]
