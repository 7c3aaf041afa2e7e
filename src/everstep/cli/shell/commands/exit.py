"""`exit` and `quit`: leave the shell."""

from __future__ import annotations

import click

from everstep.cli.shell.session import Session


@click.command("exit")
@click.pass_obj
def command(session: Session) -> None:
    """Leave the shell, like Ctrl-D"""
    session.ended = True
