"""One run that a storage writes to: a line, and what this process knows about its checkpoints.

In strict mode a checkpoint must be the first of a new start, or follow the newest one, or one that was loaded while the newest was still the
newest (time travel). Otherwise another process has continued the workflow, and its writer gets Conflict. Steps of a functional workflow may
end at the same time, so their checkpoints may follow any one of this process. The calls of one run come one after the other.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from agent_framework import WorkflowCheckpoint

import everstep
from everstep.adapters.agent_framework import gates
from everstep.adapters.agent_framework.layout import ABOUT, ADAPTER, GATES, ID, is_finished, is_functional, note_of
from everstep.errors import Conflict, InvalidArgument, RunDeleted

_TRIES = 20
_MOST_KNOWN = 1_024


class Chain:
    """One run, open for writing."""

    def __init__(self, store: everstep.Store, run: str, label: Mapping[str, str], strict: bool):
        self.run = run
        self._store = store
        self._label = dict(label)
        self._strict = strict
        self._line: Any = None
        self._loaded: OrderedDict[str, str | None] = OrderedDict()  # by checkpoint: the newest one when it was loaded
        self._roots: OrderedDict[str, str] = OrderedDict()  # by checkpoint of this process: the one that it goes back to
        self._gates: OrderedDict[str, Mapping[str, str]] = OrderedDict()  # by checkpoint of this process: its gates by request

    def was_loaded(self, id: str, newest: str | None, names: Mapping[str, str]) -> None:
        """Note that a checkpoint was loaded, to be continued from, with its gates."""
        _remember(self._loaded, id, newest)
        _remember(self._gates, id, names if id == newest else {})  # time travel: the answers of then don't count
        self._roots.setdefault(id, id)

    def restore(self, checkpoint: WorkflowCheckpoint, names: Mapping[str, str]) -> None:
        """Ask and close the questions of the newest checkpoint, if a killed process has not come to it, or if the run is a fork."""
        line = self._open()
        gates.ask(line, checkpoint, names, self._store.gates(self.run))
        gates.close(self._store, line, checkpoint, names, names)

    def save(self, checkpoint: WorkflowCheckpoint, to_state: Callable[[Mapping[str, str]], dict[str, Any]]) -> None:
        """Append a checkpoint with its questions; when this returns, both are durable."""
        try:
            self._save(checkpoint, to_state)
        except BaseException:
            self.forget()
            raise

    def _save(self, checkpoint: WorkflowCheckpoint, to_state: Callable[[Mapping[str, str]], dict[str, Any]]) -> None:
        id, previous = checkpoint.checkpoint_id, checkpoint.previous_checkpoint_id
        for _ in range(_TRIES):
            line = self._open()
            known = line.state.get(ABOUT, {}) if line.number else {}
            newest = known.get(ID)
            self._refuse_stale(checkpoint, newest)
            before = self._before(previous, known)
            names = gates.names_of(checkpoint, before)
            try:
                self._append(line, checkpoint, to_state(names), names, before)
            except Conflict:
                self.forget()
                continue
            _remember(self._gates, id, names)
            _remember(self._roots, id, self._roots.get(previous, previous) if previous is not None else id)
            return
        raise Conflict(
            f"run {self.run!r} is being written by many processes at once: another one was first at each of {_TRIES} attempts",
            remedy="Try again.",
        )

    def _before(self, previous: str | None, newest: Mapping[str, Any]) -> Mapping[str, str]:
        """Return the gates of the checkpoint that a new one follows, by request."""
        if previous is None:
            return {}
        found = self._gates.get(previous)
        if found is not None:
            return found
        return newest.get(GATES, {}) if newest.get(ID) == previous else {}

    def _append(
        self, line: Any, checkpoint: WorkflowCheckpoint, state: dict[str, Any], names: Mapping[str, str], before: Mapping[str, str]
    ) -> None:
        asked = self._store.gates(self.run) if checkpoint.pending_request_info_events and line.exists else []
        with self._store.together():  # a crash leaves no checkpoint without its questions
            line.checkpoint(note=note_of(checkpoint), meta={ID: checkpoint.checkpoint_id}, state=state)
            gates.ask(line, checkpoint, names, asked)
        gates.close(self._store, line, checkpoint, names, before)
        if is_finished(checkpoint) and not _is_driven(line):
            line.status("succeeded")

    def _refuse_stale(self, checkpoint: WorkflowCheckpoint, newest: str | None) -> None:
        previous = checkpoint.previous_checkpoint_id
        if not self._strict or newest is None or previous is None or previous == newest or self._loaded.get(previous) == newest:
            return
        if newest == checkpoint.checkpoint_id:
            return  # it is saved again: the contract replaces it
        if is_functional(checkpoint) and previous in self._roots and self._roots[previous] == self._roots.get(newest):
            return
        raise Conflict(
            f"workflow {checkpoint.workflow_name!r} has moved on: the new checkpoint follows {previous}, but {newest} was saved since; "
            "nothing was written",
            remedy="Continue from the newest checkpoint. Workflows that run at the same time need a scope each: CheckpointStorage(scope=...).",
            number=self._line.number,
        )

    def _open(self) -> Any:
        if self._line is not None:
            try:
                _ = self._line.state
            except RunDeleted:
                self.forget()
        if self._line is None:
            line = self._store.line(self.run, workflow=self._label["workflow"], meta={"adapter": ADAPTER, **self._label})
            if line.exists:
                refuse_foreign(self._store, self.run)
            self._line = line
        return self._line

    def forget(self) -> None:
        """Close the handle: the next save opens it again."""
        if self._line is not None:
            self._line.close()
        self._line = None


def refuse_foreign(store: everstep.Store, run: str) -> None:
    """Refuse a run that this adapter has not written."""
    about = store.get(run)
    if about.meta.get("adapter") != ADAPTER:
        what = "has no workflow" if about.workflow is None else f"belongs to {about.workflow!r}"
        raise InvalidArgument(
            f"run {run!r} is not a workflow of Agent Framework: it {what}",
            remedy="Use another scope, or another store: CheckpointStorage(url).",
        )


def _is_driven(line: Any) -> bool:
    """Whether this code is inside the driver of the run, which then sets the status."""
    try:
        return bool(everstep.current().id == line.id)
    except everstep.EverstepError:
        return False


def _remember(known: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > _MOST_KNOWN:
        known.popitem(last=False)
