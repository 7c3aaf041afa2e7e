"""The spellings of one call: `f(1)` and `f(x=1)` are the same. Needed only if an input differs from the recorded one in its bytes. No I/O."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

Call = tuple[tuple[Any, ...], dict[str, Any]]
_EITHER, _FIRST = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY


def spellings(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Call]:
    """Yield every spelling of a call with the same arguments. Defaults are not filled in: a call that omits one does not record its value."""
    try:
        signature = inspect.signature(function)
        given = signature.bind(*args, **kwargs).arguments
    except (TypeError, ValueError):  # written in C, or these arguments do not fit
        return
    first = [name for name, one in signature.parameters.items() if one.kind is _FIRST and name in given]
    either = [name for name, one in signature.parameters.items() if one.kind is _EITHER]
    if len(args) > len(first) + len(either):
        return  # extra positional arguments: none of these can be passed by name
    placed = 0  # how many can be passed by position: those before the first that was left out
    while placed < len(either) and either[placed] in given:
        placed += 1
    fixed = tuple(given[name] for name in first)
    values = {**dict(zip([*first, *either], args, strict=False)), **kwargs}
    for count in range(placed + 1):
        by_position = either[:count]
        yield (*fixed, *(given[name] for name in by_position)), {k: v for k, v in values.items() if k not in by_position and k not in first}
