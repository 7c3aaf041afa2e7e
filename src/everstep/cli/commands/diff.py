"""`everstep diff`: what is different between two states, by path."""

from __future__ import annotations

from typing import Any

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.naming import to_read
from everstep.cli.args.paths import shown as path_shown
from everstep.cli.args.refs import REF
from everstep.cli.draw.text import cell, plural
from everstep.cli.draw.values import shown
from everstep.cli.views import json as facts

_SIGNS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow"), "moved": (">", "cyan")}


@make("diff")
@click.argument("a", type=REF)
@click.argument("b", type=REF, required=False)
@click.option("--limit", "-n", type=click.IntRange(1, 1_000_000), default=200, show_default=True, help="How many differences are printed.")
@click.option("--full", is_flag=True, help="Print values in full.")
@click.option("--exit-code", is_flag=True, help="End with 6 if there is a difference.")
def command(app: App, a: str, b: str | None, limit: int, full: bool, exit_code: bool) -> int:
    """Compare two states. With one ref, what its checkpoint changed."""
    with app.open() as store:
        a = to_read(app, store, a)
        one, other = (_before(store, a), a) if b is None else (a, to_read(app, store, b))
        changes = store.diff(one, other)
    if app.out.as_json:
        app.out.data("diff", {"a": one, "b": other, "changes": [facts.of_change(change, app.hidden) for change in changes]})
    else:
        _print(app, changes, limit, 1_000_000 if full else 200)
    return 6 if exit_code and changes else 0


def _before(store: Any, ref: str) -> str:
    """The checkpoint before one."""
    one = store.checkpoint(ref)
    if one.number == 1:
        raise click.UsageError(f"{one.ref} is the first checkpoint; name the one to compare it with")
    return f"{one.run}@{one.number - 1}"


def _print(app: App, changes: list[Any], limit: int, longest: int) -> None:
    if not changes:
        app.out.say("no difference")
    for change in changes[:limit]:
        sign, colour = _SIGNS[change.kind]
        told = facts.of_change(change, app.hidden)
        before, after = (shown(told[name], longest) for name in ("before", "after"))
        value = after if change.kind == "added" else before if change.kind == "removed" else f"{before} -> {after}"
        value = f"order {value}" if change.kind == "moved" else value
        app.out.line(
            f"{app.out.style(sign, colour)} {app.out.style(cell(path_shown(app.hidden(list(change.path))), 400), 'bold')}: {value}"
        )
    if len(changes) > limit:
        app.out.say(f"{plural(len(changes) - limit, 'more difference')}; --limit shows more")
