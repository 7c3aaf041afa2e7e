"""The ways to write one call: `f(1)` and `f(x=1)` are the same. Needed only where an input is not the recorded one, byte for byte. No I/O."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

Call = tuple[tuple[Any, ...], dict[str, Any]]
_EITHER, _FIRST = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY


def spellings(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Call]:
    """Every way to write a call with the same arguments. Defaults are not filled in: a call that leaves one out does not say which it was."""
    try:
        signature = inspect.signature(function)
        given = signature.bind(*args, **kwargs).arguments
    except (TypeError, ValueError):  # written in C, or not called so
        return
    first = [name for name, one in signature.parameters.items() if one.kind is _FIRST and name in given]
    either = [name for name, one in signature.parameters.items() if one.kind is _EITHER]
    if len(args) > len(first) + len(either):
        return  # more than the named ones: none of these can be given by name
    placed = 0  # how many can be given by place: those up to the first that was left out
    while placed < len(either) and either[placed] in given:
        placed += 1
    fixed = tuple(given[name] for name in first)
    values = {**dict(zip([*first, *either], args, strict=False)), **kwargs}
    for count in range(placed + 1):
        by_place = either[:count]
        yield (*fixed, *(given[name] for name in by_place)), {k: v for k, v in values.items() if k not in by_place and k not in first}
