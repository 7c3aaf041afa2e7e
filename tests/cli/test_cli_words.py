"""Words that people type: aliases, other names, typos, help, and options on either side of the command."""

from __future__ import annotations

import re

import click
import pytest
from cli_helpers import Shop

from everstep.cli.catalogue import ALIASES, COMMANDS, OTHER_WORDS, meant
from everstep.cli.helping import HelpfulCommand, parts
from everstep.cli.main import group


def everything() -> list[tuple[str, click.Command]]:
    """Every command, and those below one."""
    out = []
    for name in COMMANDS:
        found = group.get_command(click.Context(group), name)
        assert found is not None
        inner = found.commands.items() if isinstance(found, click.Group) else ()
        out += [(f"{name} {below}", one) for below, one in inner] or [(name, found)]
    return out


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_an_alias_is_its_command(alias: str, name: str, shop: Shop) -> None:
    args = ("loop", "--yes", "--json") if name == "delete" else ("--json",)
    assert shop.call(alias, *args).ok().json["kind"] == name
    assert shop.call(alias, "--help").out == shop.call(name, "--help").out == shop.call("help", alias).out


@pytest.mark.parametrize("word", sorted(OTHER_WORDS))
def test_another_word_leads_to_a_command_that_exists(word: str) -> None:
    assert word not in COMMANDS
    assert word not in ALIASES
    first, *rest = meant(word)[0].split()
    if first == "--version":
        return
    found = group.get_command(click.Context(group), first)
    assert found is not None
    context = click.Context(found)
    if isinstance(found, click.Group):
        assert rest[0] in found.list_commands(context)
        return
    options = [one for one in rest if one.startswith("-")]
    assert all(any(option in one.opts for one in found.params) for option in options), first
    with_values = [word if word.islower() or word.startswith("-") else "x" for word in rest]
    found.make_context(first, with_values, resilient_parsing=True)


@pytest.mark.parametrize(
    ("typed", "suggested"),
    [
        ("list", ["runs"]), ("status", ["show RUN", "stats"]), ("gates", ["inbox"]), ("remove", ["delete"]), ("kill", ["cancel"]),
        ("approve", ["answer"]), ("tail", ["events --follow"]), ("start", ["run", "restore"]), ("continue", ["resume"]), ("crashed", ["runs --status crashed"]),
        ("rnus", ["runs", "run"]), ("shw", ["show"]), ("Runs", ["runs"]), ("resum", ["resume"]), ("aprove", ["answer"]), ("verfy", ["verify"]),
        ("delte", ["delete"]), ("wrokers", ["workers", "worker"]), ("xyzzy", []), ("", []),
        ("lgo", ["log"]),
        ("wait", ["log RUN --follow"]), ("join", ["log RUN --follow"]), ("outcome", ["show RUN"]), ("await", ["log RUN --follow"]),
        ("rnu", ["run"]),
    ],
)  # fmt: skip
def test_a_word_that_is_no_command_suggests_one(typed: str, suggested: list[str]) -> None:
    found = meant(typed)
    assert found[: len(suggested)][:1] == suggested[:1]
    assert set(suggested) <= set(found) | set(suggested[1:])


def test_a_suggestion_is_an_error_that_runs_nothing(shop: Shop) -> None:
    before = shop.counts()
    for word in ("remove", "kill", "list", "lsit"):
        called = shop.call(word, "loop")
        assert called.code == 2
        assert called.out == ""
        assert "Did you mean `everstep " in called.err
    assert shop.counts() == before
    assert "List all commands: `everstep help`." in shop.call("xyzzy").err
    in_shell = shop.pipe("shell", "-c", "lsit")
    assert in_shell.code == 2
    assert "Did you mean `runs`" in in_shell.err or "Did you mean `" in in_shell.err


def test_help_lists_the_commands_or_explains_one(shop: Shop) -> None:
    assert shop.call("help").ok().out == shop.call("--help").ok().out
    assert shop.call("help", "config", "validate").out.startswith("Usage: everstep config validate")
    for words in (("nope",), ("config", "nope"), ("runs", "nope")):
        called = shop.call("help", *words)
        assert called.code == 2
        assert "nope" in called.err


@pytest.mark.parametrize(("name", "command"), everything(), ids=[name for name, _ in everything()])
def test_the_own_options_come_first_and_an_example_last(name: str, command: click.Command, shop: Shop) -> None:
    text = shop.call(*name.split(), "--help").ok().out
    headings = re.findall(r"^(\S.*):$", text, re.MULTILINE)
    assert headings[-2:] == ["Options of every command", "Example"], headings
    assert isinstance(command, HelpfulCommand)
    grouped = [one for names in command.groups.values() for one in names]
    assert len(grouped) == len(set(grouped))
    assert set(grouped) <= {str(one.name) for one in command.params}
    own = text.index("Options of every command:")
    for option in command.params:
        if isinstance(option, click.Option) and option.name not in (
            "store",
            "as_json",
            "colour",
            "quiet",
            "exact_times",
            "config",
            "debug",
        ):
            assert text.index(option.opts[0]) < own, option.name
    example = parts(command.help)[1]
    assert re.search(rf"everstep {name}\b", example), example


@pytest.mark.parametrize(
    "words",
    [
        ("--json", "runs"), ("runs", "--json"), ("--json", "--quiet", "runs", "-n", "1"), ("-q", "--color", "never", "runs", "--json"),
        ("config", "--json", "show"), ("--json", "config", "show"), ("--json", "show", "loop"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_common_options_stand_before_or_after_the_command(words: tuple[str, ...], shop: Shop) -> None:
    called = shop.call(*words).ok()
    assert called.json["everstep"] == 1
    assert called.err == ""


def test_the_option_after_the_command_wins(shop: Shop) -> None:
    shop.call("init", "--store", "other.db").ok()
    assert shop.call("-s", "other.db", "runs").err == "No runs.\n"
    assert "loop" in shop.call("-s", "other.db", "runs", "-s", str(shop.path)).ok().out
    failed = shop.call("--json", "show", "nobody")
    assert '"E201"' in failed.err
    assert failed.code == 3
