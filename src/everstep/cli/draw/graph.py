"""A run as a graph: its steps in the order in which they ran, nested ones inside of theirs, with statuses. Mermaid or DOT."""

from __future__ import annotations

from typing import Any

from everstep.cli.draw.text import safe

_COLOURS = {
    "succeeded": "#c8e6c9",
    "failed": "#ffcdd2",
    "running": "#bbdefb",
    "waiting": "#fff9c4",
    "skipped": "#eeeeee",
    "cancelled": "#eeeeee",
}
_MOST = 2_000


class Node:
    """A step or a gate in a graph."""

    def __init__(self, address: str, status: str, kind: str = "step"):
        self.address, self.status, self.kind = address, status, kind


def draw(store: Any, run: str, form: str) -> str:
    """The graph of a run."""
    info = store.get(run)
    nodes = _nodes(store, run)
    forks = [(fork.id, fork.parent_number) for fork in store.runs(parent=run, limit=100)]
    return (_mermaid if form == "mermaid" else _dot)(info, nodes, forks)


def _nodes(store: Any, run: str) -> list[Node]:
    found: dict[str, tuple[Any, Node]] = {}
    for step in store.steps(run):
        found[step.address] = (step.started, Node(step.address, "skipped" if step.skipped else step.status))
    for gate in store.gates(run):
        found[gate.address] = (gate.asked_at, Node(gate.address, _status_of(gate), "gate"))
    return [node for _, node in sorted(found.values(), key=lambda pair: pair[0])][:_MOST]


def _status_of(gate: Any) -> str:
    return "cancelled" if gate.cancelled else "succeeded" if gate.answered else "waiting"


def _edges(nodes: list[Node]) -> list[tuple[int, int, bool]]:
    """From a step to the next one beside it, and from a step to what it called."""
    last: dict[str, int] = {}
    index = {node.address: i for i, node in enumerate(nodes)}
    out = []
    for i, node in enumerate(nodes):
        parent = node.address.rpartition("/")[0]
        if parent in last:
            out.append((last[parent], i, False))
        elif parent in index:
            out.append((index[parent], i, True))
        last[parent] = i
    return out


def _mermaid(info: Any, nodes: list[Node], forks: list[tuple[str, int | None]]) -> str:
    lines = ["flowchart TD", f'  run(["{_text(info.id)}: {info.status}"])']
    for i, node in enumerate(nodes):
        left, right = ("{{", "}}") if node.kind == "gate" else ("[", "]")
        lines.append(f'  n{i}{left}"{_text(node.address)}"{right}:::{node.status}')
    edges = _edges(nodes)
    lines += [f"  run --> n{i}" for i in range(len(nodes)) if not any(b == i for _, b, _ in edges)]
    lines += [f"  n{a} {'-.->' if inner else '-->'} n{b}" for a, b, inner in edges]
    lines += [f'  run -. "@{number}" .-> f{i}(["{_text(id)}"])' for i, (id, number) in enumerate(forks)]
    lines += [f"  classDef {status} fill:{colour},stroke:#555" for status, colour in _COLOURS.items()]
    return "\n".join(lines)


def _dot(info: Any, nodes: list[Node], forks: list[tuple[str, int | None]]) -> str:
    lines = [
        "digraph run {",
        "  node [shape=box, style=filled, fontname=sans];",
        f'  run [label="{_quoted(info.id)}: {info.status}", shape=oval, fillcolor=white];',
    ]
    for i, node in enumerate(nodes):
        shape = ", shape=hexagon" if node.kind == "gate" else ""
        lines.append(f'  n{i} [label="{_quoted(node.address)}", fillcolor="{_COLOURS.get(node.status, "#ffffff")}"{shape}];')
    edges = _edges(nodes)
    lines += [f"  run -> n{i};" for i in range(len(nodes)) if not any(b == i for _, b, _ in edges)]
    lines += [f"  n{a} -> n{b}{' [style=dashed]' if inner else ''};" for a, b, inner in edges]
    lines += [
        f'  f{i} [label="{_quoted(id)}", shape=oval, fillcolor=white]; run -> f{i} [label="@{number}", style=dashed];'
        for i, (id, number) in enumerate(forks)
    ]
    return "\n".join([*lines, "}"])


def _text(text: str) -> str:
    """A label that Mermaid takes as text: it reads HTML, quotes and # as something else, and knows #35; for a character by its number."""
    return "".join(c if c.isalnum() or c in " ._-/:@" else f"#{ord(c)};" for c in safe(text)[:200])


def _quoted(text: str) -> str:
    return safe(text)[:200].replace("\\", "\\\\").replace('"', '\\"')
