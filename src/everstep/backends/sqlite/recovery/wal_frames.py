"""The frames of a SQLite WAL that may be damaged, as bytes. No I/O.

    header   magic, version, page size, number, salt (8 bytes), checksum (8 bytes)                    32 bytes
    frame    page, size of the store in pages if it ends a commit, else 0, salt, checksum; the page   24 bytes and a page

A frame is valid if its salt is that of the newest generation and its checksum follows from that of the frame before, as in SQLite.
SQLite ends at the first invalid frame. Here each frame is compared with the checksum stored in the frame before, so that valid frames
after a damaged one are found, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from mmap import mmap
from struct import unpack
from typing import NamedTuple

Bytes = bytes | mmap
HEADER, FRAME = 32, 24
_MAGIC = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")


class Frame(NamedTuple):
    """The page that a frame holds, the size of the store in pages if it ends a commit, and whether it is valid."""

    page: int
    commit: int
    fits: bool


def frames_of(wal: Bytes, page_size: int) -> Iterator[Frame]:
    """Yield all frames of the newest generation, until only older ones follow."""
    if len(wal) < HEADER:
        return
    step = FRAME + page_size
    order = ">" if wal[:4] == _MAGIC[1] else "<"
    a, b = unpack(">II", wal[24:32])
    good = wal[:4] in _MAGIC and (a, b) == _sums(wal[:24], 0, 0, order)
    salt = wal[16:24] if good else wal[40:48]  # the first frame also has it
    ours = [i for i in range((len(wal) - HEADER) // step) if wal[HEADER + i * step + 8 : HEADER + i * step + 16] == salt]
    for i in range(ours[-1] + 1 if ours else 0):
        at = HEADER + i * step
        page, commit = unpack(">II", wal[at : at + 8])
        sums = _sums(wal[at : at + 8] + wal[at + FRAME : at + step], a, b, order)
        a, b = unpack(">II", wal[at + 16 : at + FRAME])
        yield Frame(page, commit, (a, b) == sums and wal[at + 8 : at + 16] == salt and page > 0)


def committed_frames(wal: Bytes, page_size: int) -> Iterator[tuple[int, bytes]]:
    """Yield page and content of each frame that SQLite reads: up to the last commit before the first invalid frame.

    After a power cut, some frames of an unacknowledged commit may exist. They have the right salt, but their pages are torn.
    """
    good = list(takewhile(lambda frame: frame.fits, frames_of(wal, page_size)))
    for number, frame in enumerate(good[: up_to_commit(good)], 1):
        yield frame.page, content(wal, page_size, number)


def content(wal: Bytes, page_size: int, frame: int) -> bytes:
    """Return the page in a frame; frames count from 1."""
    at = HEADER + (frame - 1) * (FRAME + page_size) + FRAME
    return wal[at : at + page_size]


def up_to_commit(frames: list[Frame]) -> int:
    """Return the number of frames up to the last one that ends a commit."""
    return max((i + 1 for i, frame in enumerate(frames) if frame.fits and frame.commit), default=0)


def _sums(data: bytes, a: int, b: int, order: str) -> tuple[int, int]:
    """Compute SQLite's checksum, continuing from (a, b)."""
    words = unpack(f"{order}{len(data) // 4}I", data)
    for x, y in zip(words[::2], words[1::2], strict=True):
        a = (a + x + b) & 0xFFFFFFFF
        b = (b + y + a) & 0xFFFFFFFF
    return a, b
