"""Compares two snapshots, reading only the parts that may differ. Relies on `view`; no I/O of its own.

Two references with the same bytes have the same content, and so have two segments with the same digest. Parts that were read or changed on
one side are compared by their encoding, so that 1, 1.0 and True are three different values and the order of keys counts.
"""

from __future__ import annotations

from typing import Any

from ormsgpack import Ext

from everstep.codec.kinds import Unknown
from everstep.codec.values import OBJECT, REFERENCE, hook, pack
from everstep.snapshot.view import Lazy, LazyList, plain

_LISTS = (list, LazyList)
_OPENED = REFERENCE + 1  # not stored anywhere: a part that was read has no reference any more


def alike(a: Any, b: Any) -> bool:
    """Whether two values from a `LazyLoader`, perhaps with deltas applied, are the same."""
    if _shown(a) == _shown(b):
        return True
    a, b = _opened(a), _opened(b)
    if a.__class__ is LazyList or b.__class__ is LazyList:
        return a.__class__ in _LISTS and b.__class__ in _LISTS and _same_parts(_in_parts(a), _in_parts(b))
    if a.__class__ is not b.__class__:
        return False
    if a.__class__ is dict:
        return len(a) == len(b) and all(_shown(k) == _shown(j) and alike(v, w) for (k, v), (j, w) in zip(a.items(), b.items(), strict=True))
    if a.__class__ is list:
        return len(a) == len(b) and all(map(alike, a, b))
    if a.__class__ is Unknown:
        return (a.name, a.version) == (b.name, b.version) and alike(a.fields, b.fields)
    return _shown(plain(a)) == _shown(plain(b))


def _shown(value: Any) -> bytes:
    """Encode a value; a reference is encoded as itself, and an opened part as the identity of its object."""
    return pack(value, _hook)


def _hook(value: Any) -> Any:
    cls = value.__class__
    if cls is Lazy and value.reference is not None:
        return Ext(REFERENCE, value.reference)
    if cls is Lazy or cls is LazyList:
        return Ext(_OPENED, id(value).to_bytes(8))
    if cls is Unknown:
        return Ext(OBJECT, pack([value.name, value.version, value.fields], _hook))
    return hook(value)


def _in_parts(value: Any) -> LazyList:
    return value if value.__class__ is LazyList else LazyList.of(value)


def _opened(value: Any) -> Any:
    return value.resolve() if value.__class__ is Lazy else value


def _same_parts(a: LazyList, b: LazyList) -> bool:
    """Whether two lists are the same; segments with equal digests at the same position are skipped unread."""
    i = j = _unread_alike(a, b)
    held: list[Any] = []  # items of `a` that are still to be compared
    while j < len(b.parts):
        n, digest, _ = b.parts[j]
        if not held and i < len(a.parts) and digest is not None and a.parts[i][1] == digest:
            i, j = i + 1, j + 1
            continue
        while len(held) < n and i < len(a.parts):
            held += a.items(i)
            i += 1
        if not _same_items(held[:n], b, j):
            return False
        del held[:n]
        j += 1
    return not held and not any(n for n, _, _ in a.parts[i:])


def _unread_alike(a: LazyList, b: LazyList) -> int:
    """Return how many parts from the first on have the same digest."""
    k = 0
    for (_, one, _), (_, other, _) in zip(a.parts, b.parts, strict=False):
        if one is None or one != other:
            break
        k += 1
    return k


def _same_items(items: list[Any], b: LazyList, k: int) -> bool:
    """Whether items equal a part. Usually their encoding equals that of the segment, and nothing has to be decoded."""
    content = b.content(k)
    if content is not None and _shown(items) == content:
        return True
    others = b.items(k)
    return len(items) == len(others) and all(map(alike, items, others))
