"""Prints the events of a worker: a line of JSON for each, written by a separate thread.

A worker reports events from any of its threads and from signal handlers, so `tell` only puts them into a queue. Nothing here
executes a run.
"""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import Any, TextIO

from everstep.cli.app import App
from everstep.cli.draw.output import FORMAT
from everstep.cli.draw.text import cell, duration, plural
from everstep.fields import as_dict
from everstep.store.views import when
from everstep.views.stored.values import as_json, dumps, iso

_OF_ALL = ("run", "workflow", "queue", "seconds", "error", "reason")
BAD = ("failed", "dead_letter", "lost", "left", "refused", "trouble")


def name_of(event: dict[str, Any]) -> str:
    """Return the name of an event as one word."""
    return str(event["event"]).replace(" ", "_").replace("-", "_")


def count_label(name: str) -> str:
    """Return the label of a worker's counter."""
    return "released" if name == "given_back" else name.replace("_", " ")


def data(app: App, event: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON data of an event: the fields that all have, and its own ones under `data`."""
    common = {name: event.get(name) for name in _OF_ALL}
    for name in ("error", "reason"):
        if common[name] is not None:
            common[name] = app.mask.text(str(common[name]))
    rest = {name: value for name, value in event.items() if name not in (*_OF_ALL, "event", "at")}
    return {"event": name_of(event), "at": iso(when(event["at"])), **common, "data": as_json(app.mask(rest))}


def words(app: App, event: dict[str, Any]) -> str:
    """Describe an event in one line; empty for an event that the tables show."""
    name = name_of(event)
    run = cell(str(event.get("run") or ""), 40)
    why = cell(app.mask.text(str(event.get("error") or event.get("reason") or "")), 300)
    texts = {
        "taken": f"{run} taken over from {cell(str(event.get('before')), 60)}" if event.get("before") else "",
        "freed": f"{plural(event.get('runs') or 0, 'run')} of dead workers released",
        "fired": f"{run} enqueued by schedule {cell(str(event.get('schedule')), 60)}",
        "ordered": f"{run} enqueued by a transaction",
        "refused": f"{run} cannot be enqueued by a transaction: {why} [{event.get('code')}]",
        "left": f"{run} left to other workers: {why}",
        "dead_letter": f"{run} dead-lettered: {why}",
        "trouble": f"{why} [{event.get('code')}]",
        "blocked": f"a blocking call blocks all async runs of this worker: {cell(str(event.get('where')), 300)}",
        "given_back": f"{run} released: {why}",
        "started": "", "stopping": "", "stopped": "",
    }  # fmt: skip
    if name in texts:
        return texts[name]
    took = f" in {duration(event['seconds'])}" if "seconds" in event else ""
    return f"{run} {name}{took}" + (f": {why}" if why else "")


class Listener:
    """Receives the events of a worker and prints them in a thread. `tell` never blocks, and may be called while another call of it runs."""

    def __init__(self, app: App, stream: TextIO):
        self.app = app
        self.stream = stream
        self.worker: Any = None
        self.unheard = False
        self._failure: BaseException | None = None
        self._events: SimpleQueue[Any] = SimpleQueue()
        self._thread = threading.Thread(target=self._listen, name="everstep-listener", daemon=True)

    def tell(self, event: dict[str, Any]) -> None:
        self._events.put(event)

    def __enter__(self) -> Listener:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._events.put(None)
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _listen(self) -> None:
        try:
            self._work()
        except OSError:  # the reader has closed the pipe, or the terminal was closed
            self.unheard = True
            self.worker.stop()
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits for this one
            self._failure = error
            self.worker.stop()

    def _work(self) -> None:
        raise NotImplementedError


class Silence(Listener):
    """Prints nothing, for --quiet."""

    def _work(self) -> None:
        while self._events.get() is not None:
            pass


class Lines(Listener):
    """Prints a line of JSON for each event."""

    def _work(self) -> None:
        while (event := self._events.get()) is not None:
            if event["event"] == "stopped":
                event = {**event, "counts": as_dict(self.worker.counts)}
            line = {"everstep": FORMAT, "kind": "worker_event", "data": data(self.app, event)}
            self.stream.write(dumps(line) + "\n")
            self.stream.flush()
