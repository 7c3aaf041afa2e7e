"""`everstep bisect`: the first checkpoint at which a condition on the state holds.

By default every checkpoint is looked at, oldest first, because a condition may hold, stop holding and hold again. With --sorted the
condition is taken to hold from some checkpoint on for good, and about log2(n) states are read.
"""

from __future__ import annotations

import click

from everstep.cli import exit_codes
from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.condition import Condition
from everstep.cli.args.naming import to_read
from everstep.cli.args.refs import RUN
from everstep.cli.draw.text import cell, plural
from everstep.views.json import to_json
from everstep.views.states import bisect


@make("bisect")
@click.argument("run", type=RUN)
@click.option("--when", "text", required=True, metavar="EXPR", help="The condition: state.total > 100 and 'x' in state.tags.")
@click.option("--sorted", "is_sorted", is_flag=True, help="Once it holds, it holds for good: read only a few states.")
def command(app: App, run: str, text: str, is_sorted: bool) -> int:
    """Find the first checkpoint of RUN at which EXPR holds."""
    condition = Condition(text)
    with app.open() as store:
        info = store.get(to_read(app, store, run))
        with app.out.progress("looking") as progress:
            found = bisect(store, app.mask, info.id, text, condition.holds, is_sorted, progress)
    one = found.checkpoint
    if app.out.as_json:
        app.out.data("bisect", to_json(found))
    elif one is None:
        app.out.say(f"at none of {plural(found.among, 'checkpoint')} of {info.id}")
    else:
        step = f"after step {cell(one.step, 60)}" if one.step else one.kind
        app.out.line(f"{app.out.style(one.ref, 'bold')}  {app.out.when(one.at)}  {step}  {cell(one.note or '', 80)}".rstrip())
    return exit_codes.OK if one is not None else exit_codes.NOT_FOUND
