"""The action of a step in a YAML workflow: call a Python function, run a command, or wait at a gate.

Values are never inserted into the text of a command; they reach it as environment variables. Never imports the callable that `run:` names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from everstep.fields import Shape
from everstep.runtime.waits.answer_check import check
from everstep.runtime.waits.answer_schema import to_schema
from everstep.yaml.nodes import Node, Reader, describe
from everstep.yaml.value import Value, read_expression, read_value

RUN_KEYS = ("python", "shell", "cwd", "env", "ok")
GATE_KEYS = ("ask", "choices", "schema", "timeout", "default", "condition", "on_pass", "on_fail", "max_rounds")
NEXT = ("continue", "stop", "fail")

CALLABLE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
ENVIRONMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_OURS_IN_SHELL = re.compile(r"\$\{\s*(inputs|state|steps)\s*[.\[]")


class Call(Shape, frozen=True):
    """A Python callable, by name."""

    target: str
    line: int


class Command(Shape, frozen=True):
    """A command for /bin/sh; `ok` are the exit codes that count as success."""

    text: str
    line: int
    cwd: Value | None = None
    env: Mapping[str, Value] | None = None
    ok: tuple[int, ...] = (0,)


class Gate(Shape, frozen=True):
    """A question, a condition, or both, and the next target: continue, stop, fail, or the id of a step."""

    line: int
    ask: Value | None
    condition: Value | None
    schema: dict[str, Any] | None
    choices: tuple[Any, ...] | None
    timeout: float | None
    default: tuple[Any, ...]  # empty: no default
    on_pass: str
    on_fail: str
    max_rounds: int


def read_run(reader: Reader, node: Node, what: str) -> Call | Command:
    if isinstance(node.value, str):
        text = reader.text(node, what)
        return Call(text, node.line) if CALLABLE.fullmatch(text) else Command(_command(reader, node, what), node.line)
    fields = reader.mapping(node, what, RUN_KEYS)
    if ("python" in fields) == ("shell" in fields):
        reader.fail(
            node.line, f"{what} has {'both python and' if 'python' in fields else 'neither python nor'} shell; it needs one of them"
        )
    if "python" in fields:
        reader.mapping(node, f"{what} of a Python callable", ["python"])
        return Call(reader.named(fields["python"], f"{what}.python", CALLABLE, "of the form package.module:function"), node.line)
    return Command(
        _command(reader, fields["shell"], f"{what}.shell"),
        node.line,
        cwd=read_value(reader, fields["cwd"], f"{what}.cwd") if "cwd" in fields else None,
        env=_environment(reader, fields["env"], f"{what}.env") if "env" in fields else None,
        ok=tuple(reader.integer(code, f"{what}.ok", 0, 255) for code in reader.sequence(fields["ok"], f"{what}.ok"))
        if "ok" in fields
        else (0,),
    )


def _command(reader: Reader, node: Node, what: str) -> str:
    """Read the text of a command. Values are never inserted into it: one with a quote or a semicolon would become code."""
    text = reader.text(node, what)
    found = _OURS_IN_SHELL.search(text)
    if found:
        reader.fail(
            node.line,
            f"{what}: ${{{found[1]}…}} is not substituted in commands; pass it under with: and use the variable $EVERSTEP_WITH_<NAME>",
        )
    return text


def _environment(reader: Reader, node: Node, what: str) -> dict[str, Value]:
    fields = reader.mapping(node, what)
    for name in fields:
        if not ENVIRONMENT.fullmatch(name):
            reader.fail(node.lines[name], f"{what}: '{name}' is not a valid name of an environment variable")
    return {name: read_value(reader, child, f"{what}.{name}") for name, child in fields.items()}


def read_gate(reader: Reader, node: Node, what: str) -> Gate:
    if isinstance(node.value, str):
        node = Node({"ask": node}, node.line, lines={"ask": node.line})
    fields = reader.mapping(node, what, GATE_KEYS)
    if "ask" not in fields and "condition" not in fields:
        reader.fail(node.line, f"{what} has neither ask nor condition; it needs at least one of them")
    for key in ("choices", "schema", "timeout", "default"):
        if key in fields and "ask" not in fields:
            reader.fail(node.lines[key], f"{what} has '{key}' but no ask")
    for key in ("on_fail", "max_rounds"):
        if key in fields and "condition" not in fields:
            reader.fail(
                node.lines[key], f"{what} has '{key}' but no condition, so it cannot fail; write for example condition: answer == 'yes'"
            )
    choices = tuple(one.plain for one in reader.sequence(fields["choices"], f"{what}.choices")) if "choices" in fields else None
    schema = _schema(reader, fields, what, choices)
    return Gate(
        line=node.line,
        ask=read_value(reader, fields["ask"], f"{what}.ask") if "ask" in fields else None,
        condition=read_expression(reader, fields["condition"], f"{what}.condition") if "condition" in fields else None,
        schema=schema,
        choices=choices,
        timeout=reader.seconds(fields["timeout"], f"{what}.timeout") if "timeout" in fields else None,
        default=_default(reader, fields, what, schema),
        on_pass=reader.text(fields["on_pass"], f"{what}.on_pass") if "on_pass" in fields else "continue",
        on_fail=reader.text(fields["on_fail"], f"{what}.on_fail") if "on_fail" in fields else "fail",
        max_rounds=reader.integer(fields["max_rounds"], f"{what}.max_rounds", 1, 1_000) if "max_rounds" in fields else 3,
    )


def _schema(reader: Reader, fields: dict[str, Node], what: str, choices: tuple[Any, ...] | None) -> dict[str, Any] | None:
    node = fields.get("schema") or fields.get("choices")
    if node is None:
        return None
    given = fields["schema"].plain if "schema" in fields else None
    made = reader.parse(node, what, lambda _: to_schema(given, choices))
    return made if made is None else dict(made)


def _default(reader: Reader, fields: dict[str, Node], what: str, schema: dict[str, Any] | None) -> tuple[Any, ...]:
    if "default" not in fields:
        return ()
    node = fields["default"]
    fault = None if schema is None else check(schema, node.plain)
    if fault:
        reader.fail(node.line, f"{what}: the default {describe(node.value)} is not a valid answer: {fault}")
    return (node.plain,)
