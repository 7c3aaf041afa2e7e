"""Continues workflows from outside of the program that ran them: `everstep resume --import app RUN`, `store.wake`, workers.

The driver holds the lease of the run while the workflow runs; the storage saves through it. It gives the answers that have come to the
requests that the workflow waits for, or continues where the last process stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Lock
from typing import Any

from agent_framework import FunctionalWorkflow, Workflow, WorkflowCheckpoint

import everstep
from everstep.adapters.agent_framework.layout import is_finished
from everstep.adapters.agent_framework.storage import CheckpointStorage
from everstep.adapters.shared.plain import to_plain
from everstep.errors import InvalidArgument, SaveFailed

_AnyWorkflow = Workflow | FunctionalWorkflow
_PAUSE = 0.02


def resume(workflow: Any, storage: CheckpointStorage) -> Any:
    """Let `everstep resume`, `store.wake` and workers of this process continue the runs of a workflow, of all scopes; return the workflow.

    `workflow` is a function that builds it, or the workflow itself; then its runs are continued one after the other. `storage` has the
    store and the types.
    """
    if not isinstance(storage, CheckpointStorage):
        raise InvalidArgument(f"storage must be Everstep's CheckpointStorage, got {type(storage).__name__}")
    build, turn = _builder(workflow), Lock()
    first = build()
    if not isinstance(first, _AnyWorkflow):
        raise InvalidArgument(
            f"workflow must be a workflow of Agent Framework or a function that builds one, got {type(first).__name__}",
            remedy="resume(build, storage), where build() returns WorkflowBuilder(name=..., ...).build()",
        )

    async def drive(run: Any) -> Any:
        is_shared = isinstance(workflow, _AnyWorkflow)
        while is_shared and not turn.acquire(blocking=False):
            await asyncio.sleep(_PAUSE)  # one workflow object runs once at a time, and other threads may have loops of their own
        try:
            return await _continued(build(), storage.of_run(run.id, strict=True))
        except SaveFailed as failed:
            raise failed.error from failed  # the run has failed; the framework has stopped
        finally:
            if is_shared:
                turn.release()

    everstep.drives(first.name, drive)
    return workflow


def _builder(workflow: Any) -> Callable[[], Any]:
    if isinstance(workflow, _AnyWorkflow):
        return lambda: workflow
    if not callable(workflow):
        raise InvalidArgument(
            f"workflow must be a workflow of Agent Framework or a function that builds one, got {type(workflow).__name__}"
        )
    return lambda: workflow()


async def _continued(workflow: Any, storage: CheckpointStorage) -> list[Any]:
    """Continue a workflow until it waits or has nothing to do; return its outputs since then."""
    outputs: list[Any] = []
    before: dict[str, Any] | None = None
    await storage.restore_questions(workflow_name=workflow.name)
    while True:
        latest = await storage.get_latest(workflow_name=workflow.name)
        if latest is None or latest.workflow_name != workflow.name:
            raise InvalidArgument(f"run {storage.run_of(workflow.name)!r} has no checkpoint of the workflow {workflow.name!r}")
        answers = await storage.responses(workflow_name=workflow.name)
        if not _has_work(latest, answers, before):
            return outputs
        before = answers
        done = await workflow.run(checkpoint_id=latest.checkpoint_id, checkpoint_storage=storage, responses=answers or None)
        outputs += to_plain(done.get_outputs())


def _has_work(latest: WorkflowCheckpoint, answers: dict[str, Any], before: dict[str, Any] | None) -> bool:
    """Whether a message was not delivered, an answer has come, or the steps of a function were cut off."""
    if is_finished(latest):
        return False
    pending = latest.pending_request_info_events
    if latest.messages or pending.keys() & answers.keys():
        return True
    return not pending and before is None  # a function that does not wait: whether it has ended is only known from running it
