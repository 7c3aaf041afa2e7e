"""Where the parts of a thread are in the state of its run. No I/O.

    values       the channels of the graph: what its nodes read and write
    pending      channels that LangGraph manages itself and that hold something: the input, and work that nodes have sent
    subgraphs    by namespace: the same two for each subgraph that is running, or that keeps its own history
    $langgraph   by namespace: what LangGraph needs to continue, such as channel versions. Commands for people don't show keys with `$`

A checkpoint belongs to one namespace, `""` for the graph itself; the parts of other namespaces are the newest ones. Its metadata has
checkpoint_id, checkpoint_ns and parent_checkpoint_id, which is how checkpoints are found, and all plain metadata of LangGraph's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

ABOUT = "$langgraph"
ADAPTER = {"adapter": "langgraph"}
ID, NS, PARENT = "checkpoint_id", "checkpoint_ns", "parent_checkpoint_id"
TRANSIENT = ":"  # a namespace with a task id in it belongs to one call of a subgraph
_OWN_NODES = frozenset({"__start__", "__input__", "__interrupt__"})


def is_internal(channel: str) -> bool:
    """Whether LangGraph made this channel, not the author of the graph."""
    return channel.startswith(("__", "branch:"))


def part(state: Any, ns: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the stored values and the bookkeeping of a namespace."""
    of = state if not ns else state.get("subgraphs", {}).get(ns, {})
    return {**of.get("values", {}), **of.get("pending", {})}, state.get(ABOUT, {}).get(ns, {})


def place(state: Any, ns: str) -> Any:
    """Return the dict of a namespace in a live state, made if necessary."""
    if not ns:
        return state
    if "subgraphs" not in state:
        state["subgraphs"] = {}
    if ns not in state["subgraphs"]:
        state["subgraphs"][ns] = {}
    return state["subgraphs"][ns]


def forget_calls(state: Any) -> None:
    """Remove the subgraphs whose calls are over: the graph itself has made a step. Their checkpoints stay."""
    for holder in (state.get("subgraphs"), state.get(ABOUT)):
        for ns in [ns for ns in holder or () if TRANSIENT in ns]:
            del holder[ns]
    if "subgraphs" in state and not state["subgraphs"]:
        del state["subgraphs"]


def merge(old: Any, new: Mapping[str, Any]) -> None:
    """Change a live dict so that it equals a plain one, touching only what differs."""
    for key in [key for key in old if key not in new]:
        del old[key]
    for key, value in new.items():
        before = old.get(key) if key in old else merge
        if value.__class__ is dict and isinstance(before, dict):
            merge(before, value)
        elif before.__class__ is not value.__class__ or before != value:
            old[key] = value


def labels(ns: str, id: str, parent: str | None, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of an Everstep checkpoint."""
    out = {key: value for key, value in metadata.items() if _is_label(key, value)}
    return {**out, ID: id, NS: ns, **({} if parent is None else {PARENT: parent})}


def _is_label(key: str, value: Any) -> bool:
    if key in (ID, NS, PARENT, "$") or not isinstance(key, str) or not 0 < len(key) <= 100 or not key.isprintable():
        return False
    if value.__class__ is str:
        return len(value) <= 1_000 and value.isprintable()
    if value.__class__ is float:
        return math.isfinite(value)
    return value.__class__ is bool or (value.__class__ is int and -(2**63) <= value < 2**63)


def nodes_that_ran(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return the nodes that have seen new versions of channels since the checkpoint before."""
    old, new = before.get("versions_seen") or {}, now.get("versions_seen") or {}
    return ", ".join(sorted(node for node, seen in new.items() if node not in _OWN_NODES and seen != old.get(node)))
