"""Reads rows of a damaged SQLite store directly from its pages, where SQLite itself no longer finds them. Relies on `recovery.pages`.

It scans all pages once, and notes the location of each row that has the shape of one of ours. A row is *live* if it is in the cell list of
the current version of a page that is in use. Others are stale: older versions of pages, free pages, loose cells of a damaged page. The
shape of a row identifies its table, because a page doesn't name it; so the caller must verify each row by its digest. Never writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from everstep.backends.sqlite.recovery.cells import GONE, LEAF_TABLE, Cell, cell_at, cell_starts, columns, strays
from everstep.backends.sqlite.recovery.pages import Pages
from everstep.backends.sqlite.rows import Values

_EPOCH = 10**12  # microseconds: all our times are larger, all numbers of checkpoints smaller


class Spot(NamedTuple):
    """The location of a row: the page and its version."""

    live: bool
    page: int
    time: int
    at: int


class Carver:
    """The rows in the pages, by table and key: of a record its id, of a chunk its digest, of a property 0, of others the run's pk."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._found: dict[str, dict[Any, list[Spot]]] = {}
        self._records: dict[int, list[int]] = {}
        self._claimed: set[int] = set()
        self._look()

    def keys(self, table: str, live: bool = False) -> list[Any]:
        """Return the keys of a table's rows, or only of live rows."""
        return [key for key, spots in self._found.get(table, {}).items() if not live or any(spot.live for spot in spots)]

    def records(self, run: int) -> list[int]:
        """Return the ids of the records found for a run."""
        if not self._records:
            for id in self.keys("records"):
                self._records.setdefault(id >> 31, []).append(id)
        return self._records.get(run, [])

    def rows(self, table: str, key: Any) -> Iterator[tuple[bool, Values]]:
        """Yield the candidates for a key, live ones first, then newer before older; columns whose bytes are missing are GONE."""
        seen: set[Values] = set()
        for spot in sorted(self._found.get(table, {}).get(key, ()), key=lambda spot: (not spot.live, -spot.time)):
            for values in self._read(spot):
                if values not in seen:
                    seen.add(values)
                    yield spot.live, values

    def _look(self) -> None:
        pages = self._pages
        free = pages.free()
        doubtful = [page for page in range(1, pages.count + 1) if not self._page(page, pages.now, page not in free) and page not in free]
        for page, time in pages.older():
            self._page(page, time, live=False)
        for page in doubtful:
            if page not in self._claimed:  # skip overflow pages: they have no cells, and there are many
                self._loose(page)

    def _page(self, page: int, time: int, live: bool) -> bool:
        """Note the rows of a page; False if it is not a page with rows, or some of its listed cells are not rows."""
        data = self._pages.at(page, time)
        kind, starts = cell_starts(data, page == 1)
        head = 100 if page == 1 else 0
        whole = kind != 0 and int.from_bytes(data[head + 3 : head + 5]) == len(starts)
        for at in starts:
            cell = cell_at(data, at, kind, self._pages.usable)
            good = cell is not None and self._note(cell, Spot(live, page, time, at))
            whole = whole and good
        return whole

    def _loose(self, page: int) -> None:
        data = self._pages.at(page, self._pages.now)
        for at in strays(data, self._pages.usable):
            cell = cell_at(data, at, LEAF_TABLE, self._pages.usable)
            if cell is not None:
                self._note(cell, Spot(False, page, self._pages.now, at))

    def _note(self, cell: Cell, spot: Spot) -> bool:
        values = columns(cell.local, cell.total)
        if values is None:
            return False
        if cell.overflow and cell.overflow not in self._claimed and spot.time == self._pages.now:
            self._claimed.update(number for number, _ in self._chain(cell, spot.time))
        tables = list(_tables(cell.rowid, values))
        if cell.overflow and not tables:  # in a small page even the key may be in an overflow page
            tables = [
                found for whole in self._read(spot) for found in _tables(cell.rowid, [None, *whole[1:]] if cell.rowid else list(whole))
            ]
        for table, key in tables:
            self._found.setdefault(table, {}).setdefault(key, []).append(spot)
        return True

    def _chain(self, cell: Cell, time: int) -> Iterator[tuple[int, bytes]]:
        """Yield the overflow pages of a cell as they were at a time, each with its number."""
        number, left = cell.overflow, cell.total - len(cell.local)
        seen: set[int] = set()
        while number and left > 0 and number not in seen:
            data = self._pages.at(number, time)
            if len(data) < self._pages.usable:
                return
            seen.add(number)
            yield number, data[4 : min(self._pages.usable, 4 + left)]
            left -= self._pages.usable - 4
            number = int.from_bytes(data[:4])

    def _read(self, spot: Spot) -> Iterator[Values]:
        """Yield a row with its overflow pages: as they were with that version of the page, and as they are now."""
        data = self._pages.at(spot.page, spot.time)
        kind = cell_starts(data, spot.page == 1)[0] or LEAF_TABLE
        cell = cell_at(data, spot.at, kind, self._pages.usable)
        if cell is None:
            return
        for time in dict.fromkeys((spot.time, self._pages.now)) if cell.overflow else (spot.time,):
            payload = cell.local + b"".join(part for _, part in self._chain(cell, time))
            values = columns(payload, cell.total)
            if values is not None:
                yield tuple(values) if cell.rowid is None else (cell.rowid, *values[1:])


def _tables(rowid: int | None, values: list[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the tables that a row may belong to by its shape, with its key there."""
    return _of_index(values) if rowid is None else _of_table(rowid, values)


def _of_table(rowid: int, values: list[Any]) -> Iterator[tuple[str, Any]]:
    match values:
        case [None, str(), bytes(), bytes(), *_] if len(values) == 22:
            yield "runs", rowid
        case [None, str(), int(), int(), int(), _, _, _, _, _, bytes(), _, _]:
            yield "records", rowid
        case [None, bytes() as family, bytes() as digest, _, int()] if len(family) == 16 and len(digest) == 32:
            yield "chunks", digest
        case [None, bytes(), bytes(), int(), int(), bytes(), _]:
            yield "pruned", rowid
        case [None, str(), bytes(), bytes(), int(), int(), int(), bytes(), int(), bytes()]:
            yield "tombstones", rowid
        case [None, bytes() as total, int(), int(), *_] if rowid == 1 and len(values) == 10 and len(total) == 32:
            yield "manifest", 1
        case [None, bytes()]:
            yield "feed", rowid
        case [None, bytes() as family, bytes() as wrapped] if len(family) == 16 and wrapped[:1] == b"\x93":
            yield "keys", 0


def _of_index(values: list[Any]) -> Iterator[tuple[str, Any]]:
    match values:
        case [int() as run, str(), int(), int(), int(), bytes(), bytes()]:
            yield "tags", run
        case [int() as run, str(), int() | None, int(), bytes(), _, _]:
            yield "messages", run
        case [int() as run, int(), bytes(), int(), _, _]:
            yield "bases", run
        case [int() as run, int(), str(), int() as same] if run == same:
            yield "names", run
        case [int() as run, int() as number, str()] if run < _EPOCH > number:
            yield "tag_names", run
        case [str(), str(), bytes()]:
            yield "properties", 0
        case [str(), int() as run]:
            yield "names", run
        case [bytes(), int() as run]:
            yield "families", run


__all__ = ["GONE", "Carver"]
