"""Files that were cut off, zeroed, exchanged, put back or taken away."""

from pathlib import Path

import pytest

from everstep.testing.faults import files, sample
from everstep.testing.faults.bench import Bench
from everstep.testing.faults.reads import DETECTED, SAME


@pytest.fixture(scope="module")
def bench(module_folder: Path) -> Bench:
    return Bench(sample.build(module_folder / "sample"), module_folder / "bench")


def test_every_pair_of_pages_is_exchanged_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    pages, seen = files._pages(bench), set()

    def attempt(damaged: dict[str, bytes], *_: object) -> tuple[str, str]:
        changed = [i for i in range(pages) if damaged[""][i * 4096 : (i + 1) * 4096] != bench.closed[""][i * 4096 : (i + 1) * 4096]]
        seen.add(tuple(changed))
        return SAME, ""

    monkeypatch.setattr(bench, "attempt", attempt)
    for number in range(pages * (pages - 1) // 2):
        files._exchange(bench, number)
    alike = {pair for pair in seen if len(pair) != 2}
    assert alike <= {()}  # two pages with the same bytes
    assert len(seen) > pages * (pages - 1) // 2 * 0.8


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("an old file with no WAL", DETECTED, "RolledBack"),
        ("an old file with its own WAL", DETECTED, "RolledBack"),
        ("an old file with the new WAL", DETECTED, ""),
        ("the new file with an old WAL", DETECTED, "RolledBack"),
        ("the WAL removed", DETECTED, "RolledBack"),
        ("an empty WAL", DETECTED, "RolledBack"),
        ("the WAL of another store", DETECTED, ""),
        ("the WAL of another store beside a closed one", DETECTED, ""),
        ("garbage for a WAL", DETECTED, "RolledBack"),
        ("garbage for the index of the WAL", SAME, ""),
        ("zeros for the index of the WAL", SAME, ""),
        ("the witness of another store", SAME, ""),
        ("no witness", SAME, ""),
        ("garbage for a witness", SAME, ""),
    ],
)
def test_files_that_do_not_belong_together(bench: Bench, name: str, kind: str, said: str) -> None:
    names = [known for known, _ in files._mixed(bench)]
    found, sentence = files._mix(bench, names.index(name))
    assert (found, said in sentence) == (kind, True), sentence


def test_every_mixture_has_its_test(bench: Bench) -> None:
    (mark,) = (m for m in test_files_that_do_not_belong_together.pytestmark if m.name == "parametrize")  # type: ignore[attr-defined]
    assert [name for name, _ in files._mixed(bench)] == [name for name, *_ in mark.args[1]]


def test_no_damage_to_files_is_read_as_what_was_saved(memory_folder: Path) -> None:
    count = files.run(memory_folder, deep=False, seed=1)
    assert count.ok, str(count)
    assert count.tried > 1_000
    assert count.detected > 900


def test_a_store_without_a_witness_is_caught_going_back(memory_folder: Path) -> None:
    assert files.canary(memory_folder)
