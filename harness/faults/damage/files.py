"""Damages the files of a store as disks, copies and people do: truncated, zeroed, swapped, replaced, removed, mixed up.

Every length of the file and of the WAL, every block of 512 bytes zeroed, every two pages swapped, rows swapped or removed behind Everstep's
back (`rows`); an older file put back, with any WAL or none; the WAL removed, or replaced by that of another store; an index of the WAL that is
garbage. `bench` defines the reads and how each result counts. Only the rollback guard can show that a store is older than it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt
from pathlib import Path
from random import Random
from unittest.mock import patch

from harness.faults.count import Count, Progress
from harness.faults.damage.pool import tried
from harness.faults.damage.reads import DETECTED
from harness.faults.damage.recall import PAGE
from harness.faults.damage.rows import row_damage, row_damages
from harness.faults.damage.sample import build
from harness.faults.damage.trial import Bench, Files, Outcome

BLOCK = 512


@dataclass(frozen=True, slots=True)
class Group:
    """Damages of one kind: how many there are, how the nth is tried, how many a short run takes."""

    name: str
    size: Callable[[Bench], int]
    attempt: Callable[[Bench, int], Outcome]
    short: int


def _cut(bench: Bench, length: int) -> Outcome:
    return bench.attempt(bench.closed | {"": bench.closed[""][:length]})


def _cut_wal(bench: Bench, length: int) -> Outcome:
    return bench.attempt(bench.killed | {"-wal": bench.killed["-wal"][:length]})


def _zero(bench: Bench, number: int) -> Outcome:
    start = _blocks(bench.closed[""])[number]
    return bench.attempt(bench.closed | {"": _zeroed(bench.closed[""], start)}, bench.calls_of([start // PAGE]))


def _zero_wal(bench: Bench, number: int) -> Outcome:
    wal = bench.killed["-wal"]
    return bench.attempt(bench.killed | {"-wal": _zeroed(wal, _blocks(wal)[number])})


def _zeroed(content: bytes, start: int) -> bytes:
    return content[:start] + bytes(len(content[start : start + BLOCK])) + content[start + BLOCK :]


@lru_cache(maxsize=8)
def _blocks(content: bytes) -> list[int]:
    """Return where the blocks begin that are not empty."""
    return [start for start in range(0, len(content), BLOCK) if any(content[start : start + BLOCK])]


def _page(bench: Bench) -> int:
    """Return the page size of the store, as its header says: it differs from the parts of a file (`PAGE`) in `recall`."""
    return int.from_bytes(bench.closed[""][16:18])


def _pages(bench: Bench) -> int:
    return len(bench.closed[""]) // _page(bench)


def _exchange(bench: Bench, number: int) -> Outcome:
    """Exchange two pages; pairs are numbered (1, 0), (2, 0), (2, 1), (3, 0)…"""
    high = (isqrt(8 * number + 1) + 1) // 2
    low = number - high * (high - 1) // 2
    content, size = bytearray(bench.closed[""]), _page(bench)
    one, two = slice(low * size, (low + 1) * size), slice(high * size, (high + 1) * size)
    content[one], content[two] = content[two], content[one]
    return bench.attempt(bench.closed | {"": bytes(content)}, bench.calls_of([one.start // PAGE, two.start // PAGE]))


def _mixed(bench: Bench) -> list[tuple[str, Files]]:
    """List files that do not belong together. The rollback guard is that of the store's end, unless the name says otherwise."""
    closed, killed, earlier, earlier_killed, other = bench.closed, bench.killed, bench.earlier, bench.earlier_killed, bench.other
    seen = {"-seen": closed["-seen"]}
    garbage = Random(0).randbytes(32 << 10)  # noqa: S311 -- has to be the same each time
    return [
        ("an old file with no WAL", {"": earlier[""]} | seen),
        ("an old file with its own WAL", {"": earlier_killed[""], "-wal": earlier_killed["-wal"]} | seen),
        ("an old file with the new WAL", {"": earlier[""], "-wal": killed["-wal"]} | seen),
        ("the new file with an old WAL", {"": closed[""], "-wal": earlier_killed["-wal"]} | seen),
        ("the WAL removed", {"": killed[""]} | seen),
        ("an empty WAL", killed | {"-wal": b""}),
        ("the WAL of another store", killed | {"-wal": other["-wal"]}),
        ("the WAL of another store beside a closed one", closed | {"-wal": other["-wal"]}),
        ("garbage for a WAL", killed | {"-wal": garbage}),
        ("garbage for the index of the WAL", killed | {"-shm": garbage}),
        ("zeros for the index of the WAL", killed | {"-shm": bytes(32 << 10)}),
        ("the rollback guard of another store", killed | {"-seen": other["-seen"]}),
        ("no rollback guard", {"": killed[""], "-wal": killed["-wal"]}),
        ("garbage for a rollback guard", killed | {"-seen": garbage[:32]}),
    ]


def _mix(bench: Bench, number: int) -> Outcome:
    name, files = _mixed(bench)[number]
    kind, said = bench.attempt(files)
    return kind, f"{name}: {said}"


GROUPS = (
    Group("the file cut off", lambda bench: len(bench.closed[""]), _cut, 400),
    Group("the WAL cut off", lambda bench: len(bench.killed["-wal"]), _cut_wal, 400),
    Group("a block of the file zeroed", lambda bench: len(_blocks(bench.closed[""])), _zero, 1_000),
    Group("a block of the WAL zeroed", lambda bench: len(_blocks(bench.killed["-wal"])), _zero_wal, 1_000),
    Group("two pages exchanged", lambda bench: _pages(bench) * (_pages(bench) - 1) // 2, _exchange, 150),
    Group("rows exchanged", lambda bench: len(row_damages(bench)), row_damage, 200),
    Group("files mixed up", lambda bench: len(_mixed(bench)), _mix, 1_000),
)


def damage(bench: Bench, number: int) -> Outcome:
    """Try one damage. They are numbered, group by group."""
    for group in GROUPS:
        size = group.size(bench)
        if number < size:
            kind, said = group.attempt(bench, number)
            return kind, f"{group.name}, {number}: {said}"
        number -= size
    raise IndexError(number)


def _chosen(bench: Bench, deep: bool, seed: int) -> Iterator[int]:
    random, start = Random(seed), 0  # noqa: S311 -- has to be the same each time
    for group in GROUPS:
        size = group.size(bench)
        yield from sorted(random.sample(range(start, start + size), size if deep else min(size, group.short)))
        start += size


def run(folder: Path, *, deep: bool, seed: int = 0, progress: Progress = None) -> Count:
    count = Count("files cut, zeroed, exchanged, put back")
    with count.timed():
        sample = build(folder / "sample")
        bench = Bench(sample, folder / "bench")
        tried(count, damage, list(_chosen(bench, deep, seed)), bench, sample if deep else None, folder, progress)
        bench.close()
        count.tell_canary("rollback guard not looked at", canary(folder / "canary"))
    return count


def canary(folder: Path) -> bool:
    """Whether a store without a rollback guard is caught going back: each of the files that make it older must show."""
    bench = Bench(build(folder / "sample"), folder / "bench")
    with patch("everstep.backends.sqlite.files.rollback_guard.RollbackGuard.recall", lambda _: None):
        kinds = [_mix(bench, number)[0] for number in (0, 1, 4)]
    bench.close()
    return DETECTED not in kinds
