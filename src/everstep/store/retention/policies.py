"""The retention of a run: its own, otherwise that of its workflow, otherwise that of the store. Kept as properties of the store.

    retention                   the store's
    retention/workflow/NAME     a workflow's
    retention/run/ID            a run's; `key` in it tells the run from a later one with the same id

Each is a JSON object of the chosen fields, as `Retention.to_dict` returns it. An unreadable one is an error: nothing is dropped on a guess.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from everstep.backends.contract.core import Backend
from everstep.errors import Damaged, InvalidArgument
from everstep.fields import Shape
from everstep.records import RunRow
from everstep.store.query import check_text
from everstep.store.refs import find_run
from everstep.store.retention.retention import Retention

_STORE, _WORKFLOW, _RUN = "retention", "retention/workflow/", "retention/run/"


class Policy(Shape, frozen=True):
    """A retention, and the name of its property; "" for one that was passed with the call."""

    scope: str
    retention: Retention

    def counts(self, row: RunRow) -> bool:
        """Whether the bytes of a run count for this policy's `max_bytes`."""
        if self.scope.startswith(_RUN):
            return self.scope == _RUN + row.id
        return not self.scope.startswith(_WORKFLOW) or self.scope == _WORKFLOW + (row.workflow or "")

    @property
    def width(self) -> int:
        """Sort key: narrow policies come first."""
        return 0 if self.scope.startswith(_RUN) else 1 if self.scope.startswith(_WORKFLOW) else 2


class Policies:
    """The policies of a store at one moment. `default` overrides the store's own, `given` overrides all."""

    def __init__(self, backend: Backend, default: Retention | None = None, given: Retention | None = None):
        self._properties = backend.properties(_STORE)
        self._default = default
        self._given = None if given is None else Policy("", given)

    def of(self, row: RunRow) -> Policy | None:
        if self._given is not None:
            return self._given
        own = self._read(_RUN + row.id, row)
        return own or (self._read(_WORKFLOW + row.workflow) if row.workflow is not None else None) or self.of_store()

    def of_store(self) -> Policy | None:
        return self._given or (Policy(_STORE, self._default) if self._default is not None else self._read(_STORE))

    def runs(self) -> list[str]:
        """Return the ids of the runs that have their own policy."""
        return [name.removeprefix(_RUN) for name in self._properties if name.startswith(_RUN)]

    def _read(self, name: str, row: RunRow | None = None) -> Policy | None:
        text = self._properties.get(name)
        if text is None:
            return None
        try:
            said: dict[str, Any] = json.loads(text)
            key = said.pop("key", None)
            retention = Retention.parse(said)
        except (ValueError, TypeError, AttributeError, InvalidArgument) as error:
            raise Damaged(
                f"the stored property {name!r} is not a valid retention", remedy="Set it again: store.set_retention(...)."
            ) from error
        return Policy(name, retention) if row is None or key == row.key.hex() else None


def set_retention(backend: Backend, retention: Retention | Mapping[str, Any] | None, workflow: str | None, run: str | None) -> None:
    """Store a policy; None removes it."""
    if workflow is not None and run is not None:
        raise InvalidArgument("workflow and run must not be given together", remedy="Call set_retention once for each.")
    said = None if retention is None else Retention.parse(retention).to_dict()
    name = _STORE
    if workflow is not None:
        name = _WORKFLOW + str(check_text(workflow, "workflow"))
    elif run is not None:
        row = find_run(backend, run)
        name = _RUN + row.id
        said = None if said is None else {**said, "key": row.key.hex()}
    backend.set_property(name, None if said is None else json.dumps(said))


def forget(backend: Backend, run: str) -> None:
    """Remove the policy of a deleted run."""
    backend.set_property(_RUN + run, None)
