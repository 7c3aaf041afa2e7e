"""`everstep demo`: an agent that is killed, goes on, and decides otherwise, in about ten seconds and without a network."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from click.core import ParameterSource

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.exit_codes import FAILED, OK


@make("demo")
@click.option(
    "--dir", "folder", type=click.Path(path_type=Path), default=Path("everstep-demo"), show_default=True, help="Where to leave the store."
)
def command(app: App, folder: Path) -> int:
    """Watch an agent survive kill -9, in about ten seconds.

    A small research agent with a scripted, local model works through a task. Its process is killed in the middle of a call, a new one goes
    on, and the run is forked before its decision. The store stays in ./everstep-demo, to look around in. A folder that a demo left there
    before is replaced; anything else is left alone. No network and no key are needed.
    """
    from everstep.demo.play import play

    if click.get_current_context().get_parameter_source("store") is ParameterSource.COMMANDLINE:
        raise click.UsageError("the demo makes a store of its own; --dir says where.")

    def say(text: str) -> None:
        if not app.out.as_json and not app.out.quiet:
            app.out.line(text)
            sys.stdout.flush()  # a person reads along, also through a pipe

    facts = play(folder, say, app.out.style)
    if app.out.as_json:
        app.out.data("demo", facts.to_dict())
    return OK if facts.ok else FAILED
