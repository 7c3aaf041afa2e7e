"""Prints the output of a command: data on stdout, messages on stderr, JSON on request, colour and progress only on a terminal.

Text from a store must go through `text.safe` before it gets here; JSON is ASCII. JSON output is one object,
{"everstep": 1, "kind": …, "data": …}, or one such object per line if a command streams.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import Any, TextIO

from everstep.cli.draw.capture import to_stderr
from everstep.cli.draw.text import ago, cut, safe, width
from everstep.cli.exit_codes import UNHEARD
from everstep.views.stored.values import dumps, iso

FORMAT = 1
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}
_OF_STATUS = {
    "running": "cyan",
    "waiting": "yellow",
    "queued": "blue",
    "succeeded": "green",
    "failed": "red",
    "cancelled": "dim",
    "differs": "yellow",
}
_PATIENCE = 0.9
_PLAIN = re.compile(r"[ -~\n\t]*")
_COLOURS = re.compile(r"(\x1b\[\d{1,2}m)")


class Output:
    """The output of one command."""

    def __init__(self, as_json: bool = False, colour: str = "auto", quiet: bool = False):
        self.as_json = as_json
        self.quiet = quiet
        self.terminal = sys.stdout.isatty()
        self.colour = colour == "always" or (colour == "auto" and self.terminal and _wanted())
        self._talk_colour = colour == "always" or (colour == "auto" and sys.stderr.isatty() and _wanted())

    @property
    def columns(self) -> int:
        """The width of a line; without a terminal nothing is cut."""
        return shutil.get_terminal_size((100, 24)).columns if self.terminal else 10_000

    def style(self, text: str, name: str | None) -> str:
        return f"\x1b[{_STYLES[name]}m{text}\x1b[0m" if self.colour and name and text else text

    def status(self, status: str) -> str:
        return self.style(status, self.colour_of(status))

    @staticmethod
    def colour_of(status: str) -> str | None:
        return _OF_STATUS.get(status)

    def when(self, moment: datetime | None) -> str:
        """Format a time: how long ago on a terminal, exact otherwise."""
        return "" if moment is None else ago(moment) if self.terminal else iso(moment)

    def apart(self) -> AbstractContextManager[object]:
        """Run programs inside this: with --json, their output goes to stderr, because stdout is for one object."""
        return to_stderr() if self.as_json else nullcontext()

    def line(self, text: str = "") -> None:
        sys.stdout.write(_guarded(text) + "\n")

    def say(self, text: str, style: str | None = None) -> None:
        """Print a message for the person; it is not part of the data."""
        if not self.quiet:
            sys.stdout.flush()
            text = _guarded(text)
            sys.stderr.write((f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if style and self._talk_colour else text) + "\n")
            sys.stderr.flush()

    def data(self, kind: str, data: Any) -> None:
        """Print the output of a command as JSON."""
        self.line(dumps({"everstep": FORMAT, "kind": kind, "data": data}, indent=2))

    def item(self, kind: str, data: Any) -> None:
        """Print one line of output that streams."""
        self.line(dumps({"everstep": FORMAT, "kind": kind, "data": data}))
        sys.stdout.flush()

    def table(
        self, head: Sequence[str], rows: Iterable[Sequence[str]], styles: dict[int, Any] | None = None, right: Sequence[int] = ()
    ) -> None:
        """Print a table with columns as wide as needed, cut at the edge of a terminal. `styles` colours the cells of a column."""
        body = [list(row) for row in rows]
        keep = [i for i in range(len(head)) if not head[i] or any(row[i] for row in body)]
        widths = {i: max([width(head[i]), *(width(row[i]) for row in body)]) for i in keep}
        self.line(self.style(cut("  ".join(_pad(head[i], widths[i], i in right) for i in keep).rstrip(), self.columns), "dim"))
        for row in body:
            self.line(self._row(row, keep, widths, styles or {}, right))

    def _row(self, row: list[str], keep: list[int], widths: dict[int, int], styles: dict[int, Any], right: Sequence[int]) -> str:
        out, left = [], self.columns
        for i in keep:
            text = cut(row[i], left) if left > 0 else ""
            padded = _pad(text, widths[i], i in right) if i != keep[-1] or i in right else text
            out.append(styles[i](padded) if i in styles else padded)
            left -= widths[i] + 2
        return "  ".join(out).rstrip()

    def pairs(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Print names and values, aligned; empty values are left out."""
        shown = [(name, text) for name, text in pairs if text]
        longest = max((width(name) for name, _ in shown), default=0)
        for name, text in shown:
            self.line(f"{self.style(_pad(name, longest, False), 'dim')}  {text}")

    def progress(self, what: str) -> Progress:
        return Progress(what, sys.stderr, not self.quiet and not self.as_json and sys.stderr.isatty())


class Progress:
    """A progress bar for work that takes more than a second, on a terminal only. Call it with the amount done and the total."""

    def __init__(self, what: str, stream: TextIO, shown: bool):
        self._what, self._stream, self._shown = what, stream, shown
        self._begun = self._updated = time.monotonic()
        self._drawn = False

    def __call__(self, done: float, total: float, *_: Any) -> None:
        now = time.monotonic()
        if not self._shown or now - self._begun < _PATIENCE or now - self._updated < 0.1:
            return
        self._updated, self._drawn = now, True
        share = min(1.0, done / total) if total else 0.0
        filled = int(24 * share)
        self._stream.write(f"\r{self._what} [{'█' * filled}{'·' * (24 - filled)}] {share:4.0%}\x1b[K")
        self._stream.flush()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def unheard() -> int:
    """Discard the rest of the output after the reader has closed the pipe; return the exit code that a shell expects then."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return UNHEARD


def _guarded(text: str) -> str:
    """Escape what callers have not escaped, such as zero-width characters in ids and tags. Our own colours stay."""
    return (
        text
        if _PLAIN.fullmatch(text)
        else "".join(part if i % 2 else safe(part, lines=True) for i, part in enumerate(_COLOURS.split(text)))
    )


def _wanted() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _pad(text: str, columns: int, right: bool) -> str:
    space = " " * (columns - width(text))
    return space + text if right else text + space
