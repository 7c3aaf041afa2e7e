"""The rollback guard: records beside a store what this machine has seen of it, so that an older store in its place is noticed.

`NAME-seen` holds 4 bytes "EVSN", the identity of the store (16 bytes), how often it had been written at the last update, inode, size
and time of change (ns) of the store's file when the WAL was last merged into it (8 bytes each, big-endian), and the CRC-32 of all that (4
bytes). It is written after COMMIT and never synced: after a crash or a power cut it may be behind the store, never ahead of it. A store
that is behind it was restored from an older copy, or has lost its WAL; a file other than the recorded one may be an older one under a newer
WAL. Best effort: without the file, or with a torn one, a store opens as usual, and only these checks are missing.
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
    """The content of the file: what was last recorded."""

    identity: bytes
    writes: int
    file: File


class RollbackGuard:
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
        """Return the identity of the store's file as it is now, which differs for another file in its place."""
        info = Path(self._store).stat()
        return info.st_ino, info.st_size, info.st_mtime_ns

    def begin(self, identity: bytes, writes: int) -> None:
        """Record from now on what is seen of this store."""
        if self._descriptor is None and len(identity) == 16:
            self._identity, self._writes = _MAGIC + identity, writes
            with suppress(OSError):
                self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
            self.merged()

    def merged(self) -> None:
        """Record the file after a merge of the WAL has changed it. If another merge follows at once, the next call records it."""
        with suppress(OSError):
            self._file = b"".join(n.to_bytes(8) for n in self.file())
            self.note(self._writes)

    def note(self, writes: int) -> None:
        """Record a durable write of the store. Not through a mapped page: on a full disk, that would kill the process."""
        self._writes = writes
        if self._descriptor is not None:
            data = self._identity + writes.to_bytes(8) + self._file
            try:  # noqa: SIM105 - `suppress` would cost more than the checksum, after each commit
                os.pwrite(self._descriptor, data + crc32(data).to_bytes(4), 0)
            except OSError:
                pass

    def forget(self) -> None:
        """Remove the record of a store that no longer exists here."""
        with suppress(OSError):
            Path(self._path).unlink()

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
