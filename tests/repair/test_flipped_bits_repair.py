"""Single flipped bits are found by their digests; two of them are not, and nothing else is ever taken for what was stored."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields, replace
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.codec.frame import Framer
from everstep.errors import DamagedFrame
from everstep.records import ZERO, Base, Message, Pruned, Record, Tag, Tombstone, make_record
from everstep.store.repair.bit_flips import Healer
from everstep.testing.rows import new_run

KEY = bytes(range(16))
ROW = new_run("a run", tags=("x", "yz"), note="a note", meta='{"a":1}', session="s", stored=12345).sealed()
THINGS: list[Any] = [
    ROW,
    Tag.make(KEY, "milestone", 7, 1_700_000_000_000_000),
    Message.make(KEY, "answer:gate#0", 1_700_000_000_000_000, 1, b"\x01\x00message"),
    Pruned.make(KEY, [(3, 9), (12, 12)], 555, 1, [(2, 4)]),
    Base.make(KEY, 3, 5, b"\x01\x00base"),
    Tombstone.of(4, ROW, 99),
]
RECORD = make_record(
    ZERO,
    "a run",
    KEY,
    1,
    "checkpoint",
    3,
    1_700_000_000_000_000,
    4,
    b"\x01\x00" + b"body" * 20,
    "note",
    ("t",),
    '{"n":2}',
    '{"step":"a#0"}',
    bytes(16),
)


def flipped(value: Any, bit: int) -> Any:
    """One bit of a value flipped; the value itself if that makes no such value."""
    if isinstance(value, bytes):
        data = bytearray(value)
        data[bit // 8 % len(data)] ^= 1 << bit % 8
        return bytes(data)
    if isinstance(value, str):
        try:
            return flipped(value.encode(), bit).decode()
        except UnicodeDecodeError:
            return value
    if isinstance(value, tuple):
        return (flipped(value[0], bit), *value[1:]) if value else value
    return value ^ 1 << bit % 60 if isinstance(value, int) else value


@given(st.sampled_from(THINGS), st.data(), st.integers(0, 10_000))
def test_any_flipped_bit_of_anything_that_has_a_check_is_put_right(thing: Any, data: st.DataObject, bit: int) -> None:
    name = data.draw(st.sampled_from([field.name for field in fields(thing) if getattr(thing, field.name)]))
    damaged = replace(thing, **{name: flipped(getattr(thing, name), bit)})
    healer = Healer()
    if damaged == thing:
        return
    assert damaged.digest() != damaged.check
    assert healer.row(damaged) == thing
    assert healer.healed == 1


@given(
    st.sampled_from(["kind", "epoch", "at", "number", "note", "tags", "meta", "own", "labels", "body", "digest"]), st.integers(0, 10_000)
)
def test_any_flipped_bit_of_a_record_is_put_right(name: str, bit: int) -> None:
    damaged = replace(RECORD, **{name: flipped(getattr(RECORD, name), bit)})
    if damaged.body is not None:
        damaged = replace(damaged, body_digest=sha256(damaged.body).digest())
    if damaged == RECORD:
        return
    assert Healer().record(KEY, damaged, ZERO, damaged.digest) == RECORD


@given(st.integers(0, 255))
def test_a_pruned_record_is_put_right_too(bit: int) -> None:
    pruned = replace(RECORD, body=None)
    assert Healer().record(KEY, replace(pruned, body_digest=flipped(pruned.body_digest, bit)), ZERO, RECORD.digest) == pruned


def holding(content: bytes) -> Callable[[bytes], bool]:
    def holds(frame: bytes) -> bool:
        try:
            return Framer().unwrap(frame) == content
        except DamagedFrame:
            return False

    return holds


@given(st.binary(min_size=1, max_size=400), st.integers(0, 4000), st.sampled_from(["none", "zstd", "gzip"]))
def test_a_chunk_is_put_right(content: bytes, bit: int, compression: Any) -> None:
    frame = Framer(compression, threshold=0).wrap(content)
    found = Healer().frame(flipped(frame, bit), holding(content))
    assert found is not None
    assert Framer().unwrap(found) == content


def test_two_flipped_bits_are_left_alone() -> None:
    tag = THINGS[1]
    assert Healer().row(replace(tag, name="milestond", number=6)) is None
    record = replace(RECORD, epoch=2, number=5)
    assert Healer().record(KEY, record, ZERO, record.digest) is None
    assert Healer().frame(b"\x01\x00abd", holding(b"bac")) is None


def test_what_is_long_or_too_much_is_not_tried() -> None:
    body = os.urandom(17_000)
    record = make_record(ZERO, "r", KEY, 1, "step", 1, 1, 0, body)
    damaged = replace(record, body=flipped(body, 5), body_digest=sha256(flipped(body, 5)).digest())
    assert Healer().record(KEY, damaged, ZERO, record.digest) is None
    tag = replace(THINGS[1], at=1)
    assert Healer(most=100).row(tag) is None
    assert Healer(most_frames=10).frame(flipped(b"\x01\x00" + bytes(100), 700), holding(bytes(100))) is None


@pytest.mark.parametrize("bit", range(0, 256, 17))
def test_a_flipped_bit_in_a_digest_itself_is_put_right(bit: int) -> None:
    for thing in THINGS:
        assert Healer().row(replace(thing, check=flipped(thing.check, bit))) == thing
    damaged: Record = replace(RECORD, digest=flipped(RECORD.digest, bit))
    assert Healer().record(KEY, damaged, ZERO, damaged.digest) == RECORD
