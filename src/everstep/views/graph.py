"""A run as a graph: its steps and gates in the order in which they began, nested ones under their callers, and its forks. Relies on `store.steps`."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from everstep.fields import Shape
from everstep.store.gates import Gate
from everstep.views.runs import seen_status

if TYPE_CHECKING:
    from everstep.api import Store

_MOST = 2_000


class NodeView(Shape, frozen=True):
    """A step or a gate. `kind` is step or gate."""

    address: str
    status: str
    kind: str


class EdgeView(Shape, frozen=True):
    """An edge from one node to another, by their positions in the list of nodes. `inner`: the first one called the second."""

    start: int
    end: int
    inner: bool


class ForkView(Shape, frozen=True):
    """A fork or a child of the run; `checkpoint` is None for a child."""

    run: str
    checkpoint: int | None


class GraphView(Shape, frozen=True):
    """The graph of one run. Nodes without an edge to them come directly from the run."""

    run: str
    status: str
    nodes: tuple[NodeView, ...]
    edges: tuple[EdgeView, ...]
    forks: tuple[ForkView, ...]

    def first(self) -> list[int]:
        """Return the nodes without an edge to them."""
        reached = {edge.end for edge in self.edges}
        return [i for i in range(len(self.nodes)) if i not in reached]


def graph(store: Store, run: str) -> GraphView:
    """The graph of a run."""
    info = store.get(run)
    nodes = _nodes(store, run)
    forks = tuple(ForkView(fork.id, fork.parent_number) for fork in store.runs(parent=run, limit=100))
    return GraphView(info.id, seen_status(store, info)[0], tuple(nodes), tuple(_edges(nodes)), forks)


def _nodes(store: Store, run: str) -> list[NodeView]:
    found: dict[str, tuple[datetime, NodeView]] = {}
    for step in store.steps(run):
        found[step.address] = (step.started, NodeView(step.address, "skipped" if step.skipped else step.status, "step"))
    for gate in store.gates(run):
        found[gate.address] = (gate.asked_at, NodeView(gate.address, _status_of(gate), "gate"))
    return [node for _, node in sorted(found.values(), key=lambda pair: pair[0])][:_MOST]


def _status_of(gate: Gate) -> str:
    return "cancelled" if gate.cancelled else "succeeded" if gate.answered else "waiting"


def _edges(nodes: list[NodeView]) -> list[EdgeView]:
    """Return the edges from each step to the next one on its level, and to the steps that it called."""
    last: dict[str, int] = {}
    index = {node.address: i for i, node in enumerate(nodes)}
    out = []
    for i, node in enumerate(nodes):
        parent = node.address.rpartition("/")[0]
        if parent in last:
            out.append(EdgeView(last[parent], i, False))
        elif parent in index:
            out.append(EdgeView(index[parent], i, True))
        last[parent] = i
    return out
