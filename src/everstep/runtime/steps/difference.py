"""Finds where two values differ: the paths, and both values around each difference. No I/O."""

from __future__ import annotations

from typing import Any

from everstep.codec.values import Decoder, encode
from everstep.errors import EverstepError
from everstep.fields import Shape

MOST_PATHS = 10
_BEFORE, _LONGEST = 60, 200  # characters of a text shown before a difference, and in total
NOTHING = "nothing"

DifferingPath = tuple[tuple[Any, ...], str, str]


class Difference(Shape, frozen=True):
    """One difference between a validated run and its record.

    `recorded` and `now` show both values around the first difference, and `path` is its path inside the value; `paths` lists the first 10
    differences, and `count` says how many there are. `what` is result, input, new (called now, not recorded), missing (recorded, not called
    now), cancelled, or end (how the workflow itself ended).
    """

    address: str
    recorded: str
    now: str
    path: tuple[Any, ...] = ()
    what: str = "result"
    paths: tuple[DifferingPath, ...] = ()
    count: int = 1

    def __str__(self) -> str:
        what = " input" if self.what == "input" else ""
        paths = self.paths or ((self.path, self.recorded, self.now),)
        shown = [f"{self.address}{what}{''.join(f'[{step!r}]' for step in path)}: recorded {was}, now {now}" for path, was, now in paths]
        left = self.count - len(paths)
        return "\n".join(shown) + (f"\n{self.address}{what}: and {left:,} more" if left > 0 else "")


def difference(address: str, recorded: Any, now: Any, what: str = "result") -> Difference | None:
    """Return how two storable values differ; None if they are the same, including their types."""
    old, new = encode(recorded, address), encode(now, address)
    if old == new:
        return None
    paths = _differing_paths(Decoder().decode(old), Decoder().decode(new)) or [((), *around(repr(recorded), repr(now)))]
    path, was, is_now = paths[0]
    return Difference(address, was, is_now, path, what, tuple(paths[:MOST_PATHS]), len(paths))


def of_texts(address: str, recorded: str, now: str, what: str = "result") -> Difference:
    """Return a difference of two texts that describe the record and the present."""
    return Difference(address, *around(recorded, now), what=what)


def around(one: str, other: str) -> tuple[str, str]:
    """Return two texts, cut to the surroundings of their first difference."""
    start = max(0, _common(one, other) - _BEFORE)
    if max(len(one), len(other)) <= _LONGEST:
        start = 0
    return _cut(one, start), _cut(other, start)


def _common(one: str, other: str) -> int:
    """Return how many characters two texts have in common at their beginning."""
    shorter = min(len(one), len(other))
    return next((n for n in range(shorter) if one[n] != other[n]), shorter)


def _cut(text: str, start: int) -> str:
    end = start + _LONGEST
    return f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"


def _differing_paths(old: Any, new: Any) -> list[DifferingPath]:
    """Return the paths that differ, most of them named as in the diff of two states."""
    from everstep.snapshot.diff import between  # only validation needs it

    try:
        found = between(old, new)
    except EverstepError:
        return []
    paths: list[DifferingPath] = []
    for change in found:
        before = NOTHING if change.kind == "added" else repr(change.before)
        after = NOTHING if change.kind == "removed" else repr(change.after)
        paths.append((change.path, *around(before, after)))
    return paths
