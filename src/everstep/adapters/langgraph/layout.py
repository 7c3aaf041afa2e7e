"""Where the parts of a thread are in the state of its run. No I/O.

    values       the channels of the graph: what its nodes read and write
    pending      channels that LangGraph manages itself and that hold something: the input, and work that nodes have sent
    subgraphs    by namespace: the same two for each subgraph that is running, or that keeps its own history
    $langgraph   by namespace: what LangGraph needs to continue, such as channel versions. Commands for people don't show keys with `$`

A checkpoint belongs to one namespace, `""` for the graph itself; the parts of other namespaces are the newest ones. Its metadata has
checkpoint_id and checkpoint_ns, which is how checkpoints are found, and the run_id that LangGraph gives, if any.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from everstep import Redactor, Store

ABOUT = "$langgraph"
ADAPTER = {"adapter": "langgraph"}
ID, NS, RUN_ID = "checkpoint_id", "checkpoint_ns", "run_id"
PARENT, EMPTY, METADATA = "parent", "empty", "metadata"  # in the bookkeeping, beside the fields of LangGraph's checkpoint
TRANSIENT = ":"  # a namespace with a task id in it belongs to one call of a subgraph
_AT = "at"  # the fields that change each time, as one tuple of names and values in turn: fewer changes to look for and to store
_VERSIONS = ("channel_versions", "versions_seen")
_HIDDEN = "$name:"  # a name of a channel or node that looks like a secret's: its version must not be masked
_OWN_NODES = frozenset({"__start__", "__input__", "__interrupt__"})


def redactor_of(store: Store) -> Redactor | None:
    """Return what masks the values of a store before they are stored; None if nothing does."""
    return None if store.mask is None else store.mask.redactor


def stored_ns(ns: str, redactor: Redactor | None) -> str:
    """Return a namespace as it is stored: encoded if it would be masked, as in `refresh_token:1f1e38e9`."""
    return ns if redactor is None or redactor.text(ns) == ns else f"{_HIDDEN}{ns.encode().hex()}"


def ns_of(stored: str) -> str:
    """Return the namespace of its stored form."""
    return bytes.fromhex(stored.removeprefix(_HIDDEN)).decode() if stored.startswith(_HIDDEN) else stored


def is_internal(channel: str) -> bool:
    """Whether LangGraph made this channel, not the author of the graph."""
    return channel.startswith(("__", "branch:"))


def part(state: Any, ns: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the stored values and the bookkeeping of a namespace."""
    of = state if not ns else state.get("subgraphs", {}).get(ns, {})
    stored = state.get(ABOUT, {}).get(ns, {})
    fields = iter(stored.get(_AT, ()))
    about = {**stored, **dict(zip(fields, fields, strict=True))}
    about |= {name: _opened(about[name]) for name in _VERSIONS if name in about}
    about.pop(_AT, None)
    return {**of.get("values", {}), **of.get("pending", {}), **dict.fromkeys(about.get(EMPTY, ()))}, about


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


def write_about(state: Any, ns: str, about: Mapping[str, Any], redactor: Redactor | None) -> None:
    """Write the bookkeeping of a namespace into a live state, touching only what differs. With a redactor, names that it knows are encoded."""
    if redactor is not None:
        about = {**about, **{name: _closed(about.get(name) or {}, redactor) for name in _VERSIONS}}
    if ABOUT not in state:
        state[ABOUT] = {}
    if ns not in state[ABOUT]:
        state[ABOUT][ns] = {name: {} for name in _VERSIONS}
    live = state[ABOUT][ns]
    for name in _VERSIONS:
        _merge(live[name], about.get(name) or {})
    live[_AT] = tuple([part for item in about.items() if item[0] not in _VERSIONS for part in item])


def _closed(names: Mapping[str, Any], redactor: Redactor) -> dict[str, Any]:
    return {
        f"{_HIDDEN}{name.encode().hex()}" if redactor.names(name) else name: _closed(held, redactor) if isinstance(held, Mapping) else held
        for name, held in names.items()
    }


def _opened(names: Mapping[str, Any]) -> Mapping[str, Any]:
    if not any(name.startswith(_HIDDEN) or isinstance(held, Mapping) for name, held in names.items()):
        return names
    return {ns_of(name): _opened(held) if isinstance(held, Mapping) else held for name, held in names.items()}


def _merge(old: Any, new: Mapping[str, Any]) -> None:
    """Change a live dict so that it equals a plain one."""
    if len(old) > len(new) or not all(key in new for key in old):
        for key in [key for key in old if key not in new]:
            del old[key]
    for key, value in new.items():
        before = old.get(key, _merge)
        if value.__class__ is dict and isinstance(before, dict):
            if before != value:
                _merge(before, value)
        elif before.__class__ is not value.__class__ or before != value:
            old[key] = value


def labels(ns: str, id: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of an Everstep checkpoint, by which it is found. Each item costs a row of an index, so there are few."""
    run_id = metadata.get(RUN_ID)
    return {ID: id, NS: ns, **({RUN_ID: run_id} if isinstance(run_id, str) and 0 < len(run_id) <= 1_000 else {})}


def nodes_that_ran(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return the nodes that have seen new versions of channels since the checkpoint before."""
    old, new = _opened(before.get("versions_seen", {})), now.get("versions_seen") or {}
    return ", ".join(sorted(node for node, seen in new.items() if node not in _OWN_NODES and seen != old.get(node)))


def empty_channels(values: Mapping[str, Any]) -> list[str]:
    """Return LangGraph's own channels that are set and hold nothing: they only say which node is next."""
    return [channel for channel, value in values.items() if value is None and is_internal(channel)]
