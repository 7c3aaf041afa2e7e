"""`everstep runs`: list runs, newest first, with filters and pages; or draw the tree of forks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.refs import QUEUE, RUN
from everstep.cli.args.times import MOMENT
from everstep.cli.args.workflow_target import pair
from everstep.cli.draw.hints import to_continue
from everstep.cli.draw.short_ids import shortened
from everstep.cli.draw.text import cell, safe, size
from everstep.cli.draw.tree import draw
from everstep.views.json import to_json
from everstep.views.runs import STATUSES, RunPage, RunView, failed_runs, forest, list_runs

if TYPE_CHECKING:
    from everstep.api import Store

_ENDED = ("succeeded", "cancelled")  # a failed run that is due for a retry is still in its queue


_GROUPS = {
    "Which runs": ("status", "failed_by", "workflow", "tag", "session", "parent", "queue", "note", "where", "since", "until"),
    "How many, and in which form": ("oldest_first", "limit", "after", "tree"),
}


@make("runs", _GROUPS)
@click.option("--status", type=click.Choice(STATUSES), help="Show only runs with this status")
@click.option("--failed-by", metavar="ERROR", help="Show only runs that failed with this error, such as StoreUnreachable; oldest first")
@click.option("--workflow", help="Show only runs of this workflow")
@click.option("--tag", multiple=True, help="Show only runs with this tag; repeatable")
@click.option("--session", help="Show only runs of this session")
@click.option("--parent", type=RUN, help="Show only forks and children of this run")
@click.option("--queue", type=QUEUE, help="Show only runs of this queue, and whether they are ready")
@click.option("--note", help="Show only runs whose note contains this text")
@click.option("--where", multiple=True, metavar="KEY=VALUE", help="Show only runs with this metadata; repeatable")
@click.option("--since", type=MOMENT, help="Show only runs that began after this time: 2h, 3d, yesterday, 2026-11-15")
@click.option("--until", type=MOMENT, help="Show only runs that began before this time")
@click.option("--oldest-first", is_flag=True, help="Sort oldest first")
@click.option("--limit", "-n", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Number of runs to show")
@click.option("--after", type=int, metavar="CURSOR", help="Show the next page: the cursor that the last page printed")
@click.option("--tree", is_flag=True, help="Draw forks and children under the runs they come from")
def command(app: App, tree: bool, queue: str | None, failed_by: str | None, **filters: Any) -> None:
    """List runs, newest first

    Example: everstep runs --status failed --since 2h
    """
    with app.open() as store:
        if failed_by is None:
            page = list_runs(store, app.mask, **_query(filters, queue))
        else:
            page = failed_runs(store, app.mask, failed_by, filters["limit"])
        if app.out.as_json:
            app.out.data("runs", to_json(page))
        elif not page.runs:
            app.out.say("No runs." if not store.stats()["runs"] else "No run matches.")
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


def _queue_status(app: App, store: Store, run: RunView) -> str:
    if run.status in _ENDED:
        return ""
    from everstep.cli.draw import queue_text  # only needed for the runs of one queue
    from everstep.views.queues import queue_entry

    return queue_text.status(app, queue_entry(store, app.mask, run.id))


def _print(app: App, store: Store, page: RunPage, queued: bool) -> None:
    head = ("RUN", "STATUS", "WORKFLOW", "CHECKPOINTS", "STORED", "UPDATED", "QUEUE", "TAGS", "NOTE")
    rows = [
        (
            shortened(store, run.id) if app.out.terminal else run.id, run.status + ("*" if run.open else ""), cell(run.workflow or "", 30), f"{run.checkpoints:,}",
            size(run.stored_bytes), app.out.when(run.updated_at),
            _queue_status(app, store, run) if queued else "", cell(", ".join(run.tags), 30), cell(run.note or "", 60),
        )
        for run in page.runs
    ]  # fmt: skip
    app.out.table(
        head, rows, styles={1: lambda text: app.out.style(text, app.out.colour_of(text.strip(" *")))}, right=(3, 4),
        drop=("STORED", "CHECKPOINTS", "TAGS", "NOTE", "WORKFLOW", "QUEUE", "UPDATED"), cuts=("NOTE", "TAGS", "WORKFLOW", "QUEUE"),
    )  # fmt: skip
    if app.out.terminal:
        _explain(app, page)
    if page.next is not None:
        app.out.say(f"More runs: --after {page.next}")


def _explain(app: App, page: RunPage) -> None:
    """Explain what the status alone does not show."""
    if any(run.open for run in page.runs):
        app.out.say("* a process has the run open", "dim")
    for status, verb in (("crashed", ("has crashed", "have crashed")), ("interrupted", ("was interrupted", "were interrupted"))):
        left = [run for run in page.runs if run.status == status]
        if len(left) == 1:
            app.out.say(f"{safe(left[0].id)} {verb[0]}. {to_continue(app, left[0])}", "dim")
        elif left:
            app.out.say(f"{len(left):,} runs {verb[1]}. To choose one to continue: everstep resume", "dim")
