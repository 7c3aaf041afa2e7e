"""Resolves what a person typed to the exact id of a run. Library code never does this: its ids are exact.

Commands that only read accept a unique prefix of an id, or @last, and print which run that is. Commands that change something
(and `restore`, whose output a script continues from) require the exact id; at a terminal they offer the similar one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from everstep.cli.app import App, interactive
from everstep.errors import AmbiguousRef, NotFound
from everstep.ids import parse_ref, quote
from everstep.store.lookup import ids_like, last_written

if TYPE_CHECKING:
    from everstep.api import Store

_SHOWN = 8
_LAST = "@last"


def to_read(app: App, store: Store, ref: str) -> str:
    """Return the ref with the exact id of its run, for a command that changes nothing."""
    run, rest = _split(store, ref)
    candidates = _candidates(store, run)
    if len(candidates) > 1:
        raise AmbiguousRef(run, sorted(candidates[:_SHOWN]), more=len(candidates) > _SHOWN)
    if not candidates:
        return ref
    if run not in (_LAST, candidates[0]):
        app.out.say(f"{run} matches run {candidates[0]}", "dim")
    return candidates[0] + rest


def to_change(store: Store, ref: str) -> str:
    """Return the ref if its run exists. Otherwise ask the person at the terminal about the one similar run, or refuse."""
    run, rest = _split(store, ref)
    candidates = _candidates(store, run)
    if candidates == [run]:
        return run + rest
    if not candidates:
        return ref  # if the run does not exist, the store raises the error
    if len(candidates) == 1 and interactive() and click.confirm(f"Did you mean {candidates[0]}?", err=True):
        return candidates[0] + rest
    shown = ", ".join(sorted(candidates[:_SHOWN])) + (", …" if len(candidates) > _SHOWN else "")
    text = f"{_LAST} is not an exact id; it is {shown} now" if run == _LAST else f"there is no run {run!r}. Similar ids: {shown}"
    raise NotFound(text, remedy="Give the full id. This command accepts no short form, so that it never acts on another run.")


def _split(store: Store, ref: str) -> tuple[str, str]:
    """Return the id in a ref, and the rest. A text that a program has made an id of (`everstep.quote`) is accepted as it is."""
    text = quote(ref) if ref and not ref.startswith("@") else ref
    if text != ref and ids_like(store, text, 1) == [text]:
        return text, ""
    run = parse_ref(ref).run or _LAST
    return run, ref[len(run) :]


def _candidates(store: Store, run: str) -> list[str]:
    """Return the ids that may be meant: only the exact one if it exists, otherwise those that begin with the text."""
    if run == _LAST:
        last = last_written(store)
        if last is None:
            raise NotFound(f"{_LAST} names no run: the store has none yet")
        return [last]
    return ids_like(store, run, _SHOWN + 1)
