"""Checks numbers and names of settings, for budgets, policies, retries and hooks. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from everstep.codec.explain import shown
from everstep.errors import InvalidArgument


def check_number(value: Any, what: str, *, least: float = 0, above: bool = False, whole: bool = False, most: float = 1e15) -> Any:
    """Return a number if it is a valid setting: not a bool, not text, finite, `least` or more (`above`: more than `least`). Raise otherwise."""
    good = type(value) is int or (type(value) is float and not whole and isfinite(value))
    if good and (value > least if above else value >= least) and value <= most:
        return value
    kind = "an integer" if whole else "a number"
    bound = f"greater than {least:g}" if above else f"of at least {least:g}"
    if most < 1e15 or (good and value > most):
        bound += f" and at most {most:,.0f}"
    raise InvalidArgument(f"{what} must be {kind} {bound}, got {shown(value)}", remedy=f"Give {kind} {bound}.")


def check_keys(given: Mapping[Any, Any], allowed: tuple[str, ...], what: str) -> None:
    """Refuse unknown names in a mapping from a configuration, and list the allowed ones."""
    for name in given:
        if name not in allowed:
            raise InvalidArgument(f"unknown key {shown(name)} in {what}", remedy=f"Use {', '.join(allowed)}.")
