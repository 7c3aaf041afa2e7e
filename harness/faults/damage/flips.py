"""Flips every bit of a store, one at a time, and reads everything: each read returns the original value, or an error that names the damage.

The bits are those of the file of a closed store, of the WAL and the rollback guard of a killed one, and of every stored frame (record bodies, chunks,
messages, added bases) as a backend returns it. `bench` defines the reads and how each result counts. SQLite does not report a WAL that ends
early; the rollback guard detects it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from unittest.mock import patch

from harness.faults.count import Count, Progress
from harness.faults.damage.pool import tried
from harness.faults.damage.reads import SAME, WRONG
from harness.faults.damage.recall import PAGE
from harness.faults.damage.sample import build
from harness.faults.damage.trial import Bench, Outcome

SHORT = 20_000
SHARES = (0.36, 0.28, 0.01, 0.35)
"""The share of the file, the WAL, the rollback guard and the frames in a sample."""
SAMPLE_EVERY = 199
"""One flip in this many is read in full and verified."""


def sizes(bench: Bench) -> list[int]:
    """Return the number of bits in the file, the WAL, the rollback guard and the frames. Flips are numbered in this order."""
    return [len(bench.closed[""]) * 8, len(bench.killed["-wal"]) * 8, len(bench.killed["-seen"]) * 8, bench.frames.bits]


def flip(bench: Bench, number: int) -> Outcome:
    """Try one flip."""
    in_file, in_wal, in_guard, _ = sizes(bench)
    thorough = number % SAMPLE_EVERY == 0
    if number < in_file:
        files = bench.closed | {"": flipped(bench.closed[""], number)}
        return bench.attempt(files, bench.calls_of([number // 8 // PAGE]), thorough)
    number -= in_file
    if number < in_wal:
        return bench.attempt(bench.killed | {"-wal": flipped(bench.killed["-wal"], number)}, None, thorough)
    number -= in_wal
    if number < in_guard:  # only `open` reads it
        kind, said = bench.attempt(bench.killed | {"-seen": flipped(bench.killed["-seen"], number)}, [], thorough)
        return (kind, said) if kind == SAME else (WRONG, f"a whole store was not opened, although only its rollback guard was torn: {said}")
    return bench.frames.flip(number - in_guard)


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit >> 3] ^= 1 << (bit & 7)
    return bytes(changed)


def _chosen(bits: list[int], seed: int) -> Iterator[int]:
    """Draw a sample in which each part has its share."""
    random, start = Random(seed), 0  # noqa: S311 -- has to be the same each time
    for size, share in zip(bits, SHARES, strict=True):
        yield from sorted(random.sample(range(start, start + size), min(size, int(SHORT * share))))
        start += size


def run(folder: Path, *, deep: bool, seed: int = 0, progress: Progress = None, minutes: float | None = None) -> Count:
    count = Count("every bit of a store flipped" if deep else "bits of a store flipped")
    with count.timed():
        sample = build(folder / "sample")
        bench = Bench(sample, folder / "bench")
        numbers = list(range(sum(sizes(bench))) if deep else _chosen(sizes(bench), seed))
        if minutes is not None:
            Random(seed).shuffle(numbers)  # noqa: S311 -- has to be the same each time
        tried(count, flip, numbers, bench, sample if deep else None, folder, progress, minutes)
        bench.close()
        if deep and count.tried < len(numbers):
            count.harness = f"{count.tried:,} of the {len(numbers):,} bits of a store flipped"
        count.tell_canary("digests not looked at", canary(folder / "canary", seed))
    return count


def canary(folder: Path, seed: int = 0) -> bool:
    """Whether a reader that ignores digests is caught reading data that was never saved."""
    bench = Bench(build(folder / "sample"), folder / "bench")
    random, first = Random(seed), sum(sizes(bench)[:-1])  # noqa: S311 -- has to be the same each time
    with patch("everstep.store.load.record_fault", lambda *_: None):
        kinds = {flip(bench, first + random.randrange(bench.frames.bits))[0] for _ in range(300)}
    bench.close()
    return WRONG in kinds
