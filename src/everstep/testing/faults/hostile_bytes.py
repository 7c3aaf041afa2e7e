"""Hostile content for stores whose digests are all right: what an enemy would write who knows the format. Lists cases; does nothing with them.

Each case is a function that forges a store at a path, under a name that says what is wrong with it.
"""

from __future__ import annotations

import json
import os
import pickle
import struct
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from ormsgpack import Ext, packb

from everstep.codec.frame import zstd
from everstep.records import Kind
from everstep.testing.faults.forge import Forger, plain, reference, rewrite

Case = Callable[[Path], None]
GIB = 1 << 30
DEEP = 100_000
MODULE = "everstep_hostile"
"""A module that would be imported if a name in data were followed."""


class Evil:
    """Unpickled, it leaves a folder behind."""

    def __init__(self, mark: str):
        self._mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (self._mark,)


def mark_of(path: Path) -> Path:
    """What is there if a pickle was run."""
    return path.with_name("executed")


def groups() -> list[dict[str, Case]]:
    return [_pickles(), _bombs(), _frames(), _values(), _shapes(), _trees(), _deltas(), _journals(), _labels()]


def _everywhere(frame: bytes, path: Path) -> None:
    """One frame at every place where a store has frames."""
    with Forger(path) as forged:
        forged.state(packb({"a": 1}))
        forged.base(frame)
        forged.record(Kind.CHECKPOINT, frame)
        for kind in (Kind.STEP, Kind.GATE, Kind.ANSWER, Kind.TIMER, Kind.EVENT):
            forged.record(kind, frame, "x#0")
        forged.record(Kind.STATUS, frame)
        forged.letter("answer:x#0", frame)
        forged.commit(status="waiting")
        forged._records.clear()
    with Forger(path, "chunked") as forged:
        digest = forged.chunk(b"promised", frame)
        forged.state(reference("l", 1, 0, digest))
        forged.step("x#0", 2, reference("v", 1, 0, digest))
    with Forger(path, "started") as forged:
        forged._records.clear()
        forged._row.head_seq, forged._row.head_digest = 0, bytes(32)
        forged.record(Kind.START, frame)
        forged.state(packb({"a": 1}))


def _pickles() -> dict[str, Case]:
    def make(protocol: int, wrap: Callable[[bytes], bytes]) -> Case:
        return lambda path: _everywhere(wrap(pickle.dumps(Evil(str(mark_of(path))), protocol)), path)

    out = {f"pickle {p} for a frame": make(p, bytes) for p in range(pickle.HIGHEST_PROTOCOL + 1)}
    out |= {f"pickle {p} in a frame": make(p, plain) for p in range(pickle.HIGHEST_PROTOCOL + 1)}
    out["pickle in an array of objects"] = lambda path: _value(packb(Ext(21, packb(["|O", [1], "C", _pickled(path)]))), path)
    out["pickle in a field of an object"] = lambda path: _value(packb(Ext(20, packb([f"{MODULE}:Evil", 1, {"x": _pickled(path)}]))), path)
    return out


def _pickled(path: Path) -> bytes:
    return pickle.dumps(Evil(str(mark_of(path))))


def _bombs() -> dict[str, Case]:
    def bomb(code: int, packed: Callable[[], bytes], claim: int) -> Case:
        return lambda path: _everywhere(bytes((1, code)) + claim.to_bytes(4) + packed(), path)

    out: dict[str, Case] = {}
    for name, code, packed in (("zstd", 1, _zstd_bomb), ("gzip", 2, _gzip_bomb)):
        out[f"{name}: 1 GiB in few bytes"] = bomb(code, packed, GIB)
        out[f"{name}: 1 GiB that claims to be 1 KB"] = bomb(code, packed, 1024)
        out[f"{name}: 1 GiB that claims to be 32 MB"] = bomb(code, packed, 32 << 20)
        out[f"{name}: cut off"] = bomb(code, lambda packed=packed: packed()[:10_000], 1024)  # type: ignore[misc]
        out[f"{name}: two streams"] = bomb(code, lambda code=code: _small(code) * 2, 10_000)  # type: ignore[misc]
        for what, item in (("nothings", b"\xc0"), ("empty lists", b"\x90"), ("empty tuples", b"\xd4\x01\x90")):
            out[f"{name}: as many {what} as the ratio allows"] = lambda path, code=code, item=item: _crowd(path, code, item)  # type: ignore[misc]
    return out


def _crowd(path: Path, code: int, item: bytes) -> None:
    """Long lists of tiny values, in frames that are about as small as the ratio allows."""
    for megabytes in (1, 16, 250):
        many = (megabytes << 20) // len(item)
        content = b"\xdd" + struct.pack(">I", many) + item * many
        packed = _in_blocks(content) if code == 1 else zlib.compress(content, 1, 31)
        with Forger(path, f"run{megabytes}") as forged:
            forged.base(bytes((1, code)) + len(content).to_bytes(4) + packed)


def _in_blocks(content: bytes) -> bytes:
    """zstd would do better than the ratio that is allowed; many short blocks make up for it."""
    compressor = zstd.ZstdCompressor(level=1)
    flush = zstd.ZstdCompressor.FLUSH_BLOCK
    parts = [compressor.compress(content[at : at + 8192], flush) for at in range(0, len(content), 8192)]
    return b"".join([*parts, compressor.flush()])


def _frames() -> dict[str, Case]:
    out = {f"frame version {v}": _frame(bytes((v, 0)) + packb(1)) for v in (0, 2, 3, 127, 128, 255)}
    out |= {f"frame flags {f:#04x}": _frame(bytes((1, f)) + bytes(40)) for f in range(3, 256, 3)}
    return out | {f"a frame of {n} bytes": _frame(b"\x01\x01\xff\xff\xff\xff"[:n]) for n in range(7)}


def _frame(frame: bytes) -> Case:
    return lambda path: _everywhere(frame, path)


@cache
def _zstd_bomb() -> bytes:
    compressor = zstd.ZstdCompressor(level=1)
    part = bytes(1 << 20)
    return b"".join([*(compressor.compress(part) for _ in range(GIB >> 20)), compressor.flush()])


@cache
def _gzip_bomb() -> bytes:
    """The same megabyte again and again, each as short as it can be."""
    part = bytes(1 << 20)
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = compressor.compress(part) + compressor.flush(zlib.Z_FULL_FLUSH)
    check = 0
    for _ in range(GIB >> 20):
        check = zlib.crc32(part, check)
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + packed * (GIB >> 20) + b"\x03\0" + struct.pack("<II", check, GIB)


def _small(code: int) -> bytes:
    data = bytes(10_000)
    if code == 1:
        return bytes(zstd.compress(data))
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    return compressor.compress(data) + compressor.flush()


def _value(raw: bytes, path: Path) -> None:
    """One encoded value at every place where a store has values."""
    with Forger(path) as forged:
        forged.state(packb({"a": 1}))
        forged.delta(b"\x91\x93\x00\x91\xa1b" + raw)
        forged.record(Kind.EVENT, plain(packb(["custom:x", raw])), "event:custom:x#0")
        forged.step("x#0", 1, raw)
        forged.letter("answer:x#0", plain(raw))
        forged.commit(status="waiting")
        forged._records.clear()
    with Forger(path, "whole") as forged:
        forged.state(raw)
    with Forger(path, "chunked") as forged:
        forged.state(reference("v", len(raw), 0, forged.chunk(raw)))
        forged.step("x#0", 2, reference("v", len(raw), 0, forged.chunk(raw)))


def _of(raw: bytes) -> Case:
    return lambda path: _value(raw, path)


def _extension(code: int, content: bytes) -> bytes:
    return b"\xc9" + struct.pack(">Ib", len(content), code) + content


def _values() -> dict[str, Case]:
    out: dict[str, Case] = {}
    for code in range(-128, 128):
        out[f"extension {code}"] = _of(b"\x94" + b"".join(_extension(code, c) for c in (b"", b"\xff" * 16, packb([1] * 3), packb(["x", {}]))))
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
        """A chunk cannot hold its own name, so its name is a lie."""
        with Forger(path) as forged:
            name = b"\x07" * 32
            forged.chunk(b"", plain(packb([[name, 1]])), name)
            forged.state(reference("l", 1, 50, name))

    def index(levels: int, width: int, kind: str) -> Case:
        """Every index names the one below it many times: the leaves are width ** levels."""

        def make(path: Path) -> None:
            with Forger(path) as forged:
                digest = forged.chunk(packb(["x"]) if kind == "l" else b"x" * 64)
                for _ in range(levels):
                    digest = forged.chunk(packb([[digest, 1]] * width))
                forged.state(reference(kind, width**levels, levels, digest))
                forged.step("x#0", 2, reference(kind, 1, levels, digest))

        return make

    def doubling(depth: int) -> Case:
        """Every list holds the one below it twice."""

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
        "an index with itself as its only entry, for ever": pointing("l", 1, 2**40, ..., content=packb([[b"\x07" * 32, 1]])),
        "a level of 2**62": pointing("l", 1, 2**62, ...),
        "a level of 2**62 over nothing": pointing("l", 1, 2**62, b""),
        "a negative level": pointing("l", 1, -1, ...),
        "a count of 2**62": pointing("l", 2**62, 0, ...),
        "a negative count": pointing("l", -5, 0, ...),
        "a kind that nobody knows": pointing("z", 1, 0, ...),
        "a name of three bytes": pointing("l", 1, 0, b"abc"),
        "a name that is a number": pointing("l", 1, 0, 5),
        "an index that is a text": pointing("l", 1, 1, ..., content=packb("index")),
        "an index of numbers": pointing("l", 1, 1, ..., content=packb([1, 2, 3])),
        "a dict with a key and no value": pointing("d", 1, 0, ..., content=packb(["k"])),
        "a text that is no UTF-8": pointing("s", 2, 0, ..., content=b"\xff\xff"),
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


def _journals() -> dict[str, Case]:
    bodies: dict[str, Any] = {
        "a journal of numbers": 5,
        "a journal of empty lists": [],
        "a journal of texts": ["x"] * 13,
        "a journal of nothings": [None] * 13,
        "a journal of dicts": [{}] * 13,
        "a journal of huge numbers": [2**63] * 13,
        "a step that was recorded by chunks that are not there": ["succeeded", 1, b"", b"", 2, reference("l", 1, 0, b"x" * 32), None, 0, 0, 0, 0.0, "w", {}],
        "a step that ended before time began": ["succeeded", 1, b"", b"", 0, None, None, -(2**60), 2**60, 0, 0.0, "w", {}],
        "a step that failed with a type to import": [
            "failed", 1, b"", b"", 0, None, {"type": f"{MODULE}:Evil", "message": "x", "args": packb(["x"])}, 0, 0, 0, 0.0, "w", {},
        ],
    }  # fmt: skip

    def make(said: Any) -> Case:
        def forge(path: Path) -> None:
            for kind in (Kind.STEP, Kind.GATE, Kind.ANSWER, Kind.TIMER, Kind.EVENT, Kind.STATUS, Kind.START, "unheard-of"):
                with Forger(path, f"run-{kind}") as forged:
                    forged.state(packb({"a": 1}))
                    forged.record(kind, plain(packb(said)), "x#0")
                    forged.letter("retry", plain(packb(said)))
                    forged.commit(status="failed")
                    forged._records.clear()

        return forge

    return {name: make(said) for name, said in bodies.items()}


def _labels() -> dict[str, Case]:
    """What stands beside bodies: names, notes, tags, metadata."""
    names = {
        "a run id that leads out of its folder": "../../../../tmp/everstep-was-here",
        "an absolute run id": "/etc/passwd",
        "a run id with escapes": "r\x1b[2J\x1b]0;owned\x07",
        "a run id that turns round": "r\u202etxt.exe",
        "a run id of NUL": "r\x00x",
        "an empty run id": "",
        "a run id of 100,000 characters": "r" * 100_000,
        "a run id that is a ref": "r@7~2",
        "a run id that is SQL": "r'; DROP TABLE runs; --",
    }

    def named(name: str) -> Case:
        def forge(path: Path) -> None:
            with Forger(path, name, workflow=name, session=name, note=name, worker=name, parent=name, tags=(name,)) as forged:
                forged.state(packb({"a": 1}), note=name, tags=(name,))
                forged.step(name, 1, packb(1))
                forged.letter(name, plain(packb(name)))

        return forge

    deep = "[" * DEEP + "]" * DEEP
    metas = {
        f"metadata with {DEEP:,} lists inside each other": f'{{"a": {deep}}}',
        f"a header with {DEEP:,} lists inside each other": f'{{"$": {deep}}}',
        "metadata that is no JSON": "{",
        "metadata that is a list": "[1]",
        "metadata of a huge number": '{"a": 1' + "0" * 10_000 + "}",
        "metadata with a header of texts": '{"$": {"used": "abcd", "counts": 5, "base": "x"}}',
        "metadata with a base that is not there": '{"$": {"kind": "automatic", "base": 99999}}',
        "metadata with a negative base": '{"$": {"kind": "automatic", "base": -3}}',
        "metadata with a million keys": json.dumps({str(i): i for i in range(100_000)}),
    }

    def labelled(meta: str) -> Case:
        def forge(path: Path) -> None:
            with Forger(path) as forged:
                forged.state(packb({"a": 1}))
            rewrite(path, "r", meta=meta)
            with Forger(path, "checkpoint") as forged:
                forged.state(packb({"a": 1}), meta=meta)

        return forge

    numbers = {
        "a head of 2**31": {"head_seq": 2**31 - 1},
        "a million checkpoints that are not there": {"checkpoints": 1_000_000},
        "a negative head": {"head_seq": -5},
        "an epoch of 2**62": {"epoch": 2**62},
        "a status that nobody knows": {"status": "exploded"},
        "a parent that is itself": {"parent": "r", "parent_number": 1},
        "times of the year 300,000": {"created_at": 2**62, "updated_at": 2**62},
        "times before all time": {"created_at": -(2**62), "updated_at": -(2**62), "since": -(2**62)},
    }

    def numbered(fields: dict[str, Any]) -> Case:
        def forge(path: Path) -> None:
            with Forger(path) as forged:
                forged.state(packb({"a": 1}))
                forged.tag("tag", 1)
            rewrite(path, "r", **fields)

        return forge

    out = {name: named(text) for name, text in names.items()}
    out |= {name: labelled(meta) for name, meta in metas.items()}
    return out | {name: numbered(fields) for name, fields in numbers.items()}
