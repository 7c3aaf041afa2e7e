"""Prints the greeting of the shell: the store, its content and a first hint. Offers to create a missing store."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from everstep.cli import failures
from everstep.cli.app import App
from everstep.cli.draw.text import plural, safe
from everstep.errors import EverstepError, NotAStore
from everstep.views.runs import seen_status

if TYPE_CHECKING:
    from everstep.api import Store
    from everstep.store.views import Page, RunInfo

_MOST = 10_000
_BEGIN = "Start one with `run FILE.yaml` or `run package.module:function`, or try `demo`."


def greet(app: App) -> None:
    """Greet a person at a terminal."""
    import everstep

    app.out.say(f"everstep {everstep.__version__}", "bold")
    try:
        _about(app)
    except NotAStore as error:
        _offer(app, error)
    except EverstepError as error:
        failures.tell(error)  # a damaged store is a reason to have a shell, not to end it
    app.out.say("Type help for a list of commands, TAB to complete, exit or Ctrl-D to leave.", "dim")


def _about(app: App) -> None:
    with app.open() as store:
        app.out.say(_address(store))
        page = store.runs(limit=_MOST)
        app.out.say(_counts(store, page) if page else f"No runs yet. {_BEGIN}")


def _address(store: Store) -> str:
    from urllib.parse import unquote

    scheme, _, rest = str(store.url).partition("://")
    return f"store: {scheme} {safe(unquote(rest.removeprefix('/')))}".rstrip()


def _counts(store: Store, page: Page[RunInfo]) -> str:
    """Count runs by status and their checkpoints; in a store with very many, only of the newest."""
    statuses = Counter(seen_status(store, run)[0] for run in page)
    by_status = ", ".join(f"{count:,} {status}" for status, count in statuses.most_common())
    of = f"the newest {len(page):,} runs" if page.next is not None else plural(len(page), "run")
    return f"{of} ({by_status}), {plural(sum(run.checkpoints for run in page), 'checkpoint')}"


def _offer(app: App, error: NotAStore) -> None:
    if not error.missing:
        failures.tell(error)
        return
    app.out.say(safe(error.message), "yellow")
    if click.confirm("Create one?", default=True, err=True):
        app.open(create=True).close()
        app.out.say(f"Created. {_BEGIN}")
    else:
        app.out.say("Create one later with `init`, or try `demo`.")
