"""Prints the output of a command: data on stdout, messages on stderr, JSON on request, colour and progress only on a terminal.

Text from a store must go through `text.safe` before it gets here; JSON is ASCII. JSON output is one object,
{"everstep": 1, "kind": …, "data": …}, or one such object per line if a command streams.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import TYPE_CHECKING, Any

from everstep.cli.draw.capture import to_stderr
from everstep.cli.draw.text import cut, safe, width
from everstep.cli.exit_codes import UNHEARD
from everstep.cli.layout.columns import GAP, fit, least_of
from everstep.cli.layout.moments import short
from everstep.views.stored.values import dumps, iso

if TYPE_CHECKING:
    from everstep.cli.layout.progress import Progress

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
    "crashed": "red",
    "interrupted": "yellow",
}
_PLAIN = re.compile(r"[ -~\n\t]*")
_WORD = re.compile(r"\s*\S+")
_COLOURS = re.compile(r"(\x1b\[\d{1,2}m)")


class Output:
    """The output of one command."""

    def __init__(self, as_json: bool = False, colour: str = "auto", quiet: bool = False, exact_times: bool = False):
        self.as_json = as_json
        self.quiet = quiet
        self.exact_times = exact_times
        self.terminal = sys.stdout.isatty()
        self.colour = colour == "always" or (colour == "auto" and self.terminal and _wanted())
        self._talk_colour = colour == "always" or (colour == "auto" and sys.stderr.isatty() and _wanted())

    @property
    def columns(self) -> int:
        """The width of a line; without a terminal nothing is cut."""
        return shutil.get_terminal_size((100, 24)).columns if self.terminal else 10_000

    @property
    def talk_columns(self) -> int:
        """The width of a line of messages."""
        return shutil.get_terminal_size((100, 24)).columns if sys.stderr.isatty() else 10_000

    def style(self, text: str, name: str | None) -> str:
        return f"\x1b[{_STYLES[name]}m{text}\x1b[0m" if self.colour and name and text else text

    def status(self, status: str) -> str:
        return self.style(status, self.colour_of(status))

    @staticmethod
    def colour_of(status: str) -> str | None:
        return _OF_STATUS.get(status)

    def when(self, moment: datetime | None) -> str:
        """Format a time: local and short on a terminal, exact otherwise."""
        return "" if moment is None else short(moment) if self.terminal and not self.exact_times else iso(moment)

    def apart(self) -> AbstractContextManager[object]:
        """Run programs inside this: with --json, their output goes to stderr, because stdout is for one object."""
        return to_stderr() if self.as_json else nullcontext()

    def line(self, text: str = "") -> None:
        """Print data. On a terminal, a line that is too long breaks between words."""
        text = _guarded(text)
        sys.stdout.write(("\n".join(folded(one, self.columns) for one in text.split("\n")) if self.terminal else text) + "\n")

    def raw(self, text: str) -> None:
        """Print data that loses its meaning if lines break: JSON, scripts, tracebacks."""
        sys.stdout.write(_guarded(text) + "\n")

    def flush(self) -> None:
        sys.stdout.flush()

    def say(self, text: str, style: str | None = None) -> None:
        """Print a message for the person; it is not part of the data."""
        if not self.quiet:
            sys.stdout.flush()
            text = "\n".join(folded(line, self.talk_columns) for line in _guarded(text).split("\n"))
            sys.stderr.write((f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if style and self._talk_colour else text) + "\n")
            sys.stderr.flush()

    def data(self, kind: str, data: Any) -> None:
        """Print the output of a command as JSON."""
        self.raw(dumps({"everstep": FORMAT, "kind": kind, "data": data}, indent=2))

    def item(self, kind: str, data: Any) -> None:
        """Print one line of output that streams."""
        self.raw(dumps({"everstep": FORMAT, "kind": kind, "data": data}))
        sys.stdout.flush()

    def table(
        self,
        head: Sequence[str],
        rows: Iterable[Sequence[str]],
        styles: dict[int, Any] | None = None,
        right: Sequence[int] = (),
        drop: Sequence[str] = (),
        cuts: Sequence[str] = (),
    ) -> None:
        """Print a table with columns as wide as needed. On a narrow terminal, the columns of `cuts` are cut, and those of `drop` left out, first
        ones first. `styles` colours the cells of a column; empty columns are left out.
        """
        body = [list(row) for row in rows]
        keep = [i for i in range(len(head)) if not head[i] or any(row[i] for row in body)]
        natural = {i: max([width(head[i]), *(width(row[i]) for row in body)]) for i in keep}
        least = {i: least_of(head[i], natural[i]) for i in keep if head[i] in cuts}
        widths = fit(natural, least, [head.index(name) for name in drop], self.columns)
        self.line(self.style(cut("  ".join(_pad(head[i], widths[i], i in right) for i in widths).rstrip(), self.columns), "dim"))
        for row in body:
            self.line(self._row(row, widths, styles or {}, right))

    def _row(self, row: list[str], widths: dict[int, int], styles: dict[int, Any], right: Sequence[int]) -> str:
        out, left, last = [], self.columns, list(widths)[-1]
        for i in widths:
            text = cut(row[i], min(left, widths[i])) if left > 0 else ""
            padded = _pad(text, widths[i], i in right) if i != last or i in right else text
            out.append(styles[i](padded) if i in styles else padded)
            left -= widths[i] + GAP
        return "  ".join(out).rstrip()

    def pairs(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Print names and values, aligned; empty values are left out. A value may have several lines."""
        shown = [(name, text) for name, text in pairs if text]
        longest = max((width(name) for name, _ in shown), default=0)
        for name, text in shown:
            lines = [part for line in text.split("\n") for part in folded(line, self.columns - longest - GAP).split("\n")]
            self.line(f"{self.style(_pad(name, longest, False), 'dim')}  {lines[0]}")
            for line in lines[1:]:
                self.line(f"{' ' * longest}  {line}")

    def prose(self, text: str, style: str | None = None) -> None:
        """Print sentences as data: on a terminal, lines break between words."""
        for line in text.split("\n"):
            self.line(self.style(line, style))

    def progress(self, what: str, unit: str = "") -> Progress:
        """Return a progress bar; `unit` is "bytes" or a noun."""
        from everstep.cli.layout.progress import Progress

        return Progress(what, sys.stderr, not self.quiet and not self.as_json and sys.stderr.isatty(), unit)


def folded(text: str, columns: int) -> str:
    """Break a line that is too long between words, with its own margin and gaps; a command to type continues after a backslash."""
    if (len(text) <= columns and text.isascii()) or width(text) <= columns:
        return text
    later = text[: len(text) - len(text.lstrip())] + "  "
    is_command = text.lstrip().startswith("everstep ")
    lines, line = [], ""
    for word in _WORD.findall(text):  # with the gap before it: wide gaps separate columns
        if line.strip() and width(line) + width(word) > columns - 2 * is_command:
            word = f" {word.lstrip()}"  # perhaps it fits with a narrow gap
        if line.strip() and width(line) + width(word) > columns - 2 * is_command:
            lines.append(line)
            line, word = later, word.lstrip()
        line += word
    return (" \\\n" if is_command else "\n").join([*lines, line])


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
