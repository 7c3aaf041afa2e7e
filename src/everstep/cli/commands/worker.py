"""`everstep worker`: drive the runs of queues, go on with those of dead workers, fire schedules; until it is told to stop."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.refs import QUEUE
from everstep.cli.draw.capture import aside, to_stderr
from everstep.cli.draw.output import unheard
from everstep.cli.draw.worker_events import Lines, Listener, Silence
from everstep.cli.draw.worker_table import Board
from everstep.cli.exit_codes import OK
from everstep.errors import InvalidArgument
from everstep.fields import as_dict
from everstep.runtime.workflow import known

if TYPE_CHECKING:
    from everstep.api import Store


@make("worker")
@click.option("--import", "modules", multiple=True, metavar="MODULE", help="What defines workflows: a module, a .py file or a YAML file.")
@click.option(
    "--queue",
    "queues",
    type=QUEUE,
    multiple=True,
    default=("default",),
    show_default=True,
    help="Where to take runs from; may be given several times.",
)
@click.option("--concurrency", type=click.IntRange(1), default=8, show_default=True, metavar="N", help="How many runs to drive at once.")
@click.option("--until-idle", is_flag=True, help="End when nothing is left that this worker could drive.")
@click.option(
    "--no-recover", is_flag=True, help="Leave runs outside of queues alone: those whose process died, and those whose time has come."
)
@click.option(
    "--max-deaths",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    metavar="N",
    help="A run goes to dead-letter after so many workers died with it.",
)
@click.option(
    "--orders-in",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="A SQLite file in whose transactions runs are enqueued; may be given several times.",
)
def command(
    app: App,
    modules: tuple[str, ...],
    queues: tuple[str, ...],
    concurrency: int,
    until_idle: bool,
    no_recover: bool,
    max_deaths: int,
    orders_in: tuple[str, ...],
) -> int:
    """Drive the runs of queues: on a terminal with a live table, otherwise with a line of JSON for each event.

    Ctrl-C and SIGTERM drain: nothing new is taken, each run stops at the end of its step, and other workers go on with it. The second one ends at once.

    For example: everstep worker --import flows.py --queue mail
    """
    options = {
        "queues": list(dict.fromkeys(queues)),
        "concurrency": concurrency,
        "recover": not no_recover,
        "max_deaths": max_deaths,
        "orders_in": orders_in,
    }
    if app.out.terminal and not app.out.as_json and os.environ.get("TERM") != "dumb":
        return _at_terminal(app, modules, until_idle, options)
    return _in_lines(app, modules, until_idle, options)


def _in_lines(app: App, modules: tuple[str, ...], until_idle: bool, options: dict[str, Any]) -> int:
    """One line of JSON for each event. What programs and their commands print goes to stderr, from their import on: stdout is for those lines."""
    with to_stderr() as stream:
        _import(app, modules)
        with app.open(driving=True) as store, Lines(app, stream) as lines:
            _drive(store, lines, until_idle, options)
    return unheard() if lines.unheard else OK


def _at_terminal(app: App, modules: tuple[str, ...], until_idle: bool, options: dict[str, Any]) -> int:
    stream = sys.stdout
    with aside() as streams:
        _import(app, modules)
        with app.open(driving=True) as store:
            listener = Silence(app, stream) if app.out.quiet else Board(app, stream, store)
            for one in streams:
                one.taker = getattr(listener, "note", None)
            with listener:
                _drive(store, listener, until_idle, options)
    counts = [f"{count:,} {name.replace('_', ' ')}" for name, count in as_dict(listener.worker.counts).items() if count]
    app.out.say(f"stopped: {', '.join(counts) or 'nothing was taken'}")
    return OK


def _import(app: App, modules: tuple[str, ...]) -> None:
    names = (*app.imports(), *modules)
    app.import_modules(names)
    if not known():
        why = "what was imported defines none" if names else "nothing was imported"
        raise InvalidArgument(
            f"no workflow is known here: {why}",
            remedy="Name what defines the workflows: everstep worker --import MODULE (a module, a .py file or a YAML file), or imports in the configuration.",
        )


def _drive(store: Store, listener: Listener, until_idle: bool, options: dict[str, Any]) -> None:
    listener.worker = store.worker(**options, tell=listener.tell)
    listener.worker.run(until_idle)
