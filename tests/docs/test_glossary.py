"""The glossary has every word that names a module, a table, a column, a command or an option."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

import everstep
from everstep.cli.main import Commands

ROOT = Path(__file__).parents[2]
SOURCE = Path(everstep.__file__).parent


@cache
def terms() -> frozenset[str]:
    """The words in the first columns of the glossary, in small letters and the singular."""
    found: set[str] = set()
    for row in re.findall(r"^\| ([^|]+) \|", (ROOT / "docs/glossary.md").read_text(encoding="utf-8"), re.MULTILINE):
        for part in row.split(","):
            found.add(plain(part.strip().strip("`").removeprefix("--").removesuffix("=")))
    return frozenset(found - {"word", "---", "", "name", "option", "status", "command"} | {"status", "option", "command"})


def plain(name: str) -> str:
    return " ".join(singular(word) for word in re.split(r"[\s_-]+", name.lower()) if word)


def singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("ches", "sses")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


EVERYDAY = frozenset(
    re.findall(
        r"\w+",
        """
        aio api app apply arg call capture choose class cli clock column condition conformance connect connection context copy
        current damaged data delete deletion diagnosis disabled document draw edit equality error everstep exception exit field
        file find finding folder group help history in instance interpreter invoke list listing live load loader lookup
        main memory model module mount name naming node observe old open opening parallel parser postgre reader redact registry
        result row schema script server setting several short signal sql sqlite stop suite system table tagged target terminal
        testing thread time timeline to toml type use word writer yaml asking banner completing picking
        """,
    )
)
"""Words that every programmer uses in one sense, alone or in the name of a module: `toml_lines`. The last four are what the shell does."""


def names() -> Iterator[tuple[str, str]]:
    """What has a name, and the name: modules, tables, columns, commands, options."""
    for path in sorted(SOURCE.rglob("*.py")):
        yield "module", path.parent.name if path.name == "__init__.py" else path.stem
    for engine in ("sqlite", "postgres"):
        schema = (SOURCE / "backends" / engine / "sql/schema.sql").read_text()
        for table, columns in re.findall(r"CREATE TABLE (?:\{schema\}\.)?(\w+) \((.*?)\n\)", schema, re.DOTALL):
            yield "table", table
            yield from (("column", column) for column in re.findall(r"^    \"?(?!PRIMARY)(\w+)\"? \w+", columns, re.MULTILINE))
    group = Commands()
    context = click.Context(group)
    for name in group.list_commands(context):
        yield "command", name
        command = group.get_command(context, name)
        for option in command.params if command is not None else ():
            yield from (("option", word.removeprefix("--")) for word in option.opts if word.startswith("--"))


def is_explained(name: str) -> bool:
    """Whether the glossary has the name, or each of its words is explained or an everyday word."""
    known, words = {term.replace(" ", "") for term in terms()}, plain(name)
    return words.replace(" ", "") in known or all(word in known or word in EVERYDAY for word in words.split())


def test_the_glossary_has_every_name() -> None:
    missing = sorted({f"{kind} {name}" for kind, name in names() if not is_explained(name)})
    assert missing == [], "explain it in docs/glossary.md, or use a word that is there"


@pytest.mark.parametrize("kind", ["module", "table", "column", "command", "option"])
def test_names_of_every_kind_are_found(kind: str) -> None:
    assert len({name for found, name in names() if found == kind}) > 15


def test_every_everyday_word_is_needed_and_not_explained() -> None:
    used = {word for _, name in names() for word in plain(name).split()}
    assert sorted(EVERYDAY - used) == []
    assert sorted(EVERYDAY & terms()) == []


@pytest.mark.parametrize("name", ["nudge", "wreck", "letter", "fact", "ledger", "place", "deleted_places"])
def test_a_name_that_must_be_guessed_is_found(name: str) -> None:
    assert not is_explained(name)


def test_a_word_is_explained_once_in_a_table() -> None:
    for section in (ROOT / "docs/glossary.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        rows = re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE)
        assert sorted({row for row in rows if rows.count(row) > 1}) == [], section.partition("\n")[0]
