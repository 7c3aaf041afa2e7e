"""Records in the store which workers exist: their queues, and their workflows with the versions of their code.

A worker has one property, `worker:ID/N`, from its first look for work until it stops. Its lease decides whether it is alive, as for runs: the
property of a dead worker is ignored at once, and any other worker removes it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from everstep.backends.contract.core import Backend
from everstep.errors import Damaged, EverstepError
from everstep.runtime import workflow as flows
from everstep.runtime.engine_store import EngineStore

WORKER = "worker:"
_numbers = itertools.count(1)


class WorkerRecord(NamedTuple):
    """The record of one worker about itself. `workflows` maps each name to its version."""

    queues: list[str]
    concurrency: int
    recover: bool
    lease: float
    workflows: dict[str, str | None]

    @classmethod
    def parse(cls, name: str, text: str) -> WorkerRecord:
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            raise Damaged(f"the property {name!r} of a worker cannot be read", remedy="Stop that worker and start it again.") from None


class Presence:
    """The record that a worker keeps in the store about itself while it works."""

    def __init__(self, store: EngineStore, queues: Sequence[str], concurrency: int, recover: bool):
        self._store = store
        self._about = (list(queues), concurrency, recover, store.keeper.ttl)
        self._name = f"{WORKER}{store.keeper.worker.id}/{next(_numbers)}"
        self._written: str | None = None
        self._attends = False

    def begin(self) -> None:
        """Record this worker before it claims its first run."""
        if self._written is None:
            self.record()

    def record(self) -> None:
        """Record the worker's queues and workflows; writes only if they changed."""
        text = json.dumps(WorkerRecord(*self._about, flows.versions())._asdict())
        if text != self._written:
            self._attend()
            self._store.backend.set_property(self._name, text)
            self._written = text

    def _attend(self) -> None:
        self._store.keeper.attend(again=self._attends)
        self._attends = True

    def check(self) -> None:
        """Record this worker again if others took it for dead while its process was suspended, and remove the records of dead workers."""
        backend = self._store.backend
        properties = backend.properties(WORKER)
        alive = {worker.id for worker in backend.living()}
        if self._name not in properties or self._store.keeper.worker.id not in alive:
            self._written = None
            self.record()
        for name in properties:
            if name != self._name and worker_in(name) not in alive:
                backend.set_property(name, None)

    def end(self) -> None:
        if not self._attends:
            return
        self._attends = False
        self._store.keeper.released()
        with suppress(EverstepError):  # best effort: its lease expires, and others remove the property
            self._store.backend.set_property(self._name, None)


def worker_in(name: str) -> str:
    """Return the id of the worker that a property describes."""
    return name.removeprefix(WORKER).rpartition("/")[0]


def worker_records(backend: Backend) -> list[tuple[str, WorkerRecord]]:
    """Return the id and the record of each worker that has not stopped, including workers that died since."""
    return [(worker_in(name), WorkerRecord.parse(name, text)) for name, text in backend.properties(WORKER).items()]
