"""The tree stays in order: few files in a folder, each folder explained, tests named by what they hold, no harness in the package."""

import re
from pathlib import Path

import everstep

SOURCE = Path(everstep.__file__).parent
MOST = 15
MORE = {"cli/commands": "one file for each command"}


def folders() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for file in SOURCE.rglob("*.py"):
        found.setdefault(file.parent.relative_to(SOURCE).as_posix(), []).append(file.name)
    return found


def test_a_folder_has_few_files() -> None:
    crowded = {name: len(files) for name, files in folders().items() if len(set(files) - {"__init__.py"}) > MOST and name not in MORE}
    assert crowded == {}, "give what belongs together a folder of its own"


def test_every_exception_is_needed() -> None:
    assert [name for name in MORE if len(folders()[name]) <= MOST] == []


def test_every_folder_says_what_is_in_it() -> None:
    silent = [name for name in folders() if not (SOURCE / name / "__init__.py").read_text().startswith('"""')]
    assert silent == []


def test_the_package_has_no_harness() -> None:
    assert {name.split("/")[1] for name in folders() if name.startswith("testing/")} == {"conformance"}


UNTOLD = re.compile(r"(^|_)([a-z]\d+|edges?|review|processes?|more|misc|audit|various|other|new|old|extra|fixes|regressions?)(_|$)")
"""Words that say when or why a test was written. A number with a letter was an item of somebody's list."""
TOLD = {
    "test_sqlite_processes": "a store among several processes",
    "test_extra_attributes": "attributes that are not fields",
}


def test_tests_are_named_by_what_they_hold() -> None:
    tests = Path(__file__).parents[1]
    names = {path.stem for path in tests.rglob("*.py")} | {path.name for path in tests.iterdir() if path.is_dir()}
    assert sorted(name for name in names if UNTOLD.search(name) and name not in TOLD) == []
