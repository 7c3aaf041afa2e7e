"""The account of one attempt at a run: what the run has used, which of its steps are running, and whether one more may begin.

A step is reserved before it begins, so that steps which begin at the same time cannot share the last slot of a budget. A child's use
counts for its caller at once: every account refers to that of its caller, and all accounts of one family share a lock. No I/O.

    caller (budget: 10 steps) ── used 3, running 1 ── below 4 ──> 8 of 10
       └── child             ── used 3, running 1
"""

from __future__ import annotations

import time
from threading import Lock
from typing import TYPE_CHECKING

from everstep.runtime.limits.budget import Budget, Used

if TYPE_CHECKING:
    from everstep.runtime.engine.replay import Replay


class Account:
    """The limits and the use of a run. `below` is what its children used; of their seconds, those in which this run did not execute them itself."""

    def __init__(
        self, run: str, played: Replay, began: float, budget: Budget | None = None, timeout: float | None = None, caller: Account | None = None
    ):  # fmt: skip
        self.run = run
        self.budget, self.timeout, self.caller = budget, timeout, caller
        self.limited: bool = budget is not None or (caller is not None and caller.limited)
        self.below = Used()
        self.lost = 0.0  # seconds of killed attempts that only the journals of children show
        self.complete = False  # whether `below` includes what children used before this attempt
        self._played = played
        self._began = began
        self._running = 0
        self._known: dict[str, Used] = {}  # the share of each child in `below`
        self._lock: Lock = caller._lock if caller is not None else Lock()

    def reserve(self) -> str | None:
        """Reserve a slot for one more step; or return which budget is used up, of this run or of a caller."""
        with self._lock:
            over = self._over()
            if over is None:
                for account in self._line():
                    account._running += 1
            return over

    def release(self) -> None:
        """Release the slot of a step that ended without a record."""
        with self._lock:
            for account in self._line():
                account._running -= 1

    def add(self, tokens: int, cost: float, reserved: bool) -> None:
        """Count a recorded step, or a recorded attempt at one."""
        if self.caller is None and not reserved:
            used = self._played.used
            used.steps += 1
            used.tokens += tokens
            used.cost += cost
            return
        with self._lock:
            if reserved:
                for account in self._line():
                    account._running -= 1
            _add(self._played.used, Used(0.0, 1, tokens, cost))
            self._pass_on(Used(0.0, 1, tokens, cost))

    def over(self) -> str | None:
        """Return which budget of the run itself is used up, counting the running steps; None if none is."""
        return None if self.budget is None else self.budget.exceeded(self.total())

    def total(self) -> Used:
        """Return what the run and its children have used, including the running steps."""
        used, below = self._played.used, self.below
        seconds = used.seconds + time.monotonic() - self._began + below.seconds + self.lost
        return Used(seconds, used.steps + below.steps + self._running, used.tokens + below.tokens, used.cost + below.cost)

    def know(self, child: str, used: Used) -> None:
        """Count what a child has used up to now, instead of its earlier figures."""
        with self._lock:
            before = self._known.get(child, _NOTHING)
            more = Used(used.seconds - before.seconds, used.steps - before.steps, used.tokens - before.tokens, used.cost - before.cost)
            self._known[child] = used
            _add(self.below, more)
            self._pass_on(more)

    def knows(self, child: str) -> bool:
        return child in self._known

    def for_caller(self, driven: bool) -> Used:
        """Return what counts for the caller. Of the seconds, only those in which the caller did not execute the run: the others are its own."""
        used, below = self._played.used, self.below
        seconds = self._played.apart + below.seconds + (0.0 if driven else time.monotonic() - self._began)
        return Used(seconds, used.steps + below.steps, used.tokens + below.tokens, used.cost + below.cost)

    def timed_out(self) -> str | None:
        """Return why the run, or one of its callers, must stop now; None if it may continue."""
        for account in self._line():
            if account.timeout is not None and (seconds := time.monotonic() - account._began) >= account.timeout:
                return f"timeout{account._of(self)}: {seconds:.1f} s of {account.timeout:g} s"
        return None

    def _over(self) -> str | None:
        for account in self._line():
            over = account.over()
            if over is not None:
                return over.replace("budget", f"budget{account._of(self)}", 1)
        return None

    def _of(self, other: Account) -> str:
        return "" if self is other else f" of run {self.run!r}"

    def _pass_on(self, more: Used) -> None:
        """Add to the accounts of all callers."""
        child = self
        while child.caller is not None:
            caller = child.caller
            _add(caller.below, more)
            known = caller._known.get(child.run)
            if known is not None:
                _add(known, more)
            child = caller

    def _line(self) -> list[Account]:
        """Return this account, that of the caller, and so on."""
        found: list[Account] = []
        account: Account | None = self
        while account is not None:
            found.append(account)
            account = account.caller
        return found


_NOTHING = Used()


def _add(used: Used, more: Used) -> None:
    used.seconds += more.seconds
    used.steps += more.steps
    used.tokens += more.tokens
    used.cost += more.cost
