"""Lines that nobody types: from a pipe or from `-c`. No banner, no prompt; the first command that fails ends all, with its exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from everstep.cli.shell.session import Session
from everstep.errors import InvalidArgument


def follow(session: Session, lines: Iterable[str]) -> int:
    """Run lines up to the first that fails."""
    for line in lines:
        code = session.run(line)
        if code or session.ended:
            return code
    return 0


def piped() -> Iterator[str]:
    """The lines of standard input, one by one: what a command reads from it itself begins behind its line."""
    while True:
        try:
            line = sys.stdin.buffer.readline().decode()
        except UnicodeDecodeError as error:
            raise InvalidArgument("standard input is no text in UTF-8") from error
        if not line:
            return
        yield line
