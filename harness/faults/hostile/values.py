"""Hostile values, trees and deltas for stores whose digests are all right. Lists cases; does nothing with them."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from ormsgpack import Ext, packb

from harness.faults.hostile.forge import Case, Forger, place_value, plain, reference

DEEP = 100_000


def groups() -> list[dict[str, Case]]:
    return [_values(), _shapes(), _trees(), _deltas()]


def _of(raw: bytes) -> Case:
    return lambda path: place_value(raw, path)


def _extension(code: int, content: bytes) -> bytes:
    return b"\xc9" + struct.pack(">Ib", len(content), code) + content


def _values() -> dict[str, Case]:
    out: dict[str, Case] = {}
    for code in range(-128, 128):
        out[f"extension {code}"] = _of(
            b"\x94" + b"".join(_extension(code, c) for c in (b"", b"\xff" * 16, packb([1] * 3), packb(["x", {}])))
        )
    return out


def _shapes() -> dict[str, Case]:
    out: dict[str, Case] = {}
    openings = {"lists": b"\x91", "dicts": b"\x81\xa1a", "keys": b"\x81\xc0", "long lists": b"\xdc\x00\x01", "tuples": b"\xc7\x01\x01\x91"}
    out |= {f"{DEEP:,} {name} inside each other": _of(opening * DEEP + b"\xc0") for name, opening in openings.items()}
    claims = {"list": b"\xdd", "dict": b"\xdf", "bytes": b"\xc6", "text": b"\xdb", "extension": b"\xc9"}
    out |= {f"a {name} of four billion": _of(mark + b"\xff\xff\xff\xff\x01") for name, mark in claims.items()}
    out["a range of 2**60"] = _of(packb(Ext(14, packb([0, 2**60, 1]))))
    out["a decimal of 10**999999999"] = _of(packb(Ext(11, b"1E+999999999")))
    out["a fraction over nothing"] = _of(packb(Ext(12, packb([1, 0]))))
    out["an array of 2**62 by 2**62"] = _of(packb(Ext(21, packb(["<i8", [2**62, 2**62], "C", b"\0" * 8]))))
    out["a deque of a negative length"] = _of(packb(Ext(18, packb([-5, [1]]))))
    out["a time zone that is a file"] = _of(packb(Ext(6, packb([2024, 1, 1, 0, 0, 0, 0, 0, "../../../etc/passwd"]))))
    out["100,000 empty tuples"] = _of(b"\xdd" + struct.pack(">I", 100_000) + b"\xc7\x01\x01\x90" * 100_000)
    return out


def _trees() -> dict[str, Case]:
    def loops(path: Path) -> None:
        """Make a chunk that names itself: a chunk cannot contain its own name, so its name is false."""
        with Forger(path) as forged:
            name = b"\x07" * 32
            forged.chunk(b"", plain(packb([[name, 1]])), name)
            forged.state(reference("l", 1, 50, name))

    def index(levels: int, width: int, kind: str) -> Case:
        """Make indexes that each name the one below many times: there are width ** levels leaves."""

        def make(path: Path) -> None:
            with Forger(path) as forged:
                digest = forged.chunk(packb(["x"]) if kind == "l" else b"x" * 64)
                for _ in range(levels):
                    digest = forged.chunk(packb([[digest, 1]] * width))
                forged.state(reference(kind, min(width**levels, 2**62), levels, digest))
                forged.step("x#0", 2, reference(kind, 1, levels, digest))

        return make

    def doubling(depth: int) -> Case:
        """Make lists that each contain the one below twice."""

        def make(path: Path) -> None:
            with Forger(path) as forged:
                digest = forged.chunk(packb(["x" * 100]))
                for _ in range(depth):
                    inner = reference("l", 2, 0, digest)
                    digest = forged.chunk(b"\x92" + inner + inner)
                forged.state(reference("l", 2, 0, digest))

        return make

    def nested(depth: int, kind: str) -> Case:
        def make(path: Path) -> None:
            with Forger(path) as forged:
                raw = packb("x")
                for _ in range(depth):
                    raw = reference(kind, 1, 0, forged.chunk(b"\x91" + raw if kind == "l" else raw))
                forged.state(raw)

        return make

    def pointing(*fields: Any, content: bytes = b"\x90") -> Case:
        def make(path: Path) -> None:
            with Forger(path) as forged:
                digest = forged.chunk(content)
                forged.state(packb(Ext(30, packb([digest if f is ... else f for f in fields]))))

        return make

    wrong: dict[str, Case] = {
        "a chunk that names itself": loops,
        "an index with itself as its only entry, endlessly": pointing("l", 1, 2**40, ..., content=packb([[b"\x07" * 32, 1]])),
        "a level of 2**62": pointing("l", 1, 2**62, ...),
        "a level of 2**62 over nothing": pointing("l", 1, 2**62, b""),
        "a negative level": pointing("l", 1, -1, ...),
        "a count of 2**62": pointing("l", 2**62, 0, ...),
        "a negative count": pointing("l", -5, 0, ...),
        "an unknown kind": pointing("z", 1, 0, ...),
        "a name of three bytes": pointing("l", 1, 0, b"abc"),
        "a name that is a number": pointing("l", 1, 0, 5),
        "an index that is a text": pointing("l", 1, 1, ..., content=packb("index")),
        "an index of numbers": pointing("l", 1, 1, ..., content=packb([1, 2, 3])),
        "a dict with a key and no value": pointing("d", 1, 0, ..., content=packb(["k"])),
        "a text that is not UTF-8": pointing("s", 2, 0, ..., content=b"\xff\xff"),
        "a list segment that is a dict": pointing("l", 1, 0, ..., content=packb({"a": 1})),
        "1,000 ** 3 leaves under indexes": index(3, 1000, "l"),
        "100 ** 10 leaves under indexes": index(10, 100, "l"),
        "64 GiB of text under indexes": index(3, 1000, "s"),
        "2 ** 40 texts by doubling lists": doubling(40),
        "2 ** 90 texts by doubling lists": doubling(90),
        "a chain of 2,000 references in lists": nested(2000, "l"),
        "a chain of 2,000 references in values": nested(2000, "v"),
    }
    return wrong


def _deltas() -> dict[str, Case]:
    ops: dict[str, Any] = {
        "a delta that is a number": 5,
        "an operation without a path": [[0]],
        "a path of 50,000 steps": [[0, ["a"] * 50_000, 1]],
        "a splice at 2**62": [[2, ["l"], 2**62, 2**62, ["x"]]],
        "a splice at a negative place": [[2, ["l"], -(2**62), 5, ["x"]]],
        "a splice of a dict": [[2, [], 0, 1, [1]]],
        "a text splice into a list": [[3, ["l"], 0, 1, "x"]],
        "a key that is a list": [[0, [["x"]], 1]],
        "an attribute for a path": [[0, ["l", "__class__"], 1]],
        "a delta of a hundred thousand operations": [[0, ["a"], i] for i in range(100_000)],
        "a text that doubles": [[2, ["l"], 0, 0, ["x" * 100]]] * 1000,
    }

    def make(said: Any) -> Case:
        def forge(path: Path) -> None:
            with Forger(path) as forged:
                forged.state(packb({"l": [1, 2], "s": "text"}))
                forged.delta(packb(said))

        return forge

    return {name: make(said) for name, said in ops.items()}
