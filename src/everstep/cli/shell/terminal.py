"""Reads lines from a person at a terminal: a prompt with the current run, history, completion by TAB. Also works without readline.

Ctrl-C discards the line, Ctrl-D ends the shell. Questions of a command have no history and no completion.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

from everstep.cli.draw.text import cell
from everstep.cli.shell.completing import offers
from everstep.cli.shell.history import History, path
from everstep.cli.shell.session import Session


def _load() -> Any:
    try:
        import readline
    except ImportError:  # an interpreter that was built without it
        return None
    return readline


readline = _load()


def talk(session: Session) -> int:
    """Read and run lines until the person leaves."""
    history = History(path(), session.app.mask.redactor)
    _prepare(history)
    code = 0
    try:
        for line in _lines(session):
            code = _run(session, history, line)
    finally:
        history.close()
    return code if session.ended else 0


def _run(session: Session, history: History, line: str) -> int:
    try:
        if history.add(line) and readline is not None:
            readline.add_history(line)
        return session.run(line)
    except KeyboardInterrupt:  # it arrived just after the command ended
        return 0


def _lines(session: Session) -> Iterator[str]:
    while not session.ended:
        try:
            line = _read(session)
        except KeyboardInterrupt:
            session.app.out.say("")
            continue
        except EOFError:
            session.app.out.say("")
            return
        except UnicodeDecodeError:
            session.app.out.say("error: input must be UTF-8 text")
            continue
        yield line


def _read(session: Session) -> str:
    prompt = f"everstep({cell(session.current, 40)})> " if session.current else "everstep> "
    with _completion(session):
        if sys.stdout.isatty():
            return input(prompt)
        with redirect_stdout(sys.stderr):  # a prompt is not data: stdout is for data
            return input(prompt)


def _prepare(history: History) -> None:
    if readline is None:
        return
    readline.set_auto_history(False)
    readline.set_completer_delims(" \t\n;")
    readline.parse_and_bind("bind ^I rl_complete" if "libedit" in (readline.__doc__ or "") else "tab: complete")
    for line in history.lines:
        readline.add_history(line)


@contextmanager
def _completion(session: Session) -> Iterator[None]:
    """Enable completion while a command line is read, not for questions of commands."""
    if readline is None:
        yield
        return
    readline.set_completer(_Completer(session))
    try:
        yield
    finally:
        readline.set_completer(None)


class _Completer:
    """Gives readline the first, the second, … completion of a word."""

    def __init__(self, session: Session):
        self._session = session
        self._found: list[str] = []

    def __call__(self, text: str, state: int) -> Any:
        if state == 0:
            self._found = offers(self._session, readline.get_line_buffer()[: readline.get_begidx()], text)
        return self._found[state] if state < len(self._found) else None
