"""A page of an index that a disk has lost: what the index finds is the newest, or an error, and never less than there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

import everstep
from everstep.errors import Damaged

RUNS = 3
TIMES = 40


def grow(path: Path, first: int) -> bytes:
    """Add checkpoints with metadata, attached entries and questions to several runs; return the file."""
    with everstep.open(path) as store:
        for n in range(first, first + TIMES):
            for run in range(RUNS):
                line = store.line(f"r{run}", state={"n": 0})
                line.state["n"] = n
                made = line.checkpoint(meta={"turn": n, "user": f"user-{n % 5}"})
                line.attach(made.number, "early", n)
                line.attach(max(1, made.number - 30), f"late-{n}", n)
                line.ask(f"q{n}", "May I?")
                line.close()
    return path.read_bytes()


@pytest.fixture(scope="module")
def ages(module_folder: Path) -> tuple[bytes, bytes]:
    path = module_folder / "s.db"
    return grow(path, 1), grow(path, 1 + TIMES)


def damaged(path: Path, older: bytes, newest: bytes, tree: str) -> Iterator[bytes]:
    """Put each page of a tree that has changed back, one at a time; return the files."""
    path.write_bytes(newest)
    with closing(apsw.Connection(str(path))) as connection:
        pages = [page for (page,) in connection.execute("SELECT pageno FROM dbstat WHERE name = ?", (tree,))]
        size = connection.pragma("page_size")
    for page in pages:
        at = (page - 1) * size
        if len(older) > at and older[at : at + size] != newest[at : at + size]:
            yield newest[:at] + older[at : at + size] + newest[at + size :]


def restored(path: Path, content: bytes) -> Path:
    """Write a store without a rollback guard: only the content of the file can show the damage."""
    for tail in ("-wal", "-shm", "-seen"):
        path.with_name(path.name + tail).unlink(missing_ok=True)
    path.write_bytes(content)
    return path


def attached_to_each(store: everstep.Store, run: str) -> Any:
    return [[(one.name, one.value) for one in store.attached(run, number)] for number in range(1, 2 * TIMES + 1)]


def attached_to_newest(store: everstep.Store, run: str) -> Any:
    return [(one.name, one.value) for one in store.attached(run, 2 * TIMES)]


def attached_to_any(store: everstep.Store, run: str) -> Any:
    return [(one.number, one.name, one.value) for one in store.attached(run)]


def attached_again(store: everstep.Store, run: str) -> Any:
    """Attach names that are taken: the first value counts."""
    with store.line(run) as line:
        return [line.attach(number, "early", "another") for number in range(1, 2 * TIMES + 1)]


def asked_again(store: everstep.Store, run: str) -> Any:
    """Ask questions that are open: each is the one that was asked."""
    with store.line(run) as line:
        return [line.ask(f"q{n}", "May I?").asked_at for n in range(1, 2 * TIMES + 1)]


def found_by_turn(store: everstep.Store, run: str) -> Any:
    return [sorted(one.ref for one in store.find(meta={"turn": n})) for n in range(1, 2 * TIMES + 1)]


def found_by_user(store: everstep.Store, run: str) -> Any:
    return [sorted(one.ref for one in store.find(meta={"user": f"user-{n}"})) for n in range(5)]


Read = Callable[[everstep.Store, str], Any]
READS: list[tuple[str, Read]] = [
    ("records_attached", attached_to_each),
    ("records_attached", attached_to_newest),
    ("records_attached", attached_to_any),
    ("records_attached", attached_again),
    ("records_gates", asked_again),
    ("checkpoint_meta", found_by_turn),
    ("checkpoint_meta", found_by_user),
]


@pytest.mark.parametrize(("tree", "read"), READS, ids=[f"{tree}-{read.__name__}" for tree, read in READS])
def test_what_a_stale_page_of_an_index_hides_is_an_error(tree: str, read: Read, ages: tuple[bytes, bytes], tmp_path: Path) -> None:
    path, refused, tried = tmp_path / "s.db", 0, 0
    for run in (f"r{n}" for n in range(RUNS)):
        with everstep.open(restored(path, ages[1])) as store:
            good = read(store, run)
        for content in damaged(path, *ages, tree):
            tried += 1
            try:
                with everstep.open(restored(path, content)) as store:
                    assert read(store, run) == good, "the page was read as if it were the newest"
            except Damaged:
                refused += 1
    assert tried
    assert refused


def test_verify_reports_a_stale_page_of_an_index(ages: tuple[bytes, bytes], tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    for tree in ("records_attached", "records_gates", "checkpoint_meta"):
        for content in damaged(path, *ages, tree):
            with everstep.open(restored(path, content)) as store:
                assert not store.verify("full").ok, tree
