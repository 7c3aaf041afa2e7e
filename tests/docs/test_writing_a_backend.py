"""The page about backends says of the contract what the contract says."""

import inspect
import re
from pathlib import Path

import pytest

from everstep.backends import contract
from everstep.backends.contract.capability import CAPABILITIES, methods
from everstep.backends.contract.core import Backend, Core
from everstep.backends.registry import _OWN, GROUP
from everstep.testing import conformance

PAGE = (Path(__file__).parents[2] / "docs" / "writing-a-backend.md").read_text()
PROTOCOLS: tuple[type, ...] = (Core, *CAPABILITIES)
MOST_OF_CORE = 12


def section(name: str) -> str:
    found = re.search(rf"^##+ {name}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, f"no section {name}"
    return found[1]


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda p: p.__name__)
def test_each_protocol_has_a_section_with_its_methods_and_their_arguments(protocol: type) -> None:
    said = section(protocol.__name__)
    rows = re.findall(r"^\| `(\w+)\((.*?)\)` \|", said, re.MULTILINE)
    wanted = []
    for name in methods(protocol):
        parameters = list(inspect.signature(getattr(protocol, name)).parameters.values())[1:]
        wanted.append((name, ", ".join(("*" if p.kind is p.VAR_POSITIONAL else "") + p.name for p in parameters)))
    known = {"run": "id"}  # said as what it is
    assert {name: known.get(name, given) for name, given in rows} == {name: known.get(name, given) for name, given in wanted}
    count, file = re.findall(r"^(\d+) methods?, in `(\w+\.py)`", said, re.MULTILINE)[0]
    assert int(count) == len(methods(protocol)) == len(rows)
    assert protocol.__module__ == f"everstep.backends.contract.{file.removesuffix('.py')}"


def test_the_core_stays_small() -> None:
    assert len(methods(Core)) <= MOST_OF_CORE


def test_every_method_of_a_backend_belongs_to_one_protocol() -> None:
    owners = [name for protocol in PROTOCOLS for name in methods(protocol)]
    assert len(owners) == len(set(owners))
    assert {name for base in Backend.__mro__ for name in methods(base) if base is not object} <= {*owners, "submit"}


def test_every_file_of_the_contract_is_on_the_page() -> None:
    helpers = {"__init__.py", "types.py", "capability.py", "query_semantics.py"}
    files = {file.name for file in Path(next(iter(contract.__path__))).glob("*.py")} - helpers
    assert {file for file in files if f"`{file}`" not in PAGE} == set()


def test_the_suites_and_the_entry_points_are_named_as_they_are() -> None:
    suites = {name for name in conformance.__all__ if name.endswith("Suite") and name != "Suite"}
    assert {suite for suite in suites if f"`{suite}`" not in PAGE} == set()
    assert f'[project.entry-points."{GROUP}"]' in PAGE
    assert all(f"`{scheme}`" in PAGE for scheme in _OWN)
