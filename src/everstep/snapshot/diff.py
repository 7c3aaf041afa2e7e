"""Changes for people: by path, with the values before and after. No I/O.

They are found by comparing two decoded values, whatever operations led from one to the other, so setting a value to its old content is not
a change. A list of changes applies in order, each to the result of those before it: positions are those at that moment. `patch` applies
them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any, Literal

from everstep.codec.kinds import Unknown
from everstep.codec.opaque import OPAQUE
from everstep.codec.values import Decoder, encode, unfindable
from everstep.fields import Shape
from everstep.snapshot.align import aligned
from everstep.snapshot.delta import Op, Path, apply, fields_of, inside, same

MISSING = None
MOST_MOVES = 16  # moved keys of one dict that are listed one by one; beyond that, the old and the new order are given


class Change(Shape, frozen=True):
    """One difference. `kind` is added, removed, changed or moved; `before` of an added and `after` of a removed value are None.

    Moved: a key of a dict has the same value at another position. `before` and `after` are its positions among the keys. If many keys have
    moved, the path is that of the dict, and `before` and `after` are its keys in their order.
    """

    path: Path
    kind: Literal["added", "removed", "changed", "moved"]
    before: Any
    after: Any

    def __str__(self) -> str:
        where = "".join(f"[{step!r}]" for step in self.path) or "state"
        if self.kind == "added":
            return f"+ {where} = {self.after!r:.200}"
        if self.kind == "removed":
            return f"- {where} = {self.before!r:.200}"
        if self.kind == "moved":
            return f"> {where}: order {self.before!r:.200} -> {self.after!r:.200}"
        return f"~ {where}: {self.before!r:.200} -> {self.after!r:.200}"


def between(old: Any, new: Any) -> list[Change]:
    """List the changes from one decoded value to another."""
    out: list[Change] = []
    _compare(old, new, (), out)
    return out


def changes(old: Any, ops: Iterable[Op]) -> list[Change]:
    """List the changes that a delta makes to a decoded value."""
    return between(old, apply(_copy(old), ops))


def _compare(old: Any, new: Any, path: Path, out: list[Change]) -> None:
    if same(old, new):
        return
    cls = old.__class__
    if cls is dict and new.__class__ is dict and _findable(old, new):
        _dicts(old, new, path, out)
    elif cls is list and new.__class__ is list:
        _lists(old, new, path, out)
    elif (
        cls is Unknown
        and old.name != OPAQUE
        and new.__class__ is Unknown
        and (old.name, old.version, [*old.fields]) == (new.name, new.version, [*new.fields])
    ):
        for name, value in old.fields.items():
            _compare(value, new.fields[name], (*path, name), out)
    else:
        out.append(Change(path, "changed", old, new))


def _findable(old: dict[Any, Any], new: dict[Any, Any]) -> bool:
    """Whether paths can contain all keys, and equal keys are the same: 1 and True are one key, but two values."""
    if any(map(unfindable, old)) or any(map(unfindable, new)):
        return False
    was = {key: key for key in old}
    return all(same(was[key], key) for key in new if key in was)


def _dicts(old: dict[Any, Any], new: dict[Any, Any], path: Path, out: list[Change]) -> None:
    out += [Change((*path, k), "removed", v, MISSING) for k, v in old.items() if k not in new]
    for key, value in old.items():
        if key in new:
            _compare(value, new[key], (*path, key), out)
    out += [Change((*path, k), "added", MISSING, v) for k, v in new.items() if k not in old]
    now = [k for k in old if k in new] + [k for k in new if k not in old]
    target = list(new)
    if now != target:
        out += _moves(now, target, path)


def _moves(now: list[Any], target: list[Any], path: Path) -> list[Change]:
    """Return the fewest moves that bring keys into another order, from the first position on."""
    at = {key: i for i, key in enumerate(now)}
    stay = {target[i] for i in _rising([at[key] for key in target])}
    if len(target) - len(stay) > MOST_MOVES:
        return [Change(path, "moved", now, target)]
    out: list[Change] = []
    keys = list(now)
    for i, key in enumerate(target):
        if key not in stay:
            before = keys.index(key)
            del keys[before]
            after = keys.index(target[i - 1]) + 1 if i else 0
            keys.insert(after, key)
            out.append(Change((*path, key), "moved", before, after))
    return out


def _rising(numbers: list[int]) -> list[int]:
    """Return the positions of the longest rising series."""
    tops: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for k, n in enumerate(numbers):
        index = bisect_left(tops, n)
        before.append(ends[index - 1] if index else -1)
        tops[index : index + 1] = [n]
        ends[index : index + 1] = [k]
    out: list[int] = []
    k = ends[-1] if ends else -1
    while k >= 0:
        out.append(k)
        k = before[k]
    return out[::-1]


def _lists(old: list[Any], new: list[Any], path: Path, out: list[Change]) -> None:
    at = 0
    for i, j in aligned([encode(v) for v in old], [encode(v) for v in new]):
        if j is None:
            assert i is not None
            out.append(Change((*path, at), "removed", old[i], MISSING))
            continue
        if i is None:
            out.append(Change((*path, at), "added", MISSING, new[j]))
        else:
            _compare(old[i], new[j], (*path, at), out)
        at += 1


def patch(value: Any, found: Iterable[Change]) -> Any:
    """Apply the changes and return the value. Plain containers are changed in place."""
    for change in found:
        if change.kind == "moved":
            _reorder(value, change)
        elif not change.path:
            value = change.after
        else:
            _put(fields_of(inside(value, change.path[:-1])), change)
    return value


def _put(holder: Any, change: Change) -> None:
    last = change.path[-1]
    if change.kind == "removed":
        del holder[last]
    elif change.kind == "added" and isinstance(holder, list):
        holder.insert(last, change.after)
    else:
        holder[last] = change.after


def _reorder(value: Any, change: Change) -> None:
    whole = isinstance(change.after, list)
    holder = fields_of(inside(value, change.path if whole else change.path[:-1]))
    keys = change.after if whole else [k for k in holder if k != change.path[-1]]
    if not whole:
        keys.insert(change.after, change.path[-1])
    items = [(key, holder[key]) for key in keys]
    holder.clear()
    holder.update(items)


def _copy(value: Any) -> Any:
    return Decoder().decode(encode(value))
