"""States that share their unchanged parts: applies deltas without changing the state before, and copies states that share parts. No I/O.

A delta copies only the containers on the paths of its operations. So fifty states of a long list cost little more than one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from everstep.codec.kinds import Unknown
from everstep.codec.values import FROZEN
from everstep.snapshot.delta import SPLICE, Op, apply, misfit


def advanced(root: Any, ops: Iterable[Op]) -> Any:
    """Return the state after the operations; the given one stays as it is. Both share all parts that did not change."""
    fresh: dict[int, Any] = {}  # the copies that belong to the new state alone; kept alive, so that no id is used twice
    with misfit():
        for op in ops:
            path = op[1]
            if path or op[0] == SPLICE:
                root = _copied_along(root, path if op[0] == SPLICE else path[:-1], fresh)
            root = apply(root, (op,))
    return root


def _copied_along(root: Any, path: list[Any], fresh: dict[int, Any]) -> Any:
    """Copy the containers from the root to the one that a path leads to."""
    root = here = _own(root, fresh)
    for step in path:
        holder = here.fields if here.__class__ is Unknown else here
        here = holder[step] = _own(holder[step], fresh)
    return root


def _own(value: Any, fresh: dict[int, Any]) -> Any:
    if id(value) in fresh:
        return value
    if value.__class__ is dict or value.__class__ is list:
        value = value.copy()
    elif value.__class__ is Unknown:
        value = Unknown(value.name, value.version, dict(value.fields))
    else:
        return value  # `apply` refuses it
    fresh[id(value)] = value
    return value


class Copies:
    """Copies states that share parts, each into a value of its own. Remembers where the containers in a container are."""

    def __init__(self) -> None:
        self._inside: dict[int, tuple[Any, Sequence[Any]]] = {}  # by id: the container, kept alive so that no id is used twice, and keys

    def of(self, value: Any) -> Any:
        cls = value.__class__
        if cls is not dict and cls is not list:
            return value if cls in FROZEN else self._other(value)
        known = self._inside.get(id(value))
        if known is None:
            pairs = value.items() if cls is dict else enumerate(value)
            known = self._inside[id(value)] = (value, [key for key, item in pairs if item.__class__ not in FROZEN])
        out = value.copy()
        for key in known[1]:
            item = out[key]
            out[key] = [] if item.__class__ is list and not item else self.of(item)  # empty lists are common
        return out

    def _other(self, value: Any) -> Any:
        if value.__class__ is tuple:
            return tuple(self.of(v) for v in value)
        if value.__class__ is Unknown:
            return Unknown(value.name, value.version, {k: self.of(v) for k, v in value.fields.items()})
        return _deep(value)


def _deep(value: Any) -> Any:
    from copy import deepcopy  # sets, bytearrays and the like, which are rare in a state

    return deepcopy(value)
