"""An agent for programs: `AgentLoop` holds its functions and options, and executes it in a run.

`turns` has the turns, `state` the state of an agent, `decision` its decisions. A killed agent resumes from its last turn: finished steps
are not paid for again. All reads and writes here use a run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from everstep.agents.decision import Action, Decision
from everstep.agents.state import AgentState
from everstep.agents.turns import Turns, adrive, drive, refuse_other_task
from everstep.errors import InvalidArgument, LostLease, NotFound, Suspended
from everstep.ids import check_id
from everstep.runtime.limits.budget import Budget
from everstep.runtime.limits.checks import check_number
from everstep.runtime.run import attempt_if_recorded
from everstep.runtime.steps.options import StepOptions
from everstep.runtime.steps.retry import Retry
from everstep.store.refs import verified

if TYPE_CHECKING:
    from everstep.durations import Duration
    from everstep.records import RunRow
    from everstep.runtime.outcome import Outcome

Functions = Mapping[str, Callable[..., Any]] | Iterable[Callable[..., Any]]


class AgentLoop:
    """The loop that runs an agent: `AgentLoop(think, tools=[search]).run(store, "agent-1", "Find out …")`.

    `think(state)` returns one `Action` or several, an unchanged reply of a chat model, a `Decision`, or the answer. An action calls the
    function of its name among `tools` and `specialists`, or else `act(action)`; an `act(action, state)` may also change the state.
    `plan(state)` is called once, before the first turn. `approve(action)` decides which actions a person must approve: it returns True, or
    the question to ask.

    `max_turns` and `budget` stop an agent until it is run again with higher limits. `retry` and `timeout` apply to thinking and planning;
    tools have their own, as steps. `parallel` takes the actions of one decision at the same time. A tool named in `cache` is not called
    twice with the same input. If a tool fails, errors="tell" passes the error to the model, and "raise" fails the run. `on_message` is
    called with every message that is added. `agent` and `model` are noted in the state, whose class `state` may be your own.
    """

    def __init__(
        self,
        think: Callable[[Any], Any],
        act: Callable[..., Any] | None = None,
        *,
        plan: Callable[[Any], Any] | None = None,
        tools: Functions = (),
        specialists: Functions = (),
        approve: Callable[[Action], Any] | None = None,
        max_turns: int = 50,
        budget: Budget | Mapping[str, Any] | None = None,
        retry: Retry | int | None = None,
        timeout: Duration | None = None,
        parallel: bool = False,
        cache: Iterable[str] = (),
        errors: Literal["tell", "raise"] = "tell",
        on_message: Callable[[Any], Any] | None = None,
        agent: str | None = None,
        model: str | None = None,
        state: type[AgentState] = AgentState,
    ):
        for name, function in (("think", think), ("act", act), ("plan", plan), ("approve", approve), ("on_message", on_message)):
            if not callable(function) and (function is not None or name == "think"):
                raise InvalidArgument(f"{name} must be a function, got {function!r:.60}")
            if name in ("approve", "on_message") and inspect.iscoroutinefunction(function):
                raise InvalidArgument(
                    f"{name} must be a plain function, got the async function {function!r:.60}",
                    remedy="Use a function without async: it runs between two steps.",
                )
        if errors not in ("tell", "raise"):
            raise InvalidArgument(f"errors must be 'tell' or 'raise', got {errors!r:.60}", remedy="Use tell or raise.")
        if isinstance(cache, str):
            raise InvalidArgument(f"cache must be a list of tool names, got {cache!r:.60}", remedy="Pass the names of tools as a list.")
        self.think, self.act, self.plan, self.approve, self.on_message = think, act, plan, approve, on_message
        self.specialists = _named(specialists)
        self.tools = {**_named(tools), **self.specialists}
        self.max_turns: int = check_number(max_turns, "max_turns", least=1, whole=True)
        self.budget = None if budget is None else Budget.parse(budget)
        chosen = StepOptions(retry=retry, timeout=timeout)
        self.retry, self.timeout = chosen.retry, chosen.timeout
        self.parallel, self.cache, self.errors = parallel, frozenset(cache), errors
        self.agent, self.model, self.state = agent, model, state
        self.act_sees_state = act is not None and _takes_two(act)

    def run(self, store: Any, id: str | None = None, task: Any = None, *, follow_up: bool = False, **options: Any) -> Outcome[Any]:
        """Run the agent of this id until it answers or has to wait; a killed agent resumes. Options are passed to `store.run`.

        `task` starts a new agent, as the first message; without it, the id must exist. With `follow_up`, a finished agent gets it as the next message of its conversation.
        """
        done, given = self._before(store, id, task, follow_up, options)
        if done is not None:
            return done
        handle, answer, error = store.run(id, **given), None, None
        try:
            with handle as run:
                answer = self.drive(run, task, follow_up=follow_up)
        except (Exception, Suspended) as problem:  # noqa: BLE001 - becomes the outcome, or is raised again
            error = _of_the_agent(handle, problem)
        return _outcome(store, handle, answer, error)

    async def arun(self, store: Any, id: str | None = None, task: Any = None, *, follow_up: bool = False, **options: Any) -> Outcome[Any]:
        """Run the agent in an asyncio task; `think`, `plan`, `act` and tools may be async functions."""
        from asyncio import to_thread

        from everstep.runtime.aio import plain_store

        store = plain_store(store)
        done, given = await to_thread(self._before, store, id, task, follow_up, options)
        if done is not None:
            return done
        handle, answer, error = store.run(id, **given), None, None
        try:
            async with handle as run:
                answer = await self.drive(run, task, follow_up=follow_up)
        except (Exception, Suspended) as problem:  # noqa: BLE001 - becomes the outcome, or is raised again
            error = _of_the_agent(handle, problem)
        return await to_thread(_outcome, store, handle, answer, error)

    def drive(self, run: Any, task: Any = None, *, follow_up: bool = False) -> Any:
        """Execute the agent in an open run and return its answer; in an async run, await the call."""
        calls = Turns(self, run, task, follow_up).go()
        return adrive(calls) if inspect.iscoroutinefunction(run.checkpoint) else drive(calls)

    def _before(
        self, store: Any, id: str | None, task: Any, follow_up: bool, options: dict[str, Any]
    ) -> tuple[Outcome[Any] | None, dict[str, Any]]:
        """Return the outcome of an agent that has ended, or else the options to open its run with."""
        if not hasattr(store, "backend"):
            raise InvalidArgument(
                f"the store of an agent must be a Store, got {store!r:.60}",
                remedy="Call loop.run(store, id, task), in this order; with an async store, await loop.arun(store, id, task).",
            )
        row = store.backend.run(check_id(id)) if id is not None else None
        if row is None:
            if id is not None and task is None and "state" not in options:
                raise NotFound(
                    f"there is no agent with the id {id!r}, and no task to start one with",
                    remedy=f"Check the id, or pass a task to start a new agent: loop.run(store, {id!r}, task).",
                )
            return None, options if self.budget is None else {"budget": self.budget, **options}
        known = _look(store, row.id, whole=not (task is None or isinstance(task, str)))
        if row.status == "cancelled":
            return _recorded(store, row, None), options
        if known and not follow_up:
            refuse_other_task(id, known["task"], task)
            if known["status"] == row.status == "succeeded":
                return _recorded(store, row, store.load(id)["answer"]), options
        budget = self.budget or (Budget.parse(dict(known["budget"])) if known.get("budget") else None)
        return None, options if budget is None else {"budget": budget, **options}


def _named(functions: Functions) -> dict[str, Callable[..., Any]]:
    if not isinstance(functions, Iterable):
        raise InvalidArgument(f"tools must be a list or a dict of functions, got {functions!r:.60}")
    found = dict(functions) if isinstance(functions, Mapping) else {getattr(f, "__name__", repr(f)): f for f in functions}
    for name, function in found.items():
        if not isinstance(name, str) or not callable(function):
            raise InvalidArgument(
                f"a tool must be a function with a name, got {name!r:.60}: {function!r:.60}",
                remedy="Pass functions, or a dict of names and functions.",
            )
    return found


def _takes_two(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind(None, None)
    except (TypeError, ValueError):
        return False
    return True


def _look(store: Any, id: str, whole: bool) -> Mapping[str, Any]:
    """Return the newest stored state of an agent without opening its run; empty if there is none."""
    try:
        found = store.load(id) if whole else store.view(id)
    except NotFound:
        return {}  # no checkpoint yet
    return found if isinstance(found, Mapping) and "pending" in found else {}


def _of_the_agent(handle: Any, problem: BaseException) -> BaseException:
    """Return an error that is the agent's outcome; raise one that broke the attempt or prevented it from starting."""
    attempt = attempt_if_recorded(handle)
    broken = (attempt is not None and attempt.failure is not None) or isinstance(problem, LostLease)
    if broken or (attempt is not None and attempt.row is None):
        raise problem
    return problem


def _recorded(store: Any, row: RunRow, answer: Any) -> Outcome[Any]:
    from everstep.runtime.outcome import recorded

    outcome = recorded(store, verified(row, store.backend.seal))
    outcome.result = answer
    return outcome


def _outcome(store: Any, handle: Any, answer: Any, error: BaseException | None) -> Outcome[Any]:
    from everstep.runtime.outcome import Outcome, recorded

    attempt = attempt_if_recorded(handle)
    if attempt is not None and attempt.row is not None:
        outcome = recorded(store, attempt.row, handle.report)
    else:  # switched off: nothing is recorded
        status = "succeeded" if error is None else "failed" if isinstance(error, Exception) else "waiting"
        outcome = Outcome(handle.id, status, reason=None if error is None else str(error), report=handle.report)
    outcome.result = answer
    outcome.error = error if isinstance(error, Exception) else None
    return outcome


__all__ = ["Action", "AgentLoop", "AgentState", "Decision"]
