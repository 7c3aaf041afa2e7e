"""A whole YAML workflow, checked as far as the text alone allows. `docs/yaml.md` lists the keys.

Reading a document imports nothing that it names and runs nothing: the documents of old runs, which come from a store, are read here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from everstep.errors import InvalidArgument
from everstep.expressions.values import suggestion
from everstep.fields import Shape
from everstep.runtime.limits.budget import Budget
from everstep.runtime.limits.policy import Policy
from everstep.runtime.steps.retry import Retry
from everstep.runtime.waits.answer_check import check
from everstep.runtime.waits.answer_schema import to_schema
from everstep.yaml.nodes import Node, Reader, describe, read
from everstep.yaml.plan import References, check_jumps, ordered, steps_of
from everstep.yaml.step import ID, NAME, Entry, Step, read_entry, read_retry
from everstep.yaml.value import Value, read_value

KEYS = ("name", "version", "description", "inputs", "state", "policy", "retry", "budget", "timeout", "steps", "result")
TAKEN = ("id",)  # arguments of `store.start` itself


class Input(Shape, frozen=True):
    """An input of a run; `default` is empty if the input is required."""

    name: str
    schema: dict[str, Any] | None = None
    default: tuple[Any, ...] = ()


class Document(Shape, frozen=True):
    """A parsed workflow; `order` holds the entries in the order in which they run."""

    file: str | None
    text: str
    name: str
    version: str | None
    inputs: Mapping[str, Input]
    state: Mapping[str, Value]
    policy: Policy | None
    retry: Retry | None
    budget: Budget | None
    timeout: float | None
    order: tuple[Entry, ...]
    result: Value | None

    @property
    def steps(self) -> list[Step]:
        return [step for entry in self.order for step in steps_of(entry)]

    def given(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs of a run with their defaults; InvalidArgument names a missing, unknown or invalid one."""
        for name in inputs:
            if name not in self.inputs:
                takes = f"it takes {', '.join(self.inputs)}" if self.inputs else "it takes none"
                raise InvalidArgument(f"workflow '{self.name}' has no input '{name}'{suggestion(name, self.inputs)}; {takes}")
        found = {
            name: inputs[name] if name in inputs else one.default[0] for name, one in self.inputs.items() if name in inputs or one.default
        }
        for name, one in self.inputs.items():
            if name not in found:
                raise InvalidArgument(
                    f"workflow '{self.name}' requires the input '{name}'", remedy=f"Pass it: store.start(workflow, {name}=...)."
                )
            fault = None if one.schema is None else check(one.schema, found[name])
            if fault:
                raise InvalidArgument(f"the input '{name}' of workflow '{self.name}' does not match its schema: {fault}")
        return found


def parse(text: str, file: str | None = None) -> Document:
    """Parse the text of a document; InvalidWorkflow names the file, the line, and what is allowed."""
    reader, root = read(text, file)
    fields = reader.mapping(root, "a workflow", KEYS, required=["name", "steps"])
    entries = [read_entry(reader, node) for node in reader.sequence(fields["steps"], "steps")]
    if not entries:
        reader.fail(fields["steps"].line, "steps is empty; a workflow needs at least one step")
    order = ordered(reader, entries)
    check_jumps(reader, order)
    declared = _inputs(reader, fields["inputs"]) if "inputs" in fields else None
    state = {key: read_value(reader, node, f"state.{key}") for key, node in _named(reader, fields, "state").items()}
    result = read_value(reader, fields["result"], "result") if "result" in fields else None
    references = References(reader, order, declared)
    references.check_values("state", state.values(), ["inputs"])
    references.check_steps()
    references.check_values("result", [result] if result is not None else [], ["inputs", "state", "steps"])
    inputs = {name: Input(name) for name in references.inputs} if declared is None else declared
    for name in inputs:
        if name in TAKEN:
            reader.fail(
                fields["inputs"].line if "inputs" in fields else root.line, f"an input cannot be called '{name}'; choose another name"
            )
    return Document(
        file=file,
        text=text,
        name=reader.named(fields["name"], "name", ID, "made of letters, digits, _ and -, beginning with a letter"),
        version=_version(reader, fields["version"]) if "version" in fields else None,
        inputs=inputs,
        state=state,
        policy=reader.parse(fields["policy"], "policy", Policy.parse) if "policy" in fields else None,
        retry=read_retry(reader, fields["retry"], "retry") if "retry" in fields else None,
        budget=_budget(reader, fields["budget"]) if "budget" in fields else None,
        timeout=reader.seconds(fields["timeout"], "timeout") if "timeout" in fields else None,
        order=order,
        result=result,
    )


def _version(reader: Reader, node: Node) -> str:
    """Return the version as it was written: 1.10 is not 1.1."""
    if isinstance(node.value, bool) or not isinstance(node.value, (str, int, float)) or not node.text.strip():
        reader.fail(node.line, f"version must be text or a number, got {describe(node.value)}")
    return node.text


def _budget(reader: Reader, node: Node) -> Any:
    if isinstance(node.value, dict) and "seconds" in node.value and isinstance(node.value["seconds"].value, str):
        seconds = node.value["seconds"]
        node = Node({**node.value, "seconds": Node(reader.seconds(seconds, "budget.seconds"), seconds.line)}, node.line, lines=node.lines)
    return reader.parse(node, "budget", Budget.parse)


def _named(reader: Reader, fields: Mapping[str, Node], key: str) -> dict[str, Node]:
    return reader.mapping(fields[key], key) if key in fields else {}


def _inputs(reader: Reader, node: Node) -> dict[str, Input]:
    """Read a list of names, or a mapping from names to nothing (required), a default, or a schema with or without a default."""
    if isinstance(node.value, list):
        named = [reader.named(one, "an input", NAME, "a name of letters, digits and _") for one in node.value]
        return {name: Input(name) for name in named}
    found = {}
    for name, child in reader.mapping(node, "inputs").items():
        if not NAME.fullmatch(name):
            reader.fail(node.lines[name], f"the name of an input must consist of letters, digits and _, got '{name}'")
        found[name] = _input(reader, name, child)
    return found


def _input(reader: Reader, name: str, node: Node) -> Input:
    if node.value is None:
        return Input(name)
    if not isinstance(node.value, dict):
        return Input(name, default=(node.plain,))
    schema = dict(reader.parse(node, f"input '{name}'", to_schema))
    if "default" not in node.value:
        return Input(name, schema)
    default = node.value["default"].plain
    fault = check(schema, default)
    if fault:
        reader.fail(node.value["default"].line, f"input '{name}': the default does not match the schema: {fault}")
    return Input(name, schema, (default,))
