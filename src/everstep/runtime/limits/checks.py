"""Which numbers and names count as a setting: the one place that says so, for budgets, policies, retries and hooks. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from everstep.codec.explain import shown
from everstep.errors import InvalidArgument


def check_number(value: Any, what: str, *, least: float = 0, above: bool = False, whole: bool = False, most: float = 1e15) -> Any:
    """Return a number that may be a setting, or refuse it: no bool, no text, finite, `least` or more (`above`: really more)."""
    good = type(value) is int or (type(value) is float and not whole and isfinite(value))
    if good and (value > least if above else value >= least) and value <= most:
        return value
    kind = "whole number" if whole else "number"
    bound = f"above {least:g}" if above else f"of at least {least:g}"
    raise InvalidArgument(f"{what}={shown(value)} is no {kind} {bound}", remedy=f"Give a {kind} {bound} and at most {most:g}.")


def check_keys(given: Mapping[Any, Any], allowed: tuple[str, ...], what: str) -> None:
    """Refuse names that a mapping from a configuration must not have, and say which it may have."""
    for name in given:
        if name not in allowed:
            raise InvalidArgument(f"{what} has no {shown(name)}", remedy=f"Use {', '.join(allowed)}.")
