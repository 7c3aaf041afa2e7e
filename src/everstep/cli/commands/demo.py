"""`everstep demo`: kill an agent in the middle of a step, resume it and fork it, in about ten seconds and without a network."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.exit_codes import FAILED, OK


@make("demo")
@click.option(
    "--dir", "folder", type=click.Path(path_type=Path), default=Path("everstep-demo"), show_default=True, help="Folder for the store"
)
def command(app: App, folder: Path) -> int:
    """Watch an agent survive kill -9, in about ten seconds

    A small research agent with a scripted, local model works on a task. Its process is killed in the middle of a call, a new process
    resumes the run, and the run is forked before its decision. The store stays in ./everstep-demo for you to explore. The folder of an
    earlier demo is replaced; any other folder is left alone. The demo needs no network and no key.

    Example: everstep demo --dir /path/to/folder
    """
    from everstep.demo.play import play

    if app.url is not None:
        raise click.UsageError("the demo creates its own store: give its folder with --dir.")

    def say(text: str) -> None:
        if not app.out.as_json and not app.out.quiet:
            app.out.line(text)
            sys.stdout.flush()  # a person reads along, also through a pipe

    figures = play(folder, say, app.out.style)
    if app.out.as_json:
        app.out.data("demo", figures.to_dict())
    return OK if figures.ok else FAILED
