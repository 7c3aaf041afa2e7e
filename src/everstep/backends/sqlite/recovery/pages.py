"""The pages of a SQLite store that may be damaged, newest and older versions: those of its file and those of its WAL.

Works on a private copy: `image` becomes the file with its WAL merged. Frames after a damaged one count if they belong to
a later write than all before it, and, if there is a rollback guard, to a write that it has seen. Frames of a write that was never
committed do not count.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from everstep.backends.sqlite.files.rollback_guard import Seen
from everstep.backends.sqlite.recovery.cells import rows_in
from everstep.backends.sqlite.recovery.copy import copy_store
from everstep.backends.sqlite.recovery.wal_frames import Bytes, Frame, content, frames_of, up_to_commit

_SIZES = frozenset(1 << n for n in range(9, 17))
_LOOKED_AT = 1 << 20


class Pages:
    """Every committed version of every page that still exists. Time counts frames of the WAL; 0 is the file itself."""

    def __init__(self, source: str, private: str, seen: Seen | None = None) -> None:
        """Copy the files. `private` is a prefix for the names of the copies."""
        self._seen = seen
        self.image, self._frames = Path(private + "-image"), Path(private + "-frames")
        self.unreadable = copy_store(source, self.image, self._frames)
        self._file = self.image.open("r+b")
        self._length = self._file.seek(0, os.SEEK_END)
        with self._frames.open("rb") as wal:
            self._wal: Bytes = mmap.mmap(wal.fileno(), 0, access=mmap.ACCESS_READ) if self._frames.stat().st_size else b""
        self.size, self.usable = self._page_size()
        self.count = -(-self._length // self.size)
        self._times: dict[int, list[int]] = {}
        self._before: dict[int, bytes] = {}
        self.now = self._merge()

    def _page_size(self) -> tuple[int, int]:
        """Return the size of a page and its usable part: from the file, its WAL, or the default of new stores, whichever matches best."""
        self._file.seek(0)
        head = self._file.read(100).ljust(100, b"\0")
        told = (int.from_bytes(head[16:18]), int.from_bytes(self._wal[8:12]), 4096)
        sizes = [65536 if n == 1 else n for n in told]
        choices = dict.fromkeys((size, size - kept) for size in sizes if size in _SIZES for kept in (head[20], 0) if kept < 64)
        return max(choices, key=lambda choice: self._rows(*choice)) if len(choices) > 1 else next(iter(choices))

    def _rows(self, size: int, usable: int) -> int:
        """Return how many rows the beginning of the file has if pages have that size."""
        self._file.seek(0)
        data = self._file.read(_LOOKED_AT)
        return sum(1 for at in range(0, len(data), size) for _ in rows_in(data[at : at + size], at == 0, usable))

    def _merge(self) -> int:
        """Bring the image to the newest version of each page; return the newest time."""
        last = 0
        for last, frame in self._committed():
            self._times.setdefault(frame.page, []).append(last)
            self.count = frame.commit or self.count
        for page, times in self._times.items():
            self._before[page] = self._read(page)
            self._write((page - 1) * self.size, content(self._wal, self.size, times[-1]))
        if last:
            self._file.truncate(self.count * self.size)
        if len(self._read(1)) > 19:
            self._write(18, b"\x01\x01")  # the image has no WAL beside it, so its header must not ask for one
        self._file.flush()
        return last

    def _committed(self) -> list[tuple[int, Frame]]:
        """Return the frames that count, with their times."""
        frames = list(frames_of(self._wal, self.size))
        broken = next((i for i, frame in enumerate(frames) if not frame.fits), len(frames))
        whole, tail = up_to_commit(frames[:broken]), up_to_commit(frames[broken:])
        timed = list(enumerate(frames, 1))
        found = timed[:whole]
        rest = [(time, frame) for time, frame in timed[whole : broken + tail] if frame.fits] if tail else []
        rest = self._seen_by_this_machine(rest)
        later = self._writes(rest)
        seen = (self._writes(found) or self._writes_in_file()) if later else []
        return found + rest if later and seen and min(later) > max(seen) else found

    def _seen_by_this_machine(self, frames: list[tuple[int, Frame]]) -> list[tuple[int, Frame]]:
        """Return the frames up to the last commit that the rollback guard has seen, if this machine has a guard of this store."""
        for index, (time, _) in enumerate(frames):
            manifest = manifest_in(content(self._wal, self.size, time), self.usable)
            if self._seen is None or manifest is None or manifest[1] != self._seen.identity:
                continue
            if manifest[0] > self._seen.writes:
                return frames[: up_to_commit([frame for _, frame in frames[:index]])]
        return frames

    def _writes(self, frames: list[tuple[int, Frame]]) -> list[int]:
        """Return the write counts in those frames that hold the manifest."""
        found = (manifest_in(content(self._wal, self.size, time), self.usable) for time, _ in frames)
        return [manifest[0] for manifest in found if manifest is not None]

    def _writes_in_file(self) -> list[int]:
        found = (manifest_in(self._read(page), self.usable) for page in range(1, self.count + 1))
        return [manifest[0] for manifest in found if manifest is not None]

    def _read(self, page: int) -> bytes:
        self._file.seek((page - 1) * self.size)
        return self._file.read(self.size)

    def _write(self, at: int, data: bytes) -> None:
        self._file.seek(at)
        self._file.write(data)

    def at(self, page: int, time: int) -> bytes:
        """Return a page as it was at a time; empty if there is none."""
        times = [t for t in self._times.get(page, ()) if t <= time]
        if times:
            return content(self._wal, self.size, times[-1])
        if page in self._before:
            return self._before[page]
        return self._read(page) if 0 < page <= self.count else b""

    def older(self) -> Iterator[tuple[int, int]]:
        """Yield the pages that have older versions, and their times, newest first."""
        for page, times in self._times.items():
            for time in (*times[-2::-1], 0):
                yield page, time

    def free(self) -> set[int]:
        """Return the pages in SQLite's list of free pages, as far as it can be followed."""
        found: set[int] = set()
        trunk = int.from_bytes(self.at(1, self.now)[32:36])
        while 0 < trunk <= self.count and trunk not in found:
            found.add(trunk)
            data = self.at(trunk, self.now)
            count = min(int.from_bytes(data[4:8]), self.usable // 4 - 2)
            found.update(int.from_bytes(data[8 + 4 * i : 12 + 4 * i]) for i in range(count))
            trunk = int.from_bytes(data[:4])
        return found

    def hide(self) -> None:
        """Remove the names of the copies; open descriptors can still read them. A crash from here on leaves no files."""
        self.image.unlink(missing_ok=True)
        self._frames.unlink(missing_ok=True)

    def close(self) -> None:
        self._file.close()
        if isinstance(self._wal, mmap.mmap):
            self._wal.close()
        self.hide()


def manifest_in(page: bytes, usable: int) -> tuple[int, bytes] | None:
    """Return the write count and the identity of the store, if a page holds the manifest."""
    row = manifest_row(page, usable)
    return None if row is None else (row[7], row[8])


def manifest_row(page: bytes, usable: int) -> tuple[Any, ...] | None:
    """Return the row of the manifest, if a page holds it; its identity is empty if it cannot be read."""
    if page[:1] != b"\x0d" or page[3:5] != b"\0\x01":
        return None
    for cell, values in rows_in(page, False, usable):
        if cell.rowid == 1 and len(values) == 10 and isinstance(values[1], bytes) and isinstance(values[7], int):
            return (*values[:8], bytes(values[8]) if isinstance(values[8], bytes) else b"")
    return None
