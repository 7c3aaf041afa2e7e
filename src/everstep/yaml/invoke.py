"""The calls that a YAML workflow makes, of Python functions and of commands, each as a step of the runtime."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from everstep.clock import clock
from everstep.errors import LimitExceeded, Unstorable
from everstep.expressions.values import as_text
from everstep.runtime.disabled import OffRun
from everstep.runtime.engine.context import Frame, frame
from everstep.runtime.engine.owner import within
from everstep.runtime.run import Run, attempt_of
from everstep.runtime.steps.call import begin
from everstep.runtime.steps.drive import drive
from everstep.runtime.steps.options import StepOptions
from everstep.runtime.steps.record import take_along
from everstep.secret import Secret
from everstep.store.journal.entries import SUCCEEDED
from everstep.yaml.action import Command
from everstep.yaml.scope import SKIPPED, Ended, Scope
from everstep.yaml.shell import run_command
from everstep.yaml.step import Step

Keep = Callable[[Any], None]


class Calls:
    """Makes the calls of one run; `folder` is the working folder of commands that do not set one."""

    def __init__(self, scope: Scope, callables: Mapping[str, Callable[..., Any]], folder: str | None):
        self._scope = scope
        self._run = scope.run
        self._callables = callables
        self._folder = folder

    def ready(self, step: Step, names: Mapping[str, Any], keep: Keep | None = None) -> Callable[[], Any]:
        """Return a numbered call of a step, ready to run. Calls that run at the same time get their numbers before the first begins.

        `keep` gets the result before it is recorded, so that the checkpoint made then contains it.
        """
        arguments = self._evaluated(step.arguments, f"step '{step.id}': with", names)
        given: dict[str, Any] = {key: value for key, value in (("retry", step.retry), ("kind", step.kind)) if value is not None}
        if isinstance(step.action, Command):
            function: Any = partial(self._run_command, step, step.action)
            arguments = self._input(step, step.action, arguments, names)
        else:
            function = self._callables[step.id]
            if step.timeout is not None:
                given["timeout"] = step.timeout
        if keep is not None and "timeout" not in given:
            function = _keeping(function, keep)
        if isinstance(self._run, OffRun):
            return partial(_finished, function, arguments)
        return partial(drive, begin(attempt_of(self._run), _here(self._run), step.id, function, (), arguments, given))

    def skip(self, step: Step, why: str) -> Ended:
        """Record with the next commit that a step was skipped. If that commit is lost, the next attempt decides the same again."""
        run = self._run
        if isinstance(run, OffRun):
            return SKIPPED
        ticket = begin(
            attempt_of(run), _here(run), step.id, _nothing, ("skipped",), {}, {}
        )  # no call has this input, so a skip differs from a call
        if ticket.run.dry:
            from everstep.runtime.steps import validate

            validate.skipped(ticket)
        elif ticket.found is None:
            ticket.started = clock.now_us()
            ticket.record(SUCCEEDED, flags={"skipped": True, "why": why})
            take_along(ticket)
        return SKIPPED

    def _evaluated(self, values: Mapping[str, Any], what: str, names: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._scope.evaluate(value, f"{what}.{name}", **names) for name, value in values.items()}

    def _input(self, step: Step, command: Command, arguments: dict[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
        """Return the input of a command: all evaluated values. Its text belongs to the document."""
        what = f"step '{step.id}': run"
        cwd = None if command.cwd is None else as_text(self._scope.evaluate(command.cwd, f"{what}.cwd", **names))
        given = {"with": arguments, "env": self._evaluated(command.env or {}, f"{what}.env", names), "cwd": cwd}
        return {key: value for key, value in given.items() if value}

    def _run_command(self, step: Step, command: Command, **given: Any) -> dict[str, Any]:
        run, here = self._run, frame.get()
        address = here.ticket.address if here is not None and here.ticket is not None else step.id
        environment = {
            "EVERSTEP_RUN": run.id,
            "EVERSTEP_STEP": address,
            "EVERSTEP_STEP_KEY": run.step_key,
            "EVERSTEP_STEP_ATTEMPT": run.step_attempt,
            **{f"EVERSTEP_WITH_{name.upper()}": value for name, value in given.get("with", {}).items()},
            **given.get("env", {}),
        }
        return run_command(
            command.text,
            address,
            cwd=os.path.join(self._folder or "", given.get("cwd", "")) or None,  # noqa: PTH118 -- an absolute one wins
            environment={key: value.reveal() if isinstance(value, Secret) else as_text(value) for key, value in environment.items()},
            ok=command.ok,
            timeout=step.timeout,
        )


def _here(run: Run[Any]) -> Frame:
    attempt = attempt_of(run)
    return within(attempt) or attempt.root


def _keeping(function: Any, keep: Keep) -> Any:
    """Wrap a function so that it reports its result. Not one with a timeout: abandoned, it continues in its thread, where it must not touch
    the state.
    """
    plain, options = getattr(function, "__everstep__", None) or (function, StepOptions())
    if options.timeout is not None:
        return function

    @functools.wraps(plain)
    def call(**arguments: Any) -> Any:
        result = _finished(plain, arguments)
        with suppress(Unstorable, LimitExceeded):  # the runtime raises the same error when it records the result
            keep(result)
        return result

    call.__everstep__ = (call, options)  # type: ignore[attr-defined]
    return call


def _finished(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    result = function(**arguments)
    return asyncio.run(result) if inspect.iscoroutine(result) else result


def _nothing(_: str) -> None:
    """The function of a skipped step."""
