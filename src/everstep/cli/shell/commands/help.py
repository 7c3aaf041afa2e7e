"""`help`: list the commands, or explain one."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from everstep.cli.shell.group import GROUP, leaf


def _names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in GROUP.list_commands(ctx) if name.startswith(incomplete)]


@click.command("help")
@click.argument("words", nargs=-1, metavar="[COMMAND]", shell_complete=_names)
def command(words: tuple[str, ...]) -> None:
    """List the commands, or explain COMMAND

    Example: help resume
    """
    found, used = leaf(list(words))
    if used < len(words):
        GROUP.resolve_command(click.Context(GROUP, info_name=""), list(words))  # raises an error that suggests similar commands
        raise click.UsageError(f"{words[0]} has no command {words[used]!r}.")
    click.echo(found.get_help(found.context_class(found, info_name=" ".join(words))))
