"""One run of a YAML workflow: goes through the entries in their order and calls the runtime for each.

Everything that it decides (what is skipped, where a gate leads, what a step is given) follows from the document, the inputs and what is recorded; so a
replay goes the same way. The state is changed here and nowhere else: by `state:` at the beginning and by `save:`.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from everstep.clock import clock
from everstep.errors import InvalidWorkflow, LimitExceeded, StepFailed, Unstorable
from everstep.runtime.context import Frame, frame
from everstep.runtime.off import OffRun
from everstep.runtime.run import Run
from everstep.runtime.steps import StepOptions, begin, drive
from everstep.runtime.yaml.action import Command, Gate
from everstep.runtime.yaml.document import Document
from everstep.runtime.yaml.operations import ExpressionError, as_text
from everstep.runtime.yaml.plan import steps_of
from everstep.runtime.yaml.shell import run_command
from everstep.runtime.yaml.step import Group, Step
from everstep.runtime.yaml.target import variables
from everstep.runtime.yaml.together import Task, together
from everstep.runtime.yaml.value import Value, copied
from everstep.store.journal import NOTHING, SUCCEEDED


@dataclass(frozen=True, slots=True)
class Ended:
    """How a step ended: what expressions see of it."""

    status: str
    result: Any = None
    passed: bool | None = None


_SKIPPED = Ended("skipped")


class Walk:
    """Drives one run of a document."""

    def __init__(
        self,
        run: Run | OffRun,
        document: Document,
        callables: Mapping[str, Callable[..., Any]],
        folder: str | None,
        inputs: Mapping[str, Any],
    ):
        self._run = run
        self._document = document
        self._callables = callables
        self._folder = folder
        self._inputs = inputs
        self._ended: dict[str, Ended] = {}
        self._rounds: dict[str, int] = {}
        self._total = len(document.steps)

    def go(self) -> Any:
        """Run to the end; the result of the workflow."""
        for key, value in self._document.state.items():
            self._run.state[key] = self._evaluate(value, f"state.{key}")
        place, order = 0, self._document.order
        while place < len(order):
            entry = order[place]
            ends = self._group(entry) if isinstance(entry, Group) else {entry.id: self._step(entry, alone=True)}
            for step in steps_of(entry):
                self._keep(step, ends[step.id])
            place = self._next(place, ends)
        if self._document.result is None:
            return {step.id: self._ended[step.id].status for step in self._document.steps}
        return self._evaluate(self._document.result, "result")

    # what comes next

    def _next(self, place: int, ends: Mapping[str, Ended]) -> int:
        for step in steps_of(self._document.order[place]):
            ended = ends[step.id]
            if isinstance(step.action, Gate) and ended.status != "skipped":
                where = step.action.on_pass if ended.passed else step.action.on_fail
                if where != "continue":
                    return self._lead(step, step.action, where, place)
        return place + 1

    def _lead(self, step: Step, gate: Gate, where: str, place: int) -> int:
        order = self._document.order
        if where == "fail":
            raise _refused(step, "a gate that was not passed", _text_of(gate.condition))
        if where == "stop":
            self._skip_entries(place + 1, len(order), f"gate '{step.id}' ended the run")
            return len(order)
        target = next(i for i, entry in enumerate(order) if isinstance(entry, Step) and entry.id == where)
        if target > place:
            self._skip_entries(place + 1, target, f"gate '{step.id}' led to '{where}'")
            return target
        self._rounds[step.id] = self._rounds.get(step.id, 0) + 1
        if self._rounds[step.id] > gate.max_rounds:
            raise _refused(step, "too many rounds", f"it led back to '{where}' {gate.max_rounds} times already")
        for entry in order[target : place + 1]:
            for one in steps_of(entry):
                del self._ended[one.id]
        return target

    def _skip_entries(self, first: int, end: int, why: str) -> None:
        for entry in self._document.order[first:end]:
            for step in steps_of(entry):
                self._keep(step, self._skip(step, why))

    # one entry

    def _group(self, group: Group) -> dict[str, Ended]:
        tasks: dict[str, Task] = {}
        for step in group.steps:
            tasks[step.id] = Task(partial(self._member, step), [tasks[n] for n in step.needs if n in tasks])
        return dict(zip(tasks, together(list(tasks.values()), group.concurrency), strict=True))

    def _member(self, step: Step) -> Ended:
        ended = self._ended[step.id] = self._step(step)
        return ended

    def _keep(self, step: Step, ended: Ended) -> None:
        """Take note of an end, in the thread that drives the run, in the order of the document."""
        self._ended[step.id] = ended
        if step.save is not None and ended.status != "skipped":
            self._run.state[step.save] = copied(ended.result)
        self._run.progress(len(self._ended), self._total)

    def _step(self, step: Step, alone: bool = False) -> Ended:
        why = self._why_skipped(step)
        if why is not None:
            return self._skip(step, why)
        if isinstance(step.action, Gate):
            return self._gate(step, step.action, alone)
        if step.for_each is not None:
            return self._for_each(step, step.for_each)
        keep = (lambda result: self._keep(step, Ended("succeeded", result))) if alone else None
        return Ended("succeeded", self._call(step, {}, keep)())

    def _why_skipped(self, step: Step) -> str | None:
        if step.when is not None:
            return None if self._evaluate(step.when, f"step '{step.id}': when") else f"when: {_text_of(step.when)}"
        skipped = [name for name in step.needs if self._ended[name].status == "skipped"]
        return f"needs '{skipped[0]}', which was skipped" if skipped else None

    def _skip(self, step: Step, why: str) -> Ended:
        """Record that a step was skipped, with the next commit: should that be lost, the next attempt decides the same again."""
        run = self._run
        if isinstance(run, OffRun):
            return _SKIPPED
        ticket = begin(run, _here(run), step.id, _nothing, ("skipped",), {}, {})
        if ticket.found is None and not run._dry:
            ticket.started = clock.now_us()
            with run._lock:
                run._put("step", ticket.body(SUCCEEDED, NOTHING, None, None, {"skipped": True, "why": why}), ticket.address)
        return _SKIPPED

    def _gate(self, step: Step, gate: Gate, alone: bool) -> Ended:
        what = f"step '{step.id}': condition"
        if gate.ask is None:
            passed = self._run.gate(step.id, condition=partial(self._decide, step, gate, what, alone))
            return Ended("succeeded", passed, passed)
        options: dict[str, Any] = {"default": gate.default[0]} if gate.default else {}
        question = as_text(self._evaluate(gate.ask, f"step '{step.id}': ask"))
        answer = self._run.gate(step.id, question, schema=gate.schema, timeout=gate.timeout, **options)
        passed = gate.condition is None or bool(self._evaluate(gate.condition, what, answer=answer))
        return Ended("succeeded", answer, passed)

    def _decide(self, step: Step, gate: Gate, what: str, alone: bool) -> bool:
        """A condition; the checkpoint that a policy wants at gates is to know what came of it."""
        assert gate.condition is not None
        passed = bool(self._evaluate(gate.condition, what))
        if alone:
            self._keep(step, Ended("succeeded", passed, passed))
        return passed

    def _for_each(self, step: Step, each: Value) -> Ended:
        items = self._evaluate(each, f"step '{step.id}': for_each")
        if not isinstance(items, (list, tuple)):
            message = f"step '{step.id}': for_each gives a value of type {type(items).__name__}, and no list"
            raise InvalidWorkflow(message, self._document.file, each.line)
        tasks = [Task(self._call(step, {"item": item, "index": index})) for index, item in enumerate(items)]
        return Ended("succeeded", together(tasks, step.concurrency) if tasks else [])

    # one call

    def _call(self, step: Step, names: Mapping[str, Any], keep: Callable[[Any], None] | None = None) -> Callable[[], Any]:
        """A call of a step, numbered and ready to run; so calls that run at the same time have their numbers before the first begins."""
        arguments = {name: self._evaluate(value, f"step '{step.id}': with.{name}", **names) for name, value in step.arguments.items()}
        given: dict[str, Any] = {key: value for key, value in (("retry", step.retry), ("kind", step.kind)) if value is not None}
        if isinstance(step.action, Command):
            function, arguments = self._command(step, step.action, arguments, names)
        else:
            function = self._callables[step.id]
            if step.timeout is not None:
                given["timeout"] = step.timeout
        if keep is not None and "timeout" not in given:
            # a call that is given up after its timeout goes on in its thread, and must not touch the state any more
            function = _keeping(function, keep)
        if isinstance(self._run, OffRun):
            return partial(_finished, function, arguments)
        return partial(drive, begin(self._run, _here(self._run), step.id, function, (), arguments, given))

    def _command(
        self, step: Step, command: Command, arguments: dict[str, Any], names: Mapping[str, Any]
    ) -> tuple[Callable[..., Any], dict[str, Any]]:
        """The function that runs a command, and what counts as its input: all that is worked out, but not the text of the command."""
        what = f"step '{step.id}': run"
        env = {key: self._evaluate(value, f"{what}.env.{key}", **names) for key, value in (command.env or {}).items()}
        cwd = None if command.cwd is None else as_text(self._evaluate(command.cwd, f"{what}.cwd", **names))
        given = {"with": arguments, "env": env, "cwd": cwd}
        return partial(self._run_command, step, command), {key: value for key, value in given.items() if value}

    def _run_command(self, step: Step, command: Command, **given: Any) -> dict[str, Any]:
        run, here = self._run, frame.get()
        address = here.ticket.address if here is not None and here.ticket is not None else step.id
        about = {"RUN": run.id, "STEP": address, "STEP_KEY": run.step_key, "STEP_ATTEMPT": run.step_attempt}
        environment = {
            **{f"EVERSTEP_{key}": value for key, value in about.items()},
            **variables(given.get("with", {})),
            **given.get("env", {}),
        }
        return run_command(
            command.text,
            address,
            cwd=os.path.join(self._folder or "", given.get("cwd") or "") or None,  # noqa: PTH118 -- an absolute one wins
            environment={key: as_text(value) for key, value in environment.items()},
            ok=command.ok,
            timeout=step.timeout,
        )

    def _evaluate(self, value: Value, what: str, **names: Any) -> Any:
        try:
            return value.evaluate({"inputs": self._inputs, "state": self._run.state, "steps": self._ended, **names})
        except ExpressionError as error:
            raise InvalidWorkflow(f"{what}: {error}", self._document.file, error.line) from error


def _here(run: Run) -> Frame:
    here = frame.get()
    return here if here is not None and here.run is run else run._root


def _keeping(function: Callable[..., Any], keep: Callable[[Any], None]) -> Callable[..., Any]:
    """A function that takes note of its result before it is recorded, so that the checkpoint of that moment knows of it."""
    plain, options = getattr(function, "__everstep__", None) or (function, StepOptions())

    @functools.wraps(plain)
    def call(**arguments: Any) -> Any:
        result = _finished(plain, arguments)
        with suppress(Unstorable, LimitExceeded):  # the runtime is about to say so itself
            keep(result)
        return result

    call.__everstep__ = (call, options)  # type: ignore[attr-defined]
    return call


def _finished(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    result = function(**arguments)
    return asyncio.run(result) if inspect.iscoroutine(result) else result


def _nothing(_: str) -> None:
    """What a skipped step does."""


def _text_of(value: Value | None) -> str:
    return getattr(value.content, "text", str(value.content)) if value is not None else ""


def _refused(step: Step, kind: str, message: str) -> StepFailed:
    error = StepFailed(step.id, kind, message)
    error.remedy = f"Decide otherwise in a fork: store.resume(run_id, from_step={step.id + '#0'!r}); or correct the document."
    return error
