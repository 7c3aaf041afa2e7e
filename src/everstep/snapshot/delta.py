"""Deltas: the changes between two snapshots, as operations by path. No I/O.

    [0, path, value]                        set    (the empty path is the whole state)
    [1, path]                               delete a key
    [2, path, start, deleted, [items]]      splice a list
    [3, path, start, deleted, text]         splice a text, counted in characters

A path is an array of keys, positions and field names. Operations apply in order, each to the result of those before it. A new key goes to
the end of its dict, as in Python. `apply` works on anything that behaves like dict and list, so the lazy containers of `view` take deltas
as well. `difference` computes a delta from two decoded values.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any

from ormsgpack import packb

from everstep.codec.kinds import Unknown
from everstep.codec.values import encode, unfindable
from everstep.errors import Damaged

SET, DELETE, SPLICE, TEXT = range(4)
Path = tuple[Any, ...]
Op = list[Any]
_LONG = 128
_plain_equal = frozenset({type(None), bool, int, str, bytes})


def apply(root: Any, ops: Iterable[Op]) -> Any:
    """Apply the operations and return the value; containers are changed in place. An impossible operation is damage."""
    with misfit():
        for op in ops:
            root = _apply(root, op)
    return root


def joined(first: bytes, second: bytes) -> bytes:
    """Join two encoded deltas."""
    if not (n := _count(first)):
        return second
    if not (m := _count(second)):
        return first
    return packb([None] * (n + m))[: -(n + m)] + first[_head(n) :] + second[_head(m) :]


def _count(delta: bytes) -> int:
    """Return the number of operations of an encoded delta."""
    if delta[0] < 0xDC:
        return delta[0] & 0x0F
    return int.from_bytes(delta[1:3] if delta[0] == 0xDC else delta[1:5])


def _head(n: int) -> int:
    """Return the length of the head of an encoded delta of n operations."""
    return 1 if n < 16 else 3 if n < 65536 else 5


class _Misfit:
    """Turns every error of operations that don't fit into damage. A class, because a generator costs more than applying a delta."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (LookupError, TypeError, ValueError, AttributeError, RecursionError)):
            raise Damaged(f"a delta does not fit the snapshot below it: {error!r:.200}") from error


misfit = _Misfit


def _apply(root: Any, op: Op) -> Any:
    code, path = op[0], op[1]
    if not path:
        if code == SET:
            return op[2]
        if code == TEXT:
            return _spliced(root, op)
    if code == SPLICE:
        target = inside(root, path)
        if target.__class__ is dict:  # a dict would use the slice as a key
            raise TypeError("a dict cannot be spliced")
        target[op[2] : op[2] + op[3]] = op[4]
        return root
    holder = root if len(path) == 1 else inside(root, path[:-1])
    if holder.__class__ is not dict:  # the most common case
        holder = fields_of(holder)
    if code == SET:
        holder[path[-1]] = op[2]
    elif code == DELETE:
        del holder[path[-1]]
    elif code == TEXT:
        holder[path[-1]] = _spliced(holder[path[-1]], op)
    else:
        raise ValueError(f"operation {code}")
    return root


def _spliced(text: str, op: Op) -> str:
    spliced: str = text[: op[2]] + op[4] + text[op[2] + op[3] :]
    return spliced


def inside(root: Any, path: Sequence[Any]) -> Any:
    """Return the value at a path."""
    for step in path:
        cls = root.__class__
        root = (root if cls is dict or cls is list else fields_of(root))[step]
    return root


def fields_of(value: Any) -> Any:
    """Return the container that a path continues in: a container, an object's fields, or the target of a lazy reference (of `view`)."""
    cls = value.__class__
    if cls is dict or cls is list:
        return value
    if cls is Unknown:
        return value.fields
    return fields_of(value.resolve()) if hasattr(value, "resolve") else value


def same(a: Any, b: Any) -> bool:
    """Whether two decoded values are equal, with the same types throughout."""
    if a is b:
        return True
    if a.__class__ is not b.__class__:
        return False
    if a.__class__ in _plain_equal:
        return bool(a == b)
    return encode(a) == encode(b)


def difference(old: Any, new: Any, path: Path, ops: list[Op]) -> None:
    """Add the operations that turn one decoded value into another."""
    cls = old.__class__
    if old is new:
        return
    if cls is not new.__class__:
        ops.append([SET, list(path), new])
    elif cls is dict:
        _dicts(old, new, path, ops)
    elif cls is list:
        _lists(old, new, path, ops)
    elif cls is str and len(old) > _LONG:
        texts(old, new, path, ops)
    elif cls is Unknown and (old.name, old.version) == (new.name, new.version):
        _objects(old, new, path, ops)
    elif not same(old, new):
        ops.append([SET, list(path), new])


def _objects(old: Unknown, new: Unknown, path: Path, ops: list[Op]) -> None:
    if list(old.fields) != list(new.fields):
        ops.append([SET, list(path), new])
        return
    for name, value in old.fields.items():
        difference(value, new.fields[name], (*path, name), ops)


def _dicts(old: dict[Any, Any], new: dict[Any, Any], path: Path, ops: list[Op]) -> None:
    if any(map(unfindable, old)) or any(map(unfindable, new)):
        if not same(old, new):
            ops.append([SET, list(path), new])
        return
    kept = [k for k in old if k in new]
    order = kept + [k for k in new if k not in old]
    if not all(map(same, order, new)):  # the order of keys changed, and order is kept; or True replaced 1, which is the same key
        ops.append([SET, list(path), new])
        return
    for k in old:
        if k not in new:
            ops.append([DELETE, [*path, k]])
    for k in kept:
        difference(old[k], new[k], (*path, k), ops)
    for k in order[len(kept) :]:
        ops.append([SET, [*path, k], new[k]])


def texts(old: str, new: str, path: Path, ops: list[Op]) -> None:
    """Set a text, or splice it if that is shorter."""
    if old == new:
        return
    head = _common(old, new)
    tail = _common_end(old, new, min(len(old), len(new)) - head)
    insert = new[head : len(new) - tail]
    if len(insert) + 16 < len(new):
        ops.append([TEXT, list(path), head, len(old) - head - tail, insert])
    else:
        ops.append([SET, list(path), new])


def _common(a: str, b: str) -> int:
    """Return the length of the common beginning; compares whole blocks at once, and the last one by halving."""
    limit = min(len(a), len(b))
    low = 0
    while low < limit and a[low : low + 4096] == b[low : low + 4096]:
        low += 4096
    high = min(low + 4096, limit)
    low = min(low, limit)
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _common_end(a: str, b: str, limit: int) -> int:
    low = 0
    while low < limit and (n := min(4096, limit - low)) and a[len(a) - low - n : len(a) - low] == b[len(b) - low - n : len(b) - low]:
        low += n
    high = min(low + 4096, limit)
    while low < high:
        middle = (low + high + 1) // 2
        if a[len(a) - middle : len(a) - low] == b[len(b) - middle : len(b) - low]:
            low = middle
        else:
            high = middle - 1
    return low


def _lists(old: list[Any], new: list[Any], path: Path, ops: list[Op]) -> None:
    a = [encode(v) for v in old]
    b = [encode(v) for v in new]
    shift = 0  # how far items have moved right, relative to `old`
    i = j = 0
    for x, y in [*anchors(a, b), (len(a), len(b))]:
        shift = _gap(old[i:x], new[j:y], i + shift, path, ops) + shift
        i, j = x + 1, y + 1


def _gap(old: list[Any], new: list[Any], at: int, path: Path, ops: list[Op]) -> int:
    """Turn the items between two anchors into the new ones; return how far the rest moves."""
    if len(old) == len(new):
        for k, (x, y) in enumerate(zip(old, new, strict=True)):
            difference(x, y, (*path, at + k), ops)
        return 0
    if old or new:
        ops.append([SPLICE, list(path), at, len(old), new])
    return len(new) - len(old)


def anchors(a: list[bytes], b: list[bytes]) -> list[tuple[int, int]]:
    """Return pairs of positions with equal items, rising on both sides: the common ends, and unique items between them."""
    limit = min(len(a), len(b))
    head = 0
    while head < limit and a[head] == b[head]:
        head += 1
    tail = 0
    while tail < limit - head and a[-1 - tail] == b[-1 - tail]:
        tail += 1
    out = [(k, k) for k in range(head)]
    out += _unique(a, b, head, tail)
    out += [(len(a) - k, len(b) - k) for k in range(tail, 0, -1)]
    return out


def _unique(a: list[bytes], b: list[bytes], head: int, tail: int) -> list[tuple[int, int]]:
    """Find anchors in the middle: items that occur once on each side, as the longest series that rises on both (patience)."""
    where = _once(a, head, len(a) - tail)
    other = _once(b, head, len(b) - tail)
    pairs = [(where[item], j) for item, j in other.items() if item in where]  # rising in j
    ends: list[int] = []  # for each length, the index into pairs at which the best series ends
    tops: list[int] = []
    before = [-1] * len(pairs)
    for k, (i, _) in enumerate(pairs):
        index = bisect_left(tops, i)
        before[k] = ends[index - 1] if index else -1
        ends[index : index + 1] = [k]
        tops[index : index + 1] = [i]
    out: list[tuple[int, int]] = []
    k = ends[-1] if ends else -1
    while k >= 0:
        out.append(pairs[k])
        k = before[k]
    return out[::-1]


def _once(items: list[bytes], start: int, stop: int) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    twice: set[bytes] = set()
    for k in range(start, stop):
        item = items[k]
        if item in found:
            twice.add(item)
        found[item] = k
    for item in twice:
        del found[item]
    return found
