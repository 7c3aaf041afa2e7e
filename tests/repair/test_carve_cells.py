"""Cells and rows as they lie in pages: what SQLite wrote is read back, whatever the page size, and nothing makes the reader fail."""

import random
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.backends.sqlite.recovery.carve import Carver
from everstep.backends.sqlite.recovery.cells import cell_at, cell_starts, columns, rows_in, strays, varint
from everstep.backends.sqlite.recovery.pages import Pages


def database(path: Path, page_size: int, script: str, rows: list[tuple[Any, ...]]) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(f"PRAGMA page_size = {page_size}; {script}").fetchall()
    with connection:
        connection.executemany("INSERT INTO t VALUES (" + ", ".join("?" * len(rows[0])) + ")", rows)
    connection.close()


def chunks(seed: int) -> list[tuple[int, bytes, bytes, bytes, int]]:
    rng = random.Random(seed)
    sizes = [rng.choice((0, 5, 100, 400, 3000, 4040, 4070, 9000, 70_000)) for _ in range(40)]
    return [(i + 1, rng.randbytes(16), rng.randbytes(32), rng.randbytes(size), i) for i, size in enumerate(sizes)]


@pytest.mark.parametrize("page_size", [512, 1024, 4096, 8192, 65536])
def test_rows_of_every_size_are_read_from_the_pages_as_they_were_written(page_size: int, tmp_path: Path) -> None:
    rows = chunks(page_size)
    script = "CREATE TABLE t (pk INTEGER PRIMARY KEY, family BLOB, digest BLOB, frame BLOB, stamp INTEGER)"
    database(tmp_path / "a.db", page_size, script, rows)
    pages = Pages(str(tmp_path / "a.db"), str(tmp_path / "p"))
    carver = Carver(pages)
    assert pages.size == page_size
    assert len(carver.keys("chunks", live=True)) == len(rows)
    for row in rows:
        assert next(carver.rows("chunks", row[2])) == (True, row)
        assert sum(live for live, _ in carver.rows("chunks", row[2])) == 1
    pages.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.db"]


@pytest.mark.parametrize("page_size", [512, 4096])
def test_rows_of_tables_without_rowid_are_read_from_inner_pages_too(page_size: int, tmp_path: Path) -> None:
    rng = random.Random(1)
    rows = [
        (1 + i % 7, f"message {i}", i or None, i, rng.randbytes(16), rng.randbytes(rng.choice((9, 2000))), rng.randbytes(32))
        for i in range(500)
    ]
    script = "CREATE TABLE t (run INTEGER, name TEXT, due INTEGER, at INTEGER, key BLOB, body BLOB, c BLOB, PRIMARY KEY (run, name)) WITHOUT ROWID"
    database(tmp_path / "a.db", page_size, script, rows)
    pages = Pages(str(tmp_path / "a.db"), str(tmp_path / "p"))
    carver = Carver(pages)
    found = {values for run in range(1, 8) for live, values in carver.rows("messages", run) if live}
    assert found == set(rows)
    pages.close()


def test_rows_are_found_in_a_page_that_has_lost_its_own_list_of_them(tmp_path: Path) -> None:
    rows = [(i + 1, bytes(16), i.to_bytes(32), b"frame" * i, i) for i in range(8)]
    script = "CREATE TABLE t (pk INTEGER PRIMARY KEY, family BLOB, digest BLOB, frame BLOB, stamp INTEGER)"
    database(tmp_path / "a.db", 4096, script, rows)
    data = bytearray((tmp_path / "a.db").read_bytes())
    data[4096 : 4096 + 8 + 2 * len(rows)] = bytes(8 + 2 * len(rows))
    (tmp_path / "a.db").write_bytes(data)
    pages = Pages(str(tmp_path / "a.db"), str(tmp_path / "p"))
    carver = Carver(pages)
    assert carver.keys("chunks", live=True) == []
    assert [list(carver.rows("chunks", row[2])) for row in rows] == [[(False, row)] for row in rows]
    pages.close()


def test_an_overflow_chain_that_is_broken_leaves_the_columns_before_it(tmp_path: Path) -> None:
    digest = bytes(range(32))
    row = (5, "step", 1, 10**15, 3, "note#0", None, None, None, None, digest, None, bytes(50_000))
    script = "CREATE TABLE t (id INTEGER PRIMARY KEY, kind, epoch, at, number, note, tags, meta, own, labels, digest, body_digest, body)"
    database(tmp_path / "a.db", 4096, script, [row])
    data = bytearray((tmp_path / "a.db").read_bytes())
    del data[4 * 4096 :]
    (tmp_path / "a.db").write_bytes(data)
    pages = Pages(str(tmp_path / "a.db"), str(tmp_path / "p"))
    [(live, values)] = Carver(pages).rows("records", 5)
    assert live
    assert values[:12] == row[:12]
    assert values[12] is ...
    pages.close()


@st.composite
def pages_of_noise(draw: st.DrawFn) -> tuple[bytes, bool]:
    """What begins as a page with cells does and goes on as noise: in noise alone, hardly ever a page is found, and never a cell."""
    first, kind, count = draw(st.booleans()), draw(st.sampled_from([13, 10, 2])), draw(st.integers(1, 9))
    starts = draw(st.lists(st.integers(120, 511), min_size=count, max_size=count))
    head = bytes([kind, 0, 0]) + count.to_bytes(2) + bytes(7 if kind == 2 else 3) + b"".join(at.to_bytes(2) for at in starts)
    return bytes(100 if first else 0) + head + draw(st.binary(min_size=100, max_size=500)), first


@given(st.one_of(st.tuples(st.binary(max_size=700), st.booleans()), pages_of_noise()))
def test_no_bytes_make_the_reader_of_pages_fail(page: tuple[bytes, bool]) -> None:
    data, first = page
    list(rows_in(data, first, 512))
    list(strays(data, 512))
    kind, starts = cell_starts(data, first)
    for at in starts:
        cell_at(data, at, kind, 512)


def test_noise_has_cells_to_read() -> None:
    """Without them the test above would test nothing."""
    read: list[bool] = []

    @settings(max_examples=100)
    @given(pages_of_noise())
    def look(page: tuple[bytes, bool]) -> None:
        kind, starts = cell_starts(*page)
        read.extend(cell_at(page[0], at, kind, 512) is not None for at in starts)

    look()
    assert read.count(True) > 50
    assert read.count(False) > 50


@st.composite
def rows_of_noise(draw: st.DrawFn) -> tuple[bytes, int]:
    """A header that is one, and then noise: in noise alone, hardly ever a row is found. Some columns are cut off."""
    serials = draw(st.lists(st.integers(0, 40).filter(lambda s: s not in (10, 11)), max_size=9))
    sizes = [(0, 1, 2, 3, 4, 6, 8, 8, 0, 0)[s] if s < 10 else (s - 12) // 2 for s in serials]
    total = 1 + len(serials) + sum(sizes)
    return bytes([1 + len(serials), *serials]) + draw(st.binary(max_size=sum(sizes))), total


@given(st.one_of(st.tuples(st.binary(max_size=300), st.integers(0, 400)), rows_of_noise()))
def test_no_bytes_make_the_reader_of_rows_fail(row: tuple[bytes, int]) -> None:
    found = columns(*row)
    assert found is None or all(value is None or value is ... or isinstance(value, (int, str, bytes)) for value in found)


@pytest.mark.parametrize("number", [0, 1, 127, 128, 16_383, 2**31, 2**56 - 1, 2**56, 2**63])
def test_varints_of_every_length_are_read(number: int) -> None:
    if number < 2**56:
        parts = [number & 0x7F]
        while number >> 7 * len(parts):
            parts.append(number >> 7 * len(parts) & 0x7F | 0x80)
        data = bytes(reversed(parts))
    else:
        data = bytes(number >> 8 + 7 * i & 0x7F | 0x80 for i in range(7, -1, -1)) + bytes([number & 0xFF])
    assert varint(data + b"x", 0) == (number, len(data))
