"""One entry under `steps:` of a YAML workflow: a step that runs something, a gate, or a group of steps that run at the same time.

Checks everything that can be known from the entry alone; `plan` checks the relations between entries. Never imports the callable that
`run:` names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from everstep.fields import Shape
from everstep.runtime.steps.retry import Retry
from everstep.yaml.action import NEXT, RUN_KEYS, Call, Command, Gate, read_gate, read_run
from everstep.yaml.nodes import Node, Reader
from everstep.yaml.value import Value, read_expression, read_value

WORK_KEYS = ("id", "run", "with", "needs", "when", "for_each", "concurrency", "retry", "timeout", "kind", "save", "description")
GATE_KEYS = ("id", "gate", "needs", "when", "save", "description")
GROUP_KEYS = ("parallel", "concurrency", "description")
MOST_AT_ONCE = 256

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
ID = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")


class Step(Shape, frozen=True):
    """A step or a gate of the document; `plain` is the entry as it was written, to compare two documents."""

    id: str
    line: int
    action: Call | Command | Gate
    plain: Mapping[str, Any]
    arguments: Mapping[str, Value]
    needs: Mapping[str, int]  # ids, with the line that names each
    when: Value | None = None
    for_each: Value | None = None
    concurrency: int = 1
    retry: Retry | None = None
    timeout: float | None = None
    kind: str | None = None
    save: str | None = None

    def values(self) -> Iterator[tuple[str, Value]]:
        """Yield every value that may contain expressions, with the name of its key."""
        for name, value in self.arguments.items():
            yield f"with.{name}", value
        if self.when is not None:
            yield "when", self.when
        if self.for_each is not None:
            yield "for_each", self.for_each
        if isinstance(self.action, Command):
            if self.action.cwd is not None:
                yield "cwd", self.action.cwd
            for name, value in (self.action.env or {}).items():
                yield f"env.{name}", value
        if isinstance(self.action, Gate):
            if self.action.ask is not None:
                yield "ask", self.action.ask
            if self.action.condition is not None:
                yield "condition", self.action.condition


class Group(Shape, frozen=True):
    """Steps that run at the same time."""

    line: int
    steps: tuple[Step, ...]
    concurrency: int


Entry = Step | Group


def read_entry(reader: Reader, node: Node) -> Entry:
    """Read one item of the list under `steps:`."""
    if isinstance(node.value, dict) and "parallel" in node.value:
        fields = reader.mapping(node, "a parallel group", GROUP_KEYS)
        members = reader.sequence(fields["parallel"], "parallel")
        if not members:
            reader.fail(fields["parallel"].line, "parallel is empty")
        steps = tuple(read_step(reader, member) for member in members)
        return Group(node.line, steps, _concurrency(reader, fields, min(len(steps), MOST_AT_ONCE)))
    return read_step(reader, node)


def read_step(reader: Reader, node: Node) -> Step:
    """Read a step or a gate."""
    known = (*WORK_KEYS, "gate", "parallel")
    fields = reader.mapping(node, "a step", known, required=["id"], misplaced=RUN_KEYS)
    what = f"step '{reader.named(fields['id'], 'id', ID, 'made of letters, digits, _ and -, beginning with a letter')}'"
    for key in RUN_KEYS:
        if key in fields:
            form = f"{key}: …" if key in ("python", "shell") else f"shell: …, {key}: …"
            reader.fail(node.lines[key], f"'{key}' is not a key of a step; write run: {{{form}}}")
    if "parallel" in fields:
        reader.fail(node.lines["parallel"], "a parallel group must be directly under steps, without an id")
    if ("run" in fields) == ("gate" in fields):
        reader.fail(node.line, f"{what} has {'both run and' if 'run' in fields else 'neither run nor'} gate; it needs one of them")
    _fitting(reader, node, what, GATE_KEYS if "gate" in fields else WORK_KEYS)
    return _read_step(reader, node, fields, what)


def _fitting(reader: Reader, node: Node, what: str, allowed: Collection[str]) -> None:
    for key in node.value:
        if key not in allowed:
            reader.fail(node.lines[key], f"{what} is a gate, and a gate has no '{key}'; allowed: {', '.join(sorted(allowed))}")
    if node.value["id"].value in NEXT:
        reader.fail(node.lines["id"], f"the id '{node.value['id'].value}' is reserved for gates; choose another one")


def _read_step(reader: Reader, node: Node, fields: dict[str, Node], what: str) -> Step:
    def given(key: str, read: Any, *more: Any) -> Any:
        return read(reader, fields[key], f"{what}: {key}", *more) if key in fields else None

    return Step(
        id=str(fields["id"].value),
        line=node.line,
        action=given("gate", read_gate) or given("run", read_run),
        plain=node.plain,
        arguments=given("with", _arguments) or {},
        needs=given("needs", _needs) or {},
        when=given("when", read_expression),
        for_each=given("for_each", read_expression),
        concurrency=_concurrency(reader, fields, 1),
        retry=given("retry", read_retry),
        timeout=given("timeout", Reader.seconds),
        kind=given("kind", Reader.text),
        save=given("save", Reader.named, NAME, "a name of letters, digits and _"),
    )


def _concurrency(reader: Reader, fields: dict[str, Node], default: int) -> int:
    return reader.integer(fields["concurrency"], "concurrency", 1, MOST_AT_ONCE) if "concurrency" in fields else default


def _arguments(reader: Reader, node: Node, what: str) -> dict[str, Value]:
    fields = reader.mapping(node, what)
    for name in fields:
        if not NAME.fullmatch(name):
            reader.fail(node.lines[name], f"{what}: the name of an argument must consist of letters, digits and _, got '{name}'")
    return {name: read_value(reader, child, f"{what}.{name}") for name, child in fields.items()}


def _needs(reader: Reader, node: Node, what: str) -> dict[str, int]:
    several = [node] if isinstance(node.value, str) else reader.sequence(node, what)
    return {reader.text(one, what): one.line for one in several}


def read_retry(reader: Reader, node: Node, what: str) -> Any:
    """Read a number of attempts, or a mapping; times may be written like 5s or 2m."""
    if isinstance(node.value, dict):
        times = {
            k: Node(reader.seconds(v, f"{what}.{k}"), v.line)
            for k, v in node.value.items()
            if k in ("delay", "max_delay") and isinstance(v.value, str)
        }
        node = Node({**node.value, **times}, node.line, lines=node.lines)
    return reader.parse(node, what, Retry.parse)
