"""The documents hold: snippets run, links lead somewhere, every name and every code is explained, and nothing else is."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import warm

import everstep
from everstep import errors
from everstep.runtime.aio import AsyncRun

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", ROOT / "examples/README.md", *(ROOT / "docs").rglob("*.md")]
)
TEXTS = {path.relative_to(ROOT).as_posix(): path.read_text() for path in DOCUMENTS}
NOT_RUN = re.compile(r"<!-- not run: \S.* -->")


@dataclass
class Snippet:
    """A block of Python in a document."""

    where: str
    code: str


def snippets() -> list[Snippet]:
    found = []
    for name, text in TEXTS.items():
        lines = text.splitlines()
        for i, line in enumerate(lines):
            if line.strip() == "```python" and not (i and NOT_RUN.fullmatch(lines[i - 1].strip())):
                end = lines.index("```", i)
                found.append(Snippet(f"{name}:{i + 1}", "\n".join(lines[i + 1 : end]) + "\n"))
    return found


def headings(text: str) -> list[str]:
    outside = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^#+ (.+)$", outside, flags=re.MULTILINE)


def anchor(heading: str) -> str:
    """The name under which a heading can be linked to."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def environment() -> dict[str, str]:
    package = str(Path(everstep.__file__).parents[1])
    return os.environ | {"PYTHONPATH": os.pathsep.join([package, os.environ.get("PYTHONPATH", "")])}


FRAMEWORKS = ("agent_framework", "agents", "claude_agent_sdk", r"google\.adk", "langgraph", "pydantic_ai", "pydantic_ai_harness")
"""Packages that a snippet may import; it is skipped without them."""


@pytest.mark.parametrize("snippet", snippets(), ids=lambda s: s.where)
def test_a_snippet_runs_in_an_empty_folder(snippet: Snippet, tmp_path: Path) -> None:
    for framework in re.findall(rf"^(?:from|import) ({'|'.join(FRAMEWORKS)})\b", snippet.code, flags=re.MULTILINE):
        pytest.importorskip(framework, reason=f"{framework} is not installed: pip install 'everstep[dev-adapters]'")
    file = tmp_path / "test_snippet.py"
    file.write_text(snippet.code)
    command = [sys.executable, str(file)]
    if "import pytest" in snippet.code:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
    run = subprocess.run if "import pytest" in snippet.code or snippet.where.startswith("README") else warm.run
    done = run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_first_screen_of_the_readme_has_an_install_line_a_short_example_the_recording_and_limits() -> None:
    screen = TEXTS["README.md"].partition("\n## ")[0]
    assert re.findall(r"^    (\S.*?)(?:  .*)?$", re.sub(r"```.*?```", "", screen, flags=re.DOTALL), flags=re.MULTILINE) == ["pip install ."]
    (example,) = (s for s in snippets() if s.where.startswith("README.md"))
    assert len([line for line in example.code.splitlines() if line.strip()]) <= 16
    assert "](docs/assets/demo.svg)" in screen
    assert "**What it is not.**" in screen


def test_the_readme_has_two_commands_and_the_first_installs_no_test_tools() -> None:
    section = TEXTS["README.md"].partition("## Quick start")[2].partition("\n## ")[0]
    assert re.findall(r"^    (\S.*)$", section, flags=re.MULTILINE) == [
        "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/everstep demo",
        ".venv/bin/pip install -e '.[dev]' && .venv/bin/python -m pytest -m quick",
    ]


def test_the_readme_links_each_promise_to_its_guarantee() -> None:
    promises = [h for h in headings(TEXTS["docs/guarantees.md"]) if re.match(r"\d\. ", h)]
    assert [h[0] for h in promises] == list("1234567")
    for promise in promises:
        assert f"(docs/guarantees.md#{anchor(promise)})" in TEXTS["README.md"]


@pytest.mark.parametrize("name", TEXTS)
def test_links_between_documents_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", TEXTS[name]):
        if target.startswith("https://"):
            continue
        file, _, fragment = target.partition("#")
        path = ((ROOT / name).parent / file).resolve() if file else ROOT / name
        assert path.exists(), f"{name} links to {target}"
        if fragment:
            assert fragment in map(anchor, headings(path.read_text())), f"{name} links to {target}"


@pytest.mark.parametrize("name", TEXTS)
def test_files_that_a_document_names_exist(name: str) -> None:
    named = re.findall(r"`((?:tests|examples|docs)/[\w./-]+\.(?:py|md|sh|yaml))`", TEXTS[name])
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", TEXTS)
def test_a_document_knows_no_machine_but_the_readers(name: str) -> None:
    assert re.findall(r"(?<![\w.])/(?:home|root|tmp|work|Users|opt|mnt)/\S*", TEXTS[name]) == []


def test_every_decision_says_context_decision_and_alternatives() -> None:
    decisions = sorted(name for name in TEXTS if name.startswith("docs/decisions/"))
    numbers = [int(Path(name).name[:4]) for name in decisions]
    assert numbers == sorted(set(numbers))
    for name in decisions:
        assert {"Context", "Decision", "Alternatives"} <= set(headings(TEXTS[name])), name


def all_errors() -> set[type[errors.EverstepError]]:
    ours = (errors.EverstepError, errors.Suspended)
    return {c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, ours)}


def test_every_error_code_has_a_heading_and_every_heading_a_code() -> None:
    explained = [h for h in headings(TEXTS["docs/errors.md"]) if h != "Errors"]
    assert explained == sorted(f"{c.code} {c.__name__}" for c in all_errors())


def test_the_public_names_are_a_short_sorted_list_and_all_there() -> None:
    assert everstep.__all__ == sorted(everstep.__all__)
    assert len(everstep.__all__) < 40  # four of them for frameworks: drives, Opaque, quote, unquote
    assert all(hasattr(everstep, name) for name in everstep.__all__)
    public = {name for name in vars(everstep) if not name.startswith("_") and not inspect.ismodule(getattr(everstep, name))}
    assert public - {"Any", "TYPE_CHECKING"} <= set(everstep.__all__)


def test_every_public_name_has_a_heading() -> None:
    level_two = re.findall(r"^## (\w+)$", TEXTS["docs/api.md"], flags=re.MULTILINE)
    assert set(everstep.__all__) <= set(level_two)
    assert set(level_two) <= {*everstep.__all__, "Refs", "Durations", "Notebooks"}


@pytest.mark.parametrize("cls", [everstep.Store, everstep.Run])
def test_every_method_has_a_heading_and_every_option_is_named(cls: type) -> None:
    text = TEXTS["docs/api.md"]
    names = {n for n in dir(cls) if not n.startswith("_")}
    explained = set(re.findall(rf"^### {cls.__name__}\.(\w+)$", text, flags=re.MULTILINE))
    assert explained == names
    for name in sorted(names):
        section = text.partition(f"### {cls.__name__}.{name}\n")[2].partition("\n##")[0]
        member = inspect.getattr_static(cls, name)
        for option in inspect.signature(member).parameters if inspect.isfunction(member) else ():
            assert option in ("self", "filters") or option in section, f"{cls.__name__}.{name}: {option}"


@pytest.mark.parametrize("function", [everstep.open, everstep.register, everstep.repair])
def test_every_option_of_a_function_is_named(function: object) -> None:
    section = TEXTS["docs/api.md"].partition(f"\n## {function.__name__}\n")[2].partition("\n## ")[0]  # type: ignore[attr-defined]
    assert [p for p in inspect.signature(function).parameters if p not in section] == []  # type: ignore[arg-type]


def test_every_filter_is_explained() -> None:
    from everstep.store.query import FILTERS

    section = TEXTS["docs/api.md"].partition("### Pages and filters")[2].partition("\n## ")[0]
    assert [name for name in FILTERS["runs"] if f"`{name}`" not in section] == []


def test_the_async_run_has_what_the_reference_says() -> None:
    section = TEXTS["docs/api.md"].partition("## Async handles")[2]
    as_in_run = {n for n in dir(AsyncRun) if inspect.getattr_static(AsyncRun, n) is inspect.getattr_static(everstep.Run, n, None)}
    assert [
        n for n in dir(AsyncRun) if not n.startswith("_") and n not in ("enter", "leave", *as_in_run) and f"run.{n}" not in section
    ] == []
