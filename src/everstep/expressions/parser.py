"""The small language of `when:`, `for_each:`, `condition:` and of `${...}` in the values of a YAML workflow, and of `everstep bisect`.

    expression  = and {"or" and}                  and     = not {"and" not}            not  = ["not"] compare
    compare     = value [operator value]          operator: == != < <= > >= in, not in
    value       = primary {"." name | "[" expression "]"}
    primary     = number | 'text' | "text" | true | false | null | [list] | (expression) | name | function(expression, …)
    functions   : len(x), default(x, y), json(text), lines(text)

No arithmetic, no attributes of objects except their fields, no calls except these four: an expression only reads data of the run, always
ends, and gives the same result on each replay. Relies on `values` for operations on values; no eval. Errors are `ExpressionError`; a caller
that knows the line adds it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from everstep.expressions.values import COMPARISONS, FUNCTIONS, ExpressionError, Missing, compared, member, suggestion
from everstep.fields import Shape

MOST_TEXT = 4_000
MOST_DEPTH = 40

Path = tuple[Any, ...]  # ("steps", "plan", "result"): a name and the constant members after it
Names = Mapping[str, Any]

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(?![\w.])
        |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
        |(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
        |(?P<sign>==|!=|<=|>=|[<>.,()\[\]}]))""",
    re.VERBOSE | re.DOTALL,
)
_MEMBER = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_-]*)")  # ids of steps may contain a hyphen
_CONSTANTS = {"true": True, "false": False, "null": None}
_WORDS = {*_CONSTANTS, "and", "or", "not", "in"}
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"'}


class Part(Shape, frozen=True):
    """A part of an expression: its evaluation, the parts inside it, the path that it names (if it is one), and its value as a constant key."""

    evaluate: Callable[[Names], Any]
    inner: tuple[Part, ...] = ()
    path: Path = ()
    key: str | int | None = None


class Expression(Shape, frozen=True):
    """A parsed expression."""

    text: str
    root: Part

    def evaluate(self, names: Names) -> Any:
        return self.root.evaluate(names)

    def paths(self) -> Iterator[Path]:
        """Return the paths that it refers to, each as far as its members are constant."""
        return _paths(self.root)


def parse(text: str) -> Expression:
    """Parse a whole text as an expression; `${...}` around it is optional."""
    stripped = text.strip()
    if stripped.startswith("${"):
        template = parse_template(stripped)
        if len(template) == 1 and isinstance(template[0], Expression):
            return template[0]
        raise ExpressionError("an expression must not have text around ${...}")
    parser = _Parser(text)
    root = parser.expression()
    parser.end()
    return Expression(stripped, root)


def parse_template(text: str) -> list[str | Expression]:
    """Split a text at each `${expression}`; `$${` means a plain `${`."""
    parts: list[str | Expression] = []
    plain, at = "", 0
    while (found := text.find("${", at)) >= 0:
        if found > at and text[found - 1] == "$":
            plain, at = plain + text[at : found - 1] + "${", found + 2
            continue
        plain += text[at:found]
        parser = _Parser(text, found + 2)
        root = parser.expression()
        parser.sign("}")
        if plain:
            parts.append(plain)
        parts.append(Expression(text[found + 2 : parser.at - 1].strip(), root))
        plain, at = "", parser.at
    plain += text[at:]
    return [*parts, plain] if plain or not parts else parts


def _paths(part: Part) -> Iterator[Path]:
    if part.path:
        yield part.path
    for inner in part.inner:
        yield from _paths(inner)


class _Parser:
    """A recursive-descent parser."""

    def __init__(self, text: str, at: int = 0):
        self._text = text
        self._start = self.at = at
        self._depth = 0

    def fault(self, message: str, joined: str = "in") -> ExpressionError:
        return ExpressionError(f"{message} {joined} '{self._text[self._start :].strip():.80}'")

    def _peek(self) -> tuple[str, str]:
        """Return the next token and its kind; ("end", "") at the end."""
        if self.at - self._start > MOST_TEXT:
            raise self.fault(f"more than {MOST_TEXT:,} characters")
        found = _TOKEN.match(self._text, self.at)
        if found:
            return str(found.lastgroup), found[str(found.lastgroup)]
        rest = self._text[self.at :].strip()
        if rest:
            raise self.fault(f"unexpected '{rest[0]}'" if rest[0] not in "'\"" else "a string without a closing quote")
        return "end", ""

    def _take(self) -> tuple[str, str]:
        token = self._peek()
        found = _TOKEN.match(self._text, self.at)
        self.at = found.end() if found else len(self._text)
        return token

    def _took(self, *wanted: str) -> str | None:
        """Take the next sign or word if it is one of these."""
        kind, token = self._peek()
        return self._take()[1] if kind in ("sign", "name") and token in wanted else None

    def sign(self, wanted: str) -> None:
        if not self._took(wanted):
            raise self.fault(
                f"expected '{wanted}' before '{self._text[self.at :].strip():.20}'"
                if self._peek()[1]
                else f"expected '{wanted}' at the end"
            )

    def end(self) -> None:
        if self._peek()[0] != "end":
            raise self.fault(f"unexpected '{self._peek()[1]}'")

    def expression(self) -> Part:
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise self.fault(f"more than {MOST_DEPTH} levels")
        part = self._either()
        self._depth -= 1
        return part

    def _either(self) -> Part:
        parts = [self._both()]
        while self._took("or"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else Part(lambda names: any(p.evaluate(names) for p in parts), tuple(parts))

    def _both(self) -> Part:
        parts = [self._negated()]
        while self._took("and"):
            parts.append(self._negated())
        return parts[0] if len(parts) == 1 else Part(lambda names: all(p.evaluate(names) for p in parts), tuple(parts))

    def _negated(self) -> Part:
        if not self._took("not"):
            return self._comparison()
        part = self._comparison()
        return Part(lambda names: not part.evaluate(names), (part,))

    def _comparison(self) -> Part:
        left = self._value()
        sign = self._took("==", "!=", "<", "<=", ">", ">=", "in", "not")
        if sign is None:
            return left
        if sign == "not" and not self._took("in"):
            raise self.fault("expected 'in' after 'not'")
        right = self._value()
        name = "not in" if sign == "not" else sign
        part = Part(lambda names: compared(name, left.evaluate(names), right.evaluate(names)), (left, right))
        if self._peek()[1] in COMPARISONS and self._peek()[0] != "text":
            raise self.fault("two comparisons in a row; join them with 'and'")
        return part

    def _value(self) -> Part:
        part = self._primary()
        for _ in range(MOST_DEPTH):
            sign = self._took(".", "[")
            if sign is None:
                return part
            key = _constant(self._member_name()) if sign == "." else self.expression()
            if sign == "[":
                self.sign("]")
            part = _member(part, key)
        raise self.fault(f"more than {MOST_DEPTH} levels")

    def _member_name(self) -> str:
        found = _MEMBER.match(self._text, self.at)
        if not found:
            raise self.fault("expected a name after '.'")
        self.at = found.end()
        return found[1]

    def _primary(self) -> Part:
        kind, token = self._take()
        if kind == "number":
            return _constant(float(token) if re.search(r"[.eE]", token) else int(token))
        if kind == "text":
            return _constant(re.sub(r"\\(.)", self._escape, token[1:-1], flags=re.DOTALL))
        if kind == "name":
            return self._named(token)
        if (kind, token) == ("sign", "("):
            part = self.expression()
            self.sign(")")
            return Part(part.evaluate, (part,))
        if (kind, token) == ("sign", "["):
            parts = self._listed("]")
            return Part(lambda names: [p.evaluate(names) for p in parts], parts)
        raise self.fault(f"expected a value before '{token}'") if token else self.fault("expected a value at the end", "of")

    def _escape(self, found: re.Match[str]) -> str:
        if found[1] not in _ESCAPES:
            raise self.fault(f"unknown escape '\\{found[1]}'; allowed: {', '.join(repr(chr(92) + e) for e in _ESCAPES)}")
        return _ESCAPES[found[1]]

    def _named(self, name: str) -> Part:
        if name in _CONSTANTS:
            return _constant(_CONSTANTS[name])
        if name in _WORDS:
            raise self.fault(f"expected a value before '{name}'")
        if not self._took("("):
            return Part(lambda names: _known(names, name), path=(name,))
        if name not in FUNCTIONS:
            raise self.fault(f"there is no function '{name}'{suggestion(name, FUNCTIONS)}, only {', '.join(sorted(FUNCTIONS))},")
        parts = self._listed(")")
        count, function = FUNCTIONS[name]
        if len(parts) != count:
            raise self.fault(f"{name}() takes {count} value{'s' * (count > 1)}, got {len(parts)}")
        return Part(lambda names: function(*(partial(p.evaluate, names) for p in parts)), parts)

    def _listed(self, closing: str) -> tuple[Part, ...]:
        parts: list[Part] = []
        while not self._took(closing):
            if parts:
                self.sign(",")
            parts.append(self.expression())
        return tuple(parts)


def _constant(value: Any) -> Part:
    return Part(lambda names: value, key=value if type(value) in (str, int) else None)


def _known(names: Names, name: str) -> Any:
    if name not in names:
        raise Missing(f"there is no '{name}' here")
    return names[name]


def _member(part: Part, key: Part) -> Part:
    path = (*part.path, key.key) if part.path and key.key is not None else ()
    return Part(lambda names: member(part.evaluate(names), key.evaluate(names)), () if path else (part, key), path)
