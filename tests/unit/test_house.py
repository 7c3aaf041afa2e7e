"""The tree stays in order: few files in a folder, each folder explained, tests named by what they hold, no harness in the package."""

import ast
import importlib
import pkgutil
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


REACHED = {
    "snapshot/delta_builder.py": "a tracked container is the program's own list or dict: public names would be methods of the program's data",
    "snapshot/between/compared.py": "the same",
    "snapshot/tree.py": "the same",
}


def _private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _own_names(tree: ast.Module) -> set[str]:
    """The private names that a module defines."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)  # slots
    return {name for name in names if _private(name)}


def _used_names(tree: ast.Module) -> set[str]:
    """The private names that a module imports, or reads from an object that is not `self`."""
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names if _private(alias.name)}
    read = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and _private(node.attr)
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls", "os", "sys"))
    }
    return imported | read


def test_a_module_uses_no_private_name_of_another() -> None:
    trees = {file.relative_to(SOURCE).as_posix(): ast.parse(file.read_text()) for file in SOURCE.rglob("*.py")}
    own = {name: _own_names(tree) for name, tree in trees.items()}
    everywhere = set().union(*own.values()) - {"_replace", "_make", "_fields", "_asdict"}
    found = {name: sorted(_used_names(tree) & (everywhere - own[name])) for name, tree in trees.items()}
    assert {name: names for name, names in found.items() if names and name not in REACHED} == {}
    assert all(found[name] for name in REACHED), "an exception is no longer needed"


UNTOLD = re.compile(r"(^|_)([a-z]\d+|edges?|review|processes?|more|misc|audit|various|other|new|old|extra|fixes|regressions?)(_|$)")
"""Words that say when or why a test was written. A number with a letter was an item of somebody's list."""
TOLD = {
    "test_sqlite_processes": "a store among several processes",
    "test_cli_new": "the command `everstep new`",
    "test_extra_attributes": "attributes that are not fields",
}


def test_tests_are_named_by_what_they_hold() -> None:
    tests = Path(__file__).parents[1]
    names = {path.stem for path in tests.rglob("*.py")} | {path.name for path in tests.iterdir() if path.is_dir()}
    assert sorted(name for name in names if UNTOLD.search(name) and name not in TOLD) == []


def test_every_module_can_be_imported() -> None:
    """Also those that only type checkers read: tools walk over all modules. An adapter without its framework says what to install."""
    refused: dict[str, ImportError] = {}
    for module in pkgutil.walk_packages(everstep.__path__, "everstep."):
        if module.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            refused[module.name] = error
    for name, error in refused.items():
        extra = name.removeprefix("everstep.adapters.").replace("_", "-")
        assert f"pip install 'everstep[{extra}]'" in str(error), name
        assert "everstep" not in str(error.__cause__), f"{name}: a name of our own is missing, not its framework"
