"""`everstep runs`: what there is, newest first, filtered and paged; or the forest of forks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.refs import QUEUE, RUN
from everstep.cli.args.times import MOMENT
from everstep.cli.args.workflow_target import pair
from everstep.cli.draw.short_ids import shortened
from everstep.cli.draw.text import cell, plural, size
from everstep.cli.draw.tree import draw
from everstep.views.json import to_json
from everstep.views.runs import RunPage, RunView, failed_runs, forest, list_runs

if TYPE_CHECKING:
    from everstep.api import Store

_ENDED = ("succeeded", "cancelled")  # one that failed may be tried again, and has kept its place then
_STATUSES = ["queued", "running", "waiting", "succeeded", "failed", "cancelled"]


@make("runs")
@click.option("--status", type=click.Choice(_STATUSES), help="Only runs that stand so.")
@click.option("--failed-by", metavar="ERROR", help="Only runs that failed with this error, such as StoreUnreachable; oldest first.")
@click.option("--workflow", help="Only runs of this workflow.")
@click.option("--tag", multiple=True, help="Only runs with this tag; may be given several times.")
@click.option("--session", help="Only runs of this session.")
@click.option("--parent", type=RUN, help="Only forks and children of this run.")
@click.option("--queue", type=QUEUE, help="Only runs of this queue, with their places in it.")
@click.option("--note", help="Only runs whose note holds this text.")
@click.option("--where", multiple=True, metavar="KEY=VALUE", help="Only runs with this metadata; may be given several times.")
@click.option("--since", type=MOMENT, help="Begun since: 2h, 3d, yesterday, 2026-11-15.")
@click.option("--until", type=MOMENT, help="Begun before.")
@click.option("--oldest-first", is_flag=True, help="The other way round.")
@click.option("--limit", "-n", type=click.IntRange(1, 10_000), default=20, show_default=True, help="How many.")
@click.option("--after", type=int, metavar="CURSOR", help="Go on behind a page: the cursor that it ended with.")
@click.option("--tree", is_flag=True, help="Draw which run was forked from which.")
def command(app: App, tree: bool, queue: str | None, failed_by: str | None, **filters: Any) -> None:
    """List runs, newest first."""
    with app.open() as store:
        if failed_by is None:
            page = list_runs(store, app.mask, **_query(filters, queue))
        else:
            page = failed_runs(store, app.mask, failed_by, filters["limit"])
        if app.out.as_json:
            app.out.data("runs", to_json(page))
        elif tree:
            draw(app, forest(store, app.mask, page.runs))
        else:
            _print(app, store, page, queue is not None)


def _query(filters: dict[str, Any], queue: str | None) -> dict[str, Any]:
    where = filters.pop("where")
    query = {name: value for name, value in filters.items() if value not in (None, (), False)}
    meta = dict(pair(text, "--where", "KEY=VALUE") for text in where) | ({} if queue is None else {"queue": queue})
    if meta:
        query["meta"] = meta
    return query


def _place(app: App, store: Store, run: RunView) -> str:
    if run.status in _ENDED:
        return ""
    from everstep.cli.draw import places  # only for the runs of one queue: most lists need none of it
    from everstep.views.queues import place

    return places.status(app, place(store, app.mask, run.id))


def _print(app: App, store: Store, page: RunPage, queued: bool) -> None:
    if not page.runs:
        app.out.say("no runs" if not store.stats()["runs"] else "no run fits")
        return
    head = ("RUN", "STATUS", "WORKFLOW", "CHECKPOINTS", "STORED", "UPDATED", "PLACE", "TAGS", "NOTE")
    rows = [
        (
            shortened(store, run.id) if app.out.terminal else run.id, run.status + ("*" if run.open else ""), cell(run.workflow or "", 30), f"{run.checkpoints:,}",
            size(run.stored_bytes), app.out.when(run.updated_at),
            _place(app, store, run) if queued else "", cell(", ".join(run.tags), 30), cell(run.note or "", 60),
        )
        for run in page.runs
    ]  # fmt: skip
    app.out.table(head, rows, styles={1: lambda text: app.out.style(text, app.out.colour_of(text.strip(" *")))}, right=(3, 4))
    if app.out.terminal:
        _explain(app, page)
    if page.next is not None:
        app.out.say(f"there are more: --after {page.next}")


def _explain(app: App, page: RunPage) -> None:
    """What a status does not say by itself."""
    if any(run.open for run in page.runs):
        app.out.say("* open in a process now", "dim")
    left = [run for run in page.runs if run.status == "running" and not run.open]
    if left:
        which = left[0].id if len(left) == 1 else "each of them"
        app.out.say(f"nobody drives {plural(len(left), 'running run')}; everstep resume goes on with {which}", "dim")
