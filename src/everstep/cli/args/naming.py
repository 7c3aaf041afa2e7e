"""From what a person typed to the exact id of a run. Code never does this: there an id is exact.

Commands that only read take a beginning that one id alone has, or @last, and say which run that is. Commands that change something
(and `restore`, whose output a script continues from) take the exact id; at a terminal they ask whether the similar one is meant.
"""

from __future__ import annotations

from typing import Any

import click

from everstep.backends.contract.core import Query
from everstep.cli.app import App, interactive
from everstep.errors import AmbiguousRef, NotFound
from everstep.ids import parse_ref

_SHOWN = 8
_LAST = "@last"


def to_read(app: App, store: Any, ref: str) -> str:
    """Return the ref with the exact id of its run, for a command that changes nothing."""
    run, rest = _split(ref)
    candidates = _candidates(store, run)
    if len(candidates) > 1:
        raise AmbiguousRef(run, sorted(candidates[:_SHOWN]), more=len(candidates) > _SHOWN)
    if not candidates:
        return ref
    if run not in (_LAST, candidates[0]):
        app.out.say(f"{run} is short for {candidates[0]}", "dim")
    return candidates[0] + rest


def to_change(store: Any, ref: str) -> str:
    """Return the ref if its run exists. Otherwise ask the person at the terminal about the one similar run, or refuse."""
    run, rest = _split(ref)
    candidates = _candidates(store, run)
    if not candidates or candidates == [run]:
        return ref  # if there is no such run, the store says so
    if len(candidates) == 1 and interactive() and click.confirm(f"Did you mean {candidates[0]}?", err=True):
        return candidates[0] + rest
    shown = ", ".join(sorted(candidates[:_SHOWN])) + (", …" if len(candidates) > _SHOWN else "")
    said = f"{_LAST} is not an exact id; it is {shown} now" if run == _LAST else f"there is no run {run!r}. Similar ids: {shown}"
    raise NotFound(said, remedy="Give the full id. This command takes no short form, so that it never acts on another run.")


def _split(ref: str) -> tuple[str, str]:
    run = parse_ref(ref).run or _LAST
    return run, ref[len(run) :]


def _candidates(store: Any, run: str) -> list[str]:
    """Return the ids that may be meant: the exact one alone if it exists, otherwise those that begin so."""
    if run == _LAST:
        last = store.backend.manifest().last
        if last is None:
            raise NotFound(f"the store has no run yet, so {_LAST} names none")
        return [last]
    if store.backend.run(run) is not None:
        return [run]
    return [row.id for _, row in store.backend.runs(Query(prefix=run, limit=_SHOWN + 1))]
