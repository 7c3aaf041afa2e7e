"""The positions of deleted runs whose tombstones were dropped, as properties of the store.

    deleted:00000003    "12289-12300,12302"     the positions of deleted runs in block 3, as ranges; a block has 4,096 positions

A tombstone takes about 200 bytes. A property takes a few for a whole range, and still proves that no other run had these positions.
"""

from __future__ import annotations

from collections.abc import Iterable

PREFIX = "deleted:"
BLOCK = 4096


def block_of(pk: int) -> int:
    """Return the block of a position; block 0 begins with position 1."""
    return (pk - 1) // BLOCK


def name_of(block: int) -> str:
    """Return the name of a block's property."""
    return f"{PREFIX}{block:08}"


def pack(pks: Iterable[int]) -> str:
    """Write positions as ranges."""
    ranges: list[list[int]] = []
    for pk in sorted(pks):
        if ranges and ranges[-1][1] == pk - 1:
            ranges[-1][1] = pk
        else:
            ranges.append([pk, pk])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def unpack(value: str | None) -> list[range]:
    """Read ranges. ValueError if the text does not hold any."""
    found = []
    for part in value.split(",") if value else ():
        first, _, last = part.partition("-")
        found.append(range(int(first), int(last or first) + 1))
    return found


def joined(value: str | None, pks: Iterable[int]) -> str:
    """Add positions to the value of a property."""
    return pack({*pks, *(pk for part in unpack(value) for pk in part)})


def count(values: Iterable[str]) -> int:
    """Count the positions in properties. An unreadable one counts as 0, so that the manifest doesn't add up."""
    total = 0
    for value in values:
        try:
            total += sum(map(len, unpack(value)))
        except (ValueError, OverflowError):
            continue
    return total
