"""The live table of a worker: what it drives, what waits in its queues, what happened last. Redrawn in place, never larger than the terminal.

Only escapes that every terminal knows: up, erase to the end of a line, erase below. The cursor stays visible and below the table, so that a
process that dies leaves the terminal as it was. What programs print meanwhile stands above the table.
"""

from __future__ import annotations

import shutil
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from queue import Empty
from typing import TYPE_CHECKING, Any, TextIO

from everstep.cli.app import App
from everstep.cli.draw import places
from everstep.cli.draw.text import cell, cut, duration, plural, safe, width
from everstep.cli.draw.worker_events import BAD, Listener, name_of, words
from everstep.clock import clock
from everstep.errors import EverstepError
from everstep.views.queues import MINUTES, QueueView, queues

if TYPE_CHECKING:
    from everstep.api import Store

_FRAME, _BUSY_FRAME, _LOOK = 0.25, 0.15, 1.0
_KEPT = 50
_NAMED = 3
_DEPTHS = ("QUEUE", "READY", "LATER", "WAITING", "RUNNING", "OLDEST", f"LAST {MINUTES} MIN", "LIMITS")
_JOBS = ("RUN", "WORKFLOW", "QUEUE", "FOR")
_COUNTS = ("taken", "succeeded", "failed", "waiting", "cancelled", "taken_over", "given_back", "lost", "dead")
_COLOURS = {
    "failed": "red",
    "dead_letter": "red",
    "trouble": "red",
    "refused": "red",
    "left": "yellow",
    "lost": "yellow",
    "succeeded": "green",
}

Line = tuple[str, str | None]


class Board(Listener):
    """Draws what a worker does, a few times a second."""

    def __init__(self, app: App, stream: TextIO, store: Store):
        super().__init__(app, stream)
        self._store = store
        self._name = ""
        self._began = time.monotonic()
        self._signal: str | None = None
        self._good: deque[tuple[int, Line]] = deque(maxlen=_KEPT)
        self._bad: deque[tuple[int, Line]] = deque(maxlen=_KEPT)
        self._depths: dict[str, QueueView] = {}
        self._looked = 0.0
        self._drawn: list[int] = []  # how wide the lines of the last frame are

    def note(self, line: str) -> None:
        """A line that a program printed."""
        self._heard.put(line)

    def _work(self) -> None:
        going = True
        while going:
            heard = self._next()
            going = None not in heard
            for event in heard:
                if isinstance(event, dict):
                    self._hear(event)
            self._look()
            size = shutil.get_terminal_size((100, 24))
            self._draw([text for text in heard if isinstance(text, str)], self._frame(size.columns, size.lines), size.columns)
            time.sleep(_BUSY_FRAME if going and len(heard) else 0)

    def _next(self) -> list[Any]:
        """All that was said since the last frame; an empty list after a while without a word."""
        heard: list[Any] = []
        with suppress(Empty):
            heard.append(self._heard.get(timeout=_FRAME))
            while True:
                heard.append(self._heard.get_nowait())
        return heard

    def _hear(self, event: dict[str, Any]) -> None:
        name = name_of(event)
        if name == "started":
            self._name = str(event["worker"])
        elif name == "stopping":
            self._signal = str(event["signal"])
        text = words(self.app, event)
        if text:
            at = time.strftime("%H:%M:%S", time.localtime(event["at"] / 1e6))
            (self._bad if name in BAD else self._good).append((event["at"], (f"{at}  {text}", _COLOURS.get(name))))

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked >= _LOOK:
            self._looked = now
            with suppress(EverstepError):  # the worker meets the same trouble and tells of it
                self._depths = {one.queue: one for one in queues(self._store)}

    def _frame(self, columns: int, rows: int) -> list[Line]:
        """What is to be seen, in no more lines than there are."""
        most = max(1, rows - 1)
        head, foot = self._head(), self._foot()
        left = most - len(head) - len(foot)
        depths = _fitted(_table(_DEPTHS, self._depth_rows(), right=(1, 2, 3, 4)), max(2, left // 3), columns)
        jobs = _fitted(_table(_JOBS, self._job_rows(), right=(3,)), max(2, (left - len(depths)) // 2), columns)
        events = self._events(left - len(depths) - len(jobs))
        lines = [*head, *depths, *jobs, *events][: most - len(foot)] + foot
        return [(cut(text, columns - 1), style) for text, style in lines]

    def _head(self) -> list[Line]:
        worker = self.worker
        queues = ", ".join(cell(queue, 40) for queue in worker.queues)
        up = duration(time.monotonic() - self._began)
        counts = [f"{getattr(worker.counts, name):,} {name.replace('_', ' ')}" for name in _COUNTS if getattr(worker.counts, name)]
        busy = f"{len(worker.jobs)} of {worker.concurrency} busy"
        return [(f"worker {cell(self._name, 60)}  {busy}  up {up}  {queues}", "bold"), (", ".join(counts) or "nothing taken yet", None)]

    def _foot(self) -> list[Line]:
        if not self.worker.stopping:
            return []
        jobs = sorted(self.worker.jobs.values(), key=lambda job: job.began)
        if not jobs:
            return [(f"{self._signal or 'stopping'}: drained", "yellow")]
        named = ", ".join(cell(job.run, 24) for job in jobs[:_NAMED]) + (", …" if len(jobs) > _NAMED else "")
        return [
            (f"{self._signal or 'stopping'}: takes nothing new, waits for the steps of {plural(len(jobs), 'run')}: {named}", "yellow"),
            ("Ctrl-C once more ends at once; other workers take over", "yellow"),
        ]

    def _depth_rows(self) -> list[list[str]]:
        return [self._depth_row(queue, self._depths.get(queue)) for queue in self.worker.queues]

    def _depth_row(self, queue: str, found: QueueView | None) -> list[str]:
        if found is None:
            return [cell(queue, 40), "0", "0", "0", "0", "", "", ""]
        counts = [f"{n:,}" for n in (found.ready, found.later, found.waiting, found.running)]
        oldest = "" if found.oldest is None else duration(max(0.0, clock.now_us() / 1e6 - found.oldest.timestamp()))
        return [cell(queue, 40), *counts, oldest, places.lately(found.lately), places.limits(found.limits)]

    def _job_rows(self) -> list[list[str]]:
        now = time.monotonic()
        jobs = sorted(self.worker.jobs.values(), key=lambda job: job.began)
        return [[cell(job.run, 36), cell(job.workflow or "", 30), cell(job.queue or "", 30), f"{now - job.began:,.1f} s"] for job in jobs]

    def _events(self, room: int) -> list[Line]:
        """The last events; what went wrong is not driven away by what went well."""
        if room <= 1:
            return []
        bad = list(self._bad)[-max(1, room // 2) :]
        good = list(self._good)[-max(0, room - 1 - len(bad)) :] if room - 1 > len(bad) else []
        told = [line for _, line in sorted([*bad, *good], key=lambda one: one[0])]
        return [("", None), *told] if told else []

    def _draw(self, above: Sequence[str], lines: list[Line], columns: int) -> None:
        up = sum(
            max(1, -(-wide // max(1, columns))) for wide in self._drawn
        )  # lines that the terminal has wrapped since take more than one
        out = ["\r", f"\x1b[{up}A" if up else ""]
        out += [f"{text}\x1b[K\n" for text in above]
        out += [f"{self.app.out.style(safe(text), style)}\x1b[K\n" for text, style in lines]
        self._drawn = [width(safe(text)) for text, _ in lines]
        self.stream.write("".join(out) + "\x1b[J")
        self.stream.flush()


def _table(head: Sequence[str], rows: list[list[str]], right: Sequence[int]) -> list[Line]:
    """Columns as wide as they need; nothing where there is no row."""
    if not rows:
        return []
    widths = [max(width(row[i]) for row in (head, *rows)) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            " " * (widths[i] - width(text)) + text if i in right else text + " " * (widths[i] - width(text)) for i, text in enumerate(cells)
        ]
        return "  ".join(padded).rstrip()

    return [("", None), (line(head), "dim"), *((line(row), None) for row in rows)]


def _fitted(lines: list[Line], most: int, columns: int) -> list[Line]:
    """A table in so many lines; what is left out is counted."""
    if len(lines) <= most:
        return lines
    shown = max(0, most - 1)
    return [*lines[:shown], (f"… and {len(lines) - max(2, shown):,} more", "dim")]
