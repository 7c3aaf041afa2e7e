"""`everstep encrypt`: change a plain store to an encrypted one."""

from __future__ import annotations

from dataclasses import asdict

import click

from everstep.cli.app import App, confirm_or_stop
from everstep.cli.app import command as make
from everstep.cli.args import keys
from everstep.cli.draw.text import plural, safe
from everstep.cli.remedies import mend
from everstep.errors import EverstepError, MissingKey


@make("encrypt")
@click.option("--to", metavar="URL", help="Write the encrypted store here, and leave the plain one as it is; PostgreSQL needs it")
@click.option("--key-source", metavar="SOURCE", help=f"The key, instead of the configured one: {keys.SOURCE}")
@click.option("--shred", is_flag=True, help="Overwrite the plain store and remove it; an SSD, a snapshot or a backup may keep copies of it")
@click.option("--yes", is_flag=True, help="With --shred: do not ask")
def command(app: App, to: str | None, key_source: str | None, shred: bool, yes: bool) -> None:
    """Change a plain store to an encrypted one, with every run and its whole history

    No program may use the store meanwhile. A new store is written beside it, verified, compared with it, and put in its place; the plain
    one stays as NAME.plain-DATE. If the command is killed, the plain or the encrypted store is there; repeat it.

    Example: everstep encrypt --key-source file:store.key
    """
    import everstep

    key = keys.configured(app).get("key") if key_source is None else keys.named(key_source, "--key-source")
    if key is None:
        raise MissingKey("no key is configured, and --key-source names none", remedy="Name one: everstep encrypt --key-source file:PATH")
    if shred and not confirm_or_stop(app, "The plain store will be overwritten and removed. Continue?", yes):
        return
    try:
        with app.out.progress("encrypting") as progress:
            done = everstep.encrypt(app.address, key, to=to, shred=shred, progress=progress)
    except EverstepError as error:
        mend(error, app.address, app.url, create=False)
        raise
    if app.out.as_json:
        app.out.data("encrypt", asdict(done))
        return
    if done.already:
        app.out.say("The store is already encrypted with this key.", "green")
    else:
        compared = f"{plural(done.runs, 'run')}, {plural(done.states, 'state')} compared"
        app.out.say(f"Encrypted {safe(done.store)}: {compared}.", "green")
    if to is not None:
        app.out.say("The plain store was not changed. Set the new address in every program; then remove the plain store.")
    elif done.plain is not None:
        app.out.say(f"The plain store is {safe(done.plain)}. Remove it when the encrypted one is in use.")
    elif shred:
        app.out.say("The plain store was overwritten and removed. An SSD, a snapshot or a backup may still have copies of it.")
