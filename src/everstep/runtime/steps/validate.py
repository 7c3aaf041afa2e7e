"""`replay="validate"`: calls the recorded steps again and compares their results; writes nothing.

The program always gets the recorded result or error, also if the step returns something else now, so the steps after a difference can be
compared, too. Some steps are never called: a step whose input differs, a step that may run only once or that writes in a transaction, a
step that the program had cancelled. A step that is not recorded is not called either: the comparison of its branch ends there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from everstep.codec.values import decode, encode
from everstep.errors import EverstepError, Interrupted, NonDeterminism, Suspended
from everstep.records import Kind, Status
from everstep.runtime.engine.replay import content
from everstep.runtime.steps.difference import NOTHING, Difference, difference, of_texts
from everstep.runtime.steps.drive import COMPARED, Ended
from everstep.runtime.steps.lookup import is_other_input
from everstep.runtime.steps.ticket import Ticket, raised
from everstep.store.journal.entries import FAILED, RUNNING, SUCCEEDED, StepEntry
from everstep.store.journal.results import load_result, show_input
from everstep.store.load import newest_of

if TYPE_CHECKING:
    from everstep.runtime.engine.attempt import Attempt
    from everstep.runtime.steps.drive import Ways

END = "the workflow"
GIVEN: Ended = (None, COMPARED)


class JournalEnds(Interrupted):
    """The program called something that is not recorded."""

    def __init__(self, run: Attempt, address: str):
        self.address = address
        super().__init__(run.id, f"the journal ends before {address}")


def ends_at(run: Attempt, address: str, asked: bool = False) -> JournalEnds:
    """Note that something has no recorded end. `asked`: a gate whose question is recorded, and only the answer is missing."""
    if not asked:
        note_new(run, address)
    return JournalEnds(run, address)


def note_new(run: Attempt, address: str) -> None:
    if address not in run.report.new:
        run.report.new.append(address)


async def check(ticket: Ticket, ways: Ways) -> Ended:
    """Call a step and compare. The program then gets the recorded end, in the recorded order."""
    run = ticket.run
    if not ticket.done:
        return await _unfinished(ticket, ways)
    if is_to_be_called(ticket):
        try:
            compare(ticket, await ways.call(ticket))
        except JournalEnds:
            pass  # a step inside called something new; this one still has a recorded end
        except Exception as error:  # noqa: BLE001 - it is compared
            compare_error(ticket, raised(error))
        finally:
            run.steps.flight.pop(ticket.address, None)
    try:
        await ways.recorded_turn(ticket)
    except NonDeterminism as error:  # it was cancelled, and is not now: there is no result to return
        run.report.differences.append(Difference(ticket.address, error.recorded, error.now, what="cancelled"))
        raise JournalEnds(run, ticket.address) from error
    return GIVEN


async def _unfinished(ticket: Ticket, ways: Ways) -> Ended:
    """Compare a child run that has begun as far as it got, also if its caller has no record of its end. Call nothing else."""
    run = ticket.run
    if not ticket.is_child:
        if "/" not in ticket.address:  # other tasks may still get recorded ends
            await ways.fresh(ticket, is_over=True)
        raise ends_at(run, ticket.address)
    try:
        return await ways.call(ticket), None
    finally:
        run.steps.flight.pop(ticket.address, None)


def is_to_be_called(ticket: Ticket) -> bool:
    """Whether a recorded step is called again. Notes an input that differs."""
    run, found = ticket.run, ticket.found
    assert found is not None
    step, options = found.entry, ticket.options
    if is_other_input(ticket, step):
        run.report.differences.append(_input_difference(ticket, step.input))
        return False
    if step.flags.get("cancelled") or step.flags.get("skipped") or options.at_most_once or options.transactional is not None:
        return False
    run.report.executed += 1
    run.steps.called_again.add(ticket.address)
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
    """Compare a step's result with the recorded one."""
    run, found = ticket.run, ticket.found
    assert found is not None
    step, mask = found.entry, run.mask
    try:
        kept = now if mask is None else mask(now, f"result of {ticket.address}")
        encode(kept, f"result of {ticket.address}")
    except EverstepError as error:  # a result that can't be stored is a failure of the step
        compare_error(ticket, error)
        return
    if step.status != SUCCEEDED:
        run.report.differences.append(of_texts(ticket.address, _words(step.error), repr(kept)))
        return
    differs = difference(ticket.address, load_result(run.store.backend, run.family, step.form, step.result), kept)
    if differs is not None:
        run.report.differences.append(differs)


def compare_error(ticket: Ticket, error: Exception) -> None:
    """Compare a failure with the record: the class and the text count."""
    run, found = ticket.run, ticket.found
    assert found is not None
    step, now = found.entry, _words(run.error_body(error))
    if step.status != SUCCEEDED:
        recorded = _words(step.error)
        if recorded == now:
            return
    else:
        recorded = repr(load_result(run.store.backend, run.family, step.form, step.result))
    run.report.differences.append(of_texts(ticket.address, recorded, now))


def _words(error: Any) -> str:
    """Return the class and the text of a recorded error."""
    error = error if isinstance(error, dict) else {}
    return f"{error.get('type')}: {error.get('message')}"


def skipped(ticket: Ticket) -> None:
    """Note a step that the program skips without reading its result."""
    if ticket.found is None:
        note_new(ticket.run, ticket.address)
    elif is_other_input(ticket, ticket.found.entry):
        ticket.run.report.differences.append(_input_difference(ticket, ticket.found.entry.input))


def conclude(run: Attempt, error: BaseException | None) -> None:
    """Note, after the program ended, what it called and did not call, and how it ended."""
    assert run.row is not None
    report, row = run.report, run.row
    missing = _not_asked_for(run)
    over = row.status in (Status.SUCCEEDED, Status.FAILED)
    for address in report.new:
        if over or missing or "/" in address:
            report.differences.append(Difference(address, NOTHING, "a new step, which was not called", what="new"))
    if isinstance(error, Suspended):
        report.not_reached = missing  # the program might have called them later
        return
    for address in missing:
        report.differences.append(Difference(address, "a step, gate or timer", "not called", what="missing"))
    if over:
        _compare_end(run, error)


def _not_asked_for(run: Attempt) -> list[str]:
    played, asked = run.replay, run.replay.requested
    steps = [address for address, found in played.entries.items() if address not in asked and _counts(run, address, found.entry)]
    others = [
        address for address in {**played.asked, **played.answers} if address not in asked and "/" not in address and "?" not in address
    ]
    return [*steps, *others]


def _counts(run: Attempt, address: str, step: StepEntry) -> bool:
    """Whether an equal program must call a step: also inside a step that was called, if that had only one attempt."""
    if "@" in address or step.status == RUNNING or (step.status == FAILED and step.flags.get("next")):
        return False
    outer = address.rpartition("/")[0]
    around = run.replay.entries.get(outer)
    return not outer or (outer in run.steps.called_again and around is not None and not around.attempts)


def _compare_end(run: Attempt, error: BaseException | None) -> None:
    """Compare how the workflow ended with how its run ended."""
    assert run.row is not None
    found = newest_of(run.store.backend, run.row, Kind.STATUS)
    said = content(found) if found is not None else {}
    differences = run.report.differences
    failed = _words(run.error_body(error)) if isinstance(error, Exception) else None
    if run.row.status == Status.FAILED:
        recorded = _words(said.get("error"))
        if failed != recorded:
            differences.append(of_texts(END, recorded, failed or repr(run.result), "end"))
        return
    before = load_result(run.store.backend, run.family, *said.get("result", (0, None)))
    if failed is not None:
        differences.append(of_texts(END, repr(before), failed, "end"))
        return
    if run.mask is None:  # otherwise the program had seen values that are masked in the recorded results
        differs = difference(END, before, run.result, "end")
        differences += [] if differs is None else [differs]
