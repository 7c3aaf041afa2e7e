"""A store that can execute runs: it keeps leases, calls hooks and observers, and has the default checkpoint policy."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from everstep.backends.contract.core import Backend
from everstep.clock import clock
from everstep.durations import to_seconds
from everstep.errors import InvalidArgument
from everstep.runtime.engine import abandoned
from everstep.runtime.engine.leases import TTL_SECONDS, LeaseKeeper
from everstep.runtime.hooks import Hooks
from everstep.runtime.limits import signals
from everstep.runtime.limits.policy import Policy, manual
from everstep.runtime.observe import Observers
from everstep.store.store import BaseStore
from everstep.store.views import when
from everstep.threads.guard import refuse_inside

if TYPE_CHECKING:
    from everstep.durations import Duration
    from everstep.runtime.engine.attempt import Attempt
    from everstep.runtime.engine.journal_writer import Durability
    from everstep.runtime.limits.budget import Budget


class EngineStore(BaseStore):
    """The base class of `everstep.api.Store`."""

    def __init__(
        self,
        backend: Backend,
        *,
        lease_seconds: Duration = TTL_SECONDS,
        policy: Policy | str | None = None,
        enabled: bool = True,
        durability: Durability = "sync",
        budget: Budget | None = None,
        timeout: Duration | None = None,
        **options: Any,
    ):
        seconds = to_seconds(lease_seconds, "lease_seconds")
        if not isinstance(seconds, (int, float)) or not 0.01 <= seconds <= 86_400:
            raise InvalidArgument(f"lease_seconds must be a number from 0.01 to 86,400, got {lease_seconds!r:.60}")
        self.policy = manual if policy is None else Policy.parse(policy)
        self.enabled = enabled and not self.policy.off
        self.durability, self.budget, self.timeout = durability, budget, to_seconds(timeout, "timeout")
        self._followers: WeakSet[Attempt] = WeakSet()
        self._following = RLock()
        self._ends: list[Callable[[], None]] = []  # functions to call when the store closes
        self._named_ends: set[str] = set()
        super().__init__(backend, **options)
        self.keeper = LeaseKeeper(self, seconds)
        self.hook_registry = Hooks()
        self.observers = Observers()

    def _tell(self, name: str, run: str, **data: Any) -> None:
        if self.hook_registry.wanted(name):
            from everstep.store.events.event import Event  # only here: most stores are opened without a hook

            self.hook_registry.fire(name, Event(name, run, when(clock.now_us()), data))

    def close(self) -> None:
        """Close the store. Open runs can no longer be saved."""
        refuse_inside()
        abandoned.wait(self)
        while self._ends:
            self._ends.pop()()
        signals.abandon(self)
        self.keeper.close()
        self.hook_registry.close()
        super().close()


# For the runtime and the configuration. Functions, because a user of a store does not need them.


def follow(store: EngineStore, run: Attempt) -> None:
    """Apply later changes of the store's policy to a run that chose none."""
    with store._following:
        store._followers.add(run)


def change_policy(store: EngineStore, policy: Policy) -> None:
    """Change the default policy, also for open runs that did not choose one."""
    with store._following:
        store.policy = policy
        for run in store._followers:
            run.change_policy(policy)


def at_close(store: EngineStore, name: str, end: Callable[[], None]) -> None:
    """Call a function when the store is closed, once for each name."""
    with store._following:
        if name not in store._named_ends:
            store._named_ends.add(name)
            store._ends.append(end)
