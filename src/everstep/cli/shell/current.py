"""Inserts the current run into a command that names none. Reads click's own parameters, does no I/O.

After `use RUN`, `show` is `show RUN`, `tag good` is `tag RUN good`, and `diff @1 @3` is `diff RUN@1 RUN@3`.
"""

from __future__ import annotations

import re
from typing import Any

import click
from click.core import ParameterSource

from everstep.cli.args.refs import RefArgument, RunArgument
from everstep.cli.args.selection import FILTERS

_LAST = re.compile(r"@last(?![^@~])")
SEVERAL = ("cancel", "pause")  # these take several runs; `delete` does, too, but never a run that is not named
_WITH_DEFAULT = ("checkpoints", "log", "resume")  # these also work without a run, but use the current one if there is one


def needs(command: click.Command, words: list[str]) -> bool:
    """Return whether a required run is missing, so that a person may choose one."""
    first = _first(command)
    return first is not None and (first.required or command.name in SEVERAL) and _is_short(command, words)


def takes(command: click.Command, words: list[str]) -> bool:
    """Return whether the command uses the current run, if there is one."""
    first = _first(command)
    return first is not None and (first.required or command.name in (*_WITH_DEFAULT, *SEVERAL)) and _is_short(command, words)


def first_of(command: click.Command, words: list[str]) -> Any:
    """Return the argument at the position of the run."""
    first = _first(command)
    return None if first is None else _parsed(command, words).params.get(str(first.name))


def with_refs(command: click.Command, words: list[str], current: str) -> list[str]:
    """Return the words with @3, @tag and ~1 as checkpoints of the current run."""
    ctx = _parsed(command, words)
    refs = {ctx.params.get(str(one.name)) for one in _arguments(command) if isinstance(one.type, RefArgument)}
    return [current + word if word in refs and is_relative(word) else word for word in words]


def is_relative(word: str) -> bool:
    """Return whether a ref leaves out its run."""
    return word.startswith(("@", "~")) and not _LAST.match(word)


def _first(command: click.Command) -> click.Argument | None:
    found = next(iter(_arguments(command)), None)
    return found if found is not None and isinstance(found.type, RunArgument) else None


def _is_short(command: click.Command, words: list[str]) -> bool:
    """Return whether there are fewer words than required arguments."""
    if "--help" in words or "-h" in words:
        return False
    ctx, arguments = _parsed(command, words), _arguments(command)
    if command.name in SEVERAL and any(ctx.params.get(name) for name in FILTERS):
        return False  # the filters select the runs
    given = sum(ctx.get_parameter_source(str(one.name)) is ParameterSource.COMMANDLINE for one in arguments)
    return given < max(1, sum(one.required for one in arguments))


def _arguments(command: click.Command) -> list[click.Argument]:
    return [one for one in command.params if isinstance(one, click.Argument)]


def _parsed(command: click.Command, words: list[str]) -> click.Context:
    return command.make_context(command.name, list(words), resilient_parsing=True)
