"""`everstep heads`: write the newest record of every run, signed, so that `everstep verify --against` can prove that nothing was changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.draw.text import plural, safe
from everstep.cli.files import create_from
from everstep.views.health import HeadsView, NewKeyView
from everstep.views.json import to_json


@make("heads")
@click.option(
    "--key", metavar="SOURCE", help="The signing key: file:PATH, env:NAME or command:COMMAND (default: signing.key of the configuration)"
)
@click.option("--output", "-o", metavar="FILE", help="Write to this new file instead of standard output")
@click.option("--new-key", metavar="FILE", help="Only make a new signing key in FILE, and its public key in FILE.pub")
def command(app: App, key: str | None, output: str | None, new_key: str | None) -> None:
    """Write the newest record of every run, signed

    Keep the file where people who can write the store cannot change it. `everstep verify --against FILE` compares the store with it.

    Example: everstep heads --key file:signing.key > heads.txt
    """
    if new_key is not None:
        _new_key(app, new_key)
        return
    if key is None and app.configured is not None:
        key = app.configured["signing.key"]
    with app.open() as store:
        from everstep.store.verify.signing_keys import signing_key

        signer = signing_key(key)
        with app.out.progress("reading", "runs") as progress:
            found = _Counted(store.heads(signer, progress=progress))
            if output is not None:
                create_from(Path(output), found)
            elif app.out.as_json:
                text = "".join(found)
            else:
                for line in found:
                    app.out.raw(line[:-1])
    if app.out.as_json:
        app.out.data("heads", to_json(HeadsView(found.runs, signer.public.id, output, text if output is None else None)))
    elif output is not None:
        app.out.say(f"Wrote the heads of {plural(found.runs, 'run')} to {safe(output)}, signed with the key {signer.public.id}.")


def _new_key(app: App, path: str) -> None:
    from everstep.store.verify.signing_keys import new_file

    public = new_file(path)
    if app.out.as_json:
        app.out.data("key", to_json(NewKeyView(path, f"{path}.pub", public.id, public.text)))
        return
    app.out.line(public.text)
    app.out.say(f"The signing key is in {safe(path)}: keep it secret, and away from the store. The line above is also in {safe(path)}.pub.")


class _Counted:
    """Counts the runs in the lines of heads while they are read."""

    def __init__(self, lines: Iterator[str]):
        self._lines = lines
        self.runs = 0

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            self.runs += line.startswith("run ")
            yield line
