"""A condition on a state, in the small expression language of YAML workflows: only its own few functions, no attributes, no code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from everstep.errors import InvalidArgument
from everstep.expressions.parser import parse
from everstep.expressions.values import ExpressionError
from everstep.views.stored.values import fields_of, opened


class Condition:
    """An expression over `state`. The keys of a state that is a mapping can also be used as names."""

    def __init__(self, text: str):
        self.text = text
        self.keys: set[str] = set()  # of all states so far
        try:
            self._expression = parse(text)
        except ExpressionError as error:
            raise InvalidArgument(
                f"--when {text!r:.200} is not a valid expression: {error}", remedy="Example: state.total > 100 and 'done' in state.tags."
            ) from error

    def unknown(self) -> list[str]:
        """Return the keys that the condition names and that no state so far has: perhaps they are misspelt."""
        named = dict.fromkeys(path[1] if path[0] == "state" and len(path) > 1 else path[0] for path in self._expression.paths())
        return [name for name in named if isinstance(name, str) and name != "state" and name not in self.keys]

    def holds(self, state: Any) -> bool:
        """Return whether the condition is true. It is false for a state that lacks a value it names."""
        state = _known(state)
        self.keys |= {key for key in state if isinstance(key, str)} if isinstance(state, Mapping) else set()
        try:
            return self._evaluate(state)
        except ExpressionError:
            pass  # perhaps because of an object deeper in the state: try again with objects as dicts
        try:
            return self._evaluate(self._opened(state))
        except ExpressionError:
            return False

    def _evaluate(self, state: Any) -> bool:
        names = {k: v for k, v in state.items() if isinstance(k, str)} if isinstance(state, Mapping) else {}
        return bool(self._expression.evaluate({**names, "state": state}))

    def _opened(self, state: Any) -> Any:
        """Return the state with the program's objects as dicts, only in the parts that the expression names: reading all may take long."""
        if not isinstance(state, Mapping):
            return opened(state)
        named = {path[1] if path[0] == "state" and len(path) > 1 else path[0] for path in self._expression.paths()}
        return {key: opened(part) if key in named else part for key, part in state.items()}


def _known(state: Any) -> Any:
    """Return a state whose own fields, and those of objects directly in it, can be named."""
    state = fields_of(state) or state
    if not isinstance(state, Mapping):
        return state
    objects = {key: opened(part) for key, part in state.items() if fields_of(part) is not None}
    return {**state, **objects} if objects else state
