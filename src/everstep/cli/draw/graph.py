"""Draws the graph of a run as Mermaid or DOT, with colours for statuses. No I/O."""

from __future__ import annotations

from everstep.cli.draw.text import safe
from everstep.views.graph import GraphView

_COLOURS = {
    "succeeded": "#c8e6c9",
    "failed": "#ffcdd2",
    "running": "#bbdefb",
    "waiting": "#fff9c4",
    "skipped": "#eeeeee",
    "cancelled": "#eeeeee",
}


def draw(graph: GraphView, form: str) -> str:
    """Return a graph as text."""
    return (_mermaid if form == "mermaid" else _dot)(graph)


def _mermaid(graph: GraphView) -> str:
    lines = ["flowchart TD", f'  run(["{_text(graph.run)}: {graph.status}"])']
    for i, node in enumerate(graph.nodes):
        left, right = ("{{", "}}") if node.kind == "gate" else ("[", "]")
        lines.append(f'  n{i}{left}"{_text(node.address)}"{right}:::{node.status}')
    lines += [f"  run --> n{i}" for i in graph.first()]
    lines += [f"  n{edge.start} {'-.->' if edge.inner else '-->'} n{edge.end}" for edge in graph.edges]
    lines += [f'  run -. "@{fork.checkpoint}" .-> f{i}(["{_text(fork.run)}"])' for i, fork in enumerate(graph.forks)]
    lines += [f"  classDef {status} fill:{colour},stroke:#555" for status, colour in _COLOURS.items()]
    return "\n".join(lines)


def _dot(graph: GraphView) -> str:
    lines = [
        "digraph run {",
        "  node [shape=box, style=filled, fontname=sans];",
        f'  run [label="{_quoted(graph.run)}: {graph.status}", shape=oval, fillcolor=white];',
    ]
    for i, node in enumerate(graph.nodes):
        shape = ", shape=hexagon" if node.kind == "gate" else ""
        lines.append(f'  n{i} [label="{_quoted(node.address)}", fillcolor="{_COLOURS.get(node.status, "#ffffff")}"{shape}];')
    lines += [f"  run -> n{i};" for i in graph.first()]
    lines += [f"  n{edge.start} -> n{edge.end}{' [style=dashed]' if edge.inner else ''};" for edge in graph.edges]
    lines += [
        f'  f{i} [label="{_quoted(fork.run)}", shape=oval, fillcolor=white]; run -> f{i} [label="@{fork.checkpoint}", style=dashed];'
        for i, fork in enumerate(graph.forks)
    ]
    return "\n".join([*lines, "}"])


def _text(text: str) -> str:
    """Escape a label for Mermaid, which interprets HTML, quotes and #, and reads #35; as the character with that number."""
    return "".join(c if c.isalnum() or c in " ._-/:@" else f"#{ord(c)};" for c in safe(text)[:200])


def _quoted(text: str) -> str:
    return safe(text)[:200].replace("\\", "\\\\").replace('"', '\\"')
