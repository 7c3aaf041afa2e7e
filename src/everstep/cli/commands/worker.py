"""`everstep worker`: run the runs of queues, recover those of dead workers and fire schedules, until it is stopped."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.refs import QUEUE
from everstep.cli.args.remembered import remember_all
from everstep.cli.draw.capture import aside, to_stderr
from everstep.cli.draw.output import unheard
from everstep.cli.draw.worker_events import Lines, Listener, Silence, count_label
from everstep.cli.draw.worker_table import Board
from everstep.cli.exit_codes import OK
from everstep.errors import InvalidArgument
from everstep.fields import as_dict
from everstep.runtime.workflow import known

if TYPE_CHECKING:
    from everstep.api import Store


@make("worker")
@click.option(
    "--import", "modules", multiple=True, metavar="MODULE", help="Module, .py file or YAML file that defines workflows; repeatable"
)
@click.option(
    "--queue",
    "queues",
    type=QUEUE,
    multiple=True,
    default=("default",),
    show_default=True,
    help="Queue to take runs from; repeatable",
)
@click.option("--concurrency", type=click.IntRange(1), default=8, show_default=True, metavar="N", help="Number of runs to run at once")
@click.option("--until-idle", is_flag=True, help="Exit when this worker has nothing left to do")
@click.option("--no-recover", is_flag=True, help="Leave runs outside of queues alone: those whose process died, and those that are due")
@click.option(
    "--max-deaths",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    metavar="N",
    help="Number of deaths after which a run fails with the tag dead-letter",
)
@click.option(
    "--orders-in",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="SQLite file in which programs enqueue runs by their own transactions; repeatable",
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
    """Take runs from queues and run them

    On a terminal, the worker shows a live table; otherwise it prints one line of JSON for each event. Ctrl-C or SIGTERM drains the worker: it
    takes no more runs, each run stops at the end of its step, and other workers resume it. A second signal exits at once.

    Example: everstep worker --import flows.py --queue mail
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
    """Print one line of JSON for each event. Output of programs and their commands goes to stderr, from their import on."""
    with to_stderr() as stream:
        _import(app, modules)
        with app.open(driving=True) as store, Lines(app, stream) as lines:
            remember_all(app.opened, known(), modules)
            _drive(store, lines, until_idle, options)
    return unheard() if lines.unheard else OK


def _at_terminal(app: App, modules: tuple[str, ...], until_idle: bool, options: dict[str, Any]) -> int:
    stream = sys.stdout
    with aside() as streams:
        _import(app, modules)
        with app.open(driving=True) as store:
            remember_all(app.opened, known(), modules)
            listener = Silence(app, stream) if app.out.quiet else Board(app, stream, store)
            for one in streams:
                one.taker = getattr(listener, "note", None)
            with listener:
                _drive(store, listener, until_idle, options)
    counts = [f"{count:,} {count_label(name)}" for name, count in as_dict(listener.worker.counts).items() if count]
    app.out.say(f"Stopped: {', '.join(counts) or 'no runs taken'}")
    return OK


def _import(app: App, modules: tuple[str, ...]) -> None:
    app.import_all(modules)
    if not known():
        why = "the imported modules define none" if modules or app.names_code() else "no module was imported"
        raise InvalidArgument(
            f"the worker knows no workflow: {why}",
            remedy="Name the module, .py file or YAML file that defines the workflows: everstep worker --import MODULE. Or set imports in the configuration.",
        )


def _drive(store: Store, listener: Listener, until_idle: bool, options: dict[str, Any]) -> None:
    listener.worker = store.worker(**options, tell=listener.tell)
    listener.worker.run(until_idle)
