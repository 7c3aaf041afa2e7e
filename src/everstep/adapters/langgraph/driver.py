"""Resumes threads from outside of the program that invoked the graph: `everstep resume --import app RUN`, `store.wake`, workers.

The driver holds the lease of the run while the graph runs; the saver saves through it. It gives the answers that have come to the interrupts
that the thread waits for, or continues where the last process stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.types import Command

import everstep
from everstep.adapters.langgraph.saver import Saver
from everstep.errors import InvalidArgument


def resume(graph: Any, *, config: Mapping[str, Any] | None = None, workflow: str | None = None) -> Any:
    """Let `everstep resume`, `store.wake` and workers of this process continue the threads of a graph; return the graph.

    `workflow` is the label of the runs, by default that of the graph's saver. `config` is passed to the graph in addition to the thread.
    """
    saver = getattr(graph, "checkpointer", None)
    if not isinstance(saver, Saver):
        raise InvalidArgument(
            f"resume needs a graph that was compiled with Everstep's Saver, got {type(saver).__name__ if saver is not None else 'no checkpointer'}",
            remedy="graph = builder.compile(checkpointer=Saver()); resume(graph)",
        )

    def drive(run: Any) -> Any:
        thread = everstep.unquote(run.id)
        answers = saver.answers(thread)
        command: Any = Command(resume=answers) if answers else None
        with saver.driven() as mark:
            asked = {**(config or {}).get("configurable", {}), "thread_id": thread, **mark}
            return shown(_invoked(graph, command, {**(config or {}), "configurable": asked}))

    everstep.drives(workflow or saver.workflow, drive)
    return graph


def _invoked(graph: Any, command: Any, config: dict[str, Any]) -> Any:
    if _is_async(graph):
        return asyncio.run(graph.ainvoke(command, config, durability="sync"))
    return graph.invoke(command, config, durability="sync")


def _is_async(graph: Any) -> bool:
    """Whether a graph, or a subgraph of it, has a node that only works in an event loop."""
    graphs = [graph, *(found for _, found in graph.get_subgraphs(recurse=True))]
    nodes = [node.bound for one in graphs for node in one.nodes.values()]
    return any(getattr(node, "func", node) is None and getattr(node, "afunc", None) is not None for node in nodes)


def shown(result: Any) -> Any:
    """Return the result of a graph as plain data, for the outcome of the run."""
    if isinstance(result, BaseMessage):
        return {"type": result.type, "content": result.content}
    if isinstance(result, Mapping):
        return {str(key): shown(value) for key, value in result.items() if not str(key).startswith("__")}
    if isinstance(result, (list, tuple)):
        return [shown(item) for item in result]
    return result if isinstance(result, (str, int, float, bool, type(None))) else f"{result!r:.200}"
