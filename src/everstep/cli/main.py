"""The entry point: finds the command, runs it, turns what it raises into a sentence and an exit code.

Commands are named here with one sentence each, so that `--help` imports none of them.
"""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import Any

import click

_SECTIONS: dict[str, dict[str, str]] = {
    "Begin": {
        "demo": "Watch an agent survive kill -9, in about ten seconds.",
        "init": "Make a store in this folder.",
        "run": "Run a workflow: a YAML file or package.module:function.",
        "shell": "Look around and go on, one command after the other.",
    },
    "Look": {
        "runs": "List runs, filter them, draw their forks as a tree.",
        "show": "Show a run, or one of its checkpoints.",
        "log": "Draw the timeline of a run, or its workflow as a graph.",
        "state": "Print the state of a checkpoint.",
        "diff": "Compare two states.",
        "blame": "Tell which step last changed a part of the state.",
        "bisect": "Find the first checkpoint at which a condition holds.",
        "stats": "Count what is stored, and how it went.",
    },
    "Go on": {
        "resume": "Go on with a run that stopped.",
        "fork": "Begin a new run at a checkpoint, perhaps with an edited state.",
        "answer": "Answer a gate that a run waits at.",
        "pause": "Stop a run at its next step; resume lets it go on.",
        "cancel": "Stop a run at its next step, for good.",
    },
    "Work": {
        "worker": "Drive the runs of queues, and go on with those of dead workers.",
        "workers": "List the workers that are alive, and what they drive.",
        "enqueue": "Have a worker run a workflow.",
        "queues": "List queues: what waits in them, and what happened lately.",
        "limit": "Say how many runs of a queue may be driven at once, and how often.",
        "schedule": "Have a workflow enqueued again and again, by cron.",
        "schedules": "List schedules, with their next times.",
        "unschedule": "Forget a schedule.",
    },
    "Save": {
        "checkpoint": "Save a JSON state, from a script in any language.",
        "restore": "Print a saved state as JSON.",
        "tag": "Give a checkpoint a name.",
    },
    "Keep": {
        "prune": "Drop the states of checkpoints that retention does not keep.",
        "gc": "Free what nothing refers to any more.",
        "cleanup": "Delete ended runs, prune and gc, as retention says.",
        "verify": "Prove the store whole.",
        "repair": "Write a new good store from a damaged one.",
        "doctor": "Report unsafe settings and leftovers.",
        "migrate": "Bring a store to the format of this version.",
    },
    "Set up": {
        "config": "Show, check or rewrite the configuration.",
        "completion": "Print the script that completes commands in bash, zsh or fish.",
        "explain": "Explain an error code.",
    },
}
COMMANDS = {name: sentence for section in _SECTIONS.values() for name, sentence in section.items()}


class Commands(click.Group):
    """All commands, each imported when it is called."""

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
@click.option("--version", is_flag=True, callback=_version, expose_value=False, is_eager=True, help="Print the version.")
@click.pass_context
def group(ctx: click.Context) -> None:
    """The memory that long-running agents and workflows can't lose.

    Every step and every state is recorded as it happens; a run that died goes on where it was. `everstep demo` shows it.
    A checkpoint is named RUN, RUN@7, RUN@tag or RUN~2. Commands that only read also take @last and a unique beginning of an id.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; gives the exit code."""
    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # an old locale may lack a sign; better an escape than no answer
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
    except BaseException as error:  # noqa: BLE001 - `tell` lets pass what is none of ours
        from everstep.cli.failures import tell

        return tell(error, arguments)


def _open_what_is_closed() -> None:
    """A stream that the caller has closed leads nowhere; left so, the next file that is opened would take its number, perhaps the store."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123 - until the process ends


def run() -> None:
    """The script that is installed."""
    sys.exit(main())
