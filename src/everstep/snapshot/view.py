"""A read-only look into a snapshot that fetches chunks as they are touched.

Inside, references are `Lazy` until something asks for them; a long list loads the segments that are read and no others. Deltas
apply to these as to plain containers. Outside, `DictView` and `ListView` hand out scalars, views, and revived objects. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ormsgpack import unpackb

from everstep.codec.kinds import Unknown
from everstep.codec.values import FROZEN, Decoder, decode, encode
from everstep.snapshot.tree import Loader, pairs_of, whole


class LazyLoader(Loader):
    """Reads a base, leaving references for later."""

    def __init__(self, fetch: Any, unwrap: Any):
        super().__init__(fetch, unwrap)
        self.decoder = Decoder(lambda data: Lazy(data, self))


class Lazy:
    """A reference that is resolved when it is first touched."""

    __slots__ = ("_data", "_loader", "_value")

    def __init__(self, data: bytes, loader: LazyLoader):
        self._data: bytes | None = data
        self._loader = loader
        self._value: Any = None

    def resolve(self) -> Any:
        if self._data is not None:
            kind, _count, level, digest = unpackb(self._data)
            entries = self._loader.leaves(level, digest) if digest else []
            self._value = self._read(kind, _count, entries)
            self._data = None
        return self._value

    def _read(self, kind: str, count: int, entries: list[tuple[bytes, int]]) -> Any:
        loader = self._loader
        if kind == "l":
            return LazyList([(digest, n or count) for digest, n in entries], loader)
        contents = loader.contents([digest for digest, _ in entries])
        if kind == "d":
            return dict(pair for content in contents for pair in pairs_of(loader.decoder.decode(content)))
        return whole(kind, b"".join(contents), loader.decoder)

    def __getitem__(self, key: Any) -> Any:
        return self.resolve()[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.resolve()[key] = value

    def __delitem__(self, key: Any) -> None:
        del self.resolve()[key]


class LazyList:
    """A long list in parts: each is (how many items, its digest) until it is read, then its items."""

    __slots__ = ("_loader", "_parts")

    def __init__(self, entries: list[tuple[bytes, int]], loader: LazyLoader):
        self._loader = loader
        self._parts: list[tuple[int, bytes | None, list[Any]]] = [(n, digest, []) for digest, n in entries]

    def __len__(self) -> int:
        return sum(n for n, _, _ in self._parts)

    def _items(self, k: int) -> list[Any]:
        n, digest, items = self._parts[k]
        if digest is not None:
            items = self._loader.decoder.decode(self._loader.contents([digest])[0])
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
            return [self[i] for i in range(*index.indices(len(self)))]
        k, i = self._locate(index + len(self) if index < 0 else index)
        return self._items(k)[i]

    def __setitem__(self, index: Any, value: Any) -> None:
        if not isinstance(index, slice):
            k, i = self._locate(index)
            self._items(k)[i] = value
            return
        start, stop, _ = index.indices(len(self))
        for i in range(max(start, stop) - 1, start - 1, -1):
            k, j = self._locate(i)
            del self._items(k)[j]
            self._resize(k)
        k, j = self._locate(start) if start < len(self) else (len(self._parts), 0)
        if k == len(self._parts):
            self._parts.append((0, None, []))
        self._items(k)[j:j] = value
        self._resize(k)

    def _resize(self, k: int) -> None:
        items = self._parts[k][2]
        self._parts[k] = (len(items), None, items)


def view(value: Any) -> Any:
    """A value as it may be handed out."""
    cls = value.__class__
    if cls is Lazy:
        return view(value.resolve())
    if cls is dict:
        return DictView(value)
    if cls is list or cls is LazyList:
        return ListView(value)
    return value if cls in FROZEN else decode(encode(plain(value)))  # a copy: what is handed out may be changed, the view may not


def plain(value: Any) -> Any:
    """A value with all that is lazy in it read."""
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
