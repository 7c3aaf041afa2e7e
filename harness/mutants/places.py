"""Places of the source that can be broken, each in one way. Reads source text; writes nothing.

A break replaces one piece of a file by another text and leaves the rest as it is, so that line numbers stay true:

    compare    == for !=, < for <=, is for is not, in for not in, and the reverse
    condition  `if x` becomes `if not (x)`
    boolean    and for or
    number     n + 1 for n
    swap       two positional arguments change places
    call       a call for its effect (fsync, close, release, …) is left out
    await      an awaited call for its effect is left out
    raise      a raise is left out
    return     None is returned
    flag       True for False, and the reverse
    store      an assignment to an attribute or an item is left out
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

KINDS = ("compare", "condition", "boolean", "number", "swap", "call", "await", "raise", "return", "flag", "store")
EFFECTS = {
    "fsync", "fdatasync", "flush", "sync", "close", "release", "rollback", "commit", "clear", "notify", "set", "wake", "append", "add", "discard", "update",
    "pop", "remove", "unlink", "rename", "replace", "write", "check", "refuse", "verify", "cancel", "stop", "join", "forget",
}  # fmt: skip
_FLIPPED: dict[type[ast.cmpop], str] = {
    ast.Eq: "!=", ast.NotEq: "==", ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Is: "is not", ast.IsNot: "is", ast.In: "not in",
    ast.NotIn: "in",
}  # fmt: skip
_LEFT_OUT = ("testing/", "demo/")  # tools for tests of users, and a show


@dataclass(frozen=True, slots=True)
class Place:
    """One break: bytes from `start` to `end` of a file become `text`."""

    file: str
    line: int
    kind: str
    start: int
    end: int
    text: str
    before: str
    statement: int  # the line where its statement begins

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.kind}: {_short(self.before)} -> {_short(self.text)}"

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:57]}..."


def all_places(root: Path) -> list[Place]:
    """Every place of a package, in a fixed order. `root` is the folder that the package is in."""
    found: list[Place] = []
    for path in sorted((root / "everstep").rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if not name.removeprefix("everstep/").startswith(_LEFT_OUT):
            found += File(name, path.read_bytes()).places()
    return found


class File:
    """One file of the source."""

    def __init__(self, name: str, source: bytes):
        self._name, self._source = name, source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def places(self) -> list[Place]:
        tree = ast.parse(self._source)
        self._firsts = _first_lines(tree)
        found = [place for node in _walk(tree) for place in self._of(node)]
        return sorted({(p.start, p.end, p.text): p for p in found}.values(), key=lambda p: (p.start, p.end, p.text))

    def _of(self, node: ast.AST) -> Iterator[Place]:
        if isinstance(node, ast.Compare):
            yield from self._compare(node)
        elif isinstance(node, ast.If | ast.While | ast.IfExp) and not isinstance(node.test, ast.Constant):
            yield self._place("condition", node.test, f"not ({self._text(node.test)})")
        elif isinstance(node, ast.BoolOp):
            yield from self._boolean(node)
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            yield self._place("number", node, str(node.value + 1))
        elif isinstance(node, ast.Constant) and type(node.value) is bool:
            yield self._place("flag", node, str(not node.value))
        elif isinstance(node, ast.Assign | ast.AugAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Attribute | ast.Subscript):
                yield self._place("store", node, "pass")
        elif isinstance(node, ast.Call):
            yield from self._swap(node)
        elif isinstance(node, ast.Expr):
            yield from self._effect(node)
        elif isinstance(node, ast.Raise):
            yield self._place("raise", node, "pass")
        elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
            yield self._place("return", node.value, "None")

    def _compare(self, node: ast.Compare) -> Iterator[Place]:
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            start, end = self._span(left)[1], self._span(right)[0]
            between = self._source[start:end].decode()
            if "\n" not in between and "(" not in between and ")" not in between:
                yield self._replaced("compare", node, start, end, f" {_FLIPPED[type(operator)]} ")
            left = right

    def _boolean(self, node: ast.BoolOp) -> Iterator[Place]:
        start, end = self._span(node.values[0])[1], self._span(node.values[1])[0]
        between = self._source[start:end].decode()
        word, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        if between.strip() == word:
            yield self._replaced("boolean", node, start, end, between.replace(word, other))

    def _swap(self, node: ast.Call) -> Iterator[Place]:
        if len(node.args) < 2 or any(isinstance(arg, ast.Starred) for arg in node.args[:2]):
            return
        one, two = node.args[:2]
        first, second = self._text(one), self._text(two)
        if first != second and not isinstance(one, ast.GeneratorExp):
            start, end = self._span(one)[0], self._span(two)[1]
            between = self._source[self._span(one)[1] : self._span(two)[0]].decode()
            yield self._replaced("swap", node, start, end, f"{second}{between}{first}")

    def _effect(self, node: ast.Expr) -> Iterator[Place]:
        value = node.value
        if isinstance(value, ast.Await):
            yield self._place("await", node, "pass")
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute | ast.Name):
            name = value.func.attr if isinstance(value.func, ast.Attribute) else value.func.id
            if name.strip("_") in EFFECTS:
                yield self._place("call", node, "pass")

    def _place(self, kind: str, node: ast.expr | ast.stmt, text: str) -> Place:
        start, end = self._span(node)
        return self._replaced(kind, node, start, end, text)

    def _replaced(self, kind: str, node: ast.expr | ast.stmt, start: int, end: int, text: str) -> Place:
        before = self._source[start:end].decode()
        return Place(self._name, node.lineno, kind, start, end, text, before, self._firsts.get(node.lineno, node.lineno))

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.expr) -> str:
        start, end = self._span(node)
        return self._source[start:end].decode()


def _first_lines(tree: ast.AST) -> dict[int, int]:
    """For each line, the first line of the statement that it belongs to: a compound one ends where its body begins."""
    found: dict[int, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if isinstance(body, list) and body else node.end_lineno or node.lineno
            found |= dict.fromkeys(range(node.lineno, max(last, node.lineno) + 1), node.lineno)
    return found


def _walk(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes that run: no annotations, no decorators, nothing under TYPE_CHECKING, no assertions, no f-strings."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for node in value if isinstance(value, list) else [value]:
            if isinstance(node, ast.AST) and not _skipped(node):
                yield node
                yield from _walk(node)


def _skipped(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return True
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
