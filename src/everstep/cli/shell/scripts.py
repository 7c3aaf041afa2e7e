"""Runs lines from a pipe or from `-c`. No banner, no prompt; the first command that fails ends the shell, with its exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from everstep.cli.shell.session import Session
from everstep.errors import InvalidArgument


def follow(session: Session, lines: Iterable[str]) -> int:
    """Run lines until one fails; return its exit code."""
    for line in lines:
        code = session.run(line)
        if code or session.ended:
            return code
    return 0


def piped() -> Iterator[str]:
    """Yield the lines of standard input one by one, unbuffered: a command that reads standard input gets the text after its line."""
    while True:
        try:
            line = sys.stdin.buffer.readline().decode()
        except UnicodeDecodeError as error:
            raise InvalidArgument("standard input must be UTF-8 text") from error
        if not line:
            return
        yield line
