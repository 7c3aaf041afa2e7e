"""Versions of pages: what the WAL holds, also behind a damaged frame, but never what was not committed."""

import random
import shutil
from itertools import pairwise
from pathlib import Path

import apsw
import pytest

import everstep
from everstep.backends.sqlite.files.rollback_guard import Seen
from everstep.backends.sqlite.recovery.carve import Carver
from everstep.backends.sqlite.recovery.pages import Pages, manifest_in
from everstep.backends.sqlite.recovery.wal_frames import frames_of

STEP = 4096 + 24


def a_store(folder: Path, saves: int = 12) -> Path:
    """A store that was killed, with all its saves in the WAL; the run's newest number is `saves`."""
    path = folder / "live.db"
    with everstep.open(path, wal_bytes=0) as store, store.run("r", state={"n": 0}) as run:
        for n in range(1, saves + 1):
            run.state["n"] = n
            run.checkpoint()
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{path}{suffix}", f"{folder / 'killed.db'}{suffix}")
    return folder / "killed.db"


def open_pages(path: Path) -> Pages:
    return Pages(str(path), str(path.parent / "private"))


def newest(path: Path) -> int:
    """The newest checkpoint that the row says, as the pages have it now."""
    pages = open_pages(path)
    try:
        rows = [values for live, values in Carver(pages).rows("runs", 1) if live]
        return int(rows[0][16]) if rows else 0
    finally:
        pages.close()


def sqlite_says(path: Path) -> int:
    copy = path.parent / "copy.db"
    for suffix in ("", "-wal"):
        shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
    connection = apsw.Connection(str(copy))
    found = connection.execute("SELECT checkpoints FROM runs").fetchall()
    connection.close()
    return int(found[0][0]) if found else 0


def test_the_newest_version_of_each_page_is_that_of_sqlite(tmp_path: Path) -> None:
    path = a_store(tmp_path)
    assert newest(path) == sqlite_says(path) == 12
    pages = open_pages(path)
    connection = apsw.Connection(str(pages.image), flags=apsw.SQLITE_OPEN_READONLY)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
    pages.close()


def test_older_versions_of_rows_are_there_too(tmp_path: Path) -> None:
    path = a_store(tmp_path)
    pages = open_pages(path)
    numbers = [values[16] for _, values in Carver(pages).rows("runs", 1)]
    assert numbers[0] == 12
    assert set(numbers) == set(range(13))
    assert sorted(numbers, reverse=True) == numbers
    pages.close()


@pytest.mark.parametrize("where", [8, 100, 4000])
def test_a_damaged_frame_ends_the_wal_for_sqlite_but_not_here(where: int, tmp_path: Path) -> None:
    path = a_store(tmp_path)
    wal = Path(f"{path}-wal")
    data = bytearray(wal.read_bytes())
    middle = (len(data) - 32) // STEP // 2
    data[32 + middle * STEP + where] ^= 4
    wal.write_bytes(data)
    assert sqlite_says(path) < 9
    assert newest(path) == 12


def test_a_damaged_header_of_the_wal_loses_nothing(tmp_path: Path) -> None:
    path = a_store(tmp_path)
    wal = Path(f"{path}-wal")
    data = bytearray(wal.read_bytes())
    data[:32] = bytes(32)
    wal.write_bytes(data)
    assert sqlite_says(path) == 0
    assert newest(path) == 12


def notes(path: Path) -> set[str]:
    """The notes of all records that are found, also in older versions."""
    pages = open_pages(path)
    try:
        carver = Carver(pages)
        return {str(values[5]) for id in carver.records(1) for _, values in carver.rows("records", id)}
    finally:
        pages.close()


def test_what_was_left_behind_by_a_write_that_never_was_committed_does_not_count(tmp_path: Path) -> None:
    """Power was lost in the middle of a commit; the next writer began at the same place and wrote less. What is left of the first one
    behind that has the same salt, good checksums among itself, and even a frame that ends a commit."""
    path, begun, torn = a_store(tmp_path, 6), tmp_path / "begun.db", tmp_path / "torn.db"
    with everstep.open(path, accept_older=True, wal_bytes=0) as store, store.run("r") as run:
        run.state["text"] = random.Random(1).randbytes(40_000).hex()
        run.checkpoint("never committed")
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{path}{suffix}", f"{begun}{suffix}")
    assert "never committed" in notes(begun)
    data = bytearray(Path(f"{begun}-wal").read_bytes())
    known = list(frames_of(data, 4096))  # type: ignore[arg-type]
    ends = [0, *(i + 1 for i, frame in enumerate(known) if frame.commit)]
    start = max(pairwise(ends), key=lambda pair: pair[1] - pair[0])[0]
    data[32 + start * STEP + 30] ^= 1  # the first frame of the long commit is torn, so that recovery takes it for nothing
    Path(f"{begun}-wal").write_bytes(data)
    with everstep.open(begun, accept_older=True, wal_bytes=0) as store:
        assert store.get("r").checkpoints == 6
        store.tag("r@6", "short")
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{begun}{suffix}", f"{torn}{suffix}")
    after = list(frames_of(Path(f"{torn}-wal").read_bytes(), 4096))
    gap = next(i for i, frame in enumerate(after) if not frame.fits)
    assert gap > start
    assert any(frame.fits and frame.commit for frame in after[gap:]), "nothing was left behind: this proves nothing"
    assert newest(torn) == sqlite_says(torn) == 6
    assert "never committed" not in notes(torn)


@pytest.mark.parametrize("unseen", [0, 1, 3])
def test_behind_a_damaged_frame_only_what_was_seen_to_be_committed_counts(unseen: int, tmp_path: Path) -> None:
    path = a_store(tmp_path)
    wal = Path(f"{path}-wal")
    data = bytearray(wal.read_bytes())
    data[32 + (len(data) - 32) // STEP // 2 * STEP + 100] ^= 4
    wal.write_bytes(data)
    pages = open_pages(path)
    [(writes, identity)] = [m for page in range(1, pages.count + 1) if (m := manifest_in(pages.at(page, pages.now), pages.usable))]
    pages.close()
    for known, expected in ((identity, 12 - unseen), (bytes(16), 12)):  # of another store it says nothing
        pages = Pages(str(path), str(tmp_path / "private"), Seen(known, writes - unseen, (0, 0, 0)))
        [row] = [values for live, values in Carver(pages).rows("runs", 1) if live]
        assert row[16] == expected
        pages.close()


def test_how_often_the_store_was_written_is_read_from_the_page_of_the_manifest(tmp_path: Path) -> None:
    path = a_store(tmp_path)
    pages = open_pages(path)
    found = [m for page in range(1, pages.count + 1) if (m := manifest_in(pages.at(page, pages.now), pages.usable)) is not None]
    assert len(found) == 1
    assert found[0][0] > 12
    assert len(found[0][1]) == 16
    pages.close()


@pytest.mark.parametrize("damage", [b"\x20\x00", b"\x00\x00", b"\x02\x00"])
def test_a_wrong_page_size_in_the_header_is_seen_through(damage: bytes, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with everstep.open(path) as store, store.run("r") as run:
        run.checkpoint()
    data = bytearray(path.read_bytes())
    data[16:18] = damage
    path.write_bytes(data)
    pages = open_pages(path)
    assert (pages.size, pages.usable) == (4096, 4096)
    pages.close()
