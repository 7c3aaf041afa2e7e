"""Two snapshots that are read lazily are alike exactly if their encodings are the same, and no more is read than where they may differ."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.codec.kinds import Unknown
from everstep.codec.values import Decoder, encode
from everstep.snapshot.delta import apply, difference
from everstep.snapshot.equality import alike
from everstep.snapshot.saver import Saver
from everstep.snapshot.view import LazyLoader


class Place:
    """Chunks of some bases, and how many of them were asked for."""

    def __init__(self) -> None:
        self.chunks: dict[bytes, bytes] = {}
        self.asked = 0

    def base(self, value: Any) -> bytes:
        saver = Saver(bytes)
        saver.begin(value)
        saved = saver.build(whole=True)
        self.chunks.update(saved.chunks)
        assert saved.base is not None
        return saved.base

    def fetch(self, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        self.asked += len(digests)
        return {digest: self.chunks[digest] for digest in digests}

    def lazy(self, base: bytes) -> Any:
        return LazyLoader(self.fetch, bytes).load(base)


def neutral(value: Any) -> Any:
    return Decoder().decode(encode(value))


def moved(place: Place, before: Any, after: Any) -> Any:
    """A lazy snapshot of `before` with the delta to `after` applied."""
    ops: list[Any] = []
    difference(neutral(before), neutral(after), (), ops)
    return apply(place.lazy(place.base(before)), neutral(ops))


def rows(seed: int, count: int, length: int = 120) -> list[Any]:
    chance = random.Random(seed)
    return [{"n": i, "text": chance.randbytes(length).hex()} for i in range(count)]


SCALARS = st.sampled_from([None, True, 1, 1.0, 0, -0.0, 0.0, "", "1", b"", b"1", (1,), (1.0,), 2**70, frozenset({1}), bytearray(b"1")])
SMALL = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=8
)


@st.composite
def states(draw: st.DrawFn) -> Any:
    """States whose long parts are chunks: lists, dicts, text, bytes, tuples, objects."""
    seed = draw(st.integers(0, 3))
    long: dict[str, Any] = {
        "list": rows(seed, draw(st.sampled_from([0, 40, 300]))),
        "dict": {f"k{i}": row for i, row in enumerate(rows(seed, draw(st.sampled_from([0, 90]))))},
        "text": "grün " * draw(st.sampled_from([1, 4_000])),
        "bytes": random.Random(seed).randbytes(draw(st.sampled_from([1, 30_000]))),
        "tuple": tuple(range(draw(st.sampled_from([1, 9_000])))),
        "object": Unknown("Kind", 1, {"rows": rows(seed, draw(st.sampled_from([0, 90]))), "few": 1}),
    }
    chosen = draw(st.lists(st.sampled_from(sorted(long)), unique=True, max_size=4))
    state: dict[str, Any] = {name: long[name] for name in chosen}
    state["small"] = draw(SMALL)
    for name in draw(st.lists(st.sampled_from(["list", "dict"]), max_size=2)):
        if state.get(name):
            at = draw(st.integers(0, len(state[name]) - 1))
            state[name][at if name == "list" else f"k{at}"] = draw(SMALL)
    if state.get("list") and draw(st.booleans()):
        first = draw(st.integers(0, len(state["list"])))
        state["list"][first : first + draw(st.integers(0, 3))] = draw(st.lists(SMALL, max_size=3))
    return state


@settings(max_examples=40)
@given(states(), states(), states())
def test_what_is_alike_has_the_same_encoding(first: Any, second: Any, third: Any) -> None:
    place = Place()
    known = moved(place, first, second)
    assert alike(known, place.lazy(place.base(second)))
    known = moved(place, first, second)
    assert alike(known, place.lazy(place.base(third))) == (encode(second) == encode(third))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True), (1, 1.0), (0.0, -0.0), ("a", b"a"), ([1], (1,)), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), ([], {}), (b"a", bytearray(b"a")),
        ([1, 2], [1]), (None, 0), ({1: "a"}, {True: "a"}), ([[1]], [[True]]),
    ],
)  # fmt: skip
def test_what_only_looks_alike_is_not(one: Any, other: Any) -> None:
    place = Place()
    for wrap in (lambda x: x, lambda x: {"deep": [x], "long": rows(1, 200)}, lambda x: [*rows(1, 200), x], lambda x: [x, *rows(1, 200)]):
        known, same, different = (place.lazy(place.base(wrap(x))) for x in (one, one, other))
        assert alike(known, same)
        assert not alike(known, different)
        assert not alike(moved(place, wrap(0), wrap(one)), place.lazy(place.base(wrap(other))))
        assert alike(moved(place, wrap(0), wrap(one)), place.lazy(place.base(wrap(one))))


def test_a_list_that_is_as_long_but_ends_otherwise_is_not_alike() -> None:
    place = Place()
    long = rows(2, 500)
    for other in (long[:-1], [*long, 1], long[1:], [1, *long], [*long[:250], 1, *long[250:]], [], [*long[:-1], 1]):
        assert not alike(place.lazy(place.base(long)), place.lazy(place.base(other)))
        assert not alike(place.lazy(place.base(other)), place.lazy(place.base(long)))
        assert alike(moved(place, long, other), place.lazy(place.base(other)))
        assert alike(moved(place, other, long), place.lazy(place.base(long)))


def test_no_more_is_read_than_where_two_may_differ() -> None:
    place = Place()
    long = rows(3, 8_000)
    base = place.base({"rows": long})
    later = place.base({"rows": [*long[:2_000], {"n": "another"}, *long[2_000:], 1]})
    assert len(place.chunks) > 40
    known = place.lazy(base)
    known = apply(known, [[2, ["rows"], 8_000, 0, [1]], [2, ["rows"], 2_000, 0, [{"n": "another"}]]])
    place.asked = 0
    assert alike(known, place.lazy(later))
    assert place.asked < 14
    place.asked = 0
    assert alike(place.lazy(base), place.lazy(base))
    assert place.asked == 0
