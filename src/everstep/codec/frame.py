"""The wrapper around all stored content: one frame for each record body and each chunk.

    byte 0      format version, 1
    byte 1      flags: bits 0-1 compression (0 none, 1 zstd, 2 gzip), bit 2 dictionary (reserved), bit 3 encryption (`codec.encryption`)
    4 bytes     length of the content, big-endian            if compressed
    4 bytes     dictionary id, big-endian                    if bit 2 (reserved)
    the rest    the content, compressed as the flags say

One store may contain frames of all kinds. The limits are checked before any work is done: a frame's content is at most MAX_CONTENT bytes.
Compressed content above RATIO_FREE bytes is at most MAX_RATIO times as long as the frame, and its value takes no more memory than LIGHT
bytes plus MAX_RATIO times the frame. No I/O.
"""

from __future__ import annotations

import sys
import threading
import zlib
from collections.abc import Sequence
from typing import Any, Literal

from everstep.errors import DamagedFrame, InvalidArgument, LimitExceeded
from everstep.records import Chunk, Fetch, Labels, Place

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

VERSION = 1
MAX_CONTENT = 256 * 1024 * 1024
RATIO_FREE = 1024 * 1024
MAX_RATIO = 64
LIGHT = 160 * 1024 * 1024
Compression = Literal["none", "zstd", "gzip"]
_NONE, _ZSTD, _GZIP = 0, 1, 2
_DICTIONARY, _ENCRYPTED = 4, 8
_PLAIN = bytes((VERSION, _NONE))
_CONTAINERS = bytes(range(0x80, 0xA0))  # the short arrays and maps of MessagePack
_local = threading.local()
_SHORT = 8192
_NO_MEMORY = "not enough memory"  # zstd reports it only by this text
_PARAMETER = zstd.CompressionParameter


class Framer:
    """Wraps content with one choice of compression; unwraps any frame. It is also the `Framing` of a store that is not encrypted."""

    __slots__ = ("_code", "_level", "_threshold")

    def __init__(self, compression: Compression = "zstd", level: int | None = None, threshold: int = 256):
        codes = {"none": _NONE, "zstd": _ZSTD, "gzip": _GZIP}
        if compression not in codes:
            raise InvalidArgument(f"compression must be none, zstd or gzip, got {compression!r}", remedy="Choose none, zstd or gzip.")
        least, most = (-7, 22) if compression == "zstd" else (0, 9)
        if level is not None and (type(level) is not int or not least <= level <= most):
            raise InvalidArgument(f"level must be an integer from {least} to {most} for {compression}, got {level!r:.60}")
        if type(threshold) is not int or threshold < 0:
            raise InvalidArgument(f"threshold must be an integer of at least 0 (in bytes), got {threshold!r:.60}")
        self._code = codes[compression]
        self._level = level if level is not None else (1 if compression == "zstd" else 6)
        self._threshold = threshold

    encrypted = locked = False
    overhead = 0

    @property
    def inner(self) -> Framer:
        return self

    def of(self, family: bytes, key: bytes) -> Framer:
        return self

    def store(self) -> Framer:
        return self

    def stored(self, chunks: Sequence[Chunk]) -> Sequence[Chunk]:
        return chunks

    def chunk_name(self, digest: bytes) -> bytes:
        return digest

    def open_chunk(self, name: bytes, frame: bytes) -> bytes:
        return frame

    def fetcher(self, read: Fetch) -> Fetch:
        return read

    def seal_labels(self, labels: Labels, place: Place) -> Labels:
        return labels

    def open_labels(self, labels: Labels, place: Place) -> Labels:
        return labels

    def new_family(self, family: bytes) -> bytes | None:
        return None

    def forget(self, family: bytes) -> None:
        return

    def with_inner(self, inner: Framer) -> Framer:
        return inner

    def wrap(self, content: bytes, place: Place | None = None, least: int = 0) -> bytes:
        """Wrap content in a frame; content below the threshold, or below `least` bytes, is not compressed."""
        size = len(content)
        if size > MAX_CONTENT:
            raise LimitExceeded(f"a single value must have at most {MAX_CONTENT:,} bytes, got {size:,}")
        if self._code == _NONE or size < self._threshold or size < least:
            return _PLAIN + content
        packed = _zstd(content, self._level) if self._code == _ZSTD else _gzip(content, self._level)
        if len(packed) + 4 >= size or _bomb(content, len(packed)):
            return _PLAIN + content
        return bytes((VERSION, self._code)) + size.to_bytes(4) + packed

    def unwrap(self, frame: bytes, place: Place | None = None) -> bytes:
        """Return the content of a frame. Raises `DamagedFrame` for an invalid one, and MemoryError if memory is short: the frame may be intact."""
        return frame[2:] if frame.startswith(_PLAIN) else _unpacked(frame)


def weight(content: bytes) -> int:
    """Estimate the bytes of memory that the encoded value takes: one byte may be an item of a list, or a container."""
    containers = len(content) - len(content.translate(None, _CONTAINERS))
    return 8 * len(content) + 112 * containers


def _bomb(content: bytes, packed: int) -> bool:
    """Whether this ratio looks like a decompression bomb; writers then store the content uncompressed."""
    return len(content) > RATIO_FREE and (len(content) > MAX_RATIO * packed or weight(content) > LIGHT + MAX_RATIO * packed)


def _unpacked(frame: bytes) -> bytes:
    if len(frame) < 2:
        raise DamagedFrame("a frame has fewer than two bytes")
    if frame[0] != VERSION:
        raise DamagedFrame(f"frame version {frame[0]} is unknown; this program supports version {VERSION}")
    flags = frame[1]
    if flags == _ENCRYPTED:
        raise DamagedFrame("an encrypted frame cannot be opened: it was changed, belongs to another place, or has another key")
    if flags & (_DICTIONARY | _ENCRYPTED) or flags not in (_ZSTD, _GZIP):
        raise DamagedFrame(f"frame flags {flags:#04x} require features that this program does not have")
    size = int.from_bytes(frame[2:6])
    if len(frame) < 6 or size > MAX_CONTENT or (size > RATIO_FREE and size > MAX_RATIO * len(frame)):
        raise DamagedFrame(f"a frame of {len(frame):,} bytes claims {size:,} bytes of content")
    try:
        content = _unzstd(frame[6:], size) if flags == _ZSTD else _ungzip(frame[6:], size)
    except (zstd.ZstdError, zlib.error, EOFError) as error:
        if _NO_MEMORY in str(error):
            raise MemoryError(str(error)) from error
        raise DamagedFrame(f"a frame cannot be decompressed: {error}") from error
    if len(content) != size:
        raise DamagedFrame(f"a frame contains {len(content):,} bytes instead of {size:,}")
    if size > RATIO_FREE and _bomb(content, len(frame)):
        raise DamagedFrame(f"a frame of {len(frame):,} bytes claims to be a value that takes {weight(content):,} bytes of memory")
    return content


def _zstd(content: bytes, level: int) -> bytes:
    # A compressor is expensive to create and not thread-safe, so each thread keeps one for each level. Compressors for short content get
    # small tables that stay in the processor's cache; the usual tables are cold after every wait for the disk.
    try:
        pool: dict[tuple[int, bool], Any] = _local.pool
    except AttributeError:
        pool = _local.pool = {}
    short = len(content) <= _SHORT
    compressor = pool.get((level, short))
    try:
        if compressor is None:
            options: dict[int, int] = {_PARAMETER.compression_level: level}
            if short and level > 0:
                options.update({_PARAMETER.window_log: 13, _PARAMETER.hash_log: 11})
            compressor = pool[level, short] = zstd.ZstdCompressor(options=options)
        packed: bytes = compressor.compress(content, zstd.ZstdCompressor.FLUSH_FRAME)
    except zstd.ZstdError:  # out of memory: store the content uncompressed, and do not use this compressor again
        pool.pop((level, short), None)
        return content
    return packed


def _unzstd(packed: bytes, size: int) -> bytes:
    try:
        decompressor = zstd.ZstdDecompressor()
    except zstd.ZstdError as error:  # no content was read yet
        raise MemoryError(str(error)) from error
    content: bytes = decompressor.decompress(packed, max_length=size + 1)
    if not decompressor.eof or decompressor.unused_data:
        raise zstd.ZstdError("the frame is truncated or has trailing bytes")
    return content


def _gzip(content: bytes, level: int) -> bytes:
    compressor = zlib.compressobj(level, zlib.DEFLATED, 31)
    return compressor.compress(content) + compressor.flush()


def _ungzip(packed: bytes, size: int) -> bytes:
    decompressor = zlib.decompressobj(31)
    content = decompressor.decompress(packed, size + 1)
    if not decompressor.eof or decompressor.unused_data:
        raise zlib.error("the stream is truncated or has trailing bytes")
    return content
