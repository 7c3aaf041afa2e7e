"""Files that were cut off, zeroed, exchanged, put back or taken away."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from random import Random
from unittest.mock import patch

import apsw
import pace
import pytest

import everstep
from everstep.backends.contract.core import Query
from everstep.errors import DamagedRun
from everstep.records import RunRow
from harness.faults.broken_backends import Wrapper
from harness.faults.damage import files, sample
from harness.faults.damage.reads import DETECTED, SAME, WRONG
from harness.faults.damage.rows import KEYS, row_damage, row_damages
from harness.faults.damage.trial import Bench, put


@pytest.fixture(scope="module")
def bench(module_folder: Path) -> Iterator[Bench]:
    made = Bench(sample.build(module_folder / "sample"), module_folder / "bench")
    yield made
    made.close()


def test_every_pair_of_pages_is_exchanged_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    good = bench.closed[""]
    put(bench.closed, bench.path)
    with closing(apsw.Connection(str(bench.path))) as connection:
        ((size,),) = connection.execute("PRAGMA page_size").fetchall()
    pages, seen = len(good) // size, set()
    assert files._pages(bench) == pages

    def attempt(damaged: dict[str, bytes], *_: object) -> tuple[str, str]:
        changed = [at // size for at in range(0, len(good), size) if damaged[""][at : at + size] != good[at : at + size]]
        seen.add(tuple(changed))
        return SAME, ""

    monkeypatch.setattr(bench, "attempt", attempt)
    for number in range(pages * (pages - 1) // 2):
        files._exchange(bench, number)
    alike = {pair for pair in seen if len(pair) != 2}
    assert alike <= {()}  # two pages with the same bytes
    assert len(seen) > pages * (pages - 1) // 2 * 0.8


def exchanges_of_indexes(bench: Bench, one_of: int) -> Iterator[str]:
    """What comes of any two leaves of indexes that took each other's place: each is whole, and names rows that are there."""
    size = files._page(bench)
    leaves = [at // size for at in range(0, len(bench.closed[""]), size) if bench.closed[""][at] == 10]
    assert len(leaves) > 20
    pairs = list(combinations(leaves, 2))
    for low, high in Random(pace.rotation()).sample(pairs, pace.share(len(pairs), one_of)):
        yield files._exchange(bench, high * (high - 1) // 2 + low)[0]


def test_pages_of_indexes_that_took_each_others_place_name_no_wrong_run(bench: Bench) -> None:
    assert set(exchanges_of_indexes(bench, 3)) == {SAME, DETECTED}


def test_a_listing_that_believes_its_index_is_caught(bench: Bench) -> None:
    with patch("everstep.store.query.fits_run", lambda *_: True):
        assert WRONG in exchanges_of_indexes(bench, 1)


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("an old file with no WAL", DETECTED, "RolledBack"),
        ("an old file with its own WAL", DETECTED, "RolledBack"),
        ("an old file with the new WAL", DETECTED, ""),
        ("the new file with an old WAL", DETECTED, ""),
        ("the WAL removed", DETECTED, "RolledBack"),
        ("an empty WAL", DETECTED, "RolledBack"),
        ("the WAL of another store", DETECTED, ""),
        ("the WAL of another store beside a closed one", DETECTED, ""),
        ("garbage for a WAL", DETECTED, "RolledBack"),
        ("garbage for the index of the WAL", SAME, ""),
        ("zeros for the index of the WAL", SAME, ""),
        ("the rollback guard of another store", SAME, ""),
        ("no rollback guard", SAME, ""),
        ("garbage for a rollback guard", SAME, ""),
    ],
)
def test_files_that_do_not_belong_together(bench: Bench, name: str, kind: str, said: str) -> None:
    names = [known for known, _ in files._mixed(bench)]
    found, sentence = files._mix(bench, names.index(name))
    assert (found, said in sentence) == (kind, True), sentence


def test_every_mixture_has_its_test(bench: Bench) -> None:
    (mark,) = (m for m in test_files_that_do_not_belong_together.pytestmark if m.name == "parametrize")  # type: ignore[attr-defined]
    assert [name for name, _ in files._mixed(bench)] == [name for name, *_ in mark.args[1]]


@pytest.mark.parametrize("table", KEYS)
def test_a_row_that_is_taken_away_is_missed_in_every_table(bench: Bench, table: str) -> None:
    names = [damage.name for damage in row_damages(bench)]
    numbers = [number for number, name in enumerate(names) if name.startswith(f"{table} row ") and name.endswith(" removed")]
    assert numbers, "the sample has no such row"
    for number in numbers[:10]:
        kind, said = row_damage(bench, number)
        assert kind == DETECTED, said


def test_a_kept_checkpoint_whose_base_is_gone_is_damaged_not_pruned(bench: Bench) -> None:
    names = [damage.name for damage in row_damages(bench)]
    kind, said = row_damage(bench, names.index("bases row 0 removed"))
    assert (kind, "DamagedRecord" in said) == (DETECTED, True), said


class _Twice(Wrapper):
    """An index that names one run twice, and another one not at all."""

    def runs(self, query: Query) -> list[tuple[int, RunRow]]:
        found = self._backend.runs(query)
        return [found[0], *found[:-1]]


def test_a_listing_that_names_a_run_twice_is_refused(bench: Bench) -> None:
    put(bench.closed, bench.path)
    with everstep.open(bench.path) as store:
        assert len(store.runs()) > 2
        for oldest_first in (True, False):
            with pytest.raises(DamagedRun):
                everstep.Store(_Twice(store.backend)).runs(oldest_first=oldest_first)


def test_no_damage_to_files_is_read_as_what_was_saved(memory_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "GROUPS", [replace(group, short=pace.share(group.short)) for group in files.GROUPS])
    count = files.run(memory_folder, deep=False, seed=pace.rotation())
    assert count.ok, str(count)
    assert count.tried > pace.share(1_000)
    assert count.detected > pace.share(900)


def test_a_store_without_a_rollback_guard_is_caught_going_back(memory_folder: Path) -> None:
    assert files.canary(memory_folder)
