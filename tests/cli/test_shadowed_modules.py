"""Files of the working folder never take the place of a library's module, and what a person names is found all the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_helpers import Shop, environment

HOSTILE = "import pathlib\npathlib.Path('shadowed').write_text(__name__)\nraise ImportError('this is the file of the working folder')\n"
LIBRARY = [
    "secrets",
    "uuid",
    "json",
    "random",
    "difflib",
    "queue",
    "traceback",
    "apsw",
    "msgspec",
    "click",
    "yaml",
    "zstandard",
    "concurrent",
]
FLOW = """
import everstep
import secrets, uuid, queue, click, helper


def one():
    return 1


@everstep.workflow
def order(item="tea"):
    assert "site-packages" in click.__file__
    return [helper.price(item), len(secrets.token_hex(4)), everstep.step(one)()]
"""
HELPER = "def price(item):\n    return 10 * len(item)\n\n\ndef step(item):\n    return price(item)\n"
YAML = "name: paper\ninputs: {item: {type: string}}\nsteps:\n  - id: price\n    run: helper:step\n    with: {item: '{{ item }}'}\n"


@pytest.fixture
def shadows(empty: Shop) -> Shop:
    """A folder with a program, its helper, and a file for many a library's module."""
    for name in LIBRARY:
        (empty.folder / f"{name}.py").write_text(HOSTILE, encoding="utf-8")
    (empty.folder / "flow.py").write_text(FLOW, encoding="utf-8")
    (empty.folder / "helper.py").write_text(HELPER, encoding="utf-8")
    return empty


def called(shop: Shop, *words: str, script: bool = False, **more: str) -> subprocess.CompletedProcess[str]:
    """The command line as it is installed, or as a module of Python's."""
    command = [str(Path(sys.executable).with_name("everstep"))] if script else [sys.executable, "-m", "everstep"]
    env = {name: value for name, value in environment(**more).items() if name != "PYTHONPATH" or name in more}
    return subprocess.run(
        [*command, *words], cwd=shop.folder, env=env, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
    )


@pytest.mark.parametrize("script", [True, False])
@pytest.mark.parametrize("target", ["flow:order", "flow.py:order", "./flow.py:order"])
def test_run_finds_the_program_and_the_library(shadows: Shop, target: str, script: bool) -> None:
    done = called(shadows, "run", target, "--id", "o1", script=script)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [30, 8, 1]
    assert not (shadows.folder / "shadowed").exists()


def test_import_of_resume_enqueue_worker_and_shell_does_so_too(shadows: Shop) -> None:
    for words in (
        ("enqueue", "flow:order", "--id", "q1"), ("worker", "--import", "flow", "--until-idle"), ("resume", "q1", "--import", "flow.py"),
        ("shell", "--import", "flow.py", "-c", "resume q1"), ("show", "q1"), ("verify",), ("doctor",),
    ):  # fmt: skip
        done = called(shadows, *words, script=True)
        assert done.returncode in (0, 6), done.stderr
    with shadows.open() as store:
        assert store.get("q1").status == "succeeded"
    assert not (shadows.folder / "shadowed").exists()


def test_what_a_yaml_document_runs_is_found_in_the_folder_but_libraries_first(shadows: Shop) -> None:
    (shadows.folder / "paper.yml").write_text(YAML, encoding="utf-8")
    done = called(shadows, "run", "paper.yml", "item=milk", script=True)
    assert done.returncode == 0, done.stderr
    assert not (shadows.folder / "shadowed").exists()


@pytest.mark.parametrize("name", ["secrets", "queue", "click", "time"])
def test_a_name_that_a_library_has_too_is_refused_and_its_file_can_be_named(shadows: Shop, name: str) -> None:
    (shadows.folder / f"{name}.py").write_text(FLOW, encoding="utf-8")
    done = called(shadows, "run", f"{name}:order", script=True)
    assert done.returncode == 2
    assert f"two modules have the name '{name}'" in done.stderr
    assert "[redacted]" not in done.stderr  # a module called secrets is no secret
    assert f"({name}.py)" in done.stderr
    done = called(shadows, "run", f"{name}.py:order", script=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [30, 8, 1]


def test_a_person_can_have_the_folder_come_first(shadows: Shop) -> None:
    package = str(Path(__file__).parents[2] / "src")
    assert called(shadows, "runs", PYTHONPATH=package).returncode == 1  # no store: it came as far as looking
    (shadows.folder / "difflib.py").write_text(HOSTILE, encoding="utf-8")
    called(shadows, "no-such-command", PYTHONPATH=os.pathsep.join([".", package]))
    assert (shadows.folder / "shadowed").exists()  # the canary: so it looks if a file of the folder is run
