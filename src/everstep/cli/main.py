"""The entry point: finds the command, runs it, and turns errors into a sentence and an exit code.

Lists all commands with one line of help each, so that `--help` imports none of them.
"""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import Any

import click

_SECTIONS: dict[str, dict[str, str]] = {
    "Start": {
        "demo": "Watch an agent survive kill -9, in about ten seconds",
        "new": "Write a small agent, workflow or pipeline with its test",
        "init": "Create a store in this folder",
        "run": "Run a workflow: a YAML file or package.module:function",
        "shell": "Open an interactive shell",
    },
    "Inspect": {
        "runs": "List runs, filter them, draw their forks as a tree",
        "show": "Show a run or one of its checkpoints",
        "log": "Print the timeline of a run, or its steps as a graph",
        "state": "Print the state of a checkpoint",
        "diff": "Compare two states",
        "blame": "Find the step that last changed a part of the state",
        "bisect": "Find the first checkpoint at which a condition is true",
        "stats": "Count runs, steps, resumes, bytes and queues",
    },
    "Control runs": {
        "resume": "Continue a run that stopped",
        "fork": "Create a run from a checkpoint, optionally with an edited state",
        "answer": "Answer a gate that a run waits at",
        "pause": "Stop a run at its next step; `resume` continues it",
        "cancel": "End a run at its next step; it cannot be resumed",
    },
    "Queues and workers": {
        "worker": "Run the runs of queues, and recover those of dead workers",
        "workers": "List live workers with their queues and runs",
        "enqueue": "Add a run of a workflow to a queue",
        "queues": "List queues with their runs and recent events",
        "limit": "Limit how many runs of a queue run at once, and how often",
        "schedule": "Enqueue a workflow at the times of a cron expression",
        "schedules": "List schedules with their next times",
        "unschedule": "Remove a schedule",
    },
    "Save and restore": {
        "checkpoint": "Save a JSON state, from a script in any language",
        "restore": "Print a saved state as JSON, unmasked",
        "tag": "Tag a checkpoint",
    },
    "Maintain the store": {
        "prune": "Drop the states of checkpoints that retention does not keep",
        "gc": "Free chunks that nothing refers to",
        "cleanup": "Delete ended runs, prune and gc, by the retention policies",
        "verify": "Check the store for damage",
        "repair": "Copy the undamaged data of a store into a new one",
        "doctor": "Report unsafe settings and leftovers",
        "migrate": "Bring a store to the format of this version",
    },
    "Set up": {
        "config": "Show, check or rewrite the configuration",
        "completion": "Print the completion script for bash, zsh or fish",
        "explain": "Explain an error code",
    },
}
COMMANDS = {name: sentence for section in _SECTIONS.values() for name, sentence in section.items()}


class Commands(click.Group):
    """All commands; each is imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        from importlib import import_module

        found: click.Command = import_module(f"everstep.cli.commands.{cmd_name}").command
        return found

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, 3)
            ctx.fail(f"No such command {args[0]!r}." + (f" Did you mean {' or '.join(near)}?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, commands in _SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl(list(commands.items()))


def _version(ctx: click.Context, _: Any, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        import everstep

        click.echo(f"everstep {everstep.__version__}")
        ctx.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=False, invoke_without_command=True)
@click.option("--version", is_flag=True, callback=_version, expose_value=False, is_eager=True, help="Print the version")
@click.pass_context
def group(ctx: click.Context) -> None:
    """Durable execution and time travel for Python agents and workflows

    Every step and every state is recorded as it happens. If the process dies, the run resumes where it stopped: see `everstep demo`.

    A checkpoint is named RUN, RUN@7, RUN@tag or RUN~2. Commands that only read also accept @last and a unique prefix of an id.
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
