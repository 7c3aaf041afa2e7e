"""A read-only view of a snapshot that fetches chunks on access.

Inside, references are `Lazy` until they are used; a long list loads only the segments that are read. Deltas apply to these as to plain
containers. Outside, `DictView` and `ListView` return scalars, views, and restored objects. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from everstep.codec.kinds import Unknown
from everstep.codec.values import FROZEN, Decoder, decode, encode
from everstep.snapshot.loader import Entry, Loader, counted, nonsense, pairs_of, parse_reference, whole


class LazyLoader(Loader):
    """Reads a base without resolving its references."""

    def __init__(self, fetch: Any, unwrap: Any):
        super().__init__(fetch, unwrap)
        self.decoder = Decoder(lambda data: Lazy(data, self))

    def read_ahead(self, *roots: bytes) -> None:
        """Fetch nothing: chunks are fetched on access."""


_NOTHING = LazyLoader(lambda digests: {}, bytes)


class Lazy:
    """A reference that is resolved on first access."""

    __slots__ = ("_data", "_loader", "_value")

    def __init__(self, data: bytes, loader: LazyLoader):
        self._data: bytes | None = data
        self._loader = loader
        self._value: Any = None

    @property
    def reference(self) -> bytes | None:
        """Return the stored reference, as long as it has not been resolved."""
        return self._data

    def resolve(self) -> Any:
        if self._data is not None:
            kind, count, level, digest = parse_reference(self._data)
            self._value = self._read(kind, count, self._loader.leaves(count, level, digest))
            self._data = None
        return self._value

    def _read(self, kind: str, count: int, entries: list[Entry]) -> Any:
        loader = self._loader
        if kind == "l":
            return LazyList(entries, loader)
        contents = loader.contents([digest for digest, _ in entries])
        if kind == "d":
            return pairs_of(map(loader.decoder.decode, contents), count)
        return whole(kind, b"".join(contents), count, loader.decoder)

    def __getitem__(self, key: Any) -> Any:
        return self.resolve()[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.resolve()[key] = value

    def __delitem__(self, key: Any) -> None:
        del self.resolve()[key]


class LazyList:
    """A long list in parts: each is (number of items, digest) until it is read, then its items."""

    __slots__ = ("_count", "_loader", "_parts")

    def __init__(self, entries: list[tuple[bytes, int]], loader: LazyLoader):
        self._loader = loader
        self._parts: list[tuple[int, bytes | None, list[Any]]] = [(n, digest, []) for digest, n in entries]
        self._count = sum(n for _, n in entries)

    @classmethod
    def of(cls, items: list[Any]) -> LazyList:
        """Wrap an existing list as one part."""
        made = cls([], _NOTHING)
        made._parts, made._count = [(len(items), None, items)], len(items)
        return made

    def __len__(self) -> int:
        return self._count

    @property
    def parts(self) -> list[tuple[int, bytes | None, list[Any]]]:
        return self._parts

    def content(self, k: int) -> bytes | None:
        """Return the stored bytes of a part that was not read yet."""
        digest = self._parts[k][1]
        return None if digest is None else self._loader.contents([digest])[0]

    def items(self, k: int) -> list[Any]:
        """Read a part and return its items."""
        n, digest, items = self._parts[k]
        if digest is not None:
            items = counted(self._loader.decoder.decode(self._loader.contents([digest])[0]), n)
            self._parts[k] = (n, None, items)
        return items

    def _locate(self, i: int) -> tuple[int, int]:
        for k, (n, _, _) in enumerate(self._parts):
            if i < n:
                return k, i
            i -= n
        raise IndexError("list index out of range")

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._count))]
        k, i = self._locate(index + self._count if index < 0 else index)
        return self.items(k)[i]

    def __setitem__(self, index: Any, value: Any) -> None:
        if not isinstance(index, slice):
            k, i = self._locate(index)
            self.items(k)[i] = value
            return
        start, stop, _ = index.indices(self._count)
        for i in range(stop - 1, start - 1, -1):
            k, j = self._locate(i)
            del self.items(k)[j]
            self._resize(k)
        k, j = self._locate(start) if start < self._count else self._end()
        self.items(k)[j:j] = value
        self._resize(k)

    def _end(self) -> tuple[int, int]:
        """Return where to append: after items that were appended before, or in a new part."""
        if not self._parts or self._parts[-1][1] is not None:
            self._parts.append((0, None, []))
        return len(self._parts) - 1, self._parts[-1][0]

    def _resize(self, k: int) -> None:
        n, _, items = self._parts[k]
        self._count += len(items) - n
        self._parts[k] = (len(items), None, items)


def view(value: Any) -> Any:
    """Convert a value to the form that may be returned to the program."""
    cls = value.__class__
    if cls is Lazy:
        return view(value.resolve())
    if cls is dict:
        return DictView(value)
    if cls is list or cls is LazyList:
        return ListView(value)
    if cls in FROZEN:
        return value
    with nonsense():
        return decode(encode(plain(value)))  # a copy: the program may change the returned value, but not the view


def plain(value: Any) -> Any:
    """Resolve every lazy part of a value."""
    cls = value.__class__
    if cls is Lazy:
        return plain(value.resolve())
    if cls is dict:
        return {k: plain(v) for k, v in value.items()}
    if cls is list or cls is LazyList:
        return [plain(value[i]) for i in range(len(value))]
    if cls is Unknown:
        return Unknown(value.name, value.version, plain(value.fields))
    return value


class DictView(Mapping[Any, Any]):
    """A read-only dict."""

    __slots__ = ("_value",)

    def __init__(self, value: dict[Any, Any]):
        self._value = value

    def __getitem__(self, key: Any) -> Any:
        return view(self._value[key])

    def __iter__(self) -> Iterator[Any]:
        return iter(self._value)

    def __len__(self) -> int:
        return len(self._value)

    def __repr__(self) -> str:
        return f"<view of a dict with {len(self)} keys>"


class ListView(Sequence[Any]):
    """A read-only list."""

    __slots__ = ("_value",)

    def __init__(self, value: Any):
        self._value = value

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [view(v) for v in self._value[index]]
        return view(self._value[index])

    def __len__(self) -> int:
        return len(self._value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (list, ListView)):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<view of a list with {len(self)} items>"
