"""Durable workflows of Microsoft Agent Framework: `WorkflowBuilder(…, checkpoint_storage=CheckpointStorage())`.

`CheckpointStorage` keeps the checkpoints of workflows in an Everstep store, with their requests for information as gates; `resume(build, storage)`
lets `everstep resume` and workers continue them.
"""

from everstep.adapters.agent_framework.version import check

check()

from everstep.adapters.agent_framework.driver import resume  # noqa: E402 - a wrong version is named before an import of it fails
from everstep.adapters.agent_framework.storage import CheckpointStorage  # noqa: E402

__all__ = ["CheckpointStorage", "resume"]
