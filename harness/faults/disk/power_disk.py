"""A disk that loses its power: plays recorded operations and returns the possible files after a crash at any point.

Synced data is there. Later writes may be there or not: whole, in parts of a sector or a page, in any order, independently for each file.
Names (made, linked, renamed, removed) are there once their folder was synced; before that as far as the file system's journal had come: in
order, independently for each folder. A name that was not synced is missing although its file was synced, which is harsher than most file
systems.

Relies on `power_vfs` for the operations. No I/O except `State.write`, which writes a state into a folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from random import Random

from harness.faults.disk.power_vfs import Op, folder_of

SECTOR, PAGE = 512, 4096
_DATA = ("write", "truncate")


@dataclass(slots=True)
class State:
    """The files after a crash: the file of each name (0: a folder), and the content of each file."""

    names: dict[str, int]
    contents: dict[int, bytes]

    def digest(self) -> bytes:
        total = blake2b(digest_size=16)
        for name, file in sorted(self.names.items()):
            content = self.contents.get(file, b"")
            total.update(f"{name}\0{file}\0{len(content)}\0".encode() + content)
        return total.digest()

    def write(self, folder: Path) -> None:
        """Write the state into an empty folder. Files in a missing folder are missing, too."""
        first: dict[int, Path] = {}
        for name, file in sorted(self.names.items()):
            path = folder / name
            if not path.parent.is_dir():
                continue
            if not file:
                path.mkdir()
            elif file in first:
                path.hardlink_to(first[file])
            else:
                path.write_bytes(self.contents.get(file, b""))
                first[file] = path


@dataclass(slots=True)
class Disk:
    """The files as they were synced, and the operations since."""

    pending: list[Op] = field(default_factory=list)
    _synced: dict[int, bytearray] = field(default_factory=dict)
    _names: dict[str, int] = field(default_factory=dict)

    def play(self, op: Op) -> None:
        """Apply one operation."""
        if op.what == "sync":
            self._settle(lambda o: o.what in _DATA and o.file == op.file)
        elif op.what == "sync folder":
            self._settle(lambda o: o.what not in _DATA and folder_of(o.name) == op.name)
        elif op.what != "note":
            self.pending.append(op)

    def _settle(self, concerns: Callable[[Op], bool]) -> None:
        waiting = self.pending
        self.pending = [op for op in waiting if not concerns(op)]
        for op in waiting:
            if concerns(op):
                _do(op, self._synced, self._names)

    def after(self, fate: str, random: Random) -> State:
        """Return the files after a crash now, with this fate of unsynced data."""
        synced = {file: bytearray(content) for file, content in self._synced.items()}
        names = dict(self._names)
        for op in FATES[fate](self.pending, random):
            _do(op, synced, names)
        return State(names, {file: bytes(synced[file]) for file in names.values() if file in synced})


def _do(op: Op, synced: dict[int, bytearray], names: dict[str, int]) -> None:
    if op.what == "link":
        names[op.name] = op.file
    elif op.what == "unlink":
        names.pop(op.name, None)
    elif op.what == "rename":
        names.pop(op.data.decode(), None)
        names[op.name] = op.file
    elif op.what == "truncate":
        content = synced.setdefault(op.file, bytearray())
        del content[op.at :]
        content.extend(bytes(op.at - len(content)))
    else:
        content = synced.setdefault(op.file, bytearray())
        content.extend(bytes(max(0, op.at - len(content))))
        content[op.at : op.at + len(op.data)] = op.data


def _blocks(op: Op, size: int) -> Iterator[Op]:
    """Split a write into the blocks that a disk writes one by one."""
    start, end = op.at, op.at + len(op.data)
    while start < end:
        stop = min(end, (start // size + 1) * size)
        yield replace(op, at=start, data=op.data[start - op.at : stop - op.at])
        start = stop


def _some_names(pending: Iterable[Op], random: Random) -> set[int]:
    """Return the changes of names that survived: in each folder those up to some moment. As indexes of pending operations."""
    folders: dict[str, list[int]] = {}
    for index, op in enumerate(pending):
        if op.what not in _DATA:
            folders.setdefault(folder_of(op.name), []).append(index)
    return {index for indexes in folders.values() for index in indexes[: random.randint(0, len(indexes))]}


def _lost(_pending: list[Op], _random: Random) -> list[Op]:
    return []


def _kept(pending: list[Op], _random: Random) -> list[Op]:
    return pending


def _torn(size: int) -> Callable[[list[Op], Random], list[Op]]:
    """Keep everything but the end of the last write."""

    def torn(pending: list[Op], random: Random) -> list[Op]:
        for index in range(len(pending) - 1, -1, -1):
            if pending[index].what == "write":
                blocks = list(_blocks(pending[index], size))
                kept = random.randrange(len(blocks)) if blocks else 0
                return [*pending[:index], *blocks[:kept], *pending[index + 1 :]]
        return pending

    return torn


def _subset(size: int) -> Callable[[list[Op], Random], list[Op]]:
    """Keep any blocks of any write."""

    def subset(pending: list[Op], random: Random) -> list[Op]:
        names, share = _some_names(pending, random), random.choice((0.2, 0.5, 0.8, 0.95))
        kept: list[Op] = []
        for index, op in enumerate(pending):
            if op.what == "write":
                kept += [block for block in _blocks(op, size) if random.random() < share]
            elif index in names or (op.what == "truncate" and random.random() < share):
                kept.append(op)
        return kept

    return subset


def _files(pending: list[Op], random: Random) -> list[Op]:
    """Keep all of some files and nothing of others."""
    names, files = _some_names(pending, random), {op.file: random.random() < 0.5 for op in pending}
    return [op for index, op in enumerate(pending) if (files[op.file] if op.what in _DATA else index in names)]


def _in_order(pending: list[Op], random: Random) -> list[Op]:
    """Keep everything up to some moment."""
    return pending[: random.randint(0, len(pending))]


def _newest(pending: list[Op], random: Random) -> list[Op]:
    """Keep the newest writes without those before them."""
    writes = [index for index, op in enumerate(pending) if op.what in _DATA]
    kept = set(writes[-random.randint(1, 4) :]) | _some_names(pending, random)
    return [op for index, op in enumerate(pending) if index in kept]


FATES: dict[str, Callable[[list[Op], Random], list[Op]]] = {
    "lost": _lost, "kept": _kept, "torn 512": _torn(SECTOR), "torn 4096": _torn(PAGE), "subset 512": _subset(SECTOR),
    "subset 4096": _subset(PAGE), "files": _files, "in order": _in_order, "newest": _newest,
}  # fmt: skip
"""The possible fates of unsynced data."""
