"""The assertions of the machine's rules: equal, refused, and a failure that is remembered. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from harness.faults.machine.actions import Refused


def guarded(step: Callable[..., None]) -> Callable[..., None]:
    """Remember that a step failed, so that neither the comparison at the end nor a flaky replay by hypothesis hides the cause."""

    @wraps(step)
    def call(self: Any, *args: Any, **given: Any) -> None:
        self.inside += 1
        try:
            step(self, *args, **given)
        except BaseException as error:
            type(self).failures.append(f"{step.__name__}: {error!r:.600}")
            raise
        self.inside -= 1

    return call


def same(found: Any, wanted: Any, what: str) -> None:
    assert found == wanted, f"{what}: {found!r:.300} instead of {wanted!r:.300}"


def refused(found: Any, *kinds: str) -> None:
    assert isinstance(found, Refused), f"expected {kinds}, got {found!r:.300}"
    same((found.kind in kinds, found.written), (True, "no"), f"{found}")
