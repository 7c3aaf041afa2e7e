"""The storage: `WorkflowBuilder(…, checkpoint_storage=CheckpointStorage(scope="order-7"))`. One workflow name and scope is one run.

Thin: `chain` writes, `layout` and `values` convert, `gates` asks. A save that fails stops the workflow with SaveFailed, because the framework
catches every other error, logs it and continues.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agent_framework import WorkflowCheckpoint, WorkflowCheckpointException

import everstep
from everstep.adapters.agent_framework import gates, upkeep
from everstep.adapters.agent_framework.chain import Chain, refuse_foreign
from everstep.adapters.agent_framework.classes import Classes
from everstep.adapters.agent_framework.layout import ABOUT, GATES, ID, id_of, to_checkpoint, to_state
from everstep.adapters.agent_framework.serial import Serial, in_thread
from everstep.adapters.agent_framework.values import Decoding, Encoding
from everstep.errors import EverstepError, InvalidArgument, NotFound, SaveFailed

_log = logging.getLogger("everstep.adapters.agent_framework")


class CheckpointStorage:
    """Keeps the checkpoints of Agent Framework workflows in an Everstep store.

    `store` is an open store, or a url; by default the configured store. Workflows of one name that run at the same time need a `scope` each,
    such as the id of a user or an order. `types` are the classes that values may have besides plain data and the framework's own. With
    `strict`, a save that fails stops the workflow with SaveFailed, and a writer that is stale counts as failed. `run` names a run directly,
    such as a fork.
    """

    def __init__(
        self,
        store: everstep.Store | str | os.PathLike[str] | None = None,
        *,
        scope: str | None = None,
        types: Iterable[type] = (),
        strict: bool = True,
        run: str | None = None,
    ):
        if scope is not None and (not isinstance(scope, str) or not scope):
            raise InvalidArgument(f"scope must be text that is not empty, got {scope!r:.60}")
        if scope is not None and run is not None:
            raise InvalidArgument("scope and run must not be given together: run names the run that a scope would belong to")
        self._types = list(types)
        self._classes = Classes(self._types)
        self._owns = not isinstance(store, everstep.Store)
        self.store: everstep.Store = store if isinstance(store, everstep.Store) else everstep.open(store)
        self.scope = scope
        self.strict = strict
        self.failed: Exception | None = None
        self._run = run
        self._chains: dict[str, Chain] = {}
        self._places: dict[str, tuple[str, int]] = {}  # by checkpoint without a label (the first of a fork): its run and number
        self._serial = Serial()

    def close(self) -> None:
        """Forget what this storage knows, and close the store if the storage has opened it."""
        for chain in self._chains.values():
            chain.forget()
        self._chains.clear()
        if self._owns:
            self.store.close()

    def of_run(self, run: str, *, strict: bool | None = None) -> CheckpointStorage:
        """Return a storage with the same options for one run, by its id."""
        return CheckpointStorage(self.store, types=self._types, strict=self.strict if strict is None else strict, run=run)

    def run_of(self, workflow_name: str) -> str:
        """Return the id of the run that has the checkpoints of a workflow."""
        if self._run is not None:
            return self._run
        name = everstep.quote(workflow_name.replace("%", "%25").replace(":", "%3A"))
        return name if self.scope is None else f"{name}:{everstep.quote(self.scope)}"

    # The protocol of the framework.

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        """Save a checkpoint and return its id; when this returns, it is durable. Raise SaveFailed if that is not possible."""
        run = self.run_of(checkpoint.workflow_name)
        try:
            encoding = Encoding(self._classes)
            state = to_state(checkpoint, encoding, {})  # here, not in a thread: the values may change as soon as others run
            await self._serial.run(self._save, run, checkpoint, state)
        except Exception as error:
            self.failed = error
            _log.error("checkpoint %s of run %r was not saved: %s", checkpoint.checkpoint_id, run, error)
            if self.strict:
                raise SaveFailed(run, error) from error
            raise
        self.failed = None
        return checkpoint.checkpoint_id

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        """Load a checkpoint by its id; raise WorkflowCheckpointException if there is none in this scope, or if it cannot be restored."""
        found = await in_thread(self._find, checkpoint_id)
        if found is None:
            raise WorkflowCheckpointException(f"No checkpoint found with ID {checkpoint_id}")
        loaded: WorkflowCheckpoint = await in_thread(self._load, *found)
        return loaded

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        """Return all checkpoints of a workflow, oldest first."""
        found: list[WorkflowCheckpoint] = await in_thread(self._list, workflow_name)
        return found

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        """Return the ids of all checkpoints of a workflow, oldest first."""
        found: list[str] = await in_thread(self._ids, workflow_name)
        return found

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None:
        """Return the checkpoint that was saved last, or None."""
        found = await in_thread(self._latest, workflow_name)
        return None if found is None else self._decoded(*found)

    async def delete(self, checkpoint_id: str) -> bool:
        """Delete a checkpoint: its state and its metadata are really gone. Return False if there is none in this scope."""
        deleted: bool = await self._serial.run(self._delete, checkpoint_id)
        return deleted

    # Beyond the protocol.

    async def responses(self, *, workflow_name: str) -> dict[str, Any]:
        """Return the answers that have come to the pending requests of the newest checkpoint, for `workflow.run(responses=…)`."""
        found = await in_thread(self._latest, workflow_name)
        if found is None:
            return {}
        answers: dict[str, Any] = await in_thread(gates.responses, self.store, found[0], found[1], self._decoded(*found))
        return answers

    async def restore_questions(self, *, workflow_name: str) -> None:
        """Ask the questions of the newest checkpoint that are missing, and close those that nothing waits for: a fork, or a killed process."""
        found = await in_thread(self._latest, workflow_name)
        if found is not None:
            names = dict(found[1][ABOUT].get(GATES, {}))
            await self._serial.run(self._chain(found[0], workflow_name).restore, self._decoded(*found), names)

    def _save(self, run: str, checkpoint: WorkflowCheckpoint, state: dict[str, Any]) -> None:
        def with_gates(names: Any) -> dict[str, Any]:
            return {**state, ABOUT: {**state[ABOUT], GATES: dict(names)}} if names else state

        self._chain(run, checkpoint.workflow_name).save(checkpoint, with_gates)

    def _chain(self, run: str, workflow_name: str) -> Chain:
        if run not in self._chains:
            label = {"workflow": workflow_name, **({} if self.scope is None else {"scope": self.scope})}
            self._chains[run] = Chain(self.store, run, label, self.strict)
        return self._chains[run]

    def _find(self, id: str) -> tuple[str, int] | None:
        """Return the run and the number of a checkpoint of this scope."""
        if not isinstance(id, str) or not 0 < len(id) <= 1_000:
            return None
        try:
            found = self.store.find(meta={ID: id})
        except InvalidArgument:
            return None  # a text that cannot be stored, such as one with a null byte
        for one in found:
            if self._is_own(one.run):
                return one.run, one.number
        return self._places.get(id)

    def _is_own(self, run: str) -> bool:
        if self._run is not None:
            return run == self._run
        meta = self.store.get(run).meta
        return "workflow" in meta and self.run_of(meta["workflow"]) == run

    def _load(self, run: str, number: int) -> WorkflowCheckpoint:
        for _, state in self.store.states(run, first=number, last=number):
            made = self._decoded(run, state)
            newest = self._newest(run)
            chain, names = self._chain(run, made.workflow_name), dict(state[ABOUT].get(GATES, {}))
            chain.was_loaded(made.checkpoint_id, None if newest is None else id_of(newest[1]), names)
            return made
        raise WorkflowCheckpointException(f"Checkpoint {number} of run {run!r} was deleted meanwhile")

    def _newest(self, run: str) -> tuple[str, Any] | None:
        try:
            refuse_foreign(self.store, run)
            for found, state in self.store.states(run, newest_first=True):
                if not isinstance(state, Mapping) or ABOUT not in state:
                    continue
                id = id_of(state)
                if id is not None:
                    self._places[id] = (run, found.number)
                return run, state
        except NotFound:
            pass
        return None

    def _latest(self, workflow_name: str) -> tuple[str, Any] | None:
        return self._newest(self.run_of(workflow_name))

    def _decoded(self, run: str, state: Any) -> WorkflowCheckpoint:
        try:
            return to_checkpoint(state, Decoding(self._classes))
        except (EverstepError, LookupError, TypeError, ValueError, AttributeError) as error:
            what = getattr(error, "message", f"{type(error).__name__}: {error}")
            raise WorkflowCheckpointException(
                f"A checkpoint of run {run!r} cannot be restored: {what}. {getattr(error, 'remedy', '')}"
            ) from error

    def _list(self, workflow_name: str) -> list[WorkflowCheckpoint]:
        return [self._decoded(self.run_of(workflow_name), state) for state in self._states(workflow_name)]

    def _states(self, workflow_name: str) -> Iterator[Any]:
        run = self.run_of(workflow_name)
        try:
            refuse_foreign(self.store, run)
            states = self.store.states(run, newest_first=False)
            newest = {id_of(state): state for _, state in states if isinstance(state, Mapping) and ABOUT in state}
        except NotFound:
            return
        yield from newest.values()

    def _ids(self, workflow_name: str) -> list[str]:
        run = self.run_of(workflow_name)
        try:
            refuse_foreign(self.store, run)
        except NotFound:
            return []
        labels = [one.meta.get(ID) for one in reversed(upkeep.headers(self.store, run))]
        if None in labels:
            return [id for id in map(id_of, self._states(workflow_name)) if id is not None]
        return list(dict.fromkeys(label for label in labels if label is not None))

    def _delete(self, id: str) -> bool:
        found = self._find(id)
        if found is None:
            return False
        upkeep.delete(self.store, found[0], id)
        self._chains.pop(found[0], None)
        self._places.pop(id, None)
        return True
