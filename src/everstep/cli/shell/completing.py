"""Completes a line for TAB, with click's own completion of the commands. Prints nothing and raises nothing.

Offers names from a store only if they are safe to print on a terminal.
"""

from __future__ import annotations

import shlex

from click.shell_completion import ShellComplete

from everstep.cli.draw.text import safe
from everstep.cli.shell import current
from everstep.cli.shell.group import GROUP, leaf
from everstep.cli.shell.session import Session
from everstep.cli.shell.words import commands, parts


def offers(session: Session, before: str, text: str) -> list[str]:
    """Return the completions of the word that begins with `text` and follows `before`."""
    try:
        found = commands(parts(before)[-1])
        return _offers(session, found[-1] if found else [], text)
    except Exception:  # noqa: BLE001 - a completer cannot show an error; the command itself will
        return []


def _offers(session: Session, words: list[str], text: str) -> list[str]:
    beginning = text.lstrip("'\"")
    run = session.current if session.current and current.is_relative(beginning) else ""
    option = beginning[: beginning.index("=") + 1] if beginning.startswith("--") and "=" in beginning else ""
    values = dict.fromkeys(value for line in _lines(session, words) for value in _values(session, line, run + beginning))
    made = [shlex.quote(option + value.removeprefix(run)) for value in values if safe(value) == value]
    return [f"{made[0]} "] if len(made) == 1 and (not words or made[0].startswith("-")) and not option else made


def _lines(session: Session, words: list[str]) -> list[list[str]]:
    """Return the words as typed, and with the current run inserted."""
    command, used = leaf(words)
    plain = [*words[:used], *session.options, *words[used:]] if used else words
    if session.current is None or not current.takes(command, words[used:]):
        return [plain]
    return [plain, [*words[:used], *session.options, session.current, *words[used:]]]


def _values(session: Session, words: list[str], beginning: str) -> list[str]:
    found = ShellComplete(GROUP, {"obj": session}, "", "").get_completions(list(words), beginning)
    return [item.value for item in found if item.type == "plain"]
