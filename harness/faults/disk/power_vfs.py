"""Records what a program does to the files of one folder, in order, so that `power_disk` can take the power away at any point.

SQLite's calls come through a VFS of apsw that is the default one while it records, those of Python (a WAL is grown, a store linked to its
name, the rollback guard written, a worker's lock made) through `power_calls`. `note` puts a line of the acknowledgement log into the same
order.

Each call is done and recorded under one lock, so that what was synced is what the record says. The index of a WAL (`-shm`) is never
synced and can be anything after a crash: it is left out. Nothing here changes what the calls do.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from harness.faults.disk.power_calls import wrapped_calls
from harness.faults.disk.vfs import RecordedFile

_JOURNALS = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL
_NAME = "everstep-power"


@dataclass(frozen=True, slots=True)
class Op:
    """One thing that happened. `file` counts files, not names: a link gives a file a second name, 0 is a folder.

    what      write (at, data), truncate (at), sync; of a name: link, unlink, rename (data: the old name); sync folder; note (data)
    name      the path inside the folder; of `sync folder` that of the folder itself
    """

    what: str
    name: str = ""
    file: int = 0
    at: int = 0
    data: bytes = b""


def folder_of(name: str) -> str:
    return name.rpartition("/")[0]


class Recorder:
    """The operations on one folder, in order. The initial content of the folder counts as synced."""

    def __init__(self, folder: Path):
        self.folder = str(folder.resolve())
        self.ops: list[Op] = []
        self.lock = threading.RLock()
        self._files: dict[str, int] = {}
        self._made = 0
        for path in sorted(folder.rglob("*")):
            self._found(path)

    def _found(self, path: Path) -> None:
        name = self.inside(path)
        if name is None:
            return
        if path.is_dir():
            self.made_folder(name)
        else:
            file, content = self.file(name), path.read_bytes()
            self.ops += [Op("write", name, file, 0, content), Op("sync", name, file)]
        self.synced_folder(folder_of(name))

    def inside(self, path: Any) -> str | None:
        """Return the name of a path in the folder, or None for one outside."""
        if not isinstance(path, (str, bytes, os.PathLike)):
            return None
        text = str(Path(os.fsdecode(path)).absolute())
        if text == self.folder:
            return ""
        return text[len(self.folder) + 1 :] if text.startswith(self.folder + "/") and not text.endswith("-shm") else None

    def note(self, line: bytes) -> None:
        with self.lock:
            self.ops.append(Op("note", data=line))

    def file(self, name: str) -> int:
        """Return the file of a name; creates a missing one."""
        if name not in self._files:
            self._made += 1
            self._files[name] = self._made
            self.ops.append(Op("link", name, self._made))
        return self._files[name]

    def wrote(self, name: str, at: int, data: bytes) -> None:
        self.ops.append(Op("write", name, self.file(name), at, data))

    def cut(self, name: str, size: int) -> None:
        self.ops.append(Op("truncate", name, self.file(name), size))

    def synced(self, name: str) -> None:
        self.ops.append(Op("sync", name, self.file(name)))

    def synced_folder(self, name: str) -> None:
        self.ops.append(Op("sync folder", name))

    def made_folder(self, name: str) -> None:
        self.ops.append(Op("link", name))

    def linked(self, old: str, new: str) -> None:
        self._files[new] = self.file(old)
        self.ops.append(Op("link", new, self._files[new]))

    def renamed(self, old: str, new: str) -> None:
        self._files[new] = self._files.pop(old, 0)
        self.ops.append(Op("rename", new, self._files[new], data=old.encode()))

    def unlinked(self, name: str) -> None:
        self.ops.append(Op("unlink", name, self._files.pop(name, 0)))

    @contextmanager
    def recording(self) -> Iterator[Recorder]:
        """Record everything that happens inside the block, by any thread."""
        vfs = _Vfs(self)
        try:
            with wrapped_calls(self):
                yield self
        finally:
            vfs.unregister()


class _Vfs(apsw.VFS):
    """SQLite's own VFS, with a record of its calls."""

    def __init__(self, recorder: Recorder):
        self._recorder = recorder
        self._base = apsw.vfs_names()[0]  # the default one until now
        super().__init__(_NAME, base=self._base, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> Any:  # noqa: N802 - SQLite's names
        inside = self._recorder.inside(name.filename() if isinstance(name, apsw.URIFilename) else name)
        if inside is None:
            return super().xOpen(name, flags)
        with self._recorder.lock:
            return _File(self._base, self._recorder, inside, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        inside = self._recorder.inside(filename)
        with self._recorder.lock:
            super().xDelete(filename, syncdir)
            if inside is not None:
                self._recorder.unlinked(inside)
                if syncdir:
                    self._recorder.synced_folder(folder_of(inside))


class _File(RecordedFile):
    def __init__(self, base: str, recorder: Recorder, inside: str, name: Any, flags: list[int]):
        self._recorder = recorder
        self._name = inside
        super().__init__(base, name, flags)
        recorder.file(inside)
        # As SQLite's os_unix.c has it: the first sync of a journal that its opening may have made syncs the folder, too.
        self._sync_folder = bool(flags[0] & _JOURNALS and flags[0] & apsw.SQLITE_OPEN_CREATE)

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        with self._recorder.lock:
            super().xWrite(data, offset)
            self._recorder.wrote(self._name, offset, bytes(data))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        with self._recorder.lock:
            super().xTruncate(newsize)
            self._recorder.cut(self._name, newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802
        with self._recorder.lock:
            super().xSync(flags)
            self._recorder.synced(self._name)
            if self._sync_folder:
                self._sync_folder = False
                self._recorder.synced_folder(folder_of(self._name))
