"""The options of every command, which a person may give before or after its name. Imports little: `--help` needs no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from click.core import ParameterSource

OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("--store", "-s", metavar="URL", help="Path or URL of the store (default: .everstep/store.db in this folder or above)"),
    click.option("--json", "as_json", is_flag=True, help="Print JSON"),
    click.option("--color", "colour", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True, help="Use colour (NO_COLOR is honoured)"),
    click.option("--quiet", "-q", is_flag=True, help="Print only the result, no messages"),
    click.option("--exact-times", is_flag=True, help="Print times as in a pipe: ISO 8601 in UTC, with milliseconds"),
    click.option("--config", metavar="FILE", help="Configuration file (default: everstep.toml or pyproject.toml in this folder or above)"),
    click.option("--debug", is_flag=True, help="Print every call to the store with its duration, and tracebacks of errors"),
)  # fmt: skip
NAMES = ("store", "as_json", "colour", "quiet", "exact_times", "config", "debug")
"""The names of their parameters, in the same order."""


def common(ctx: click.Context, name: str) -> Any:
    """Return a common option: the one after the command, or else the one before it."""
    found = ctx.params.get(name)
    around: click.Context | None = ctx
    while around is not None:
        if around.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            return around.params[name]
        around = around.parent
    return "auto" if found is None and name == "colour" else found


def with_common(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the common options to a command or to a group of commands."""
    for option in reversed(OPTIONS):
        function = option(function)
    return function
