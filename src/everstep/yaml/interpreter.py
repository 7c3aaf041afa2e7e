"""Executes one run of a YAML workflow: the entries in their order, and the jumps of gates.

Every decision (which steps are skipped, which target a gate chooses, which input a step gets) follows from the document, the inputs and the
records, so a replay takes the same path. Only this module changes the state: by `state:` at the beginning and by `save:`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from everstep.errors import StepFailed
from everstep.expressions.values import as_text
from everstep.yaml.action import Gate
from everstep.yaml.document import Document
from everstep.yaml.invoke import Calls
from everstep.yaml.parallel import Task, together
from everstep.yaml.plan import steps_of
from everstep.yaml.scope import Ended, Scope
from everstep.yaml.step import Group, Step
from everstep.yaml.value import Value, copied


class Walk:
    """Executes one run of a document."""

    def __init__(self, document: Document, scope: Scope, calls: Calls):
        self._document = document
        self._scope = scope
        self._run = scope.run
        self._calls = calls
        self._done: set[str] = set()  # steps of this round whose end has been applied to the state
        self._rounds: dict[str, int] = {}
        self._total = len(document.steps)

    def go(self) -> Any:
        """Run to the end and return the result of the workflow."""
        for key, value in self._document.state.items():
            self._run.state[key] = self._scope.evaluate(value, f"state.{key}")
        index, order = 0, self._document.order
        while index < len(order):
            entry = order[index]
            ends = self._group(entry) if isinstance(entry, Group) else {entry.id: self._step(entry, alone=True)}
            for step in steps_of(entry):
                self._keep(step, ends[step.id])
            index = self._next(index, ends)
        if self._document.result is None:
            return {step.id: self._scope.ended[step.id].status for step in self._document.steps}
        return self._scope.evaluate(self._document.result, "result")

    # what comes next

    def _next(self, index: int, ends: Mapping[str, Ended]) -> int:
        gates = [s for s in steps_of(self._document.order[index]) if isinstance(s.action, Gate) and ends[s.id].status != "skipped"]
        ways = [(step, _way(step, ends[step.id])) for step in gates]
        for step, way in ways:
            if way == "fail":
                raise _refused(step, "a gate", f"{_text_of(step)} is {'true' if ends[step.id].passed else 'not true'}")
        for step, way in ways:
            if way != "continue":
                return self._lead(step, way, index)
        return index + 1

    def _lead(self, step: Step, way: str, index: int) -> int:
        order = self._document.order
        target = len(order) if way == "stop" else next(i for i, entry in enumerate(order) if isinstance(entry, Step) and entry.id == way)
        if target <= index:
            return self._back(step, target, index)
        for entry in order[index + 1 : target]:
            for skipped in steps_of(entry):
                self._keep(skipped, self._calls.skip(skipped, f"gate '{step.id}' led to {way}"))
        return target

    def _back(self, step: Step, target: int, index: int) -> int:
        assert isinstance(step.action, Gate)
        order = self._document.order
        self._rounds[step.id] = self._rounds.get(step.id, 0) + 1
        if self._rounds[step.id] > step.action.max_rounds:
            raise _refused(
                step, "too many rounds", f"it has already led back to '{steps_of(order[target])[0].id}' {step.action.max_rounds} times"
            )
        for entry in order[target : index + 1]:
            for again in steps_of(entry):
                self._done.discard(again.id)
                del self._scope.ended[again.id]
        return target

    # one entry

    def _group(self, group: Group) -> dict[str, Ended]:
        tasks: dict[str, Task] = {}
        for step in group.steps:
            tasks[step.id] = Task(partial(self._member, step), [tasks[n] for n in step.needs if n in tasks])
        return dict(zip(tasks, together(list(tasks.values()), group.concurrency), strict=True))

    def _member(self, step: Step) -> Ended:
        ended = self._scope.ended[step.id] = self._step(step)
        return ended

    def _keep(self, step: Step, ended: Ended) -> None:
        """Apply the end of a step once: in the thread that executes the run, in the order of the document."""
        if step.id in self._done:
            return
        if step.save is not None and ended.status != "skipped":
            self._run.state[step.save] = copied(ended.result)
        self._scope.ended[step.id] = ended
        self._done.add(step.id)
        self._run.progress(len(self._done), self._total)

    def _step(self, step: Step, alone: bool = False) -> Ended:
        why = self._why_skipped(step)
        if why is not None:
            return self._calls.skip(step, why)
        if isinstance(step.action, Gate):
            return self._gate(step, step.action, alone)
        if step.for_each is not None:
            return self._for_each(step, step.for_each)
        keep = (lambda result: self._keep(step, Ended("succeeded", result))) if alone else None
        return Ended("succeeded", self._calls.ready(step, {}, keep)())

    def _why_skipped(self, step: Step) -> str | None:
        if step.when is not None:
            return None if self._scope.evaluate(step.when, f"step '{step.id}': when") else "when"
        skipped = [name for name in step.needs if self._scope.ended[name].status == "skipped"]
        return f"needs '{skipped[0]}', which was skipped" if skipped else None

    def _for_each(self, step: Step, each: Value) -> Ended:
        items = self._scope.evaluate(each, f"step '{step.id}': for_each")
        if not isinstance(items, (list, tuple)):
            self._scope.fail(f"step '{step.id}': for_each must give a list, got a value of type {type(items).__name__}", each.line)
        tasks = [Task(self._calls.ready(step, {"item": item, "index": index})) for index, item in enumerate(items)]
        return Ended("succeeded", together(tasks, step.concurrency) if tasks else [])

    def _gate(self, step: Step, gate: Gate, alone: bool) -> Ended:
        if gate.ask is None:
            passed = self._run.gate(step.id, condition=partial(self._decide, step, gate, alone))
            return Ended("succeeded", passed, passed)
        options: dict[str, Any] = {"default": gate.default[0]} if gate.default else {}
        question = as_text(self._scope.evaluate(gate.ask, f"step '{step.id}': ask"))
        answer = self._run.gate(step.id, question, schema=gate.schema, timeout=gate.timeout, **options)
        return Ended("succeeded", answer, gate.condition is None or self._holds(step, gate, answer=answer))

    def _decide(self, step: Step, gate: Gate, alone: bool) -> bool:
        """Evaluate a condition. The result is applied before it is recorded, so that a checkpoint that a policy makes at gates contains it."""
        passed = self._holds(step, gate)
        if alone:
            self._keep(step, Ended("succeeded", passed, passed))
        return passed

    def _holds(self, step: Step, gate: Gate, **names: Any) -> bool:
        assert gate.condition is not None
        return bool(self._scope.evaluate(gate.condition, f"step '{step.id}': condition", **names))


def _way(step: Step, ended: Ended) -> str:
    assert isinstance(step.action, Gate)
    return step.action.on_pass if ended.passed else step.action.on_fail


def _text_of(step: Step) -> str:
    assert isinstance(step.action, Gate)
    content = None if step.action.condition is None else step.action.condition.content
    return str(getattr(content, "text", content))


def _refused(step: Step, kind: str, message: str) -> StepFailed:
    error = StepFailed(step.id, kind, message)
    error.remedy = f"Change the decision in a fork: store.resume(run_id, from_step={step.id + '#0'!r}); or correct the document."
    return error
