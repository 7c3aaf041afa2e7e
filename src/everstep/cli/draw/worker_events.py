"""What a worker says, as commands show it: a line of JSON for each event, written by a thread of its own.

A worker speaks from any of its threads, and from the handler of a signal: whoever hears it only notes what was said. Nothing here
drives a run.
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
    """The name of what happened, as one word."""
    return str(event["event"]).replace(" ", "_").replace("-", "_")


def facts(app: App, event: dict[str, Any]) -> dict[str, Any]:
    """An event as JSON: what all have, and under `data` what only this one has."""
    said = {name: event.get(name) for name in _OF_ALL}
    for name in ("error", "reason"):
        if said[name] is not None:
            said[name] = app.mask.text(str(said[name]))
    rest = {name: value for name, value in event.items() if name not in (*_OF_ALL, "event", "at")}
    return {"event": name_of(event), "at": iso(when(event["at"])), **said, "data": as_json(app.mask(rest))}


def words(app: App, event: dict[str, Any]) -> str:
    """An event in one line for a person; empty for what the tables show."""
    name = name_of(event)
    run = cell(str(event.get("run") or ""), 40)
    why = cell(app.mask.text(str(event.get("error") or event.get("reason") or "")), 300)
    told = {
        "taken": f"{run} taken over from {cell(str(event.get('before')), 60)}" if event.get("before") else "",
        "freed": f"{plural(event.get('runs') or 0, 'run')} of dead workers freed",
        "fired": f"{run} enqueued by schedule {cell(str(event.get('schedule')), 60)}",
        "ordered": f"{run} enqueued by a transaction",
        "refused": f"{run} cannot be enqueued as a transaction asked for: {why} [{event.get('code')}]",
        "left": f"{run} is left to other workers: {why}",
        "dead_letter": f"{run} goes to dead-letter: {why}",
        "trouble": f"{why} [{event.get('code')}]",
        "blocked": f"a blocking call holds up all async runs of this worker: {cell(str(event.get('where')), 300)}",
        "given_back": f"{run} given back: {why}",
        "started": "", "stopping": "", "stopped": "",
    }  # fmt: skip
    if name in told:
        return told[name]
    took = f" in {duration(event['seconds'])}" if "seconds" in event else ""
    return f"{run} {name}{took}" + (f": {why}" if why else "")


class Listener:
    """Hears a worker, and says what it heard in a thread: `tell` never waits, and may be called in the midst of itself."""

    def __init__(self, app: App, stream: TextIO):
        self.app = app
        self.stream = stream
        self.worker: Any = None
        self.unheard = False
        self._failure: BaseException | None = None
        self._heard: SimpleQueue[Any] = SimpleQueue()
        self._thread = threading.Thread(target=self._listen, name="everstep-listener", daemon=True)

    def tell(self, event: dict[str, Any]) -> None:
        self._heard.put(event)

    def __enter__(self) -> Listener:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._heard.put(None)
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _listen(self) -> None:
        try:
            self._work()
        except OSError:  # nobody reads any more, or the terminal is gone
            self.unheard = True
            self.worker.stop()
        except BaseException as error:  # noqa: BLE001 - a defect here is told by the thread that waits for this one
            self._failure = error
            self.worker.stop()

    def _work(self) -> None:
        raise NotImplementedError


class Silence(Listener):
    """Nothing, for those who asked for that."""

    def _work(self) -> None:
        while self._heard.get() is not None:
            pass


class Lines(Listener):
    """A line of JSON for each event."""

    def _work(self) -> None:
        while (event := self._heard.get()) is not None:
            if event["event"] == "stopped":
                event = {**event, "counts": as_dict(self.worker.counts)}
            said = {"everstep": FORMAT, "kind": "worker_event", "data": facts(self.app, event)}
            self.stream.write(dumps(said) + "\n")
            self.stream.flush()
