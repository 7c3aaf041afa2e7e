"""`everstep bisect`: find the first checkpoint at which a condition on the state is true.

By default it reads every checkpoint, oldest first, because a condition may become true, then false, then true again. With --sorted it
assumes that the condition stays true once it is true, and reads about log2(n) states.
"""

from __future__ import annotations

from difflib import get_close_matches

import click

from everstep.cli import exit_codes
from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.condition import Condition
from everstep.cli.args.naming import to_read
from everstep.cli.args.refs import RUN
from everstep.cli.draw.text import cell, plural, safe
from everstep.views.json import to_json
from everstep.views.states import bisect


@make("bisect")
@click.argument("run", type=RUN)
@click.option(
    "--when", "text", required=True, metavar="EXPR", help="Condition on the state, such as: state.total > 100 and 'x' in state.tags"
)
@click.option("--sorted", "is_sorted", is_flag=True, help="Assume the condition stays true once it is true, and use binary search")
def command(app: App, run: str, text: str, is_sorted: bool) -> int:
    """Find the first checkpoint of RUN at which EXPR is true

    Example: everstep bisect o1 --when "state.total > 100"
    """
    condition = Condition(text)
    with app.open() as store:
        info = store.get(to_read(app, store, run))
        with app.out.progress("searching") as progress:
            found = bisect(store, app.mask, info.id, text, condition.holds, is_sorted, progress)
    one = found.checkpoint
    if app.out.as_json:
        app.out.data("bisect", to_json(found))
    elif one is None:
        app.out.say(f"The condition is not true at any of the {plural(found.among, 'checkpoint')} of {info.id}.")
        for name in condition.unknown():
            near = get_close_matches(name, condition.keys, 3, 0.6)
            app.out.say(
                f"No state that was read has a key {safe(name)!r:.100}."
                + (f" Did you mean {' or '.join(map(safe, near))}?" if near else "")
            )
    else:
        step = f"after step {cell(one.step, 60)}" if one.step else one.kind
        app.out.line(f"{app.out.style(one.ref, 'bold')}  {app.out.when(one.at)}  {step}  {cell(one.note or '', 80)}".rstrip())
    return exit_codes.OK if one is not None else exit_codes.NOT_FOUND
