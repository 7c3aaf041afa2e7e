"""Deletes, prunes and copies threads. A deleted checkpoint is really gone: its state, its metadata and its pending writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import everstep
from everstep.adapters.langgraph.layout import ADAPTER, ID, METADATA, NS, PARENT, RUN_ID, part
from everstep.adapters.langgraph.runs import refuse_foreign
from everstep.errors import InvalidArgument, NotFound

_STRATEGIES = ("keep_latest", "delete")
_COUNTERS = "counters_since_delta_snapshot"


def delete_thread(store: everstep.Store, thread: str) -> None:
    """Delete a thread, if it exists."""
    try:
        refuse_foreign(store, thread)
        store.delete(thread)
    except NotFound:
        return


def delete_for_runs(store: everstep.Store, run_ids: Sequence[str]) -> list[str]:
    """Delete the checkpoints that have one of these run ids in their metadata; return the threads."""
    found: dict[str, set[int]] = {}
    for run_id in run_ids:
        for checkpoint in _all(store, run_id):
            found.setdefault(checkpoint.run, set()).add(checkpoint.number)
    for thread, numbers in found.items():
        _drop(store, thread, numbers)
    return list(found)


def _all(store: everstep.Store, run_id: str) -> list[everstep.Checkpoint]:
    out: list[everstep.Checkpoint] = []
    after: Any = None
    while True:
        page = store.find(meta={RUN_ID: run_id}, **({} if after is None else {"after": after}))
        out += [one for one in page if ID in one.meta]
        after = page.next
        if after is None:
            return out


def _drop(store: everstep.Store, thread: str, numbers: set[int]) -> None:
    """Drop checkpoints of a thread. If the newest is among them, the newest one that stays is first put again, as a record of its own."""
    headers = _headers(store, thread)
    stay = [one for one in headers if one.number not in numbers]
    if not any(ID in one.meta for one in stay):
        store.delete(thread)
        return
    if max(one.number for one in headers) in numbers:
        last = stay[0].number
        for _, state in store.states(thread, first=last, last=last):
            with store.line(thread, meta=ADAPTER) as line:
                line.checkpoint(note="deleted the newest checkpoint", state=state)
    store.drop(thread, sorted(numbers))


def _headers(store: everstep.Store, thread: str) -> list[everstep.Checkpoint]:
    out: list[everstep.Checkpoint] = []
    after: Any = None
    while True:
        page = store.checkpoints(thread, limit=1_000, **({} if after is None else {"after": after}))
        out += page
        after = page.next
        if after is None:
            return out


def copy_thread(store: everstep.Store, source: str, target: str) -> None:
    """Copy a thread with its whole history under another id."""
    refuse_foreign(store, source)
    store.copy(source, target)


def prune(store: everstep.Store, thread: str, strategy: str) -> None:
    """Delete the checkpoints of a thread that a strategy does not keep."""
    if strategy not in _STRATEGIES:
        raise InvalidArgument(f"strategy must be one of {', '.join(_STRATEGIES)}, got {strategy!r:.60}")
    if strategy == "delete":
        delete_thread(store, thread)
        return
    try:
        refuse_foreign(store, thread)
        headers = _headers(store, thread)
    except NotFound:
        return
    keep = _kept(store, thread, headers)
    gone = {one.number for one in headers if one.number not in keep and one.number != headers[0].number}
    if gone:
        store.drop(thread, sorted(gone))


def _kept(store: everstep.Store, thread: str, headers: Iterable[everstep.Checkpoint]) -> set[int]:
    """Return the newest checkpoint of each namespace, and the ones before it that rebuild its delta channels."""
    by_id: dict[tuple[str, str], everstep.Checkpoint] = {}
    heads: dict[str, everstep.Checkpoint] = {}
    for one in headers:  # newest first
        if ID in one.meta:
            by_id.setdefault((one.meta[NS], one.meta[ID]), one)
            heads.setdefault(one.meta[NS], one)
    keep: set[int] = set()
    for ns, head in heads.items():
        at: everstep.Checkpoint | None = head
        missing: set[str] | None = None
        while at is not None and at.number not in keep:
            keep.add(at.number)
            values, about = _part(store, thread, at, ns)
            if missing is None:
                missing = set((about.get(METADATA) or {}).get(_COUNTERS) or ())
            missing -= set(values)
            parent = about.get(PARENT)
            at = by_id.get((ns, parent)) if missing and parent is not None else None
    return keep


def _part(store: everstep.Store, thread: str, checkpoint: everstep.Checkpoint, ns: str) -> Any:
    for _, state in store.states(thread, first=checkpoint.number, last=checkpoint.number):
        return part(state, ns)
    return {}, {}
