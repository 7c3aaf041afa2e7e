"""The harness that breaks the source: the places it finds, and breaks that it makes in memory."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from harness.mutants.__main__ import Results, chosen
from harness.mutants.memory import Functions
from harness.mutants.places import KINDS, File, Place

SOURCE = b"""
LIMIT = 3

def compare(a, b):
    return a < b

def outer(n):
    def inner():
        if n > 1 and n != 5:
            return "many"
        return "few"
    return inner

class Box:
    def __init__(self):
        self.full = False

    def fill(self, log):
        log.append(1)
        self.full = True
        raise ValueError(
            "full",
            max(1, 2),
        )

existing = outer(2)
"""


@pytest.fixture
def module(tmp_path: Path) -> ModuleType:
    path = tmp_path / "sample_module.py"
    path.write_bytes(SOURCE)
    spec = importlib.util.spec_from_file_location("sample_module", path)
    assert spec
    assert spec.loader
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def place(kind: str, before: str) -> Place:
    return next(one for one in File("m.py", SOURCE).places() if one.kind == kind and before in one.before)


def broken(module: ModuleType, one: Place) -> bool:
    assert module.__file__
    return Functions(str(Path(module.__file__).parent)).replace(one, module.__file__, SOURCE)


def test_a_break_reaches_functions_methods_and_closures_that_exist(module: ModuleType) -> None:
    assert broken(module, place("compare", "<"))
    assert module.compare(1, 1)
    assert module.existing() == "many"
    assert broken(module, place("boolean", "and"))
    assert module.outer(5)() == "many"
    assert module.outer(1)() == "many"
    assert broken(module, place("store", "self.full = True"))
    box, log = module.Box(), []  # type: ignore[var-annotated]
    with pytest.raises(ValueError, match="full"):
        box.fill(log)
    assert (box.full, log) == (False, [1])


def test_a_closure_that_exists_is_broken(module: ModuleType) -> None:
    assert broken(module, place("condition", "n > 1"))
    assert module.existing() == "few"
    assert module.outer(2)() == "few"


def test_a_break_that_acts_on_import_cannot_be_made_in_memory(module: ModuleType) -> None:
    assert not broken(module, place("number", "3"))
    assert module.LIMIT == 3


def test_a_place_knows_the_first_line_of_its_statement() -> None:
    swap = next(one for one in File("m.py", SOURCE).places() if one.before == "1, 2")
    assert swap.line - swap.statement == 2
    assert place("call", "log.append").statement == place("call", "log.append").line


def test_every_kind_is_found_in_the_source_and_drawn() -> None:
    folder = Path(__file__).parents[2] / "src" / "everstep" / "runtime"
    found = [one for path in sorted(folder.rglob("*.py")) for one in File(path.name, path.read_bytes()).places()]
    assert {one.kind for one in found} == set(KINDS)
    drawn = chosen(found, 2 * len(KINDS), seed=1)
    assert {one.kind for one in drawn} == set(KINDS)
    assert drawn == chosen(found, 2 * len(KINDS), seed=1)


def test_results_are_kept_and_the_figures_of_all_tests_are_said(tmp_path: Path) -> None:
    one, two, three = place("compare", "<"), place("boolean", "and"), place("condition", "n > 1")
    caught, survived = {"result": "caught", "how": "t failed", "seconds": 1.0}, {"result": "survived", "how": "3 tests", "seconds": 1.0}
    results = Results(tmp_path / "out.json")
    for given, tier, result in [(one, "quick", caught), (two, "quick", survived), (two, "push", survived), (two, "deep", caught)]:
        results.add(given, tier, result)
    again = Results(tmp_path / "out.json")
    assert again.summary([one, two, three]).splitlines() == [
        "quick: catches 1 of 3, 1 not tried",
        "push: catches 1 of 3, 1 not tried",
        "deep: catches 2 of 3, 1 not tried",
        "left: 1 condition",
        f"  {three}",
    ]


@pytest.mark.parametrize(("tier", "left"), [("quick", [2]), ("push", [2]), ("whole", [1, 2]), ("deep", [2])])
def test_only_places_that_fewer_tests_left_are_tried_with_more(tier: str, left: list[int], tmp_path: Path) -> None:
    places = [place("compare", "<"), place("boolean", "and"), place("condition", "n > 1")]
    results = Results(tmp_path / "out.json")
    for number, known, result in [(0, "quick", "caught"), (1, "quick", "survived"), (1, "push", "survived"), (1, "deep", "survived")]:
        results.add(places[number], known, {"result": result, "how": "", "seconds": 1.0})
    assert [number for number, one in enumerate(places) if results.open(one, tier)] == left
