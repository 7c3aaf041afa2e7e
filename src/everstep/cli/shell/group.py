"""The commands in the shell: those of the command line and of `shell.commands`, each imported when it is called."""

from __future__ import annotations

from importlib import import_module

import click

from everstep.cli.catalogue import ALIASES, COMMANDS
from everstep.cli.main import Commands, no_such_command

_OWN = {
    "checkpoints": "List the checkpoints of a run, or the newest of all runs",
    "use": "Set the current run, which commands use if none is named",
    "help": "List the commands, or explain one",
    "exit": "Leave the shell, like quit and Ctrl-D",
}
_INSTEAD = ("resume",)  # commands that do more in the shell
_NAMES = (*_OWN, "quit", *(name for name in COMMANDS if name not in ("shell", *_OWN)))


class Inside(Commands):
    """The commands that can be typed in the shell."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_NAMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = "exit" if cmd_name == "quit" else ALIASES.get(cmd_name, cmd_name)
        if name in _OWN or name in _INSTEAD:
            found: click.Command = import_module(f"everstep.cli.shell.commands.{name}").command
            return found
        return super().get_command(ctx, name) if name in _NAMES else None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        name = ALIASES.get(args[0], args[0])
        if name == "shell":
            raise click.UsageError("You are already in the shell.")
        if name not in _NAMES:
            raise click.UsageError(no_such_command(name, ""))
        return name, self.get_command(ctx, name), args[1:]

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print no usage line: in the shell, the commands are typed directly."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("In the shell"):
            formatter.write_dl(list(_OWN.items()))
        super().format_commands(ctx, formatter)


GROUP = Inside(
    "",
    help="Type a command; `help COMMAND` explains it. Separate several commands in one line with `;`. After `use RUN`, commands use that run "
    "if none is named, and @3, @tag and ~1 are its checkpoints.",
)


def leaf(words: list[str]) -> tuple[click.Command, int]:
    """Return the command that the words name, and how many words its name takes; the group itself if they name none."""
    command: click.Command = GROUP
    for used, word in enumerate(words):
        found = command.get_command(click.Context(command), word) if isinstance(command, click.Group) else None
        if found is None:
            return command, used
        command = found
    return command, len(words)
