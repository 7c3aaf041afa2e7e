"""Frames: compression, caps, damage."""

import gzip
import os
import subprocess
import sys
import tracemalloc
from contextlib import suppress

import pytest

from everstep.codec import frame
from everstep.codec.frame import Framer
from everstep.errors import DamagedFrame, InvalidArgument, LimitExceeded

TEXT = b"the same words again and again, " * 200


@pytest.mark.parametrize("compression", ["none", "zstd", "gzip"])
@pytest.mark.parametrize("content", [b"", b"x", TEXT, os.urandom(5000), bytes(3_000_000)], ids=["empty", "one", "text", "noise", "zeros"])
def test_every_compression_gives_the_content_back(compression: frame.Compression, content: bytes) -> None:
    assert Framer().unwrap(Framer(compression).wrap(content)) == content


def test_frames_of_all_kinds_are_told_apart_by_themselves() -> None:
    frames = [Framer(c).wrap(TEXT) for c in ("none", "zstd", "gzip")]
    assert [f[0] for f in frames] == [1, 1, 1]
    assert [f[1] for f in frames] == [0, 1, 2]
    assert [Framer().unwrap(f) for f in frames] == [TEXT] * 3
    assert len(frames[1]) < len(TEXT) / 10
    assert len(frames[2]) < len(TEXT) / 10


def test_content_below_the_threshold_is_left_alone() -> None:
    framer = Framer("zstd", threshold=100)
    assert framer.wrap(b"a" * 99) == b"\x01\x00" + b"a" * 99
    assert framer.wrap(b"a" * 100)[1] == 1


def test_content_that_does_not_shrink_is_stored_as_it_is() -> None:
    noise = os.urandom(4000)
    assert Framer("zstd").wrap(noise) == b"\x01\x00" + noise
    assert Framer("gzip").wrap(noise) == b"\x01\x00" + noise


def test_the_level_is_used() -> None:
    content = b"".join(b"%d," % (i * i % 9973) for i in range(20000))
    assert len(Framer("gzip", 9).wrap(content)) < len(Framer("gzip", 1).wrap(content))
    assert len(Framer("zstd", 15).wrap(content)) < len(Framer("zstd", 1).wrap(content))


def test_an_unknown_compression_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="'lz4'"):
        Framer("lz4")  # type: ignore[arg-type]


def test_content_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame, "MAX_CONTENT", 1000)
    with pytest.raises(LimitExceeded, match="1,001"):
        Framer().wrap(bytes(1001))


@pytest.mark.parametrize("compression", ["none", "zstd", "gzip"])
def test_a_flipped_bit_gives_damage_or_content_that_a_digest_tells_apart(compression: frame.Compression) -> None:
    content = TEXT[:700]
    good = Framer(compression).wrap(content)
    damaged = other = 0
    for bit in range(len(good) * 8):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        try:
            back = Framer().unwrap(bytes(bad))
        except DamagedFrame:
            damaged += 1
        else:
            other += back != content
            assert len(back) <= frame.MAX_CONTENT
    assert damaged > 0
    assert damaged + other <= len(good) * 8


@pytest.mark.parametrize("compression", ["none", "zstd", "gzip"])
def test_a_frame_cut_anywhere_is_damage(compression: frame.Compression) -> None:
    good = Framer(compression).wrap(TEXT)
    for length in range(len(good)):
        try:
            back = Framer().unwrap(good[:length])
        except DamagedFrame:
            continue
        assert compression == "none"
        assert back == TEXT[: length - 2]


@pytest.mark.parametrize("compression", ["zstd", "gzip"])
def test_something_behind_the_end_is_damage(compression: frame.Compression) -> None:
    good = Framer(compression).wrap(TEXT)
    for tail in (b"x", good[6:]):
        with pytest.raises(DamagedFrame):
            Framer().unwrap(good + tail)


def test_a_future_version_is_refused_by_its_number() -> None:
    with pytest.raises(DamagedFrame, match="version 2 is unknown"):
        Framer().unwrap(b"\x02\x00abc")


@pytest.mark.parametrize("flags", [4, 5, 9, 12, 3, 16, 255])
def test_flags_for_what_is_not_there_yet_are_refused(flags: int) -> None:
    with pytest.raises(DamagedFrame, match="flags"):
        Framer().unwrap(bytes((1, flags)) + bytes(100))


def test_an_encrypted_frame_is_refused_where_there_is_no_key() -> None:
    with pytest.raises(DamagedFrame, match="encrypted"):
        Framer().unwrap(bytes((1, 8)) + bytes(100))


def _bombs() -> list[bytes]:
    size = 200_000_000
    zeros = bytes(1 << 20)
    compressor = frame.zstd.ZstdCompressor(level=1)
    packed = b"".join(compressor.compress(zeros) for _ in range(190)) + compressor.flush()
    zipped = gzip.compress(bytes(30 << 20))
    return [
        b"\x01\x01" + size.to_bytes(4) + packed,  # says what it is: refused by its ratio
        b"\x01\x01" + (100).to_bytes(4) + packed,  # lies about its size
        b"\x01\x02" + (100).to_bytes(4) + zipped,
        b"\x01\x02" + (31 << 20).to_bytes(4) + zipped[:20],
        b"\x01\x01" + (2**32 - 1).to_bytes(4) + packed,
    ]


def test_bombs_are_refused_before_the_work_is_done() -> None:
    bombs = _bombs()
    tracemalloc.start()
    try:
        for bomb in bombs:
            with pytest.raises(DamagedFrame):
                Framer().unwrap(bomb)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4_000_000


def test_what_is_compressible_beyond_the_ratio_is_stored_so_that_it_can_be_read() -> None:
    content = bytes(30_000_000)
    for compression in ("zstd", "gzip"):
        assert Framer().unwrap(Framer(compression).wrap(content)) == content  # type: ignore[arg-type]


def test_noise_is_never_anything_but_damage() -> None:
    for _ in range(3000):
        noise = b"\x01" + os.urandom(1 + os.urandom(1)[0] // 4)
        with suppress(DamagedFrame):
            Framer().unwrap(noise)


@pytest.mark.skipif(sys.platform != "linux", reason="the limit on memory is Linux's")
@pytest.mark.parametrize("compression", ["zstd", "gzip"])
def test_want_of_memory_is_not_damage(compression: str) -> None:
    code = f"""
import os, resource
from everstep.codec.frame import Framer
frame = Framer({compression!r}).wrap(os.urandom(16 << 20).translate(bytes(i & 3 for i in range(256))))
assert frame[1] != 0
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 20), resource.RLIM_INFINITY))
try:
    Framer().unwrap(frame)
except MemoryError:
    print("no memory")
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "no memory\n"


def test_zstd_without_memory_of_its_own_is_not_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    def starved(packed: bytes, size: int) -> bytes:
        raise frame.zstd.ZstdError("Unable to decompress Zstandard data: Allocation error : not enough memory")

    good = Framer("zstd").wrap(TEXT)
    monkeypatch.setattr(frame, "_unzstd", starved)
    with pytest.raises(MemoryError, match="Allocation"):
        Framer().unwrap(good)


@pytest.mark.parametrize("size", [1_000, 100_000])
def test_where_there_is_no_memory_to_make_a_compressor_content_is_stored_as_it_is_and_nothing_is_called_damaged(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    def none(*_: object, **__: object) -> None:
        raise frame.zstd.ZstdError("Unable to create ZSTD_CCtx instance.")

    content = b"ab" * size
    good = frame.Framer().wrap(content)
    none.FLUSH_FRAME = frame.zstd.ZstdCompressor.FLUSH_FRAME  # type: ignore[attr-defined]
    with monkeypatch.context() as patch:
        patch.setattr(frame.zstd, "ZstdCompressor", none)
        patch.setattr(frame._local, "pool", {})
        plain = frame.Framer().wrap(content)
        assert len(plain) > len(content)
        patch.setattr(frame.zstd, "ZstdDecompressor", none)
        assert frame.Framer().unwrap(plain) == content
        with pytest.raises(MemoryError, match="Unable to create"):
            frame.Framer().unwrap(good)
    assert frame.Framer().unwrap(good) == content
    assert len(frame.Framer().wrap(content)) < len(content)
