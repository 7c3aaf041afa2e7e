"""Whatever is done to a store: what repair gives is right, all that could still be read is in it, and each difference is listed."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest
from repair_helpers import Judge, Truth, copy, make, readable

import everstep
from everstep.errors import NotAStore

SEEDS = range(200 if os.environ.get("EVERSTEP_HYPOTHESIS") == "search" else 4)
PAGE = 4096
FRAME = PAGE + 24


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Truth]:
    return make(tmp_path_factory.mktemp("made"))


def wal_of(path: Path) -> Path:
    return Path(f"{path}-wal")


def used(wal: Path) -> int:
    """How much of a WAL holds frames: the rest is zeros."""
    data = wal.read_bytes()
    count = 0
    while data[32 + count * FRAME + 8 : 32 + count * FRAME + 16] == data[16:24]:
        count += 1
    return 32 + count * FRAME


def change(file: Path, first: int, data: bytes) -> None:
    with file.open("r+b") as opened:
        opened.seek(first)
        opened.write(data)


def either(path: Path, rng: random.Random) -> Path:
    return wal_of(path) if wal_of(path).exists() and rng.random() < 0.5 else path


def flipped_bits(path: Path, rng: random.Random) -> None:
    file = either(path, rng)
    data = file.read_bytes()
    for _ in range(rng.choice((1, 1, 3, 20))):
        at = rng.randrange(used(file) if file != path else len(data))
        change(file, at, bytes([file.read_bytes()[at] ^ 1 << rng.randrange(8)]))


def zeroed_pages(path: Path, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 2, 5))):
        change(path, rng.randrange(path.stat().st_size // PAGE) * PAGE, bytes(PAGE))


def zeroed_frames(path: Path, rng: random.Random) -> None:
    if not wal_of(path).exists():
        return zeroed_pages(path, rng)
    return change(wal_of(path), 32 + rng.randrange(used(wal_of(path)) // FRAME) * FRAME, bytes(FRAME))


def overwritten_sectors(path: Path, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 4))):
        change(path, rng.randrange(path.stat().st_size // 512) * 512, rng.randbytes(512))


def truncated_files(path: Path, rng: random.Random) -> None:
    file = either(path, rng)
    with file.open("r+b") as opened:
        opened.truncate(rng.randrange(file.stat().st_size))


def a_removed_wal(path: Path, rng: random.Random) -> None:
    wal_of(path).unlink(missing_ok=True)


def a_removed_file(path: Path, rng: random.Random) -> None:
    path.unlink()


def a_damaged_schema(path: Path, rng: random.Random) -> None:
    change(path, 0, rng.randbytes(PAGE) if rng.random() < 0.5 else bytes(PAGE))


def swapped_pages(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    a, b = (rng.randrange(len(data) // PAGE) * PAGE for _ in range(2))
    change(path, a, data[b : b + PAGE])
    change(path, b, data[a : a + PAGE])


KEYS = {
    "runs": "pk", "records": "id", "chunks": "pk", "tags": "run, name, number", "messages": "run, name", "manifest": "pk", "feed": "first",
    "tombstones": "pk", "pruned": "run", "bases": "run, number",
}  # fmt: skip


def deleted_rows(path: Path, rng: random.Random) -> None:
    connection = apsw.Connection(str(path))
    connection.wal_autocheckpoint(0)
    made = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}  # some tables come with their first use
    for _ in range(rng.choice((1, 2))):
        table = rng.choice(sorted(made & KEYS.keys()))
        rows = connection.execute(f"SELECT {KEYS[table]} FROM {table} ORDER BY 1").fetchall()
        where = " AND ".join(f"{name} = ?" for name in KEYS[table].split(", "))
        for row in rng.sample(rows, min(len(rows), rng.choice((1, 3, 10)))):
            connection.execute(f"DELETE FROM {table} WHERE {where}", row).fetchall()
    connection.close()


DAMAGE: list[Callable[[Path, random.Random], None]] = [
    flipped_bits, zeroed_pages, zeroed_frames, overwritten_sectors, truncated_files, a_removed_wal, a_removed_file, a_damaged_schema,
    swapped_pages, deleted_rows,
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_repair_keeps_what_is_good_gives_nothing_wrong_and_lists_the_rest(
    damage: Callable[[Path, random.Random], None], made: tuple[Path, Path, Truth], tmp_path: Path
) -> None:
    kept = 0
    for seed in SEEDS:
        rng = random.Random(f"{damage.__name__} {seed}")
        folder = tmp_path / str(seed)
        folder.mkdir()
        source = folder / "s.db"
        copy(made[seed % 2], source)
        damage(source, rng)
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        try:
            done = everstep.repair(source, folder / "new.db")
        except NotAStore:
            assert readable(source) == set()
            continue
        after = {path.name: path.read_bytes() for path in folder.iterdir()}
        assert after.pop("new.db")
        assert after == before, f"seed {seed}: the source was changed, or something was left behind"
        judge = Judge(made[2], done, folder / "new.db")
        assert judge.all() == [], f"seed {seed}"
        assert readable(source) <= judge.loaded, f"seed {seed}: what could still be read is not in the new store"
        kept += len(judge.loaded)
        shutil.rmtree(folder)
    assert kept or damage is a_removed_file


def test_the_judge_sees_what_is_wrong(made: tuple[Path, Path, Truth], tmp_path: Path) -> None:
    """A canary: each kind of fault, done to a repaired store on purpose, must be told."""
    done = everstep.repair(made[0], tmp_path / "good.db")
    assert Judge(made[2], done, tmp_path / "good.db").all() == []
    truth = made[2]
    loop = truth.runs["loop"]
    state, loop.states[3] = loop.states[3], {"other": 1}
    assert any("loop@3 is WRONG" in fault for fault in Judge(truth, done, tmp_path / "good.db").all())
    loop.states[3] = state
    loop.states[99] = {}
    loop.row.checkpoints += 74
    assert any("loop@99 is gone" in fault for fault in Judge(truth, done, tmp_path / "good.db").all())
    del loop.states[99]
    loop.row.checkpoints -= 74
    step = loop.steps.pop(min(loop.steps))
    assert any("is WRONG" in fault for fault in Judge(truth, done, tmp_path / "good.db").all())
    loop.steps[min(loop.steps) - 2] = step
    truth.runs["never"] = loop
    assert any("run never is gone" in fault for fault in Judge(truth, done, tmp_path / "good.db").all())
    del truth.runs["never"]
    gone = truth.runs.pop("small-1")
    assert any("never were" in fault for fault in Judge(truth, done, tmp_path / "good.db").all())
    truth.runs["small-1"] = gone
