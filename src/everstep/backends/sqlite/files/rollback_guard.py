"""What a machine has seen of a store, kept beside it, so that an older store in its place is noticed.

`NAME-seen` holds 4 bytes "EVSN", the identity of the store (16 bytes), how often it was written when this was last noted, inode, size
and time of change (ns) of the store's file when the WAL was last merged into it (8 bytes each, big-endian), and the CRC-32 of all that (4
bytes). It is written after COMMIT and never synced: after a crash or a power loss it may be behind the store, never ahead of it. A store that
is behind it was put back, or has lost its WAL; a file that is not the one that was noted may be an older one under a newer WAL.
Best effort: without the file, or with a torn one, a store opens as ever, and nothing but these checks is lost.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

_MAGIC = b"EVSN"
_SIZE = 56
File = tuple[int, int, int]


class Seen(NamedTuple):
    """What was noted last."""

    identity: bytes
    writes: int
    file: File


class Witness:
    """The file beside one open store. Writes it once the identity of the store is known."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._path = f"{store}-seen"
        self._identity = self._file = b""
        self._writes = 0
        self._descriptor: int | None = None

    def recall(self) -> Seen | None:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return None
        try:
            data = os.read(descriptor, _SIZE + 1)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        if len(data) != _SIZE or data[:4] != _MAGIC or crc32(data[:-4]).to_bytes(4) != data[-4:]:
            return None
        writes, *file = (int.from_bytes(data[at : at + 8]) for at in range(20, 52, 8))
        return Seen(data[4:20], writes, (file[0], file[1], file[2]))

    def file(self) -> File:
        """What tells the store's file, as it is now, from another one in its place."""
        info = Path(self._store).stat()
        return info.st_ino, info.st_size, info.st_mtime_ns

    def begin(self, identity: bytes, writes: int) -> None:
        """Note what is seen of this store from now on."""
        if self._descriptor is None and len(identity) == 16:
            self._identity, self._writes = _MAGIC + identity, writes
            with suppress(OSError):
                self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
            self.merged()

    def merged(self) -> None:
        """The WAL was merged, so the file is another one now. A merge that follows at once is met at the next note of one."""
        with suppress(OSError):
            self._file = b"".join(n.to_bytes(8) for n in self.file())
            self.note(self._writes)

    def note(self, writes: int) -> None:
        """The store was written, durably. Not through a mapped page: that would kill the process on a full disk."""
        self._writes = writes
        if self._descriptor is not None:
            data = self._identity + writes.to_bytes(8) + self._file
            with suppress(OSError):
                os.pwrite(self._descriptor, data + crc32(data).to_bytes(4), 0)

    def forget(self) -> None:
        """The store that was seen here is not there any more."""
        with suppress(OSError):
            Path(self._path).unlink()

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
