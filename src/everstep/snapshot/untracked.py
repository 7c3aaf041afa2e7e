"""Finds changes in objects that cannot be tracked: remembers the saved bytes of a plain part and compares them.

A small part is one piece of bytes. A big list is remembered in blocks, a big dict or object by key, so that only the neighbourhood of a
change is decoded and compared. Costs O(part) of time at each check, O(change) of bytes written. No I/O.
"""

from __future__ import annotations

from typing import Any

from everstep.codec.kinds import Unknown, kind_of
from everstep.codec.values import FROZEN, Decoder, encode, may_hold_bytes, same_bytes, unfindable
from everstep.snapshot.delta import SET, Op, Path, difference, same

WHOLE = 32 * 1024
_BYTES = frozenset({bytes, bytearray, memoryview})


def remember(value: Any) -> Shadow | bytes:
    """Return the data to find changes in a value later: only its bytes, if they are enough."""
    raw = encode(value)
    return raw if len(raw) <= WHOLE and not may_hold_bytes(raw) else Shadow(value)


def changes_of(part: Any) -> list[Op]:
    """Return the changes of a plain part since it was remembered, and remember its current content. A new one goes into the delta as a
    whole.
    """
    found: list[Op] = []
    shadow = part.shadow
    if shadow is None or (shadow.__class__ is bytes and same_bytes(part.obj, shadow)):
        return found
    part.shadow = shadow = Shadow.of(shadow, type(part.obj)) if shadow.__class__ is bytes else shadow
    shadow.compare(part.obj, (), found)
    return found


class Shadow:
    """The saved content of one value: `raw` if small, else `blocks` of a list or `fields` of a dict or object."""

    __slots__ = ("binary", "blocks", "cls", "fields", "raw", "slice")

    def __init__(self, value: Any, slice: bool = False, raw: bytes | None = None):
        self.cls = type(value)
        self.blocks: list[tuple[int, Shadow]] | None = None
        self.fields: dict[Any, Shadow] | None = None
        self.raw: bytes | None = encode(value) if raw is None else raw
        self.binary = _has_bytes(self.raw, value)
        self.slice = slice  # a block of a list, which is not split, however long it is
        if slice or len(self.raw) <= WHOLE:
            return
        if self.cls is list and len(value) > 1:
            self.blocks, self.raw = _blocks(value), None
        elif (fields := _fields(value)) is not None:
            self.fields, self.raw = {k: Shadow(v) for k, v in fields.items()}, None

    @classmethod
    def of(cls, raw: bytes, kind: type) -> Shadow:
        """Create the shadow of a short value whose bytes were kept; if the type differs now, the value was replaced anyway."""
        out = object.__new__(cls)
        out.cls, out.raw, out.binary, out.slice, out.blocks, out.fields = kind, raw, False, False, None, None
        return out

    def compare(self, value: Any, path: Path, ops: list[Op]) -> None:
        """Add the operations that turn the saved content into the value, and remember it."""
        raw = None
        if type(value) is not self.cls:
            ops.append([SET, list(path), value])
        elif self.blocks is not None:
            return self._compare_list(value, path, ops)
        elif self.fields is not None and (fields := _fields(value)) is not None and _same_keys(fields, self.fields):
            for key, field in fields.items():
                self.fields[key].compare(field, (*path, key), ops)
            return None
        elif self.raw is not None and self._unchanged(value):
            return None
        else:
            raw = encode(value)  # encoded once: another thread may change the value, and the remembered bytes must equal the operations
            difference(self.neutral(), _neutral(raw), path, ops)
        self.__init__(value, self.slice, raw)  # type: ignore[misc]
        return None

    def _unchanged(self, value: Any) -> bool:
        assert self.raw is not None
        return encode(value) == self.raw if self.binary else same_bytes(value, self.raw)

    def neutral(self) -> Any:
        """Return the remembered value, decoded, with objects as `Unknown`."""
        if self.raw is not None:
            return _neutral(self.raw)
        if self.blocks is not None:
            return [item for count, block in self.blocks for item in block.items(count)]
        fields = {k: v.neutral() for k, v in (self.fields or {}).items()}
        kind = kind_of(self.cls)
        return Unknown(kind.name, kind.version, fields) if kind else fields

    def items(self, count: int) -> list[Any]:
        """Return the items of a block: of a list's slice, or the one big item."""
        return [self.neutral()] if count == 1 else list(self.neutral())

    def _compare_list(self, value: list[Any], path: Path, ops: list[Op]) -> None:
        assert self.blocks is not None
        if sum(count for count, _ in self.blocks) == len(value) and self._compare_in_place(value, path, ops):
            return
        head, tail, low, high = _unchanged_ends(self.blocks, value)
        old = self.blocks[head : len(self.blocks) - tail]
        before = [item for count, block in old for item in block.items(count)]
        inner: list[Op] = []
        difference(before, [_neutral(encode(v)) for v in value[low:high]], (), inner)
        ops.extend(_shifted(inner, path, low))
        self.blocks[head : len(self.blocks) - tail] = _blocks(value[low:high])

    def _compare_in_place(self, value: list[Any], path: Path, ops: list[Op]) -> bool:
        """Compare within the changed blocks if they are few; many mean that items have moved."""
        assert self.blocks is not None
        changed: list[tuple[Shadow, int, int]] = []
        at = 0
        for count, block in self.blocks:
            if not block.holds(value, at, count):
                changed.append((block, at, count))
            at += count
        if len(changed) > 4 and len(changed) * 2 > len(self.blocks):
            return False
        for block, at, count in changed:
            block.refresh(value, at, count, path, ops)
        return True

    def holds(self, value: list[Any], at: int, count: int) -> bool:
        """Whether this block still equals the list at that position."""
        now = _slice(value, at, count)
        if self.raw is not None:
            return type(now) is self.cls and self._unchanged(now)
        found: list[Op] = []
        self._copy().compare(now, (), found)
        return not found

    def refresh(self, value: list[Any], at: int, count: int, path: Path, ops: list[Op]) -> None:
        if count == 1:
            self.compare(value[at], (*path, at), ops)
            return
        inner: list[Op] = []
        self.compare(_slice(value, at, count), (), inner)
        ops.extend(_shifted(inner, path, at))

    def _copy(self) -> Shadow:
        out = object.__new__(Shadow)
        out.cls, out.raw, out.binary, out.slice = self.cls, self.raw, self.binary, self.slice
        out.blocks = None if self.blocks is None else [(count, block._copy()) for count, block in self.blocks]
        out.fields = None if self.fields is None else {k: v._copy() for k, v in self.fields.items()}
        return out


def _shifted(inner: list[Op], path: Path, by: int) -> list[Op]:
    """Convert operations on a slice of a list to operations on the list itself, `by` items further."""
    out: list[Op] = []
    for op in inner:
        step = op[1]
        if step:
            out.append([op[0], [*path, step[0] + by, *step[1:]], *op[2:]])
        elif op[0] == SET:
            raise AssertionError("a slice stays a list")
        else:
            out.append([op[0], list(path), op[2] + by, *op[3:]])
    return out


def _unchanged_ends(blocks: list[tuple[int, Shadow]], value: list[Any]) -> tuple[int, int, int, int]:
    """Count the unchanged blocks at the beginning and at the end, and return the positions between them."""
    head = low = 0
    for count, block in blocks:
        if low + count > len(value) or not block.holds(value, low, count):
            break
        low += count
        head += 1
    tail, high = 0, len(value)
    for count, block in reversed(blocks[head:]):
        if high - count < low or not block.holds(value, high - count, count):
            break
        high -= count
        tail += 1
    return head, tail, low, high


def _blocks(value: list[Any]) -> list[tuple[int, Shadow]]:
    """Split a list into blocks of about WHOLE bytes; a bigger item is a block of its own."""
    out: list[tuple[int, Shadow]] = []
    start = size = 0
    for i, item in enumerate(value):
        n = len(encode(item))
        if size and size + n > WHOLE:
            out.append(_block(value, start, i))
            start, size = i, 0
        size += n
    if start < len(value):
        out.append(_block(value, start, len(value)))
    return out


def _block(value: list[Any], start: int, stop: int) -> tuple[int, Shadow]:
    return stop - start, Shadow(_slice(value, start, stop - start), slice=stop - start > 1)


def _slice(value: list[Any], at: int, count: int) -> Any:
    """Return the content of a block: one item, or a slice of several."""
    return value[at] if count == 1 else value[at : at + count]


def _same_keys(a: dict[Any, Any], b: dict[Any, Any]) -> bool:
    return len(a) == len(b) and all(map(same, a, b))


def _fields(value: Any) -> dict[Any, Any] | None:
    """Return the parts of a dict or of an object of the program, by key."""
    if type(value) is dict:
        return None if any(map(unfindable, value)) else value
    if type(value) in FROZEN or type(value) is list:
        return None
    kind = kind_of(type(value))
    return kind.take(value) if kind is not None else None


def _neutral(raw: bytes) -> Any:
    return Decoder().decode(raw)


def _has_bytes(raw: bytes, value: Any) -> bool:
    """Whether a value contains bytes: only then can a bytearray with the same content have replaced them."""
    if not may_hold_bytes(raw):
        return False
    todo = [value]
    while todo:
        item = todo.pop()
        cls = type(item)
        if cls in _BYTES:
            return True
        if cls is dict:
            todo.extend(item.values())
        elif cls is list:
            todo.extend(item)
        elif cls not in FROZEN:
            return True
    return False
