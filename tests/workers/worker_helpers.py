"""Workers in threads and in processes, notes of what their runs did, and a wait for conditions."""

import json
import os
import threading
from pathlib import Path
from typing import Any

import worker_programs

import everstep
from everstep.testing.waiting import PATIENCE
from harness.faults.actor import Actor


class Notes:
    """What was done outside of the store: a line for each, in the order in which it happened, whoever did it."""

    def __init__(self, path: Path):
        self.path = path
        path.touch()

    def all(self, what: str | None = None) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.path.read_text().splitlines()]
        return [line for line in lines if what is None or line["what"] == what]

    def count(self, what: str) -> int:
        return len(self.all(what))

    def say(self, what: str, **more: Any) -> None:
        worker_programs.note(self.path, what, **more)


class Events:
    """What a worker told."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []

    def seen(self, event: str, **about: Any) -> list[dict[str, Any]]:
        return [one for one in list(self.told) if one["event"] == event and all(one.get(k) == v for k, v in about.items())]


class Working(Events):
    """A worker in a thread."""

    def __init__(self, store: everstep.Store, **options: Any):
        super().__init__()
        until_idle = options.pop("until_idle", False)
        self.worker = store.worker(tell=self.told.append, **options)
        self._thread = threading.Thread(target=self.worker.run, args=(until_idle,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.worker.stop()
        self.ended()

    def ended(self) -> None:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), self.told[-5:]


class Hand(Events):
    """A worker in a process of its own."""

    def __init__(self, url: str, notes: Path, flows: tuple[str, ...], worker: dict[str, Any], options: dict[str, Any]):
        super().__init__()
        self.actor = Actor(worker_programs.play, url, notes, flows, worker, options)
        self.hear("started")

    @property
    def pid(self) -> int:
        return self.actor.pid

    def hear(self, event: str, **about: Any) -> dict[str, Any]:
        """Wait until it tells of something."""
        while not (found := self.seen(event, **about)):
            self.told.append(self.actor.hear(PATIENCE))
        return found[0]

    def listen(self) -> "Hand":
        """Take in what it has told by now."""
        while not self.actor.silent(0):
            try:
                self.told.append(self.actor.hear())
            except Exception:
                break
        return self

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def __enter__(self) -> "Hand":
        return self

    def __exit__(self, *problem: object) -> None:
        with self.actor:
            pass
