"""A condition on a state, in the small expression language of YAML workflows: no calls but its own few, no attributes, no code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from everstep.errors import InvalidArgument
from everstep.expressions.parser import parse
from everstep.expressions.values import ExpressionError
from everstep.views.stored.values import fields_of, opened


class Condition:
    """An expression over `state`; the keys of a state that is a mapping can be named without it, too."""

    def __init__(self, text: str):
        self.text = text
        try:
            self._expression = parse(text)
        except ExpressionError as error:
            raise InvalidArgument(
                f"--when {text!r:.200} cannot be read: {error}", remedy="Write for example: state.total > 100 and 'done' in state.tags."
            ) from error

    def holds(self, state: Any) -> bool:
        """Whether it holds. What a state does not have yet is no reason to fail: there it does not hold."""
        state = _known(state)
        try:
            return self._evaluate(state)
        except ExpressionError:
            pass  # perhaps because an object stands in the way, further down
        try:
            return self._evaluate(self._opened(state))
        except ExpressionError:
            return False

    def _evaluate(self, state: Any) -> bool:
        names = {k: v for k, v in state.items() if isinstance(k, str)} if isinstance(state, Mapping) else {}
        return bool(self._expression.evaluate({**names, "state": state}))

    def _opened(self, state: Any) -> Any:
        """The state with objects of the program's as dicts, in the parts that the expression names: to read all of it may take long."""
        if not isinstance(state, Mapping):
            return opened(state)
        named = {path[1] if path[0] == "state" and len(path) > 1 else path[0] for path in self._expression.paths()}
        return {key: opened(part) if key in named else part for key, part in state.items()}


def _known(state: Any) -> Any:
    """A state whose own fields, and those of the objects that stand directly in it, can be named."""
    state = fields_of(state) or state
    if not isinstance(state, Mapping):
        return state
    objects = {key: opened(part) for key, part in state.items() if fields_of(part) is not None}
    return {**state, **objects} if objects else state
