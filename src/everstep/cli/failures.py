"""What a person reads when a command fails: one sentence, a hint and a code. With --json the same as an object, on stderr."""

from __future__ import annotations

import sys
import traceback

import click

from everstep.cli import exits
from everstep.cli.output import FORMAT
from everstep.cli.plain import dumps
from everstep.cli.text import safe
from everstep.errors import EverstepError, Suspended


def tell(error: BaseException) -> int:
    """Say what went wrong, and give the exit code."""
    debug = "--debug" in sys.argv
    if isinstance(error, click.ClickException):
        return _tell_usage(error)
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        sys.stderr.write("\ninterrupted\n")
        return exits.INTERRUPTED
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    if debug:
        traceback.print_exception(error)
    if isinstance(error, (EverstepError, Suspended)):
        _say(error.message, error.remedy, error.code)
        return exits.code_of(error)
    if isinstance(error, OSError):
        _say(str(error), "Look at the path and its permissions.", "E000")
        return exits.FAILED
    if not debug:
        traceback.print_exception(error)
    return exits.FAILED


def _say(message: str, remedy: str, code: str) -> None:
    if "--json" in sys.argv:
        said = {"code": code, "message": message, "remedy": remedy}
        sys.stderr.write(dumps({"everstep": FORMAT, "kind": "error", "data": said}) + "\n")
        return
    sys.stderr.write(f"error: {safe(message, lines=True)} [{code}]\n")
    if remedy:
        sys.stderr.write(f"hint: {safe(_in_commands(remedy), lines=True)}\n")


_CALLS = (
    ("store.runs() and store.checkpoints(run_id)", "`everstep runs` and `everstep show RUN`"),
    ("store.verify('full')", "`everstep verify --depth full`"),
    ("everstep.repair(path, new_path)", "`everstep repair STORE NEW`"),
    ("store.resume(run_id)", "`everstep resume RUN`"),
)


def _in_commands(remedy: str) -> str:
    """A remedy in the words of the command line, where it names calls."""
    for call, words in _CALLS:
        remedy = remedy.replace(call, words)
    return remedy


def _tell_usage(error: click.ClickException) -> int:
    if "--json" in sys.argv:
        _say(error.format_message(), "Run the command with --help.", "usage")
        return error.exit_code
    error.show()
    return error.exit_code
