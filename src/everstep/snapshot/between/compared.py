"""Compares a list or dict that was assigned over an old one with that, so that only the difference is written. No I/O.

Both sides are compared by their encoded items; only items that differ are decoded. The old side is given as the content that is stored:
what its methods know, not what something may have written past them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ormsgpack import Fragment

from everstep.codec.values import Decoder, encode, unfindable
from everstep.snapshot.delta import DELETE, SET, SPLICE, Op, Path, anchors, difference, same
from everstep.snapshot.tracked import TrackedDict, TrackedList

RawOf = Callable[[Any, Any], bytes]
"""Returns the stored bytes of an item of a tracked container."""
_FEW = 4
_KINDS: dict[Any, Any] = {TrackedDict: dict, TrackedList: list}


def comparable(old: Any, new: Any) -> bool:
    """Whether an old container has no changes of its own and can be compared with a plain one."""
    kind = _KINDS.get(old.__class__)
    return kind is not None and new.__class__ is kind and old._changes is None and old._kids is None and old._moved is None


def compare(old: Any, new: Any, path: Path, raw_of: RawOf, ops: list[Op]) -> None:
    """Add the operations that turn the stored content of a tracked container into a plain one."""
    if new.__class__ is list:
        _lists(old, new, path, raw_of, ops)
    else:
        _dicts(old, new, path, raw_of, ops)


def _items(old: Any, new: Any, raw: tuple[bytes, bytes], path: Path, raw_of: RawOf, ops: list[Op]) -> None:
    if comparable(old, new):
        compare(old, new, path, raw_of, ops)
    else:
        difference(Decoder().decode(raw[0]), Decoder().decode(raw[1]), path, ops)


def _lists(old: Any, new: list[Any], path: Path, raw_of: RawOf, ops: list[Op]) -> None:
    items = old._guard
    a, b = [raw_of(old, item) for item in items], [encode(item) for item in new]
    if len(a) == len(b):
        changed = [k for k, (old_raw, new_raw) in enumerate(zip(a, b, strict=True)) if old_raw != new_raw]
        if len(changed) <= _FEW or 2 * len(changed) <= len(a):  # otherwise items have moved
            for k in changed:
                _items(items[k], new[k], (a[k], b[k]), (*path, k), raw_of, ops)
            return
    shift = i = j = 0  # `shift`: how far items have moved right, relative to the old list
    for x, y in [*anchors(a, b), (len(a), len(b))]:
        if x - i == y - j:
            for k in range(x - i):
                _items(items[i + k], new[j + k], (a[i + k], b[j + k]), (*path, i + shift + k), raw_of, ops)
        else:
            ops.append([SPLICE, list(path), i + shift, x - i, [Fragment(raw) for raw in b[j:y]]])
            shift += (y - j) - (x - i)
        i, j = x + 1, y + 1


def _dicts(old: Any, new: dict[Any, Any], path: Path, raw_of: RawOf, ops: list[Op]) -> None:
    known: dict[Any, Any] = old._guard
    kept = [key for key in known if key in new]
    order = [*kept, *(key for key in new if key not in known)]
    if any(map(unfindable, known)) or any(map(unfindable, new)) or not all(map(same, order, new)):
        ops.append([SET, list(path), Fragment(encode(new))])  # the order of keys changed, and order is kept
        return
    ops.extend([DELETE, [*path, key]] for key in known if key not in new)
    for key in kept:
        raw = raw_of(old, known[key]), encode(new[key])
        if raw[0] != raw[1]:
            _items(known[key], new[key], raw, (*path, key), raw_of, ops)
    ops.extend([SET, [*path, key], Fragment(encode(new[key]))] for key in order[len(kept) :])
