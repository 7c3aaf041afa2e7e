"""The entry point: finds the command, runs it, and turns errors into a sentence and an exit code. `--help` imports no command."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import Any

import click

from everstep.cli.catalogue import ALIASES, COMMANDS, SECTIONS, meant
from everstep.cli.common import with_common
from everstep.cli.helping import HelpfulGroup


class Commands(HelpfulGroup):
    """All commands; each is imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in COMMANDS:
            return None
        from importlib import import_module

        found: click.Command = import_module(f"everstep.cli.commands.{name}").command
        return found

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and args[0] not in ALIASES and not args[0].startswith("-"):
            ctx.fail(no_such_command(args[0]))
        return super().resolve_command(ctx, [ALIASES.get(args[0], args[0]), *args[1:]] if args else args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        rows = [row for one in self.get_params(ctx) if (row := one.get_help_record(ctx)) is not None]
        with formatter.section("Options, before or after the command"):
            formatter.write_dl(rows)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, commands in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl(list(commands.items()))
        with formatter.section("Short names"):
            formatter.write_dl(list(ALIASES.items()))


def no_such_command(word: str, prefix: str = "everstep ") -> str:
    """Say that there is no such command, and which ones may be meant."""
    found = meant(word)
    near = " or ".join(f"`{prefix}{line}`" for line in found)
    return f"No such command {word!r:.60}." + (f" Did you mean {near}?" if found else f" List all commands: `{prefix}help`.")


def _version(ctx: click.Context, _: Any, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        import everstep

        click.echo(f"everstep {everstep.__version__}")
        ctx.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=False, invoke_without_command=True)
@with_common
@click.option("--version", is_flag=True, callback=_version, expose_value=False, is_eager=True, help="Print the version")
@click.pass_context
def group(ctx: click.Context, /, **_: Any) -> None:
    """Durable execution and time travel for Python agents and workflows

    Every step and every state is recorded as it happens. If the process dies, the run resumes where it stopped: see `everstep demo`.

    A checkpoint is named RUN, RUN@7, RUN@tag or RUN~2. Commands that only read also accept @last and a unique prefix of an id.
    `everstep help COMMAND` explains a command.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # an old locale may lack a character: print an escape instead of failing
            stream.reconfigure(errors="backslashreplace")
    try:
        code = group.main(arguments, prog_name="everstep", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except BrokenPipeError:
        from everstep.cli.draw.output import unheard

        return unheard()
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except BaseException as error:  # noqa: BLE001 - `tell` prints a traceback for errors that are not ours
        from everstep.cli.failures import tell

        return tell(error, arguments)


def _open_what_is_closed() -> None:
    """Replace streams that the caller has closed: otherwise the next opened file, perhaps the store, would get their descriptors."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123 - until the process ends


def run() -> None:
    """Entry point of the installed script."""
    sys.exit(main())
