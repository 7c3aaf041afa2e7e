"""The functions of `os` that change files, wrapped for a while: each does its work and reports to a recorder. Part of `power_vfs`.

Python's own modules call them by these names too (`Path.unlink`, `Path.mkdir`); `open` and `Path.write_text` bypass them. A recorder
decides which paths concern it.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol
from unittest.mock import patch


class Listener(Protocol):
    """Receives the reports."""

    lock: Any

    def inside(self, path: Any) -> str | None: ...
    def file(self, name: str) -> int: ...
    def wrote(self, name: str, at: int, data: bytes) -> None: ...
    def cut(self, name: str, size: int) -> None: ...
    def synced(self, name: str) -> None: ...
    def synced_folder(self, name: str) -> None: ...
    def made_folder(self, name: str) -> None: ...
    def linked(self, old: str, new: str) -> None: ...
    def renamed(self, old: str, new: str) -> None: ...
    def unlinked(self, name: str) -> None: ...


@contextmanager
def wrapped_calls(listener: Listener) -> Iterator[None]:
    """Do and report every such call, of any thread, under the listener's lock while inside the block."""
    calls = _Calls(listener)
    with ExitStack() as stack:
        for name in ("open", "close", "write", "pwrite", "ftruncate", "fsync", "fdatasync", "link", "rename", "replace", "unlink", "remove",
                     "mkdir", "rmdir"):  # fmt: skip
            stack.enter_context(patch.object(os, name, calls.wrapped(name)))
        yield


class _Calls:
    def __init__(self, listener: Listener):
        self._listener = listener
        self._names: dict[int, str] = {}
        self._folders: dict[int, str] = {}

    def wrapped(self, name: str) -> Callable[..., Any]:
        real, tell = getattr(os, name), getattr(self, "_" + name)

        def call(*args: Any, **options: Any) -> Any:
            with self._listener.lock:
                return tell(real, *args, **options)

        return call

    def _open(self, real: Any, path: Any, flags: int, *args: Any, **options: Any) -> int:
        descriptor: int = real(path, flags, *args, **options)
        name = self._listener.inside(path)
        if name is None or options.get("dir_fd") is not None:
            return descriptor
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            self._folders[descriptor] = name
        else:
            self._names[descriptor] = name
            self._listener.file(name)
            if flags & os.O_TRUNC:
                self._listener.cut(name, 0)
        return descriptor

    def _close(self, real: Any, descriptor: int) -> None:
        self._names.pop(descriptor, None)
        self._folders.pop(descriptor, None)
        real(descriptor)

    def _write(self, real: Any, descriptor: int, data: Any) -> int:
        name = self._names.get(descriptor)
        appends = name is not None and fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND
        at = 0 if name is None else os.fstat(descriptor).st_size if appends else os.lseek(descriptor, 0, os.SEEK_CUR)
        written: int = real(descriptor, data)
        if name is not None:
            self._listener.wrote(name, at, bytes(data)[:written])
        return written

    def _pwrite(self, real: Any, descriptor: int, data: Any, offset: int) -> int:
        written: int = real(descriptor, data, offset)
        if (name := self._names.get(descriptor)) is not None:
            self._listener.wrote(name, offset, bytes(data)[:written])
        return written

    def _ftruncate(self, real: Any, descriptor: int, length: int) -> None:
        real(descriptor, length)
        if (name := self._names.get(descriptor)) is not None:
            self._listener.cut(name, length)

    def _fsync(self, real: Any, descriptor: Any) -> None:
        real(descriptor)
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        if number in self._names:
            self._listener.synced(self._names[number])
        elif number in self._folders:
            self._listener.synced_folder(self._folders[number])

    _fdatasync = _fsync

    def _link(self, real: Any, src: Any, dst: Any, **options: Any) -> None:
        real(src, dst, **options)
        self._named(self._listener.linked, src, dst)

    def _rename(self, real: Any, src: Any, dst: Any, **options: Any) -> None:
        real(src, dst, **options)
        self._named(self._listener.renamed, src, dst)

    _replace = _rename

    def _named(self, tell: Callable[[str, str], None], src: Any, dst: Any) -> None:
        old, new = self._listener.inside(src), self._listener.inside(dst)
        if old is not None and new is not None:
            tell(old, new)
        elif old is not None or new is not None:
            raise NotImplementedError(f"{src} to {dst}: a file that leaves or enters the folder cannot be recorded")

    def _unlink(self, real: Any, path: Any, **options: Any) -> None:
        real(path, **options)
        if (name := self._listener.inside(path)) is not None:
            self._listener.unlinked(name)

    _remove = _unlink
    _rmdir = _unlink

    def _mkdir(self, real: Any, path: Any, *args: Any, **options: Any) -> None:
        real(path, *args, **options)
        if (name := self._listener.inside(path)) is not None:
            self._listener.made_folder(name)
