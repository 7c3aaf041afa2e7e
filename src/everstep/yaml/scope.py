"""The names that expressions of a YAML workflow can use at one point of a run: its inputs, its state, and the steps that have ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from everstep.errors import InvalidWorkflow
from everstep.expressions.values import ExpressionError
from everstep.fields import Shape
from everstep.runtime.disabled import OffRun
from everstep.runtime.run import Run
from everstep.yaml.value import Value


class Ended(Shape, frozen=True):
    """The end of a step, with the fields that expressions read as `steps.<id>.…`."""

    status: str
    result: Any = None
    passed: bool | None = None


SKIPPED = Ended("skipped")


class Scope:
    """The names for expressions. `ended` grows with the run; each member of a parallel group adds its own end from its own thread."""

    def __init__(self, run: Run[Any] | OffRun, file: str | None, inputs: Mapping[str, Any]):
        self.run = run
        self.ended: dict[str, Ended] = {}
        self._file = file
        self._inputs = inputs

    def evaluate(self, value: Value, what: str, **names: Any) -> Any:
        """Evaluate a value and return a copy; InvalidWorkflow names the line of an expression that cannot be evaluated."""
        try:
            return value.evaluate({"inputs": self._inputs, "state": self.run.state, "steps": self.ended, **names})
        except ExpressionError as error:
            self.fail(f"{what}: {error}", error.line, error)

    def fail(self, message: str, line: int | None, cause: BaseException | None = None) -> NoReturn:
        raise InvalidWorkflow(message, self._file, line) from cause
