"""`everstep checkpoint`: save the JSON state of a script in any language. Each call makes one durable checkpoint of a run."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args import workflow_target
from everstep.cli.args.refs import RUN
from everstep.errors import InvalidArgument, LimitExceeded, Unstorable, Waiting
from everstep.store.lookup import known
from everstep.store.query import check_note, check_tags, to_meta
from everstep.views.json import to_json
from everstep.views.run import checkpoint_view
from everstep.views.stored.tagged_json import reconciled

if TYPE_CHECKING:
    from everstep.api import Store
    from everstep.runtime.run import Run
    from everstep.store.views import Checkpoint


@make("checkpoint")
@click.argument("run", type=RUN)
@click.option("--state", "file", metavar="FILE", default="-", show_default=True, help="JSON file to read; - is standard input")
@click.option("--note", help="Add a note to the checkpoint")
@click.option("--tag", "tags", multiple=True, help="Tag the checkpoint; repeatable")
@click.option("--meta", multiple=True, metavar="KEY=VALUE", help="Add metadata to the checkpoint; repeatable")
@click.option("--done", is_flag=True, help="Mark the run as succeeded with this state")
def command(app: App, run: str, file: str, note: str | None, tags: tuple[str, ...], meta: tuple[str, ...], done: bool) -> None:
    """Save a JSON state as a checkpoint of RUN; the first one creates the run

    Example: echo '{"page": 3}' | everstep checkpoint crawl --note "page 3"
    """
    given = workflow_target.json_of(file)
    pairs = dict(workflow_target.pair(text, "--meta", "KEY=VALUE") for text in meta)
    check_note(note)  # before the run is created: it would be marked failed
    check_tags(tags)
    to_meta(pairs)
    with app.open(create=True, driving=True) as store:
        state = _state(store, run, given)
        one = _save(store, run, state, {"note": note, "tags": tags, "meta": pairs or None}, done)
        one = store.checkpoint(one.ref)
    if app.out.as_json:
        app.out.data("checkpoint", to_json(checkpoint_view(one, app.mask)))
    else:
        app.out.line(one.ref)


def _state(store: Store, run: str, given: Any) -> Any:
    """Return the state that a script means: parts that it only passed on, as `restore` printed them, keep their stored values."""
    before = known(store, run)
    stored = store.load(run) if before is not None and before.checkpoints else None
    return reconciled(stored, given)


def _save(store: Store, run: str, state: Any, about: dict[str, Any], done: bool) -> Checkpoint:
    """Save, and leave the run waiting for its next checkpoint unless this was the last one. A refused state leaves it waiting, too."""
    one, refused = None, None
    handle: Run[Any] = store.run(run)  # a shell script saves whatever JSON it likes
    with suppress(Waiting), handle as opened:
        try:
            if state is None:  # as an argument, None means: keep the state
                opened.state = None
            one = opened.checkpoint(state=state, **about)
        except (InvalidArgument, Unstorable, LimitExceeded) as error:
            refused = error
        if refused is not None or not done:
            raise Waiting(opened.id, "its next checkpoint")
    if refused is not None:
        raise refused
    assert one is not None
    return one
