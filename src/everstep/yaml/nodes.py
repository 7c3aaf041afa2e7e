"""Parses a YAML document to nodes that know their line, and checks the type of each.

Scalars follow YAML 1.2: only `true` and `false` are booleans, so that `yes`, `no` and `on` remain text; there are no dates and no merge
keys. Refused with the line: duplicate keys, keys that aren't text, tags, anchors that contain themselves, documents beyond the limits.

Relies on PyYAML (extra `yaml`) for the syntax only. Never builds an object that a document names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NoReturn

from everstep.errors import EverstepError, InvalidArgument, InvalidWorkflow
from everstep.expressions.values import suggestion
from everstep.fields import Shape, field

try:
    import yaml
except ImportError as missing:
    raise InvalidArgument("YAML workflows need PyYAML, which is not installed", remedy="pip install 'everstep[yaml]'") from missing

MOST_TEXT = 100_000  # the limit of a definition that a run keeps: a longer one could not be compared on resume
MOST_NODES = 50_000  # after following aliases: nine lines of aliases can expand to a billion nodes
UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


class _Loader(yaml.SafeLoader):
    """The syntax of YAML with the scalars of YAML 1.2."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 -- PyYAML's own way to say it


_SCALARS = {
    "null": re.compile(r"(?:~|null|Null|NULL|)\Z"),
    "bool": re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"),
    "int": re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z"),
    "float": re.compile(r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"),
}
_TAG = "tag:yaml.org,2002:"
for _kind, _pattern in _SCALARS.items():
    _Loader.add_implicit_resolver(_TAG + _kind, _pattern, None)


class Node(Shape, frozen=True):
    """A value of the document: a scalar, a list of nodes or a dict of nodes, with its line; `text` is a scalar as it was written."""

    value: Any
    line: int
    text: str = ""
    lines: Mapping[str, int] = field(default_factory=dict)  # of the keys of a dict

    @property
    def plain(self) -> Any:
        if isinstance(self.value, dict):
            return {key: child.plain for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain for child in self.value]
        return self.value


def read(text: str, file: str | None = None) -> tuple[Reader, Node]:
    """Parse a document to nodes; the reader raises its errors."""
    reader = Reader(file)
    if len(text) > MOST_TEXT:
        reader.fail(1, f"the document must have at most {MOST_TEXT:,} characters, got {len(text):,}")
    try:
        root = yaml.compose(text, _Loader)
        if root is None:
            reader.fail(1, "the document is empty; it needs at least 'name' and 'steps'")
        return reader, _Converter(reader).convert(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" at column {mark.column + 1}" if mark else ""
        reader.fail(mark.line + 1 if mark else 1, f"invalid YAML: {error.problem or error.context}{where}", error)
    except yaml.YAMLError as error:
        reader.fail(1, f"invalid YAML: {str(error).splitlines()[0]}", error)
    except RecursionError as error:
        reader.fail(1, "the document is nested too deeply", error)


class _Converter:
    """Converts PyYAML's nodes to ours."""

    def __init__(self, reader: Reader):
        self._reader = reader
        self._count = 0
        self._open: set[int] = set()

    def convert(self, node: yaml.Node) -> Node:
        line = node.start_mark.line + 1
        self._count += 1
        if self._count > MOST_NODES:
            self._reader.fail(line, f"the document must have at most {MOST_NODES:,} values")
        if id(node) in self._open:
            self._reader.fail(line, "an anchor contains itself")
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, line)
            if isinstance(node, yaml.SequenceNode):
                self._plain_tag(node, "seq", line)
                return Node([self.convert(child) for child in node.value], line)
            return self._scalar(node, line)
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: yaml.MappingNode, line: int) -> Node:
        self._plain_tag(node, "map", line)
        children: dict[str, Node] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            key = self.convert(key_node)
            if not isinstance(key.value, str):
                self._reader.fail(key.line, f"the key {key.text or 'here'} is not text; put it in quotes")
            if key.value in children:
                self._reader.fail(key.line, f"duplicate key '{key.value}'; the first one is in line {lines[key.value]}")
            children[key.value], lines[key.value] = self.convert(value_node), key.line
        return Node(children, line, lines=lines)

    def _scalar(self, node: yaml.Node, line: int) -> Node:
        text = str(node.value)
        if any("\ud800" <= char <= "\udfff" for char in text):
            self._reader.fail(line, "the text contains a lone surrogate, which cannot be stored")
        kind = node.tag.removeprefix(_TAG)
        if kind == "str":
            return Node(text, line, text)
        pattern = _SCALARS.get(kind)
        if pattern is None or not pattern.match(text):
            self._refuse_tag(node, line)
        try:
            return Node(_value_of(kind, text), line, text)
        except ValueError as error:  # thousands of digits
            self._reader.fail(line, f"{text[:20]}… has too many digits for a number", error)

    def _plain_tag(self, node: yaml.Node, kind: str, line: int) -> None:
        if node.tag != _TAG + kind:
            self._refuse_tag(node, line)

    def _refuse_tag(self, node: yaml.Node, line: int) -> NoReturn:
        self._reader.fail(line, f"the tag {node.tag.replace(_TAG, '!!')} is not allowed; use plain text, numbers, lists and mappings")


def _value_of(kind: str, text: str) -> Any:
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    if kind == "int":
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    return float(text.replace(".inf", "inf").replace(".nan", "nan")) if text.lower().lstrip("+-") in (".inf", ".nan") else float(text)


class Reader:
    """Reads the values that a workflow needs from nodes, and names the line of a missing or wrong one."""

    def __init__(self, file: str | None = None):
        self.file = file

    def fail(self, line: int, message: str, cause: BaseException | None = None) -> NoReturn:
        raise InvalidWorkflow(message, self.file, line) from cause

    def parse(self, node: Node, what: str, parser: Any) -> Any:
        """Pass the plain value to a parser of another module, and add the line to its errors."""
        try:
            return parser(node.plain)
        except EverstepError as error:
            raise InvalidWorkflow(f"{what}: {error.message}", self.file, node.line, remedy=error.remedy) from error

    def mapping(
        self, node: Node, what: str, allowed: Collection[str] | None = None, required: Iterable[str] = (), misplaced: Collection[str] = ()
    ) -> dict[str, Node]:
        """Return the keys of a mapping. The caller refuses the `misplaced` ones with a message of its own."""
        if not isinstance(node.value, dict):
            self.fail(node.line, f"{what} must be a mapping, got {describe(node.value)}{_listed('its keys', allowed)}")
        for key in node.value:
            if allowed is not None and key not in allowed and key not in misplaced:
                self.fail(node.lines[key], f"{what} has no key '{key}'{suggestion(key, allowed)}; allowed: {', '.join(sorted(allowed))}")
        for key in required:
            if key not in node.value:
                self.fail(node.line, f"{what} has no '{key}'")
        return dict(node.value)

    def sequence(self, node: Node, what: str) -> list[Node]:
        if not isinstance(node.value, list):
            self.fail(node.line, f"{what} must be a list, got {describe(node.value)}")
        return list(node.value)

    def text(self, node: Node, what: str) -> str:
        if not isinstance(node.value, str) or not node.value.strip():
            self.fail(node.line, f"{what} must be text, got {describe(node.value)}")
        return node.value

    def named(self, node: Node, what: str, pattern: re.Pattern[str], form: str) -> str:
        if not isinstance(node.value, str) or not pattern.fullmatch(node.value):
            self.fail(node.line, f"{what} must be {form}, got {describe(node.value)}")
        return node.value

    def integer(self, node: Node, what: str, least: int, most: int) -> int:
        if type(node.value) is not int or not least <= node.value <= most:
            self.fail(node.line, f"{what} must be an integer from {least} to {most:,}, got {describe(node.value)}")
        return node.value

    def seconds(self, node: Node, what: str) -> float:
        """Read a duration: a number of seconds, or text such as 90s, 5m, 1h30m, 2d."""
        found = node.value
        if isinstance(found, str) and re.fullmatch(r"(?:\d+(?:\.\d+)?[smhdw])+", found):
            found = sum(float(n) * UNITS[unit] for n, unit in re.findall(r"([\d.]+)([smhdw])", found))
        if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 < found <= 100 * 366 * 86_400:
            self.fail(
                node.line,
                f"{what} must be a number of seconds greater than 0, or text such as 90s, 5m, 1h30m, 2d, got {describe(node.value)}",
            )
        return float(found)


def describe(value: Any) -> str:
    """Describe a value of a document, for a message."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "nothing"
    return f"'{value:.60}'" if isinstance(value, str) else f"{str(value).lower():.60}" if isinstance(value, bool) else f"{value!r:.60}"


def _listed(what: str, names: Collection[str] | None) -> str:
    return f"; {what} are {', '.join(sorted(names))}" if names else ""
