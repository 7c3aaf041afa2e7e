"""`everstep delete`: delete runs with all their records and states. It asks first, because it cannot be undone."""

from __future__ import annotations

from typing import Any

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.selection import GROUPS, chosen, each, several
from everstep.cli.draw.text import plural

_ENDED = ("succeeded", "failed", "cancelled")


@make("delete", GROUPS)
@several
def command(app: App, runs: tuple[str, ...], **given: Any) -> int:
    """Delete RUNS with all their records and states, after asking; their forks stay intact

    Filters select only runs that have ended, unless --status names another status. A run that a process has open is not deleted.

    Example: everstep delete --status failed --until 30d
    """
    with app.open() as store:
        ids = chosen(app, store, runs, given, "delete", lambda run: run.status in _ENDED, ask=True)
        if not ids:
            return 1
        done, failed, code = each(app, ids, store.delete)
    if app.out.as_json:
        app.out.data("delete", {"runs": done, "failed": failed})
        return code
    app.out.say(f"Deleted {plural(len(done), 'run')}. Run `everstep gc` to reclaim disk space.")
    return code
