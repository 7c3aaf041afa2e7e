"""A value of a YAML workflow and the expressions in it, under `with:`, `env:`, `state:`, `ask:`.

A text that is exactly `${expression}` becomes the value of the expression, of any type; inside a longer text, the value is inserted as
text. Evaluation returns copies: a step that changes its argument in place must not change the result of an earlier step, because a replay
would not repeat that change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from everstep.codec.values import decode, encode
from everstep.expressions.parser import Expression, Names, parse, parse_template
from everstep.expressions.values import ExpressionError, as_text
from everstep.fields import Shape
from everstep.yaml.nodes import Node, Reader


def copied(value: Any) -> Any:
    """Copy a value through the codec, so that it equals the one a replay reads from the journal."""
    return value if value is None or type(value) in (str, int, float, bool) else decode(encode(value, "value"))


class Value(Shape, frozen=True):
    """`content` is a scalar, an Expression, a tuple of texts and expressions, or a list or dict of values."""

    content: Any
    line: int

    def evaluate(self, names: Names) -> Any:
        content = self.content
        if isinstance(content, dict):
            return {key: value.evaluate(names) for key, value in content.items()}
        if isinstance(content, list):
            return [value.evaluate(names) for value in content]
        try:
            if isinstance(content, Expression):
                return copied(content.evaluate(names))
            if isinstance(content, tuple):
                return "".join(part if isinstance(part, str) else as_text(part.evaluate(names)) for part in content)
        except ExpressionError as error:
            error.line = self.line
            raise
        return content

    def expressions(self) -> Iterator[tuple[Expression, int]]:
        """Yield all expressions, each with its line."""
        content = self.content
        if isinstance(content, Expression):
            yield content, self.line
        elif isinstance(content, (list, tuple, dict)):
            for part in content.values() if isinstance(content, dict) else content:
                if isinstance(part, Value):
                    yield from part.expressions()
                elif isinstance(part, Expression):
                    yield part, self.line


def read_value(reader: Reader, node: Node, what: str) -> Value:
    """Read any value, with `${...}` in its texts."""
    content = node.value
    if isinstance(content, dict):
        return Value({key: read_value(reader, child, f"{what}.{key}") for key, child in content.items()}, node.line)
    if isinstance(content, list):
        return Value([read_value(reader, child, what) for child in content], node.line)
    if not isinstance(content, str):
        return Value(content, node.line)
    try:
        parts = parse_template(content)
    except ExpressionError as error:
        reader.fail(node.line, f"{what}: {error}", error)
    return Value(parts[0] if len(parts) == 1 else tuple(parts), node.line)


def read_expression(reader: Reader, node: Node, what: str) -> Value:
    """Read an expression, with or without `${...}` around it; a number, true, false or a list is taken as it is."""
    if not isinstance(node.value, str):
        return read_value(reader, node, what)
    try:
        return Value(parse(node.value), node.line)
    except ExpressionError as error:
        reader.fail(node.line, f"{what}: {error}", error)
