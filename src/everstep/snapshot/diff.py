"""Changes as a person reads them: by path, with what was there before and after. No I/O.

A list of changes applies in order, each to the result of those before it, so positions in lists are those at that moment.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from everstep.codec.values import Decoder, encode
from everstep.shape import Shape
from everstep.snapshot.delta import DELETE, SET, SPLICE, Op, Path, apply, difference, fields_of, inside, misfit

MISSING = None


class Change(Shape, frozen=True):
    """One difference. `kind` is added, removed or changed; `before` of an added and `after` of a removed value are None."""

    path: Path
    kind: Literal["added", "removed", "changed"]
    before: Any
    after: Any

    def __str__(self) -> str:
        where = "".join(f"[{step!r}]" for step in self.path) or "state"
        if self.kind == "added":
            return f"+ {where} = {self.after!r:.200}"
        if self.kind == "removed":
            return f"- {where} = {self.before!r:.200}"
        return f"~ {where}: {self.before!r:.200} -> {self.after!r:.200}"


def between(old: Any, new: Any) -> list[Change]:
    """The changes from one decoded value to another."""
    ops: list[Op] = []
    difference(old, new, (), ops)
    return changes(_copy(old), ops)


def changes(old: Any, ops: Iterable[Op]) -> list[Change]:
    """The changes that a delta makes to a decoded value, which is changed by it."""
    out: list[Change] = []
    for op in ops:
        with misfit():
            finer = _finer(old, op)
        for one in finer:
            with misfit():
                out.extend(_changes(old, one))
                detached = _detached(one)
            old = apply(old, [detached])
    return out


def _finer(old: Any, op: Op) -> list[Op]:
    """What a container that was set anew changes in the one that was there: a small one is stored as a whole, but read by what differs."""
    if op[0] != SET or not isinstance(op[2], (dict, list)):
        return [op]
    path = tuple(op[1])
    holder = fields_of(inside(old, path[:-1])) if path else [old]
    key = path[-1] if path else 0
    if isinstance(holder, dict) and key not in holder:
        return [op]
    out: list[Op] = []
    difference(holder[key], op[2], path, out)
    return out


def _detached(op: Op) -> Op:
    """An operation with a value of its own: what later ones change in the result must not reach into changes noted before."""
    if op[0] == SET:
        return [*op[:2], _copy(op[2])]
    return [*op[:4], _copy(op[4])] if op[0] == SPLICE else op


def _changes(old: Any, op: Op) -> list[Change]:
    code, path = op[0], tuple(op[1])
    if code == SPLICE:
        return _spliced(inside(old, path), path, op[2], op[3], op[4])
    if not path:
        return [Change((), "changed", _copy(old), apply(_copy(old), [op]))]
    holder = fields_of(inside(old, path[:-1]))
    exists = path[-1] in holder if isinstance(holder, dict) else True
    before: Any = _copy(holder[path[-1]]) if exists else MISSING
    if code == DELETE:
        return [Change(path, "removed", before, MISSING)]
    after = op[2] if code == SET else before[: op[2]] + op[4] + before[op[2] + op[3] :]
    return [Change(path, "changed" if exists else "added", before, after)]


def _spliced(items: list[Any], path: Path, at: int, deleted: int, new: list[Any]) -> list[Change]:
    both = min(deleted, len(new))
    out = [Change((*path, at + k), "changed", _copy(items[at + k]), new[k]) for k in range(both)]
    out += [Change((*path, at + both), "removed", _copy(items[at + k]), MISSING) for k in range(both, deleted)]
    out += [Change((*path, at + k), "added", MISSING, new[k]) for k in range(both, len(new))]
    return out


def patch(value: Any, found: Iterable[Change]) -> Any:
    """The value after the changes. Plain containers are changed in place."""
    for change in found:
        if not change.path:
            value = change.after
            continue
        holder, last = fields_of(inside(value, change.path[:-1])), change.path[-1]
        if change.kind == "removed":
            del holder[last]
        elif change.kind == "added" and isinstance(holder, list):
            holder.insert(last, change.after)
        else:
            holder[last] = change.after
    return value


def _copy(value: Any) -> Any:
    return Decoder().decode(encode(value))
