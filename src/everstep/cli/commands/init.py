"""`everstep init`: create a store in a folder, with its own .gitignore, and optionally a configuration file."""

from __future__ import annotations

from pathlib import Path

import click

from everstep.cli.app import App, check_lasting
from everstep.cli.app import command as make
from everstep.cli.files import create
from everstep.cli.remedies import mend
from everstep.errors import EverstepError

_CONFIG = """# Everstep's configuration. `everstep config show` prints every key with its value and origin.
store = ".everstep/store.db"
# preset = "production"

# [retention]
# keep_last = 20
"""


@make("init")
@click.argument("folder", required=False)
@click.option("--config-file", is_flag=True, help="Also write an everstep.toml")
def command(app: App, folder: str | None, config_file: bool) -> None:
    """Create the store of --store or of the configuration, else .everstep/store.db in FOLDER (default: this folder)

    An existing store is left unchanged. With FOLDER, the configuration is not used.

    Example: everstep init --config-file
    """
    import everstep
    from everstep.backends.registry import shown

    home = Path(folder or ".")
    if not home.is_dir():
        raise click.UsageError(f"FOLDER must be an existing folder, got {folder!r}")
    # the store that all other commands would use: their hint to create one leads here
    where = (app.address if folder is None else app.url) or str(home / ".everstep" / "store.db")
    check_lasting(where)
    try:
        is_new = not _is_there(where)
        everstep.open(where).close()
    except EverstepError as error:
        mend(error, where, app.url, create=True)
        raise
    where = shown(where)
    written = config_file and create(home / "everstep.toml", _CONFIG)
    if app.out.as_json:
        app.out.data("init", {"store": where, "new": is_new, "config": str(home / "everstep.toml") if written else None})
    else:
        app.out.say(f"{'Created' if is_new else 'Already exists:'} {where}")
        if written:
            app.out.say(f"Created {home / 'everstep.toml'}")


def _is_there(where: str) -> bool:
    import everstep
    from everstep.errors import NotAStore

    try:
        everstep.open(where, create=False).close()
    except NotAStore as error:
        if error.missing:
            return False
        raise
    return True
