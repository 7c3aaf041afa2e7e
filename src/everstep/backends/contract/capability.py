"""Checks which capabilities a backend has besides `Core`, and refuses calls that need a missing one.

A backend has a capability if it has all methods of the protocol; only the names of the methods count. A store wraps a backend that lacks
some in `Partial`, so that every call of a missing method is refused with an error code and a remedy, whichever code makes the call.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from everstep.backends.contract.audit import Audit
from everstep.backends.contract.core import Backend, Core
from everstep.backends.contract.feed import Feed
from everstep.backends.contract.index import Index
from everstep.backends.contract.keys import Keys
from everstep.backends.contract.mailbox import Mailbox
from everstep.backends.contract.outbox import Outbox
from everstep.backends.contract.properties import Properties
from everstep.backends.contract.queues import Queues
from everstep.backends.contract.reclaim import Reclaim
from everstep.backends.contract.transactions import Transactional
from everstep.backends.contract.types import Commit, Committed
from everstep.errors import MissingCapability
from everstep.records import unkeyed

CAPABILITIES: tuple[type, ...] = (Mailbox, Index, Feed, Audit, Reclaim, Properties, Queues, Keys, Outbox, Transactional)
_EXPECTED = CAPABILITIES[:8]


@cache
def methods(protocol: type) -> tuple[str, ...]:
    """Return the names of the methods of a protocol."""
    return tuple(name for name, value in vars(protocol).items() if callable(value) and not name.startswith("_"))


def has(backend: Any, capability: type) -> bool:
    """Return whether a backend has all methods of a capability."""
    return all(hasattr(backend, name) for name in methods(capability))


def need(backend: Any, *capabilities: type) -> None:
    """Raise `MissingCapability` if a backend lacks one of these."""
    for capability in capabilities:
        if not has(backend, capability):
            raise _missing(backend, capability)


def whole(backend: Any) -> Backend:
    """Return the backend, wrapped in `Partial` if it lacks a capability. A backend without a `seal` gets the unkeyed one."""
    if not hasattr(backend, "seal"):
        backend.seal = unkeyed
    made: Backend = backend if all(has(backend, capability) for capability in _EXPECTED) else Partial(backend)
    return made


class Partial:
    """Wraps a backend that lacks capabilities: passes on the calls that it supports, and refuses the others by name.

    Reads with only one possible answer are answered: without a mailbox a run has no messages, without pruning it has no prune mark.
    """

    def __init__(self, backend: Core) -> None:
        self._backend = backend
        missing = [capability for capability in CAPABILITIES if not has(backend, capability)]
        self._refused = {name: capability for capability in missing for name in methods(capability)}

    def __getattr__(self, name: str) -> Any:
        capability = self._refused.get(name)
        if capability is None:
            return getattr(self._backend, name)
        if name in _CERTAIN:
            return _CERTAIN[name]
        raise _missing(self._backend, capability)

    def commit(self, commit: Commit, *others: Commit) -> Committed:
        for one in (commit, *others):
            if one.messages and "post" in self._refused:
                raise _missing(self._backend, Mailbox)
            if one.task is not None and "claim" in self._refused:
                raise _missing(self._backend, Queues)
        return self._backend.commit(commit, *others)


_CERTAIN: dict[str, Any] = {
    "messages": lambda run: [],
    "gates": lambda run: [],
    "unanswered": lambda workflow=None, after=0, limit=None: [],
    "attached": lambda run, address="": [],
    "tags": lambda run, first=None, last=None, name=None: [],
    "pruned": lambda run: None,
    "bases": lambda run, upto=None: [],
    "queue_entry": lambda run: None,
    "family_keys": lambda families: {},
    "get_property": lambda name: None,
    "properties": lambda prefix="": {},
}


def _missing(backend: Any, capability: type) -> MissingCapability:
    return MissingCapability(backend.url, capability.__name__.lower())
