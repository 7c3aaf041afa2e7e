"""`everstep config`: show every setting with its origin, check a file, rewrite deprecated keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from everstep.cli import exit_codes
from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.common import with_common
from everstep.cli.draw.text import plural, safe
from everstep.cli.draw.values import shown
from everstep.cli.files import replace
from everstep.cli.helping import HelpfulGroup
from everstep.config.keys import HIDDEN, KEYS
from everstep.errors import NotFound
from everstep.views.stored.values import as_json


@click.group("config", cls=HelpfulGroup)
@with_common
def command(**_: Any) -> None:
    """Show, check or rewrite the configuration"""


@make("show")
@click.argument("key", required=False)
def show(app: App, key: str | None) -> None:
    """Print every setting, or only KEY, with its value and origin

    Example: everstep config show retention.keep_last
    """
    values = app.settings.values
    if key is not None and key not in values:
        raise NotFound(f"unknown setting {key!r:.100}", remedy="List all settings: `everstep config show`.")
    chosen = values if key is None else {key: values[key]}
    hidden = {name: _hidden(app, name, one.value) for name, one in chosen.items()}
    if app.out.as_json:
        app.out.data("config", {name: {"value": as_json(hidden[name]), "origin": one.origin} for name, one in chosen.items()})
        return
    app.out.table(
        ("KEY", "VALUE", "FROM"),
        [(name, shown(hidden[name], 60), safe(one.origin)) for name, one in chosen.items()],
        drop=("FROM",),
        cuts=("FROM", "VALUE"),
    )


def _hidden(app: App, name: str, value: Any) -> Any:
    """Return a value without secrets."""
    if KEYS[name].kind in HIDDEN:
        return [repr(one) for one in value] if isinstance(value, list) else None if value is None else repr(value)
    return app.mask({name.rpartition(".")[2]: value})[name.rpartition(".")[2]]


@make("validate")
@click.argument("file", required=False)
@click.option("--no-imports", is_flag=True, help="Check only the text; import no modules, hooks and workflows")
def validate(app: App, file: str | None, no_imports: bool) -> int:
    """Check FILE, or the configuration file in use; exit with 6 if it has errors

    If the text is valid, the command tries what it names: it imports the modules, hooks and workflow files, and looks at the folder of the
    store.

    Example: everstep config validate everstep.toml
    """
    from everstep.config.settings import faults, load

    path = _file(app, file)
    found = faults(path)
    if not found and not no_imports:
        from everstep.cli.config_trial import trial

        with app.out.apart():
            found = trial(load(file=path, environ={}))
    if app.out.as_json:
        app.out.data("config_validate", {"file": str(path), "ok": not found, "faults": found})
    for fault in found if not app.out.as_json else ():
        app.out.line(safe(str(fault), lines=True))
    app.out.say(f"{path}: {'all good' if not found else plural(len(found), 'error')}", "green" if not found else "red")
    return exit_codes.FOUND if found else exit_codes.OK


@make("migrate")
@click.argument("file", required=False)
@click.option("--dry-run", is_flag=True, help="Change nothing; print what would be written")
def migrate(app: App, file: str | None, dry_run: bool) -> None:
    """Replace deprecated keys in FILE, or in the configuration file in use, with current ones

    Example: everstep config migrate --dry-run
    """
    from everstep.config.legacy_keys import rewritten

    path = _file(app, file)
    text, changes = rewritten(path.read_text(encoding="utf-8"))
    if changes and not dry_run:
        replace(path, text)
    if app.out.as_json:
        app.out.data("config_migrate", {"file": str(path), "dry_run": dry_run, "changes": changes})
        return
    for change in changes:
        app.out.line(safe(change))
    if dry_run and changes:
        app.out.raw(safe(text, lines=True))
    app.out.say(f"{path}: {'nothing to rewrite' if not changes else 'would be rewritten' if dry_run else 'rewritten'}")


def _file(app: App, given: str | None) -> Path:
    """Return the named file, or else the configuration file in use."""
    from everstep.config.find import find_file

    found = given or app.config or find_file()
    if found is None:
        raise NotFound("no configuration file was found", remedy="Create one: `everstep init --config-file`.")
    path = Path(found)
    if not path.is_file():
        raise NotFound(f"file {str(path)!r} does not exist", remedy="Give the path of an existing file.")
    return path


show.short_help = "Print settings with their origins"
validate.short_help = "Check a configuration file"
migrate.short_help = "Replace deprecated keys"
for _one in (show, validate, migrate):
    command.add_command(_one)
