"""What a shell says first: which store, what is in it, how to go on. Offers to make a store where there is none."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from everstep.cli import failures
from everstep.cli.app import App
from everstep.cli.draw.text import plural, safe
from everstep.errors import EverstepError, NotAStore

if TYPE_CHECKING:
    from everstep.api import Store
    from everstep.store.views import Page, RunInfo

_MOST = 10_000
_BEGIN = "`run FILE.yaml` or `run package.module:function` starts a run; `demo` shows one."


def greet(app: App) -> None:
    """Say hello to a person at a terminal."""
    import everstep

    app.out.say(f"everstep {everstep.__version__}", "bold")
    try:
        _about(app)
    except NotAStore as error:
        _offer(app, error)
    except EverstepError as error:
        failures.tell(error)  # a damaged store is a reason to have a shell, not to end it
    app.out.say("help lists the commands, TAB completes, exit or Ctrl-D leaves", "dim")


def _about(app: App) -> None:
    with app.open() as store:
        app.out.say(_place(store))
        page = store.runs(limit=_MOST)
    app.out.say(_counts(page) if page else f"no runs yet: {_BEGIN}")


def _place(store: Store) -> str:
    from urllib.parse import unquote

    scheme, _, rest = str(store.url).partition("://")
    return f"store: {scheme} {safe(unquote(rest.removeprefix('/')))}".rstrip()


def _counts(page: Page[RunInfo]) -> str:
    """Runs by status and their checkpoints; of a store with very many, those of the newest."""
    statuses = Counter(run.status for run in page)
    by_status = ", ".join(f"{count:,} {status}" for status, count in statuses.most_common())
    of = f"the newest {len(page):,} runs" if page.next is not None else plural(len(page), "run")
    return f"{of} ({by_status}), {plural(sum(run.checkpoints for run in page), 'checkpoint')}"


def _offer(app: App, error: NotAStore) -> None:
    if not error.missing:
        failures.tell(error)
        return
    app.out.say(safe(error.message), "yellow")
    if click.confirm("Make one?", default=True, err=True):
        app.open(create=True).close()
        app.out.say(f"made; {_BEGIN}")
    else:
        app.out.say("`init` makes one, `demo` leaves one to look at")
