"""Prints the error of a failed command: a sentence, a code and a hint. With --json, the same as an object on stderr."""

from __future__ import annotations

import errno
import re
import shutil
import sys
import traceback
from shlex import quote

import click

from everstep.cli import exit_codes
from everstep.cli.draw.output import FORMAT, folded, unheard
from everstep.cli.draw.text import safe
from everstep.errors import EverstepError, Suspended
from everstep.redact import Redactor
from everstep.views.stored.values import dumps


def tell(error: BaseException, arguments: list[str] | None = None) -> int:
    """Print an error and return the exit code. The arguments, by default those of the process, select JSON and tracebacks."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug, as_json = "--debug" in arguments, "--json" in arguments
    if isinstance(error, click.ClickException):
        return _tell_usage(error, as_json, arguments)
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        sys.stderr.write("\ninterrupted\n")
        return exit_codes.INTERRUPTED
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    if debug:
        traceback.print_exception(error)
    if isinstance(error, (EverstepError, Suspended)):
        _say(error.message, error.remedy, error.code, as_json, getattr(error, "difference", ""))
        return exit_codes.code_of(error)
    if isinstance(error, OSError) and error.filename is None and error.errno in _NO_ROOM:
        unheard()
        _say(f"the output cannot be written: {error.strerror or error}", "Free some space where the output is written.", "E000", as_json)
        return exit_codes.FAILED
    if isinstance(error, OSError):
        _say(str(error), "Check the path and its permissions.", "E000", as_json)
        return exit_codes.FAILED
    if not debug:
        traceback.print_exception(error)
    if as_json:
        _say(f"{type(error).__name__}: {error}", "", "E000", as_json)
    return exit_codes.FAILED


def _say(message: str, remedy: str, code: str, as_json: bool, difference: str = "") -> None:
    message, difference = (Redactor.default().text(text) for text in (message, difference))
    remedy = in_commands(remedy)
    if as_json:
        data = {"code": code, "message": message, "remedy": remedy, **({"difference": difference} if difference else {})}
        sys.stderr.write(dumps({"everstep": FORMAT, "kind": "error", "data": data}) + "\n")
        return
    sys.stderr.write(f"{_fitted(f'error: {safe(message, lines=True)} [{code}]')}\n")
    if difference:
        sys.stderr.write(f"{safe(difference, lines=True)}\n")
    if remedy:
        sys.stderr.write(f"{_fitted(f'hint: {safe(remedy, lines=True)}')}\n")


def _fitted(text: str) -> str:
    """Break lines between words, if a terminal shows them."""
    if not sys.stderr.isatty():
        return text
    columns = shutil.get_terminal_size((100, 24)).columns
    return "\n".join(folded(line, columns) for line in text.split("\n"))


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PHRASES = (
    ("everstep.repair(path, new_path)", "`everstep repair STORE NEW`"),
    ("everstep.open(path, accept_older=True)", "`everstep verify --accept-older`"),
    ("store.load / store.view", "`everstep state REF`"),
    ("use store.load or store.view, which need no lease", "use `everstep state RUN`, which needs no lease"),
    ("open the existing run with store.run(", "continue the existing run: store.resume("),
    ("everstep.open(path) creates a store if there is none", "`everstep init --store PATH` creates a store"),
    ("rate=(10, 60)", "--rate 10/60s"),
    ("help() on the function you called describes it", "--help describes the command"),
    ("keep_within;", "--keep-within;"),
)
_RANGE = re.compile(r"(\S+) is not in the range (?:(-?\d+)<=x<=(-?\d+)|x>=(-?\d+))\.")
_NAMELESS = re.compile(r"\brun_id\b")
_CALL = re.compile(r"store\.(\w+)\(([^()]*)\)")
_COMMANDS = {
    "answer": "answer", "checkpoints": "show", "cleanup": "cleanup", "events": "log", "fork": "fork", "gates": "answer", "load": "state",
    "delete": "delete", "outcome": "show", "resume": "resume", "retry": "retry", "runs": "runs", "schedules": "schedules", "skip": "skip", "step": "show", "steps": "log",
    "verify": "verify", "wake": "wake",
}  # fmt: skip
_WORDS = {
    "run_id": "RUN",
    "run": "RUN",
    "ref": "REF",
    "gate": "GATE",
    "value": "VALUE",
    "step": "STEP",
    "result": "RESULT",
    "address": "STEP",
    "'full'": "--depth full",
}


def in_commands(remedy: str, run: str | None = None) -> str:
    """Rewrite a remedy for the command line: calls that are also commands become these commands, for this run if it is known."""
    if run is not None:
        remedy = _NAMELESS.sub(lambda _: repr(run), remedy)
    for phrase, words in _PHRASES:
        remedy = remedy.replace(phrase, words)
    return _CALL.sub(_command, remedy)


def _command(call: re.Match[str]) -> str:
    if call[1] not in _COMMANDS:
        return call[0]
    words = ["everstep", _COMMANDS[call[1]]]
    for argument in filter(None, call[2].split(", ")):
        name, equals, value = argument.partition("=")
        value = _word(value.strip("[]") if equals else argument, name)
        if equals and name != "run":
            words.append(f"--{name.replace('_', '-')}")
        words += [value] if value else []
    return f"`{' '.join(words)}`"


def _word(text: str, name: str) -> str:
    """Return one argument as a person types it: a placeholder in capitals, a name as it is."""
    if text == "...":
        return {"from_step": "STEP"}.get(name, "")
    if text in ("True", "None"):
        return ""
    return _WORDS.get(text) or quote(text.strip("'"))


def _tell_usage(error: click.ClickException, as_json: bool, arguments: list[str]) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError) and not as_json:
        sys.stderr.write(f"{error.format_message()}\n")  # a group such as `config` was called without a command: print its help
    else:
        _say(
            _in_a_line(error.format_message()),
            _moved(error, arguments) or _log_of(error, arguments) or _usage(getattr(error, "ctx", None)),
            "usage",
            as_json,
        )
    return error.exit_code


def _in_a_line(message: str) -> str:
    """Return a message of click in one line, without its names of types and its notation of ranges."""
    message = _RANGE.sub(_required, message.replace("\n\t", " "))
    return message.replace("valid integer range", "valid integer").replace("valid float range", "valid number")


def _required(found: re.Match[str]) -> str:
    given, least, most, alone = found.groups()
    return f"must be {f'at least {alone}' if alone else f'from {int(least):,} to {int(most):,}'}, got {given}"


def _moved(error: click.ClickException, arguments: list[str]) -> str:
    """Return the corrected command line if an option of a command was typed before its name."""
    context = getattr(error, "ctx", None)
    if not isinstance(error, click.NoSuchOption) or context is None or not isinstance(context.command, click.Group):
        return ""
    at = next((n for n, word in enumerate(arguments) if word in context.command.list_commands(context)), None)
    command = None if at is None else context.command.get_command(context, arguments[at])
    if at is None or command is None:
        return ""
    before, after = arguments[:at], arguments[at + 1 :]
    if not any(error.option_name in option.opts for option in command.params):
        return ""
    needed = [] if after else [str(one.make_metavar(context)) for one in command.params if isinstance(one, click.Argument) and one.required]
    typed = " ".join([*map(quote, [arguments[at], *before, *after]), *needed])
    return f"Options of a command come after its name: `everstep {Redactor.default().text(typed)}`."  # a URL may contain a password


def _log_of(error: click.ClickException, arguments: list[str]) -> str:
    """Return the command that prints the events of one run if `events` was asked for them."""
    context = getattr(error, "ctx", None)
    if not isinstance(error, click.NoSuchOption) or error.option_name != "--run" or context is None or context.info_name != "events":
        return ""
    named = [(word, after) for word, after in zip(arguments, [*arguments[1:], "-"], strict=True) if word.partition("=")[0] == "--run"]
    run = next((word.partition("=")[2] or ("" if after.startswith("-") else after) for word, after in named), "")
    kept = [option for option in ("--follow", "--json") if option in arguments]
    return f"The events of one run are its log: `{' '.join(['everstep', 'log', quote(run) if run else 'RUN', *kept])}`."


def _usage(context: click.Context | None) -> str:
    """Return the usage of the command in one line."""
    if context is None:
        return "Run the command with --help."
    name = context.command_path.strip()
    taken = " ".join([name, *context.command.collect_usage_pieces(context)]).strip()
    return f"Usage: {taken} (more: `{f'{name} --help'.strip()}`)"
