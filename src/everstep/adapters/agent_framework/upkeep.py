"""Deletes checkpoints. A deleted one is really gone: its state and its metadata."""

from __future__ import annotations

from typing import Any

import everstep
from everstep.adapters.agent_framework.layout import ID, id_of


def headers(store: everstep.Store, run: str) -> list[everstep.Checkpoint]:
    """Return all checkpoints of a run without their states, newest first."""
    out: list[everstep.Checkpoint] = []
    after: Any = None
    while True:
        page = store.checkpoints(run, limit=1_000, **({} if after is None else {"after": after}))
        out += page
        after = page.next
        if after is None:
            return out


def delete(store: everstep.Store, run: str, id: str) -> None:
    """Delete a checkpoint. If it is the newest one, the one before it is first put again, as a record of its own."""
    known = headers(store, run)
    gone = {one.number for one in known if one.meta.get(ID, id) == id}
    stay = [one for one in known if one.number not in gone]
    if not stay:
        store.delete(run)
        return
    if known[0].number in gone:
        last = stay[0]
        for _, state in store.states(run, first=last.number, last=last.number):
            with store.line(run) as line:
                line.checkpoint(note="deleted the newest checkpoint", meta={ID: id_of(state)}, state=state)
        gone.add(last.number)
    store.drop(run, sorted(gone))
