"""One page of an older copy that is put back never makes a read return an older thing without an error."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import apsw
import pace
import pytest

import everstep
from everstep.errors import Damaged, DamagedRun
from harness.faults.damage import ages, stale
from harness.faults.damage.reads import WRONG
from harness.faults.damage.trial import Bench, put


@pytest.fixture(scope="module")
def bench(module_folder: Path) -> Iterator[Bench]:
    made = Bench(ages.build(module_folder / "sample"), module_folder / "bench")
    yield made
    made.close()


def of_tree(bench: Bench, name: str) -> list[int]:
    """The numbers of those attempts that put back a page of one table or index."""
    put(bench.closed, bench.path)
    with closing(apsw.Connection(str(bench.path))) as connection:
        pages = {page - 1 for (page,) in connection.execute("SELECT pageno FROM dbstat WHERE name = ?", (name,))}
    return [number for number, (_, page) in enumerate(stale.old_pages(bench)) if page in pages]


def test_a_run_row_of_an_older_page_is_refused_and_nothing_is_saved_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "s.db"

    def save(times: int) -> bytes:
        with everstep.open(path) as store, store.run("a", state={"n": 0}) as run:
            for _ in range(times):
                run.state["n"] += 1
                run.checkpoint()
        return path.read_bytes()

    older, newest = save(5), save(5)
    (tmp_path / "s.db-seen").unlink()
    with closing(apsw.Connection(str(path))) as connection:
        ((page,),) = connection.execute("SELECT pageno FROM dbstat WHERE name = 'runs'").fetchall()
        ((size,),) = connection.execute("PRAGMA page_size").fetchall()
    at = (page - 1) * size
    path.write_bytes(newest[:at] + older[at : at + size] + newest[at + size :])
    with everstep.open(path) as store:
        for read in (store.load, store.get, store.steps, store.gates, store.checkpoints, store.checkpoint):
            with pytest.raises(DamagedRun, match="older than its records"):
                read("a")
        with pytest.raises(DamagedRun, match="older than its records"), store.run("a") as run:
            run.checkpoint()
        with pytest.raises(DamagedRun, match="older than its records"):
            store.runs()
        assert not store.verify("full").ok
    everstep.repair(path, tmp_path / "mended.db")
    with everstep.open(tmp_path / "mended.db") as mended:
        assert mended.load("a") == {"n": 10}


def test_no_stale_page_is_read_as_the_newest(memory_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stale, "SHORT", pace.share(stale.SHORT, 2))
    count = stale.run(memory_folder, deep=pace.DEEP, seed=pace.rotation())
    assert count.ok, str(count)
    assert count.tried >= stale.SHORT
    assert count.detected > stale.SHORT // 2


@pytest.mark.parametrize(
    ("check", "tree"),
    [
        ("everstep.backends.sqlite.rows.refuse_stale", "runs"),
        ("everstep.backends.sqlite.reader.prove_tags", "tags"),
        ("everstep.backends.sqlite.agreement.Agreement.prove_rows", "messages"),
        ("everstep.backends.sqlite.agreement.Agreement.prove_rows", "properties"),
        ("everstep.backends.sqlite.agreement.Agreement.prove_ids", "sqlite_autoindex_runs_1"),
    ],
)
def test_each_check_is_needed(bench: Bench, check: str, tree: str) -> None:
    """Canaries: without one of the checks, a page of the tree that it guards is read as if it were the newest."""
    with patch(check, lambda *_: None):
        assert WRONG in (stale.attempt(bench, number)[0] for number in of_tree(bench, tree))


def test_a_run_that_the_index_of_ids_lacks_is_not_made_again(bench: Bench) -> None:
    """Beginning from nothing would pay for everything a second time."""
    refused = 0
    for number in of_tree(bench, "sqlite_autoindex_runs_1"):
        put(stale.files(bench, number), bench.path)
        with everstep.open(bench.path) as store:
            for run in ages.LOOPS:
                try:
                    with store.run(run) as opened:
                        assert opened.state["lines"], f"run {run} was made again"
                except Damaged:
                    refused += 1
    assert refused
