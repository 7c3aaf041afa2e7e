"""Where the parts of a checkpoint are in the state of its run. No I/O.

state             what the executors share: the user's keys
executors         by executor: what it has saved, if anything
messages          by sender: messages that were not delivered yet
requests          by id: requests for information that wait for their responses
$agent_framework  what the framework needs to continue, and the names of the gates. Commands for people don't show keys with `$`
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_framework import WorkflowCheckpoint

from everstep.adapters.agent_framework.values import Decoding, Encoding

ABOUT = "$agent_framework"
ADAPTER = "agent-framework"
ID = "checkpoint_id"
GATES = "gates"
_EXECUTORS, _INTERNAL, _QUIET = "_executor_state", "internal", "quiet"
_STEPS = "_step_cache"
_FIELDS = ("workflow_name", "graph_signature_hash", ID, "previous_checkpoint_id", "timestamp", "iteration_count", "version")


def to_state(checkpoint: WorkflowCheckpoint, encoding: Encoding, gates: Mapping[str, str]) -> dict[str, Any]:
    """Return a checkpoint as the state of a run; raise Unstorable if a value cannot be restored."""
    shared = dict(checkpoint.state)
    found = shared.pop(_EXECUTORS, None)
    executors = found if isinstance(found, dict) else {}
    about: dict[str, Any] = {name: getattr(checkpoint, name) for name in _FIELDS}
    about["metadata"] = encoding.whole(checkpoint.metadata, "metadata")
    about[_INTERNAL] = {key: encoding.whole(value, f"state.{key}") for key, value in shared.items() if str(key).startswith("_")}
    if _EXECUTORS in checkpoint.state:
        about[_QUIET] = encoding.whole(
            [name for name, saved in executors.items() if saved == {}] if found is executors else found, _EXECUTORS
        )
    if gates:
        about[GATES] = dict(gates)
    out: dict[str, Any] = {
        "state": {key: encoding.whole(value, f"state.{key}") for key, value in shared.items() if not str(key).startswith("_")},
        "executors": {name: encoding.whole(saved, f"executors.{name}") for name, saved in executors.items() if saved != {}},
        "messages": {name: encoding.whole(sent, f"messages.{name}") for name, sent in checkpoint.messages.items()},
        "requests": {id: encoding.whole(one, f"requests.{id}") for id, one in checkpoint.pending_request_info_events.items()},
    }
    return {**out, ABOUT: about}  # parts that are empty, too: otherwise the order of the keys would change, and a difference would say so


def to_checkpoint(state: Mapping[str, Any], decoding: Decoding) -> WorkflowCheckpoint:
    """Return the checkpoint that was saved."""
    about = state[ABOUT]
    shared = _decoded({**state.get("state", {}), **about[_INTERNAL]}, decoding)
    if _QUIET in about:
        quiet = decoding.value(about[_QUIET])
        is_plain = isinstance(quiet, list)
        shared[_EXECUTORS] = {**({name: {} for name in quiet}), **_decoded(state.get("executors", {}), decoding)} if is_plain else quiet
    return WorkflowCheckpoint(
        **{name: about[name] for name in _FIELDS},
        messages=_decoded(state.get("messages", {}), decoding),
        state=shared,
        pending_request_info_events=_decoded(state.get("requests", {}), decoding),
        metadata=decoding.value(about["metadata"]),
    )


def id_of(state: Any) -> str | None:
    """Return the id of the checkpoint in a state; None if it has none, because something else has written it."""
    about = state.get(ABOUT) if isinstance(state, Mapping) else None
    return about.get(ID) if isinstance(about, Mapping) else None


def _decoded(part: Mapping[str, Any], decoding: Decoding) -> dict[str, Any]:
    return {key: decoding.value(value) for key, value in part.items()}


def is_functional(checkpoint: WorkflowCheckpoint) -> bool:
    """Whether a checkpoint belongs to a functional workflow, whose steps may end at the same time."""
    return _STEPS in checkpoint.state


def is_finished(checkpoint: WorkflowCheckpoint) -> bool:
    """Whether a graph has nothing left to do. Of a functional workflow that is not known."""
    return not (checkpoint.messages or checkpoint.pending_request_info_events or is_functional(checkpoint))


def note_of(checkpoint: WorkflowCheckpoint) -> str:
    """Return what happened before a checkpoint, for `everstep log`."""
    if is_functional(checkpoint):
        return "step"
    senders = sorted(checkpoint.messages)
    if senders and all(name.startswith("internal:") for name in senders):
        targets = ", ".join(name.partition(":")[2] for name in senders)
        return (f"input for {targets}" if checkpoint.iteration_count == 0 else f"response for {targets}")[:500]
    who = f": {', '.join(senders)}" if senders else ""
    return f"superstep {checkpoint.iteration_count}{who}"[:500]
