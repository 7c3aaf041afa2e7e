"""Gates and timers of async programs. A wait that is not over lets the other tasks of the program proceed, and suspends the run when none can.

`waits.gates` and `waits.timers` decide; this module awaits.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from everstep.clock import clock
from everstep.errors import Suspended, Waiting
from everstep.runtime.waits import gates
from everstep.runtime.waits.gates import Question
from everstep.runtime.waits.timers import Timer, timer_of
from everstep.store.journal.entries import EventEntry, pack

if TYPE_CHECKING:
    from everstep.runtime.engine.attempt import Attempt
    from everstep.runtime.tasks.writer import TaskWriter

_SHORTEST_NAP, _LONGEST_NAP = 0.01, 0.2  # seconds between two checks of a parked wait


async def ask(tasks: TaskWriter, name: str, question: str | None, on_pass: Any = None, on_fail: Any = None, **options: Any) -> Any:
    """Wait for a decision from outside; see `everstep.gate`. Its functions may be async."""
    run = tasks.run
    asked = gates.question_of(run, name, question, **options)
    span = gates.begin_span(run, asked)
    try:
        value = await _decide(tasks, run, asked)
    except BaseException as error:
        gates.end_span(run, span, error)
        raise
    gates.end_span(run, span, None)
    picked = gates.chosen(run, asked, value, on_pass, on_fail)
    return await picked if inspect.isawaitable(picked) else picked


async def _decide(tasks: TaskWriter, run: Attempt, asked: Question) -> Any:
    found = run.replay.answers.get(asked.address)
    run.replay.requested.add(asked.address)
    if found is not None:
        if found.entry.flags.get("cancelled"):
            await _cancelled_again(tasks, asked.address, found.entry.flags.get("seconds", 0.0))
        await tasks.completions.recorded(found.record.seq)
        return gates.decide(run, asked)
    began = clock.now_us()
    try:
        await tasks.completions.new()
        if inspect.iscoroutinefunction(asked.condition):
            asked.condition = await asked.condition()
        try:
            answer = gates.decide(run, asked)
        except Waiting as waiting:
            if run.waits.pop(asked.address, None) is not waiting:
                raise  # of another gate
            answer = await _answer(tasks, run, asked)
        await tasks.completions.ended(run.live()[0].head_seq)
        return answer
    except asyncio.CancelledError:
        gates.give_up(run, asked.address, (clock.now_us() - began) / 1e6)
        raise


async def _cancelled_again(tasks: TaskWriter, address: str, seconds: float) -> None:
    """Wait until the program cancels a wait, as it did before."""
    try:
        await tasks.completions.cancelled(address, seconds)
    finally:
        tasks.run.branches.cancelled(address, tasks.run.branch())


async def _answer(tasks: TaskWriter, run: Attempt, asked: Question) -> Any:
    """Wait while other tasks proceed; the answer may come meanwhile."""
    arrived: tuple[Any] | None = None

    def over() -> bool:
        nonlocal arrived
        arrived = gates.arrival(run, asked)
        return arrived is not None

    await park(tasks, asked.address, over, lambda: gates.waiting_for(run, asked))
    assert arrived is not None
    return arrived[0]


async def park(tasks: TaskWriter, address: str, over: Callable[[], bool], waiting: Callable[[], Suspended]) -> None:
    """Return when a wait is over; raise the exception that suspends the run when no other task can proceed before that."""
    run, nap, written = tasks.run, _SHORTEST_NAP, False
    with tasks.completions.parked(address):
        while not await tasks.completions.idle():
            if not written:
                written = True
                await tasks.write_entries()  # other tasks may take long, and people should see the question now
            await asyncio.sleep(nap)
            nap = min(_LONGEST_NAP, nap * 1.5)
            run.listen()
            if over():
                return
    task = asyncio.current_task()
    if task is not None:  # the run is suspended: asyncio must not warn that this task's exception was never retrieved
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    raise waiting()


async def sleep(tasks: TaskWriter, seconds: Any, until: Any) -> None:
    """Wait until a time; see `everstep.sleep`."""
    run = tasks.run
    timer = timer_of(run, seconds, until)
    fired = run.replay.fired.get(timer.address)
    if fired is not None:
        await tasks.completions.recorded(fired.record.seq)
    elif timer.address in run.replay.unfired:
        asked_at = timer.due if timer.asked_at is None else timer.asked_at
        await _cancelled_again(tasks, timer.address, max(0.0, timer.due - asked_at) / 1e6)
    elif run.dry:
        timer.note_new()
    else:
        await _wait(tasks, run, timer)


async def _wait(tasks: TaskWriter, run: Attempt, timer: Timer) -> None:
    try:
        await tasks.completions.new()
        run.boundary()
        timer.put()
        if timer.is_long():
            timer.wake_then()
            await park(tasks, timer.address, lambda: timer.left() <= 0, timer.waiting)
        elif timer.left() > 0:
            await _hold(tasks, run, timer)
    except asyncio.CancelledError:
        if not run.is_stopping:
            _note_end(run, "timer_cancelled", timer)
            run.branches.cancelled(timer.address, run.branch())
        raise
    _note_end(run, "timer_fired", timer)
    if run.branches.several:  # otherwise nothing can come before it, and the next commit includes it
        await tasks.completions.ended(await tasks.write_entries())


def _note_end(run: Attempt, event: str, timer: Timer) -> None:
    run.writer.put("event", pack(EventEntry.of(event, {"timer": timer.address})), None)
    timer.drop_message()


async def _hold(tasks: TaskWriter, run: Attempt, timer: Timer) -> None:
    """Wait in this process. Records the deadline first: if the process dies, the deadline stays the same."""
    await tasks.write_entries()
    with tasks.completions.busy():
        while (left := timer.left()) > 0:
            await clock.anap(left, 0.2, lambda: run.steps.is_busy_beside(timer.address))
            run.listen()
