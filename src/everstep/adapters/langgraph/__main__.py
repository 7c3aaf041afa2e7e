"""`python -m everstep.adapters.langgraph take-over SOURCE`: take over threads from SqliteSaver and PostgresSaver."""

from __future__ import annotations

import sys
from importlib import import_module

import click

import everstep
from everstep.adapters.langgraph.takeover import take_over
from everstep.errors import EverstepError


@click.group()
def main() -> None:
    """Work with the threads of LangGraph graphs."""


@main.command("take-over")
@click.argument("source")
@click.option("--store", help="Store that receives the threads; default: the configured one")
@click.option("--thread", "threads", multiple=True, help="Take over only this thread; may be repeated")
@click.option("--type", "types", multiple=True, metavar="MODULE:CLASS", help="Allow values of this class; may be repeated")
@click.option("--workflow", default="langgraph", show_default=True, help="Label of the runs")
def command(source: str, store: str | None, threads: tuple[str, ...], types: tuple[str, ...], workflow: str) -> None:
    """Copy threads from SOURCE, a file of SqliteSaver or a postgresql:// address of PostgresSaver

    Each thread is compared with its source before it appears. The source is not changed.

    Example: python -m everstep.adapters.langgraph take-over checkpoints.sqlite --store app.db
    """
    try:
        classes = [_class(name) for name in types]
        with everstep.open(store) as opened:
            taken = take_over(source, opened, types=classes, threads=threads, workflow=workflow, tell=click.echo)
    except EverstepError as error:
        click.echo(f"error: {error}\nhint: {error.remedy}", err=True)
        sys.exit(1)
    click.echo(f"Took over {taken.threads:,} threads with {taken.checkpoints:,} checkpoints and {taken.writes:,} pending writes.")
    if taken.known:
        click.echo(f"{len(taken.known):,} threads were there already, with the same content.")


def _class(name: str) -> type:
    module, colon, attribute = name.partition(":")
    if not colon:
        raise click.BadParameter(f"--type must be MODULE:CLASS, got {name!r}")
    sys.path.insert(0, "")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise click.BadParameter(f"--type {name}: {error}") from error
    finally:
        sys.path.remove("")
    return found  # type: ignore[no-any-return]


if __name__ == "__main__":
    main(prog_name="python -m everstep.adapters.langgraph")
