"""Retries: whether a failed step or run is tried again, and after how long. No I/O, no clock, no randomness of its own.

The caller counts attempts, passes a random number and does the waiting, so a replay can repeat the decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args

from everstep.codec.explain import shown
from everstep.durations import to_seconds
from everstep.errors import InvalidArgument
from everstep.fields import Shape
from everstep.runtime.limits.checks import check_keys, check_number

Backoff = Literal["constant", "linear", "exponential", "fibonacci"]
Errors = type[Exception] | str | Iterable[type[Exception] | str]
_FAR = 1_000  # after this many doublings every delay exceeds any cap, and a float would overflow


class Retry(Shape, frozen=True):
    """The number of attempts at a step or run, and the delays between them.

    `attempts` counts all attempts, including the first: 1 means no retry. The delay before the next attempt grows with `backoff`:
    constant (d, d, d), linear (d, 2d, 3d), exponential (d, 2d, 4d, 8d) or fibonacci (d, d, 2d, 3d, 5d), where d is `delay` in
    seconds; `max_delay` caps it. `jitter` changes it at random by at most that fraction, so that many runs that failed together
    do not retry together.

    An error is retried if it is one of `only` and none of `never`: exception classes, or names of them ("TimeoutError",
    "httpx.ReadTimeout"), which also match subclasses. Ctrl-C, the exit of the program and a run that waits are not failures.
    """

    attempts: int = 3
    backoff: Backoff = "exponential"
    delay: Any = 1.0  # in seconds; given as any duration
    max_delay: Any = 60.0
    jitter: float = 0.1
    only: Errors = (Exception,)
    never: Errors = ()

    def __post_init__(self) -> None:
        check_number(self.attempts, "attempts", least=1, whole=True)
        if self.backoff not in get_args(Backoff):
            raise InvalidArgument(
                f"backoff must be one of {', '.join(get_args(Backoff))}, got {shown(self.backoff)}", remedy="Use exponential."
            )
        for name in ("delay", "max_delay"):
            object.__setattr__(self, name, check_number(to_seconds(getattr(self, name), name), name))
        check_number(self.jitter, "jitter", most=1)
        if self.delay > self.max_delay:
            raise InvalidArgument(
                f"delay={self.delay:g} is greater than max_delay={self.max_delay:g}", remedy="Increase max_delay, which limits every delay."
            )
        for name in ("only", "never"):
            object.__setattr__(self, name, _classes(getattr(self, name), name))
        if not self.only:
            raise InvalidArgument("only=() would never retry", remedy="Use attempts=1 for that, or name exception classes.")

    def again(self, attempt: int, error: BaseException) -> bool:
        """Return whether to try again after attempt number `attempt` (1 is the first) has failed with `error`."""
        if attempt >= self.attempts or not isinstance(error, Exception):
            return False
        return _fits(error, self.only) and not _fits(error, self.never)

    def delay_after(self, attempt: int, random: float) -> float:
        """Return the seconds to wait after attempt number `attempt` has failed. `random` is between 0 and 1.

        The cap applies before and after the jitter: the delay is never more than `max_delay` and never less than 0.
        """
        check_number(attempt, "attempt", least=1, whole=True)
        check_number(random, "random", most=1)
        capped = min(self.delay * self._factor(attempt), self.max_delay)
        return float(min(capped * (1 + self.jitter * (2 * random - 1)), self.max_delay))

    def _factor(self, attempt: int) -> float:
        if self.backoff == "constant":
            return 1.0
        if self.backoff == "linear":
            return float(attempt)
        if self.backoff == "exponential":
            return 2.0 ** min(attempt - 1, _FAR)
        before, factor = 0.0, 1.0
        for _ in range(min(attempt, _FAR) - 1):
            before, factor = factor, before + factor
        return factor

    @classmethod
    def parse(cls, given: Retry | int | Mapping[str, Any]) -> Retry:
        """Make a retry from a configuration: a number of attempts, or a mapping with any of the fields. Unknown names are refused.

        Exceptions are given by name; nothing is imported for them.
        """
        if isinstance(given, Retry):
            return given
        if type(given) is int:
            return cls(attempts=given)
        if not isinstance(given, Mapping):
            raise InvalidArgument(
                f"retry must be a number of attempts or a mapping, got {shown(given)}",
                remedy=f"Give attempts, or a mapping with {', '.join(_NAMES)}.",
            )
        check_keys(given, _NAMES, "a retry")
        return cls(**given)


_NAMES = tuple(Retry._fields)


def _classes(given: Any, what: str) -> tuple[type[Exception] | str, ...]:
    several = tuple(given) if isinstance(given, (tuple, list, set, frozenset)) else (given,)
    for one in several:
        if not (isinstance(one, type) and issubclass(one, Exception)) and not _is_name(one):
            raise InvalidArgument(
                f"{what} must contain exception classes, got {shown(one)}",
                remedy="Give subclasses of Exception, or their names as text: 'TimeoutError', 'httpx.ReadTimeout'.",
            )
    return several


def _is_name(one: Any) -> bool:
    return isinstance(one, str) and all(part.isidentifier() for part in one.split("."))


def _fits(error: Exception, wanted: Errors) -> bool:
    assert isinstance(wanted, tuple)
    classes = tuple(one for one in wanted if isinstance(one, type))
    if isinstance(error, classes):
        return True
    names = {one for one in wanted if isinstance(one, str)}
    return bool(names) and any(
        not names.isdisjoint((cls.__name__, cls.__qualname__, f"{cls.__module__}.{cls.__qualname__}")) for cls in type(error).__mro__
    )


def as_retry(given: Any) -> Retry:
    """Return a retry that was given as one, or as a number of attempts."""
    if isinstance(given, Retry):
        return given
    if type(given) is int:
        return Retry(given)
    raise InvalidArgument(
        f"retry must be an everstep.Retry or a number of attempts, got {given!r:.60}", remedy="Give retry=5, or everstep.Retry(attempts=5)."
    )


def chance() -> float:
    """Return a random number from 0 up to 1."""
    import random

    return random.random()  # noqa: S311 - it spreads retries, it protects nothing
