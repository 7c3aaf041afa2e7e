"""`everstep audit`: print who did what when to a run, and the proof that nothing is missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from everstep.cli import exit_codes
from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.naming import to_change
from everstep.cli.args.refs import RUN
from everstep.cli.draw.csv_rows import row
from everstep.cli.draw.text import cell, plural, safe
from everstep.cli.draw.values import shown
from everstep.store.lookup import was_deleted
from everstep.views import audit
from everstep.views.json import to_json
from everstep.views.stored.values import as_json, dumps, iso

_HEAD = ("time", "record", "attempt", "who", "what", "data")


@make("audit")
@click.argument("run", type=RUN, required=False)
@click.option("--deleted", is_flag=True, help="List the deletions of all runs instead")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV; no cell is a formula for a spreadsheet")
def command(app: App, run: str | None, deleted: bool, as_csv: bool) -> int:
    """Print who did what when to RUN, with the proof that nothing is missing

    RUN is an exact id; it may be that of a deleted run. The records of the run are verified from the first one to the newest. The command
    exits with 5 if one of them is damaged, and with 6 if a repair lost any, or if a fork does not fit its parent.

    Example: everstep audit o1 --csv > o1.csv
    """
    if deleted == (run is not None):
        raise click.UsageError("Give either RUN or --deleted.")
    if as_csv and app.out.as_json:
        raise click.UsageError("Give either --csv or --json.")
    with app.open() as store:
        if run is not None and not was_deleted(store, run):
            run = to_change(store, run)  # the exact id: the audit of another run would look just as good
        entries: Iterator[Any] = audit.deleted(store, app.mask) if run is None else audit.audit(store, app.mask, run)
        if as_csv:
            app.out.raw(row(_HEAD))
        last = None
        for entry in entries:
            last = entry
            if isinstance(entry, audit.AuditView):
                _print(app, entry, as_csv)
    _end(app, last, as_csv)
    if isinstance(last, audit.DeletionsView):
        return exit_codes.OK if last.whole else exit_codes.DAMAGED
    return exit_codes.OK if last is not None and (last.whole or last.deleted) else exit_codes.FOUND


def _print(app: App, entry: audit.AuditView, as_csv: bool) -> None:
    if app.out.as_json:
        app.out.item("audit", to_json(entry))
    elif as_csv:
        app.out.raw(row((iso(entry.at), entry.record, entry.attempt, entry.who, entry.what, _plain(entry.data))))
    else:
        number = f"#{entry.record}" if entry.record is not None else "-"
        rest = ", ".join(f"{safe(name)} {shown(value, 100)}" for name, value in entry.data.items() if value not in (None, "", [], {}))
        parts = (app.out.style(app.out.when(entry.at), "dim"), f"{number:<5}", cell(entry.who or "-", 60), entry.what.replace("_", " "))
        app.out.line("  ".join((*parts[:3], safe(parts[3]), app.out.style(rest, "dim"))).rstrip())


def _plain(data: Any) -> str:
    """Return data as JSON text, which begins with a brace and is ASCII."""
    return dumps(as_json(data))


def _end(app: App, last: Any, as_csv: bool) -> None:
    """Print the proof."""
    if app.out.as_json and isinstance(last, audit.DeletionsView):
        app.out.item("deletions", to_json(last))
    elif app.out.as_json:
        app.out.item("proof", to_json(last))
    elif as_csv:
        app.out.raw(row(("", None, None, None, "proof", dumps(to_json(last)))))
    elif isinstance(last, audit.DeletionsView):
        words = f"{plural(last.created, 'run')} created, {last.runs:,} there, {last.deleted:,} deleted"
        unnamed = f" ({last.unnamed:,} of them known only by their positions)" if last.unnamed else ""
        app.out.line(f"{'Complete' if last.whole else 'NOT COMPLETE'}: {words}{unnamed}")
    else:
        for line in _proof_lines(last):
            app.out.line(line)


def _proof_lines(proof: audit.ProofView) -> Iterator[str]:
    if proof.deleted:
        yield f"Deleted: the tombstone names {plural(proof.records, 'record')} and the digest {proof.head_digest}. The records are gone."
        return
    yield f"{'Complete' if proof.whole else 'NOT COMPLETE'}: {plural(proof.records, 'record')} verified, from the first one to {proof.head_digest}"
    if proof.lost:
        yield f"A repair could not recover {plural(proof.lost, 'record')}; an entry `lost` is in each place."
    if proof.origin == "differs":
        yield "The checkpoint that this fork began at is not in its parent any more: the parent was changed."
    if proof.origin == "deleted":
        yield "The run that this one was forked from was deleted, so the beginning could not be compared."
    if proof.pruned:
        ranges = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in proof.pruned_checkpoints[:20])
        more = ", …" if len(proof.pruned_checkpoints) > 20 else ""
        yield f"Pruned: the states of checkpoints {ranges or '-'}{more} ({plural(proof.pruned, 'body', 'bodies')}). No entry is missing because of that."
    if proof.dropped:
        yield f"Dropped: note, tags and metadata of {plural(proof.dropped, 'checkpoint')}."
