"""Runs as threads: the newest checkpoint, forks that Everstep has made, and runs that are not threads."""

from __future__ import annotations

import everstep
from everstep.adapters.langgraph import layout
from everstep.adapters.langgraph.layout import ABOUT, ADAPTER, NS
from everstep.errors import Conflict, InvalidArgument, NotFound


def adopt(store: everstep.Store, run: str) -> bool:
    """Label the checkpoint of a run that was forked from a thread, so that it is found; return whether there was one."""
    about = store.get(run)
    if about.parent is None or not about.checkpoints or about.meta.get("adapter") != ADAPTER["adapter"]:
        return False
    with store.line(run) as line:
        for ns in sorted(line.state.get(ABOUT, ()), reverse=True):  # the graph itself last: its checkpoint is the newest
            found = layout.part(line.state, ns)[1]
            layout.write_about(line.state, ns, {**found, layout.PARENT: None}, layout.redactor_of(store))
            try:
                line.checkpoint(note="fork", meta=layout.labels(ns, found["id"], found[layout.METADATA]))
            except Conflict:
                break  # another process does it
    return True


def newest(store: everstep.Store, thread: str, ns: str) -> everstep.Checkpoint | None:
    """Return the checkpoint of a namespace that was put last."""
    try:
        found = store.checkpoints(thread, meta={NS: ns}, limit=1)
    except NotFound:
        return None
    return found[0] if found else None


def refuse_foreign(store: everstep.Store, run: str) -> None:
    """Refuse a run that is not a thread of a graph."""
    about = store.get(run)
    if about.meta.get("adapter") != ADAPTER["adapter"]:
        what = "has no workflow" if about.workflow is None else f"belongs to {about.workflow!r}"
        raise InvalidArgument(
            f"run {run!r} is not a LangGraph thread: it {what}",
            remedy="Use another thread_id, or another store: Saver(url).",
        )
