"""The pages of a SQLite file as bytes: cells of b-tree pages and the rows in them. No I/O, and nothing here raises.

    leaf of a table (13)     payload size, rowid, payload, first overflow page         sizes and rowid are varints
    leaf of an index (10)    payload size, payload, first overflow page                also of tables WITHOUT ROWID
    inner page of an index (2)   left child (4 bytes), then as in a leaf
    payload                  size of the header, a serial type for each column, the columns

The input may be damaged in any way, so every result is a candidate: the caller must verify a row by its digest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

LEAF_TABLE, LEAF_INDEX, INNER_TABLE, INNER_INDEX = 13, 10, 5, 2
_MOST = 300 << 20  # all our rows are smaller
_INT_SIZES = (0, 1, 2, 3, 4, 6, 8)
GONE: Any = ...  # the value of a column whose bytes are missing


class Cell(NamedTuple):
    """One cell: the start of its payload in the page is known, the rest may be in overflow pages."""

    rowid: int | None
    total: int
    local: bytes
    overflow: int


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number and the offset after it. Raises IndexError beyond the end."""
    value = 0
    for _ in range(8):
        byte = data[at]
        at += 1
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at
    return value << 8 | data[at], at + 1


def local_size(total: int, usable: int, index: bool) -> int:
    """Return how many bytes of a payload are in the page itself."""
    most = (usable - 12) * 64 // 255 - 23 if index else usable - 35
    if total <= most:
        return total
    least = (usable - 12) * 32 // 255 - 23
    size = least + (total - least) % (usable - 4)
    return size if size <= most else least


def cell_at(page: bytes, at: int, kind: int, usable: int) -> Cell | None:
    """Return the cell that begins at an offset of a page, if it can be one."""
    try:
        total, at = varint(page, at + 4 if kind == INNER_INDEX else at)
        rowid, at = varint(page, at) if kind == LEAF_TABLE else (None, at)
    except IndexError:
        return None
    if not 0 < total <= _MOST:
        return None
    size = local_size(total, usable, kind != LEAF_TABLE)
    local = page[at : at + size]
    overflow = int.from_bytes(page[at + size : at + size + 4]) if size < total else 0
    return Cell(rowid, total, local, overflow) if len(local) == size else None


def cell_starts(page: bytes, first: bool) -> tuple[int, list[int]]:
    """Return the kind of a page and the offsets of its cells; kind 0 if it is not a b-tree page that holds rows."""
    start = 100 if first else 0
    kind = page[start] if len(page) > start + 12 else 0
    if kind not in (LEAF_TABLE, LEAF_INDEX, INNER_INDEX):
        return 0, []
    count = int.from_bytes(page[start + 3 : start + 5])
    begin = start + (12 if kind == INNER_INDEX else 8)
    end = begin + 2 * count
    found = [int.from_bytes(page[i : i + 2]) for i in range(begin, min(end, len(page) - 1), 2)]
    return kind, [at for at in found if end <= at < len(page)]


def columns(payload: bytes, total: int) -> list[Any] | None:
    """Return the columns of a row; GONE for those whose bytes are missing at the end. None if it is not a row."""
    try:
        header, at = varint(payload, 0)
        serials: list[int] = []
        while at < header:
            serial, at = varint(payload, at)
            serials.append(serial)
    except IndexError:
        return None
    sizes = [_INT_SIZES[s] if s < 7 else 8 if s == 7 else 0 if s < 10 else (s - 12) // 2 for s in serials]
    if at != header or header + sum(sizes) != total or any(s in (10, 11) for s in serials):
        return None
    values: list[Any] = []
    for serial, size in zip(serials, sizes, strict=True):
        raw = payload[at : at + size]
        at += size
        value = _value(serial, raw) if len(raw) == size else GONE
        if value is _BAD:
            return None
        values.append(value)
    return values


def rows_in(page: bytes, first: bool, usable: int) -> Iterator[tuple[Cell, list[Any]]]:
    """Yield the readable rows of a page."""
    kind, starts = cell_starts(page, first)
    for at in starts:
        cell = cell_at(page, at, kind, usable)
        values = columns(cell.local, cell.total) if cell is not None else None
        if cell is not None and values is not None:
            yield cell, values


_BAD: Any = object()


def _value(serial: int, raw: bytes) -> Any:
    if serial == 0:
        return None
    if serial < 7:
        return int.from_bytes(raw, signed=True)
    if serial in (8, 9):
        return serial - 8
    if serial == 7:
        return _BAD  # none of our tables has a column of that type
    if serial % 2 == 0:
        return raw
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return _BAD


# The first bytes of the headers of rows with a rowid, as they are in a page.
_HEADERS = re.compile(
    rb"\x00(?:[\x0d-\x7f]|[\x81-\x83][\x00-\x7f])\x2c\x2c"  # runs: id, key, family
    rb"|\x00[\x15\x17\x19\x21][\x01-\x09][\x04-\x06][\x01-\x09]"  # records: kind, epoch, at, number
    rb"|\x00\x2c\x4c"  # chunks: family, digest
)


def strays(page: bytes, usable: int) -> Iterator[int]:
    """Yield the offsets at which table cells may begin in a page whose own cell list cannot be trusted."""
    for found in _HEADERS.finditer(page, 3, usable):
        for header in (found.start() - 1, found.start() - 2):  # its size is a varint of one byte, or of two
            at = _varint_before(page, header)
            at = None if at is None else _varint_before(page, at)
            if at is not None and at >= 0:
                yield at


def _varint_before(page: bytes, end: int) -> int | None:
    """Return the offset at which the varint begins that ends right before `end`."""
    at = end - 1
    if at < 0 or page[at] >= 0x80:
        return None
    while at > 0 and end - at < 9 and page[at - 1] >= 0x80:
        at -= 1
    return at
