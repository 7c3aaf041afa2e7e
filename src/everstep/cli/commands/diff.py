"""`everstep diff`: list the differences between two states, by path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.naming import to_read
from everstep.cli.args.refs import REF
from everstep.cli.draw.text import cell, plural
from everstep.cli.draw.values import shown
from everstep.views.json import to_json
from everstep.views.states import ChangeView, diff, ref_before
from everstep.views.stored.paths import shown as path_shown

if TYPE_CHECKING:
    from everstep.api import Store

_SIGNS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow"), "moved": (">", "cyan")}


@make("diff")
@click.argument("a", type=REF)
@click.argument("b", type=REF, required=False)
@click.option("--limit", "-n", type=click.IntRange(1, 1_000_000), default=200, show_default=True, help="Number of differences to print")
@click.option("--full", is_flag=True, help="Print values in full")
@click.option("--all", "show_all", is_flag=True, help="Include the bookkeeping of adapters")
@click.option("--exit-code", is_flag=True, help="Exit with 6 if there is a difference")
def command(app: App, a: str, b: str | None, limit: int, full: bool, show_all: bool, exit_code: bool) -> int:
    """Compare the states of A and B; without B, show what checkpoint A changed

    Example: everstep diff o1@3 o1@7
    """
    with app.open() as store:
        a = to_read(app, store, a)
        one, other = (_before(store, a), a) if b is None else (a, to_read(app, store, b))
        found = diff(store, app.mask, one, other, show_all=show_all)
    if app.out.as_json:
        app.out.data("diff", to_json(found))
    else:
        _print(app, found.changes, limit, 1_000_000 if full else 200)
    return 6 if exit_code and found.changes else 0


def _before(store: Store, ref: str) -> str:
    """Return the ref of the checkpoint before this one."""
    found = ref_before(store, ref)
    if found is None:
        raise click.UsageError(f"{store.checkpoint(ref).ref} is the first checkpoint: give a second ref to compare it with")
    return found


def _print(app: App, changes: Sequence[ChangeView], limit: int, longest: int) -> None:
    if not changes:
        app.out.say("No differences.")
    for change in changes[:limit]:
        sign, colour = _SIGNS[change.kind]
        before, after = shown(change.before, longest), shown(change.after, longest)
        value = after if change.kind == "added" else before if change.kind == "removed" else f"{before} -> {after}"
        value = f"order {value}" if change.kind == "moved" else value
        app.out.line(f"{app.out.style(sign, colour)} {app.out.style(cell(path_shown(change.path), 400), 'bold')}: {value}")
    if len(changes) > limit:
        app.out.say(f"{plural(len(changes) - limit, 'more difference')}: use --limit to show them")
