"""`everstep rekey`: replace the key of an encrypted store, beside programs that use it."""

from __future__ import annotations

from typing import Any

import click

from everstep.cli.app import App, interactive
from everstep.cli.app import command as make
from everstep.cli.args import keys
from everstep.cli.draw.text import plural
from everstep.errors import MissingKey, WrongKey


@make("rekey")
@click.option("--key-source", metavar="SOURCE", help=f"The new key, instead of the configured one: {keys.SOURCE}")
@click.option("--old-key-source", metavar="SOURCE", multiple=True, help="A former key, besides those of the configuration; repeatable")
@click.option("--dry-run", is_flag=True, help="Change nothing; count the keys that would be replaced")
def command(app: App, key_source: str | None, old_key_source: tuple[str, ...], dry_run: bool) -> None:
    """Replace the key of an encrypted store: wrap all its keys again

    The new key is the configured one (`key` under [encryption], EVERSTEP_KEY), and the former one is in old_keys or asked for. With
    --key-source the new key comes from there, and the configured one is the former. No data is written again, and programs may continue.
    If the command is killed, repeat it.

    Example: everstep rekey --key-source file:new.key
    """
    given = keys.configured(app)
    former = [*given.get("old_keys", ()), *(keys.named(source, "--old-key-source") for source in old_key_source)]
    if key_source is not None:
        new = keys.named(key_source, "--key-source")
        former = [*([given["key"]] if "key" in given else []), *former]
    elif "key" in given:
        new = given["key"]
    else:
        raise MissingKey("no new key is configured, and --key-source names none", remedy="Name one: everstep rekey --key-source file:PATH")
    with _opened(app, new, former) as store, app.out.progress("replacing", "keys") as progress:
        done = store.rekey(new, dry_run=dry_run, progress=progress)
    if app.out.as_json:
        app.out.data("rekey", {"key": done.key, "keys": done.keys, "replaced": done.replaced, "dry_run": done.dry_run})
    elif not done.replaced:
        app.out.say(f"{plural(done.keys, 'key')}: all are under the new key {done.key} already.", "green")
    elif dry_run:
        app.out.say(f"Would replace {done.replaced:,} of {plural(done.keys, 'key')}.")
    else:
        app.out.say(f"Replaced {done.replaced:,} of {plural(done.keys, 'key')}: all are under the new key {done.key}.", "green")
        if key_source is not None:
            app.out.say("Now set the new key in the configuration of every program, and start it again.")


def _opened(app: App, new: Any, former: list[Any]) -> Any:
    """Open the store with any of the keys; if none fits, ask for the former one."""
    try:
        return app.open(key=new, old_keys=former)
    except WrongKey:
        if former or not interactive():
            raise
        return app.open(key=new, old_keys=[keys.asked("The former key or passphrase of the store")])
