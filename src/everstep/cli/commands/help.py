"""`everstep help`: list the commands, or explain one."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.catalogue import COMMANDS


def _names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name, help=about) for name, about in COMMANDS.items() if name.startswith(incomplete)]


@make("help")
@click.argument("command", nargs=-1, shell_complete=_names)
def command(app: App, command: tuple[str, ...]) -> None:
    """List the commands, or explain COMMAND

    Example: everstep help resume
    """
    from everstep.cli.main import group, no_such_command

    found: click.Command = group
    ctx: click.Context = group.context_class(group, info_name="everstep", **group.context_settings)
    for word in command:
        inner = found.get_command(ctx, word) if isinstance(found, click.Group) else None
        if inner is None:
            raise click.UsageError(no_such_command(word) if found is group else f"{ctx.command_path} has no command {word!r:.60}.")
        found, ctx = inner, inner.context_class(inner, info_name=inner.name, parent=ctx)
    if app.out.as_json:
        app.out.data("help", {"command": ctx.command_path, "text": found.get_help(ctx)})
    else:
        app.out.raw(found.get_help(ctx))
