"""Hostile frames for stores whose digests are all right: pickles, bombs, frames of the future. Lists cases; does nothing with them.

Each case is a function that forges a store at a path, under a name that says what is wrong with it.
"""

from __future__ import annotations

import os
import pickle
import struct
import sys
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from ormsgpack import Ext, packb

from everstep.records import Kind
from harness.faults.hostile.forge import Case, Forger, place_value, plain, reference

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

GIB = 1 << 30
MODULE = "everstep_hostile"
"""A module that would be imported if a name in data were followed."""


class Evil:
    """An object that creates a folder when it is unpickled."""

    def __init__(self, mark: str):
        self._mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (self._mark,)


def mark_of(path: Path) -> Path:
    """Return the path that exists if a pickle was run."""
    return path.with_name("executed")


def groups() -> list[dict[str, Case]]:
    return [_pickles(), _bombs(), _frames()]


def _everywhere(frame: bytes, path: Path) -> None:
    """Put one frame everywhere that a store has frames."""
    with Forger(path) as forged:
        forged.state(packb({"a": 1}))
        forged.base(frame)
        forged.record(Kind.CHECKPOINT, frame)
        for kind in (Kind.STEP, Kind.GATE, Kind.ANSWER, Kind.TIMER, Kind.EVENT):
            forged.record(kind, frame, "x#0")
        forged.record(Kind.STATUS, frame)
        forged.message("answer:x#0", frame)
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
    out["pickle in an array of objects"] = lambda path: place_value(packb(Ext(21, packb(["|O", [1], "C", _pickled(path)]))), path)
    out["pickle in a field of an object"] = lambda path: place_value(
        packb(Ext(20, packb([f"{MODULE}:Evil", 1, {"x": _pickled(path)}]))), path
    )
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
    """Make long lists of tiny values, in frames that are about as small as the ratio allows."""
    for megabytes in (1, 16, 250):
        many = (megabytes << 20) // len(item)
        content = b"\xdd" + struct.pack(">I", many) + item * many
        packed = _in_blocks(content) if code == 1 else zlib.compress(content, 1, 31)
        with Forger(path, f"run{megabytes}") as forged:
            forged.base(bytes((1, code)) + len(content).to_bytes(4) + packed)


def _in_blocks(content: bytes) -> bytes:
    """Compress in many short blocks: zstd would exceed the allowed ratio."""
    compressor = zstd.ZstdCompressor(level=1)
    parts = [compressor.compress(content[at : at + 8192], zstd.ZstdCompressor.FLUSH_BLOCK) for at in range(0, len(content), 8192)]
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
    """Compress the same megabyte repeatedly, each as short as possible."""
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


def inflate(frame: bytes) -> bytes:
    """Decompress like a reader that trusts its frames."""
    return bytes(zstd.decompress(frame[6:]))
