"""Queues of a store in memory: the simplest implementation of the contract of `queues`. The caller holds the store's lock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from everstep import clock as clocks
from everstep.backends.contract.queues import ENDED, LIMITS, Claim, Depth, Limits, QueueEntry, Room, Task, settled
from everstep.fields import Shape
from everstep.records import Message, RunRow

_MINUTE = 60_000_000
_TICKS = ("claimed", "ended", "failed", "deaths")


class Waiting(Shape):
    """The queue entry of one run."""

    task: Task
    order: int
    ready: int | None = None
    worker: str | None = None
    deaths: int = 0
    seen: int = 0

    def entry_of(self, run: str) -> QueueEntry:
        return QueueEntry(run, self.task, self.ready, self.worker, self.deaths)


class Entry(Protocol):
    """A run of the store, as this module uses it."""

    row: RunRow
    messages: dict[str, Message]
    waiting: Waiting | None


class MemoryQueues:
    """A store's queue data besides the entries: when runs were claimed, and the callbacks for changes."""

    def __init__(self) -> None:
        self._starts: dict[str, list[int]] = defaultdict(list)
        self._ticks: dict[tuple[str, int], dict[str, int]] = {}
        self._listeners: list[Callable[[], None]] = []

    def settle(self, run: Entry) -> None:
        """Update the queue entry of a run after a change of the run, its messages or its lease."""
        if run.waiting is None:
            return
        now = clocks.clock.now_us()
        gone, ready = settled(run.row, [(message.name, message.due) for message in run.messages.values()], now)
        if gone is not None:
            self._tick(run.waiting.task.queue, "ended" if gone == ENDED else "failed")
            run.waiting = None
            return
        run.waiting.worker, run.waiting.ready = run.row.worker, ready
        self._ring(ready)

    def free(self, run: Entry) -> None:
        waiting = run.waiting
        assert waiting is not None
        waiting.deaths = waiting.deaths + 1 if waiting.seen == run.row.head_seq else 1
        waiting.seen, waiting.worker, waiting.ready = run.row.head_seq, None, clocks.clock.now_us()
        self._tick(waiting.task.queue, "deaths")
        self._ring(waiting.ready)

    def choose(self, runs: Sequence[Any], claim: Claim, properties: dict[str, str]) -> list[Any]:
        now = clocks.clock.now_us()
        taken: list[Any] = []
        for queue in dict.fromkeys(claim.queues):
            limits = Limits.parse(properties.get(LIMITS + queue))
            room = self._room(runs, queue, limits, now)
            for run in self._candidates(runs, queue, now):
                fits = run.row.workflow in claim.workflows and run.row.id not in claim.without
                if len(taken) < claim.most and not room.full and fits and room.takes(run.waiting.task.key):
                    room.take(run.waiting.task.key)
                    taken.append(run)
                    self._starts[queue].append(now)
                    self._tick(queue, "claimed")
        return taken

    def _room(self, runs: Sequence[Any], queue: str, limits: Limits, now: int) -> Room:
        held = [
            r.waiting.task.key for r in runs if r.waiting is not None and r.waiting.task.queue == queue and r.waiting.worker is not None
        ]
        self._starts[queue] = [at for at in self._starts[queue] if at > now - limits.period]
        return Room(limits, len(held), {key: held.count(key) for key in held if key is not None}, len(self._starts[queue]))

    def _candidates(self, runs: Sequence[Any], queue: str, now: int) -> list[Any]:
        ready = [r for r in runs if r.waiting is not None and r.waiting.task.queue == queue and r.waiting.ready is not None]
        return sorted(
            (r for r in ready if r.waiting.ready <= now), key=lambda r: (-r.waiting.task.priority, r.waiting.ready, r.waiting.order)
        )

    def entries(self, runs: Sequence[Any], queue: str | None = None) -> list[QueueEntry]:
        found = [run for run in runs if run.waiting is not None and queue in (None, run.waiting.task.queue)]
        late = 1 << 63
        found.sort(
            key=lambda r: (
                r.waiting.task.queue,
                -r.waiting.task.priority,
                late if r.waiting.ready is None else r.waiting.ready,
                r.waiting.order,
            )
        )
        return [run.waiting.entry_of(run.row.id) for run in found]

    def depths(self, entries: Sequence[QueueEntry], properties: dict[str, str], minutes: int) -> list[Depth]:
        now = clocks.clock.now_us()
        minute = now // _MINUTE
        names = {entry.task.queue for entry in entries} | {name.removeprefix(LIMITS) for name in properties if name.startswith(LIMITS)}
        names |= {queue for queue, at in self._ticks if at > minute - minutes}
        return [self._depth(name, [p for p in entries if p.task.queue == name], now, minutes) for name in sorted(names)]

    def _depth(self, queue: str, entries: list[QueueEntry], now: int, minutes: int) -> Depth:
        ready = [p.ready for p in entries if p.ready is not None and p.ready <= now]
        later = sum(p.ready is not None and p.ready > now for p in entries)
        running = sum(p.worker is not None for p in entries)
        ticks = [self._ticks.get((queue, now // _MINUTE - back), {}) for back in range(minutes)]
        counts = [[tick.get(name, 0) for name in _TICKS] for tick in ticks]
        return Depth(queue, len(ready), later, len(entries) - len(ready) - later - running, running, min(ready, default=None), counts)

    def ticks(self) -> dict[tuple[str, int], dict[str, int]]:
        """Return the counts of each minute, as a copy."""
        return {minute: dict(tick) for minute, tick in self._ticks.items()}

    def set_ticks(self, ticks: dict[tuple[str, int], dict[str, int]]) -> None:
        self._ticks = ticks

    def _tick(self, queue: str, what: str) -> None:
        tick = self._ticks.setdefault((queue, clocks.clock.now_us() // _MINUTE), {})
        tick[what] = tick.get(what, 0) + 1

    def listen(self, ring: Callable[[], None]) -> Callable[[], None]:
        self._listeners = [*self._listeners, ring]

        def stop() -> None:
            self._listeners = [one for one in self._listeners if one is not ring]

        return stop

    def _ring(self, ready: int | None) -> None:
        if ready is not None:
            for ring in self._listeners:
                ring()
