"""One attempt at an agent: turns of thinking and acting, until there is an answer.

`think` and every action are steps, each turn ends with a checkpoint, and approvals are requested at gates. The logic is written once, as a
generator of calls: `drive` makes them in a thread, `adrive` awaits them in a task. The program's functions get a draft of the state. Their
changes to it are recorded with their result, so a retry starts from the unchanged state and a replay makes the same changes. Uses a run's
public methods, except to note where the agent runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from everstep.agents.decision import Action, Decision, message_of, replies, text_of, told_of
from everstep.agents.state import AgentState, Draft, redo
from everstep.clock import clock
from everstep.codec.values import decode, encode
from everstep.errors import EverstepError, GateTimeout, Interrupted, InvalidArgument, StepFailed, StepTimeout
from everstep.fields import replace
from everstep.runtime.engine import owner
from everstep.runtime.limits.budget import Budget, Used
from everstep.runtime.run import attempt_if_recorded
from everstep.runtime.steps.options import step

if TYPE_CHECKING:
    from everstep.agents.loop import AgentLoop

Calls = Generator[Callable[[], Any], Any, Any]
Plain = dict[str, Any]
_ANSWERS = {
    "anyOf": [
        {"enum": ["yes", "no"]},
        {"type": "boolean"},
        {
            "type": "object",
            "properties": {"answer": {"enum": ["yes", "no"]}, "reason": {"type": "string"}, "input": {"type": "object"}},
            "required": ["answer"],
            "additionalProperties": False,
        },
    ]
}
_OF_THE_TOOL = (StepFailed, StepTimeout, GateTimeout)


def drive(calls: Calls) -> Any:
    """Make the calls of a generator, and send it the result of each."""
    value, error = None, None
    while True:
        try:
            call = calls.send(value) if error is None else calls.throw(error)
        except StopIteration as end:
            return end.value
        value, error = None, None
        try:
            value = call()
        except BaseException as problem:  # noqa: BLE001 - raised in the generator, at its call
            error = problem


async def adrive(calls: Calls) -> Any:
    """Make the calls of a generator, and await each."""
    value, error = None, None
    while True:
        try:
            call = calls.send(value) if error is None else calls.throw(error)
        except StopIteration as end:
            return end.value
        value, error = None, None
        try:
            value = await call()
        except BaseException as problem:  # noqa: BLE001 - raised in the generator, at its call
            error = problem


class Turns:
    """An agent in an open run."""

    def __init__(self, loop: AgentLoop, run: Any, task: Any, follow_up: bool):
        self._loop = loop
        self._run = run
        self._open(task, follow_up)
        patience = step(kind="llm", retry=loop.retry, timeout=loop.timeout)
        self._think = patience(lambda turn, task: self._in_draft(loop.think, lambda made: _thought(made, turn, loop.parallel)))
        self._plan = patience(lambda task: self._in_draft(loop.plan, _planned))
        self._act = step(name="act", kind="tool")(lambda action: self._act_once(Action(**action)))

    def _open(self, task: Any, follow_up: bool) -> None:
        loop, run = self._loop, self._run
        state = self.state = loop.state(run.state, agent=loop.agent, model=loop.model, task=task)
        self._new: str | None = None  # the note of the checkpoint that saves a new task
        if state.status == "succeeded" and follow_up and task is not None:
            self._new = "another message"
            state.task, state.answer, state.status = task, None, "running"
            self._say({"role": "user", "content": task})
        refuse_other_task(run.id, state.task, task)
        if state.status != "succeeded":
            state.status = "running"
        if state.started_at is None:
            self._new, state.started_at = "a new agent", run.now()
        elif state.status != "succeeded" and self._new is None:
            _count_kept(state, run)
        if state.task is not None and not state.messages:
            for message in state.task if isinstance(state.task, list) else [{"role": "user", "content": state.task}]:
                self._say(message)
        if loop.budget is not None:
            state.budget = {n: v for n in ("seconds", "steps", "tokens", "cost") if (v := getattr(loop.budget, n)) is not None}
        _note_position(state, run)

    def go(self) -> Calls:
        """Run all turns up to the answer."""
        state = self.state
        try:
            if self._new:
                yield lambda: self._run.checkpoint(note=self._new)
            while state.status != "succeeded":
                if self._loop.plan is not None and state.plan is None:
                    yield from self._make_plan()
                if not state.pending:
                    yield from self._turn()
                note = self._note()
                yield from self._take_actions()
                state.updated_at = datetime.fromtimestamp(clock.now_us() / 1e6, UTC)  # a label: nothing depends on it
                yield lambda note=note: self._run.checkpoint(note=note)  # type: ignore[misc]
        except Exception:
            state.status = "failed"
            raise
        return state.answer

    def _make_plan(self) -> Calls:
        made = yield lambda: self._run.step("plan", self._plan, self.state.task)
        made = self._take_over(made, _planned)
        self.state.plan = made["plan"]
        self.state.events.append({"name": "planned", "turn": self.state.turn})

    def _turn(self) -> Calls:
        state, turn = self.state, self.state.turn + 1
        self._stop_if_over(turn)
        made = yield lambda: self._run.step("think", self._think, turn, state.task)
        made = self._take_over(made, lambda said: _thought(said, turn, self._loop.parallel))
        state.turn = turn
        self._say(made["message"])
        if made["actions"]:
            state.pending = _with_ids(state, made["actions"])
        else:
            state.answer, state.status = made["answer"], "succeeded"
            state.events.append({"name": "finished", "turn": turn})
        if made["note"]:
            state.control["note"] = made["note"]

    def _stop_if_over(self, turn: int) -> None:
        """Stop when the agent's own limits are exceeded. They are kept with its state; the budget of the run stops it at any step."""
        state, most, over = self.state, self._loop.max_turns, None
        if turn > most:
            over = f"max_turns: {most} turns without an answer"
        elif state.budget is not None:
            over = Budget.parse(dict(state.budget)).exceeded(Used(tokens=state.tokens, cost=float(state.cost)))
        if over is not None:
            state.status = "waiting"
            raise Interrupted(self._run.id, over)

    def _note(self) -> str:
        tools = ", ".join(action["tool"] for action in self.state.pending)
        return str(self.state.control.pop("note", None) or f"turn {self.state.turn}: {tools or 'answered'}"[:200])

    def _say(self, message: Any) -> None:
        self.state.messages.append(message)
        if self._loop.on_message is not None:
            self._loop.on_message(message)

    def _take_over(self, made: Any, read: Callable[[Any], Plain]) -> Plain:
        """Apply the changes and count the usage of a recorded call. `read` converts a bare result, which an operator gave for the step."""
        state = self.state
        whole: Plain = made if isinstance(made, dict) and "changes" in made else {**read(made), "changes": [], "tokens": 0, "cost": 0.0}
        redo(state, whole["changes"])
        state.tokens += whole["tokens"]
        state.cost = _sum(state.cost, whole["cost"])
        return whole

    def _take_actions(self) -> Calls:
        """Ask for all approvals, then take the actions of a turn and report their results to the model."""
        state, run = self.state, self._run
        for index in range(len(state.pending)):
            yield from self._ask_person(index)
        todo: list[Plain] = decode(encode(state.pending))
        if state.specialists or self._loop.specialists:
            state.specialists = [action["tool"] for action in todo if action["tool"] in self._loop.specialists]
        came = [self._settled(action) for action in todo]
        if all(action.get("parallel") for action in todo) and not self._loop.act_sees_state:
            open_ones = [_input(action) for action, made in zip(todo, came, strict=True) if made is None]
            results = iter((yield lambda: run.map(self._act, open_ones)) if open_ones else ())
            came = [self._taken(action, next(results)) if made is None else made for action, made in zip(todo, came, strict=True)]
        told: list[tuple[Plain, Any]] = []
        for action, made in zip(todo, came, strict=True):
            if made is None:
                made = yield lambda a=action: run.step(step_name(a["tool"]), self._act, _input(a))  # type: ignore[misc]
                made = self._taken(action, made)
            told.append(self._finish(action, made))
        for message in replies(_last_said(state), told) if told else ():
            self._say(message)

    def _ask_person(self, index: int) -> Calls:
        """Ask at a gate if an approval is required, and note the answer on the action."""
        state, approve = self.state, self._loop.approve
        action = state.pending[index]
        asked = approve(Action(**_input(action))) if approve is not None and action["status"] == "pending" else None
        if not asked:
            return
        name = step_name(f"approve-{action['tool']}-{action['id']}")
        question = asked if isinstance(asked, str) else f"Let the agent call {action['tool']}({text_of(action['input'])[:500]})?"
        state.status, state.control["gate"] = "waiting", name
        said = yield lambda: self._run.gate(name, question, schema=_ANSWERS)
        state.status = "running"
        del state.control["gate"]
        answer, reason, changed = _read_answer(said)
        approval = {"action": action["id"], "tool": action["tool"], "gate": name, "answer": answer, "reason": reason, "at": self._run.now()}
        state.approvals.append(approval)
        action["status"] = "approved" if answer == "yes" else "refused"
        if changed is not None:
            action["input"], action["edited"] = changed, True

    def _settled(self, action: Plain) -> Plain | None:
        """Return the result of an action that is not taken: refused, impossible, or cached."""
        state = self.state
        if action["status"] == "refused":
            reason = next((a["reason"] for a in reversed(state.approvals) if a["action"] == action["id"]), None)
            return {"status": "refused", "error": f"refused by a person: {reason}" if reason else "refused by a person"}
        if action.get("fault"):
            return {"status": "failed", "error": action["fault"]}
        if action["tool"] in self._loop.cache:
            for done in reversed(state.finished):
                if (done["tool"], done["status"], done["input"]) == (action["tool"], "succeeded", action["input"]):
                    return {"status": "succeeded", "result": state.tool_results[done["id"]], "cached": True}
        return None

    def _taken(self, action: Plain, made: Any) -> Plain:
        """Count an action that was really taken."""
        counts, tool = self.state.tool_counts, action["tool"]
        counts[tool] = counts.get(tool, 0) + 1
        return self._take_over(made, lambda result: {"status": "succeeded", "result": result})

    def _finish(self, action: Plain, made: Plain) -> tuple[Plain, Any]:
        """Note the result of an action; returns it with the text for the model."""
        state, tool, id = self.state, action["tool"], action["id"]
        done: Plain = {name: action[name] for name in ("id", "call", "tool", "input", "turn", "edited") if name in action}
        done |= {name: made[name] for name in ("status", "error", "cached") if name in made}
        if tool in self._loop.specialists:
            state.specialists.remove(tool)
            state.specialist_calls.append({"name": tool, "action": id, "turn": action["turn"], "status": made["status"]})
        if made["status"] == "succeeded":
            state.tool_results[id] = made["result"]
        state.finished.append(done)
        del state.pending[next(i for i, one in enumerate(state.pending) if one["id"] == id)]
        result = made["result"] if made["status"] == "succeeded" else made["error"]
        return done, f"(a person changed the input to {text_of(done['input'])}) {text_of(result)}" if done.get("edited") else result

    # inside of steps

    def _in_draft(self, function: Any, read: Callable[[Any], Plain]) -> Any:
        draft = Draft(self.state.data)
        return _then(function(type(self.state).over(draft)), lambda made: _recordable(read(made), draft))

    def _act_once(self, action: Action) -> Any:
        draft = Draft(self.state.data)
        try:
            made = self._call(action, draft)
        except Exception as error:  # noqa: BLE001 - reported to the model, or raised again
            return _recordable(self._told(error))
        return _then(made, lambda result: _recordable({"status": "succeeded", "result": result}, draft), self._told)

    def _call(self, action: Action, draft: Draft) -> Any:
        loop = self._loop
        tool = loop.tools.get(action.tool)
        if tool is not None:
            return tool(**action.input)
        if loop.act is None:
            raise LookupError(f"there is no tool {action.tool!r}; available: {', '.join(sorted(loop.tools)) or 'none'}")
        return loop.act(action, type(self.state).over(draft)) if loop.act_sees_state else loop.act(action)

    def _told(self, error: Exception) -> Plain:
        """Return the failure of a tool for the model. An error of the run itself (a lost lease, a full disk) is raised instead."""
        if self._loop.errors == "raise" or (isinstance(error, EverstepError) and not isinstance(error, _OF_THE_TOOL)):
            raise error
        return {"status": "failed", "error": told_of(error)}


def _then(made: Any, read: Callable[[Any], Plain], told: Callable[[Exception], Plain] | None = None) -> Any:
    """Pass the result of a function to `read`, now or, if it is async, when it arrives."""
    return _later(made, read, told) if inspect.isawaitable(made) else read(made)


async def _later(made: Awaitable[Any], read: Callable[[Any], Plain], told: Callable[[Exception], Plain] | None) -> Plain:
    try:
        result = await made
    except Exception as error:
        if told is None:
            raise
        return _recordable(told(error))
    return read(result)


def _recordable(made: Plain, draft: Draft | None = None) -> Plain:
    """Combine a result with its changes and usage, as it is recorded."""
    here = owner.current_frame()
    ticket = here.ticket if here is not None else None
    tokens, cost = made.pop("tokens", 0), made.pop("cost", 0.0)
    if here is not None and ticket is not None:
        said = ticket.tokens, ticket.cost
        here.run.handle.usage(tokens=tokens, cost=float(cost))
        tokens, cost = tokens + said[0], _sum(cost, said[1])
    about = {"changes": draft.changes() if draft else [], "tokens": tokens, "cost": cost}
    whole: Plain = decode(encode({**made, **about}, "what it returned"))
    return whole  # a copy: the function can no longer change it, and a replay returns the same


def _thought(made: Any, turn: int, parallel: bool) -> Plain:
    decision = Decision.of(made)
    named = [replace(action, id=action.id or f"{turn}.{index}") for index, action in enumerate(decision.actions)]
    decision = replace(decision, actions=named)
    actions = [
        {"call": a.id, "tool": a.tool, "input": dict(a.input), "fault": a.fault, "parallel": decision.parallel or parallel} for a in named
    ]
    return {
        "answer": decision.answer, "actions": actions, "message": message_of(decision), "note": decision.note,
        "tokens": decision.tokens, "cost": decision.cost,
    }  # fmt: skip


def _planned(made: Any) -> Plain:
    if made is None:
        raise InvalidArgument("plan must return a plan, got None", remedy="Return the plan; it is made once and kept in state.plan.")
    return {"plan": made}


def _with_ids(state: AgentState, actions: list[Plain]) -> list[Plain]:
    """Give each action an id that no earlier action has, whatever id the model uses."""
    own = [f"{state.turn}.{index}" for index in range(len(actions))]
    taken = {action["id"] for action in state.finished} if [a["call"] for a in actions] != own else set()
    out = []
    for index, action in enumerate(actions):
        id = action["call"] if action["call"] not in taken else f"{action['call']}-{own[index]}"
        taken.add(id)
        plain = {"id": id, **action, "turn": state.turn, "status": "pending"}
        out.append({name: value for name, value in plain.items() if name not in ("fault", "parallel") or value})
    return out


def _input(action: Plain) -> Plain:
    """Return a copy of an action for a function of the program, whose changes to it must not reach the state."""
    return {"tool": action["tool"], "input": decode(encode(action["input"])), "id": action["id"]}


def _read_answer(said: Any) -> tuple[str, str | None, Plain | None]:
    if isinstance(said, Mapping):
        return said["answer"], said.get("reason"), said.get("input")
    return "yes" if said in (True, "yes") else "no", None, None


def _last_said(state: AgentState) -> Any:
    return next((m for m in reversed(state.messages) if isinstance(m, Mapping) and m.get("role") == "assistant"), None)


def step_name(text: str) -> str:
    """Convert a text to a valid name of a step or a gate."""
    return "".join("-" if c in "#/@" or c < " " else c for c in text)[:200]


def _sum(a: Any, b: Any) -> Any:
    """Add two amounts of money, which may be of different types."""
    if not a or not b:
        return a or b
    return a + b if type(a) is type(b) else float(a) + float(b)


def refuse_other_task(id: Any, known: Any, task: Any) -> None:
    """Refuse another task for the same id: the program would get the answer to the first one."""
    if task is not None and task != known:
        raise InvalidArgument(
            f"agent {id!r} has the task {known!r:.80}, not {task!r:.80}",
            remedy="Use another id, or pass no task to continue this agent; a finished agent takes another message with follow_up=True.",
        )


def _count_kept(state: AgentState, run: Any) -> None:
    """Add the turns before the checkpoint to the report of saved work: the run itself counts only later ones."""
    report, attempt = run.report, attempt_if_recorded(run)
    report.kept += state.turn + sum(state.tool_counts.values()) + (state.plan is not None)
    report.tokens_saved += state.tokens
    report.cost_saved += float(state.cost)
    report.seconds_saved += attempt.replay.used.seconds if attempt is not None else 0.0


def _note_position(state: AgentState, run: Any) -> None:
    """Note where the agent runs: its run, the checkpoint it was forked from, and the registered hooks."""
    attempt = attempt_if_recorded(run)
    row, listening = (None, None) if attempt is None else (attempt.row, attempt.options.hooks)
    parent = f"{row.parent}@{row.parent_number}" if row is not None and row.parent is not None and row.parent_number > 0 else None
    hooks = [f"{hook.event} {getattr(hook.fn, '__qualname__', hook.fn)}" for hook in (listening.registered() if listening else ())]
    for name, value in (("run", run.id), ("parent", parent), ("hooks", hooks)):
        if state.data[name] != value:
            state.data[name] = value
