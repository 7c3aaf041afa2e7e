"""The processes that execute runs now: workers, and programs that execute their own runs. Reads only."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime

from everstep.backends.contract.core import Query
from everstep.fields import Shape
from everstep.queues.presence import WorkerRecord, worker_records
from everstep.records import Status
from everstep.runtime.engine_store import EngineStore
from everstep.store.views import when


class LiveWorker(Shape, frozen=True):
    """A live process that works on this store.

    A program that executes runs without being a worker has no queues. `workflows` maps names to versions; `last_seen` is when the lease was
    last renewed, None if unknown.
    """

    id: str
    host: str
    pid: int
    queues: list[str]
    concurrency: int
    recover: bool
    workflows: dict[str, str | None]
    runs: list[str]
    since: datetime
    last_seen: datetime | None

    def __str__(self) -> str:
        return f"{self.id}: process {self.pid} on {self.host}, {', '.join(self.queues) or 'no queues'}, {len(self.runs):,} {'run' if len(self.runs) == 1 else 'runs'}"


def workers(store: EngineStore) -> list[LiveWorker]:
    backend = store.backend
    said: dict[str, list[WorkerRecord]] = defaultdict(list)
    for id, one in worker_records(backend):
        said[id].append(one)
    held: dict[str, list[str]] = defaultdict(list)
    for status in (Status.RUNNING, Status.QUEUED):  # a run that was just claimed still has the status queued
        for _, row in backend.runs(Query(status=status.value)):
            if row.worker is not None:
                held[row.worker].append(row.id)
    found = []
    for worker in backend.living():
        mine = said[worker.id]
        if mine or held[worker.id]:
            lease = max((one.lease for one in mine), default=0.0)
            found.append(
                LiveWorker(
                    worker.id, worker.host, worker.pid,
                    queues=list(dict.fromkeys(queue for one in mine for queue in one.queues)),
                    concurrency=sum(one.concurrency for one in mine),
                    recover=any(one.recover for one in mine),
                    workflows={name: version for one in mine for name, version in one.workflows.items()},
                    runs=sorted(held[worker.id]),
                    since=when(worker.started_at),
                    last_seen=when(worker.expires_at - int(lease * 1e6)) if lease else None,
                )
            )  # fmt: skip
    return found
