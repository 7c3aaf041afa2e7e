"""A condition on a state, in the small expression language of YAML workflows: no calls but its own few, no attributes, no code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from everstep.errors import InvalidArgument
from everstep.runtime.expression import parse
from everstep.runtime.operations import ExpressionError


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
        names = (
            {**{k: v for k, v in state.items() if isinstance(k, str)}, "state": state} if isinstance(state, Mapping) else {"state": state}
        )
        try:
            return bool(self._expression.evaluate(names))
        except ExpressionError:
            return False
