"""Gates and timers of async programs. One that is not over yet lets the other tasks of the program proceed, and suspends the run when none can."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from everstep.clock import clock
from everstep.errors import Suspended, Waiting
from everstep.runtime.waits import gates
from everstep.runtime.waits.gates import Question
from everstep.store.journal.entries import EventEntry, TimerEntry, pack

if TYPE_CHECKING:
    from everstep.runtime.aio import AsyncRun
    from everstep.runtime.engine.driver import Driver

_SHORTEST_NAP, _LONGEST_NAP = 0.01, 0.2  # seconds between two looks at what a parked wait waits for


async def ask(handle: AsyncRun, name: str, question: str | None, on_pass: Any = None, on_fail: Any = None, **options: Any) -> Any:
    """Wait for a decision from outside; see `everstep.gate`. Its functions may be async."""
    run = handle._run
    asked = gates.question_of(run, name, question, **options)
    value = await _decide(handle, run, asked)
    picked = gates.chosen(run, asked, value, on_pass, on_fail)
    return await picked if inspect.isawaitable(picked) else picked


async def _decide(handle: AsyncRun, run: Driver, asked: Question) -> Any:
    found = run._played.answers.get(asked.address)
    run._asked.add(asked.address)
    if found is not None:
        if found.entry.flags.get("cancelled"):
            await _cancelled_again(handle, asked.address, found.entry.flags.get("seconds", 0.0))
        await handle._completions.recorded(found.record.seq)
        return gates.decide(run, asked)
    began = clock.now_us()
    try:
        await handle._completions.new()
        if inspect.iscoroutinefunction(asked.condition):
            asked.condition = await asked.condition()
        try:
            answer = gates.decide(run, asked)
        except Waiting as waiting:
            if run._waits.pop(asked.address, None) is not waiting:
                raise  # not of this gate
            answer = await _answer(handle, run, asked)
        await handle._completions.ended(run._open()[0].head_seq)
        return answer
    except asyncio.CancelledError:
        gates.give_up(run, asked.address, (clock.now_us() - began) / 1e6)
        raise


async def _cancelled_again(handle: AsyncRun, address: str, seconds: float) -> None:
    """Wait until the program cancels a wait, as it did before."""
    try:
        await handle._completions.cancelled(address, seconds)
    finally:
        handle._run._branches.cancelled(address, handle._run._branch())


async def _answer(handle: AsyncRun, run: Driver, asked: Question) -> Any:
    """Wait while other tasks proceed; the answer may come meanwhile."""
    arrived: tuple[Any] | None = None

    def over() -> bool:
        nonlocal arrived
        arrived = gates.arrival(run, asked)
        return arrived is not None

    await park(handle, asked.address, over, lambda: gates.waiting_for(run, asked))
    assert arrived is not None
    return arrived[0]


async def park(handle: AsyncRun, address: str, over: Callable[[], bool], waiting: Callable[[], Suspended]) -> None:
    """Return when a wait is over; raise what suspends the run when no other task can proceed before that."""
    run, nap, written = handle._run, _SHORTEST_NAP, False
    with handle._completions.parked(address):
        while not await handle._completions.idle():
            if not written:
                written = True
                await handle._write_entries()  # other tasks may take long, and the question is for people to see now
            await asyncio.sleep(nap)
            nap = min(_LONGEST_NAP, nap * 1.5)
            run._listen()
            if over():
                return
    task = asyncio.current_task()
    if task is not None:  # the run is suspended: asyncio need not warn that the program did not look at this task
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    raise waiting()


async def sleep(handle: AsyncRun, seconds: float | None, until: Any) -> None:
    """Wait for a time; see `everstep.sleep`."""
    run = handle._run
    due = gates.deadline_of(seconds, until)
    address = gates.address_of_timer(run)
    run._asked.add(address)
    played = run._played
    known = played.asked.get(address)
    if known is not None and known.entry.deadline is not None:
        due = known.entry.deadline
    fired = played.fired.get(address)
    if fired is not None:
        await handle._completions.recorded(fired.record.seq)
    elif address in played.unfired:
        await _cancelled_again(handle, address, max(0.0, due - (known.record.at if known else due)) / 1e6)
    elif not run._dry:
        await _wait(handle, run, address, due, known is not None)
    elif known is None:
        from everstep.runtime.steps import validate

        validate.note_new(run, address)


async def _wait(handle: AsyncRun, run: Driver, address: str, due: int, known: bool) -> None:
    try:
        await handle._completions.new()
        run._boundary()
        if not known:
            run._put("timer", pack(TimerEntry(due)), address)
        left = due - clock.now_us()
        if run._mode.workflow and left > gates.HOLD_SECONDS * 1e6:
            gates.set_timer(run, address, due)
            await park(handle, address, lambda: clock.now_us() >= due, lambda: gates.waiting_until(run, address, due))
        elif left > 0:
            await _hold(handle, run, address, due)
    except asyncio.CancelledError:
        if not run._is_stopping:
            run._put("event", pack(EventEntry.of("timer_cancelled", {"timer": address})), None)
            gates.drop_timer(run, address)
            run._branches.cancelled(address, run._branch())
        raise
    run._put("event", pack(EventEntry.of("timer_fired", {"timer": address})), None)
    gates.drop_timer(run, address)
    if run._branches.several:  # otherwise nothing can come before it, and the next commit will do
        await handle._completions.ended(await handle._write_entries())


async def _hold(handle: AsyncRun, run: Driver, address: str, due: int) -> None:
    """Wait in this process. The deadline is recorded first: a process that dies does not wait from the beginning."""
    await handle._write_entries()
    with handle._completions.busy():
        while (left := due - clock.now_us()) > 0:
            await clock.anap(left / 1e6, 0.2, lambda: run._is_busy_beside(address))
            run._listen()
