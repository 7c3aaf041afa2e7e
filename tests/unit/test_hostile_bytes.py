"""Bytes from an enemy: an error of ours within a second, nothing executed, nothing imported."""

import io
import pickle
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ormsgpack import Ext, packb
from pace import examples

from everstep.codec.values import Decoder, decode, encode
from everstep.errors import Damaged, DamagedChunk, DamagedFrame, EverstepError, LimitExceeded, StoreClosed
from everstep.snapshot.delta import apply
from everstep.snapshot.loader import Loader

EXTENSIONS = [*range(24), 30, 31, 127]
WRONG: list[Any] = [
    None,
    True,
    0,
    -1,
    2**63,
    1.5,
    "",
    "x",
    b"",
    b"\xff",
    [],
    [1],
    [None] * 3,
    ["a"] * 4,
    [1] * 9,
    {},
    {"a": 1},
    [[[]]],
    [{}],
    ["O", [1], "C", b""],
]


@contextmanager
def quickly() -> Iterator[None]:
    start = time.perf_counter()
    yield
    assert time.perf_counter() - start < 1.0


def refused(raw: bytes) -> None:
    """Each way to read bytes gives a value or an error about damage, never another one."""
    for read in (Decoder().decode, decode):
        with suppress(DamagedFrame, LimitExceeded):
            read(raw)


@pytest.mark.parametrize("tag", EXTENSIONS)
def test_an_extension_with_the_wrong_content_is_damage(tag: int) -> None:
    for content in [*(packb(w) for w in WRONG), b"", b"\xc1", b"\xff" * 16, bytes(16), b"\xd9\x05ab"]:
        with quickly():
            refused(packb(Ext(tag, content)))
            refused(packb([Ext(tag, content)]))
            refused(packb(Ext(4, packb([Ext(tag, content), 1]))))
            refused(packb(Ext(2, packb([packb(Ext(tag, content))]))))
            refused(packb(Ext(20, packb(["x:Y", 1, {"f": Ext(tag, content)}]))))


def extension(tag: int, content: bytes) -> bytes:
    return b"\xc9" + struct.pack(">Ib", len(content), tag) + content


@pytest.mark.parametrize("tag", [1, 2, 3, 4, 12, 14, 17, 18, 19, 20, 21, 22])
def test_extensions_inside_each_other_without_end_are_refused(tag: int) -> None:
    inner = b"\xc0"
    for _ in range(3000):
        if tag in (2, 3):
            inner = extension(tag, b"\x91\xc6" + struct.pack(">I", len(inner)) + inner)
        elif tag in (4, 17, 19):
            inner = extension(tag, b"\x92\xc0" + inner)
        elif tag == 20:
            inner = extension(tag, b"\x93\xa1x\x01\x81\xa1f" + inner)
        else:
            inner = extension(tag, b"\x91" + inner)
    with quickly(), pytest.raises((DamagedFrame, LimitExceeded)):
        decode(inner)


@pytest.mark.parametrize(
    "opening", [b"\x91", b"\x81\xa1a", b"\x81\xc0", b"\xdc\x00\x01", b"\xc7\x01\x01\x91"], ids=["list", "dict", "key", "list 16", "ext"]
)
def test_a_nesting_of_a_hundred_thousand_is_refused(opening: bytes) -> None:
    with quickly(), pytest.raises((DamagedFrame, LimitExceeded)):
        decode(opening * 100_000 + b"\xc0")


@pytest.mark.parametrize(
    "raw",
    [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xffx", b"\xdb\xff\xff\xff\xffx", b"\xc9\xff\xff\xff\xff\x01x"],
)
def test_a_claim_of_four_billion_entries_costs_nothing(raw: bytes) -> None:
    with quickly(), pytest.raises(DamagedFrame):
        decode(raw)


def test_every_beginning_of_a_value_is_damage() -> None:
    good = encode({"a": [1, (2, {3, b"x"}), 2**100, "ü" * 40], 5: None})
    for length in range(len(good)):
        with pytest.raises(DamagedFrame):
            decode(good[:length])


class Evil:
    def __reduce__(self) -> Any:
        return (exec, ("import sys; sys.everstep_was_hacked = True",))


def test_a_pickle_is_never_run() -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        raw = pickle.dumps(Evil(), protocol)
        refused(raw)
        for tag in EXTENSIONS:
            refused(packb(Ext(tag, raw)))
        refused(packb(Ext(21, packb(["|O", [1], "C", raw]))))
        refused(packb(Ext(22, packb(["|O", raw]))))
        buffer = io.BytesIO()
        buffer.write(raw)
        refused(packb(Ext(20, packb(["builtins:exec", 1, {"source": buffer.getvalue()}]))))
    assert not hasattr(sys, "everstep_was_hacked")


@pytest.mark.parametrize(
    "descr",
    [
        "O",
        "|O",
        "|V0",
        "i4,,",
        "__import__('os')",
        "f" * 10_000,
        "(2,)i4",
        "<U0",
        "<i4, <i4",
        "M8[x]",
        "O8",
        [["a", "O"]],
        [["a"]],
        {"a": 1},
        5,
        None,
        ["x"],
    ],
)
def test_a_hostile_array_type_is_damage(descr: Any) -> None:
    for shape, raw in [([1], b"\0" * 8), ([], b""), ([-1], b"\0" * 16), ([2**62, 2**62], b"\0" * 8), ("x", b"\0"), ([1.5], b"\0" * 8)]:
        with quickly():
            refused(packb(Ext(21, packb([descr, shape, "C", raw]))))
            refused(packb(Ext(21, packb([descr, shape, "Z", raw]))))
            refused(packb(Ext(22, packb([descr, raw]))))


@pytest.mark.parametrize(
    "zone",
    ["../../../../etc/passwd", "/etc/passwd", "Europe", "", "a" * 5000, "x\0y", "Nowhere/City", ".", "posix", 5, [1], [10**9, 0, "x"], {}],
)
def test_a_hostile_time_zone_is_damage(zone: Any) -> None:
    with pytest.raises(DamagedFrame):
        decode(packb(Ext(6, packb([2024, 1, 1, 0, 0, 0, 0, 0, zone]))))


@pytest.mark.parametrize(
    "parts",
    [
        [1, 1, {}],
        ["n", "1", {}],
        ["n", 1, []],
        ["n", 1, None],
        ["n", 1, {"a": 1}, 2],
        [["n"], 1, {}],
        [None, 1, {}],
        ["n", True, 5],
        ["n", 1, Ext(4, packb([1, 2]))],
    ],
)
def test_an_object_of_the_wrong_shape_is_damage(parts: list[Any]) -> None:
    for raw in (packb(Ext(20, packb(parts))), packb(Ext(2, packb([packb(Ext(20, packb(parts)))])))):
        with pytest.raises(DamagedFrame):
            decode(raw)


def test_huge_numbers_in_small_bytes_are_cheap() -> None:
    for raw in (
        packb(Ext(11, b"1E+999999999")),
        packb(Ext(14, packb([0, 2**60, 1]))),
        packb(Ext(9, packb([2**60, 0, 0]))),
        packb(Ext(12, packb([1, 0]))),
    ):
        with quickly():
            refused(raw)


@settings(max_examples=examples(400))
@given(st.binary(max_size=200))
def test_noise_is_a_value_or_damage(raw: bytes) -> None:
    refused(raw)


@settings(max_examples=examples(400))
@given(st.sampled_from(EXTENSIONS), st.binary(max_size=60))
def test_noise_in_an_extension_is_a_value_or_damage(tag: int, raw: bytes) -> None:
    refused(extension(tag, raw))


GOOD = encode({"a": [1, (2, {3, b"x"}), 2**100, "ü" * 40], 5: None, "t": 1.5, "o": range(3)})


def test_every_flipped_bit_of_a_value_is_a_value_or_damage() -> None:
    for bit in range(len(GOOD) * 8):
        bad = bytearray(GOOD)
        bad[bit // 8] ^= 1 << bit % 8
        refused(bytes(bad))


@pytest.mark.parametrize(
    "content",
    [
        *(packb(w) for w in WRONG),
        packb(["l", 1, 0, b"\1" * 32]),
        packb(["l", 1, 2**40, b"\1" * 32]),
        packb(["q", 1, 0, b""]),
        packb(["s", 1, 0, b""]),
        packb(["d", 5, -1, b""]),
    ],
)
def test_a_hostile_reference_is_damage(content: bytes) -> None:
    loader = Loader(lambda digests: {}, lambda frame: frame)
    with quickly(), suppress(Damaged):
        loader.load(packb(Ext(30, content)))


@pytest.mark.parametrize("ops", [
    [None], [[]], [[0]], [[0, "a"]], [[9, []]], [[1, []]], [[0, ["x", "y"], 1]], [[2, ["l"], "a", 1, []]], [[2, ["l"], 0, 1, 5]], [[2, [], 0, 1, []]],
    [[3, ["s"], 0, 1, 5]], [[3, ["l"], 0, 1, "x"]], [[1, ["gone"]]], [[0, ["l", 99], 1]], [5], "ops", [[0, [[1]], 1]], [[2, ["s"], 0, 0, ["x"]]], [[0, 5, 1]],
])  # fmt: skip
def test_a_delta_that_does_not_fit_is_damage(ops: Any) -> None:
    with pytest.raises(EverstepError) as caught:
        apply({"l": [1], "s": "text"}, ops)
    assert caught.value.code.startswith("E5")


def test_the_reason_for_damage_deep_inside_is_not_lost() -> None:
    unknown_zone = Ext(6, packb([2024, 1, 1, 0, 0, 0, 0, 0, "Nowhere/City"]))
    with pytest.raises(DamagedFrame, match="'Nowhere/City'") as caught:
        decode(packb({"a": [Ext(1, packb([Ext(1, packb([unknown_zone]))]))]}))
    assert "tzdata" in caught.value.remedy


@pytest.mark.parametrize(
    "error", [StoreClosed("closed"), DamagedChunk(b"\1" * 32, "gone"), KeyboardInterrupt()], ids=lambda e: type(e).__name__
)
def test_an_error_while_chunks_are_fetched_stays_what_it_is(error: BaseException) -> None:
    def fetch(digests: Any) -> Any:
        raise error

    reference = Ext(30, packb(["l", 1, 0, b"\1" * 32]))
    with pytest.raises(type(error)) as caught:
        Loader(fetch, lambda frame: frame).load(packb({"deep": [Ext(1, packb([reference]))]}))
    assert caught.value is error
