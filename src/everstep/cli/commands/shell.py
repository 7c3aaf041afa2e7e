"""`everstep shell`: run commands that a person types or a pipe provides. The work is done in `everstep.cli.shell`."""

from __future__ import annotations

import sys

import click

from everstep.cli.app import App
from everstep.cli.app import command as make


@make("shell")
@click.option(
    "--import",
    "modules",
    multiple=True,
    metavar="MODULE",
    help="Module, .py file or YAML file that defines workflows and agents; repeatable",
)
@click.option("--command", "-c", "text", metavar="COMMANDS", help="Run these commands, separated by ; or line breaks, and exit")
def command(app: App, modules: tuple[str, ...], text: str | None) -> int:
    """Open an interactive shell

    Type commands without `everstep` in front; `help` lists them. Without a terminal, commands are read from standard input.

    Example: everstep shell --import flows.py
    """
    from everstep.cli.shell import scripts
    from everstep.cli.shell.session import Session

    session = Session(app, _options(app))
    session.learn((*app.imports(), *app.workflow_files(), *modules))
    if text is not None:
        return scripts.follow(session, text.splitlines())
    if not sys.stdin.isatty():
        return scripts.follow(session, scripts.piped())
    from everstep.cli.shell.banner import greet
    from everstep.cli.shell.terminal import talk

    greet(app)
    return talk(session)


def _options(app: App) -> list[str]:
    """Return the common options as they were given to the shell."""
    named = [("--store", app.url), ("--config", app.config), ("--color", app.colour)]
    flags = [("--json", app.out.as_json), ("--quiet", app.out.quiet), ("--debug", app.debug), ("--exact-times", app.out.exact_times)]
    return [*(word for name, value in named if value for word in (name, value)), *(name for name, given in flags if given)]
