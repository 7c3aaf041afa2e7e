"""The options of one attempt at a run, as given when it was opened. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from everstep.backends.contract.queues import Claimed
from everstep.durations import to_seconds
from everstep.errors import InvalidArgument
from everstep.fields import Shape, field
from everstep.runtime.hooks import Hooks
from everstep.runtime.limits.account import Account
from everstep.runtime.limits.budget import Budget
from everstep.runtime.limits.policy import Policy, manual
from everstep.runtime.steps.retry import as_retry

Replay = Literal["normal", "validate", "republish"]


class AttemptOptions(Shape):
    """The settings of one attempt. `about` goes into the first record of a run that is created."""

    hooks: Hooks
    policy: Policy = manual
    budget: Budget | None = None
    timeout: Any = None  # in seconds; given as any duration
    retry: Any = None  # a Retry; given also as a number of attempts
    workflow: bool = False
    framework: bool = False  # a driver executes it: it has a result and its deaths count, but nothing is replayed
    about: dict[str, Any] = field(default_factory=dict)
    chunks: list[tuple[bytes, bytes]] = field(default_factory=list)
    driven: bool = False  # executed by the run that called it
    version: str | None = None  # of the workflow's code in this process
    definition: str | None = None  # that code
    max_deaths: int = 5
    by_hand: bool = False  # a person resumed it: the deaths of a run that was given up count from 0 again
    caller: Account | None = None  # of the run that called it
    revived: bool = False  # its caller had cancelled the call, and makes it again
    held: Claimed | None = None  # a worker has already taken its lease
    same: Callable[[Any], bool] | None = None  # whether a recorded digest is that of the input
    seen: int | None = None  # the newest record of the run when the caller decided to execute it
    accept: frozenset[str] = frozenset()
    replay: Replay = "normal"
    silent: bool = True  # no policy asks for checkpoints
    plain: bool = True  # checkpoints of a run without steps need no header

    def __post_init__(self) -> None:
        self.policy = Policy.parse(self.policy)
        self.timeout = check_limits(self.budget, self.timeout)
        if self.retry is not None:
            self.retry = as_retry(self.retry)
        if self.replay not in ("normal", "validate", "republish"):
            raise InvalidArgument(f"replay must be normal, validate or republish, got {self.replay!r:.60}")
        self.silent = self.policy == manual
        self.plain = self.silent and self.budget is None and not self.workflow


def check_limits(budget: Any, timeout: Any) -> float | None:
    """Refuse invalid limits; return the timeout in seconds."""
    if budget is not None and not isinstance(budget, Budget):
        raise InvalidArgument(f"budget must be an everstep.Budget, got {budget!r:.60}", remedy="Give everstep.Budget(tokens=50_000).")
    seconds = to_seconds(timeout, "timeout")
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds > 0):
        raise InvalidArgument(
            f"timeout must be a number of seconds greater than 0, got {timeout!r:.60}", remedy="Give timeout=60, or leave it out."
        )
    return seconds
