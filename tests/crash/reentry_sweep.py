"""Program of test_reentry_at_every_line: uses a store in the middle of what the same thread does with it, at one line after the other.

Arguments: the place of the store, the stride between two lines, and the line to start with. At the n-th line of ours that an action executes, a second operation is called, as a signal handler or a
finalizer would. A watchdog ends the process if one iteration takes longer than SECONDS. Prints the counts; any fault is an exception.
"""

from __future__ import annotations

import faulthandler
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import everstep
from everstep.errors import EverstepError, Reentered, RunBusy, RunClosed, StoreClosed

SECONDS = 20
OURS = (
    "everstep.backends",
    "everstep.runtime",
    "everstep.store",
    "everstep.threads.background",
    "everstep.threads.wakeup",
    "everstep.threads.guard",
    "everstep.snapshot",
)


class Point:
    """Calls an operation at the n-th line of an action."""

    def __init__(self, number: int, operation: Callable[[], None]):
        self.left = number
        self.operation = operation
        self.reached = False

    def trace(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if not str(frame.f_globals.get("__name__", "")).startswith(OURS):
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                self.reached = True
                self.operation()
        return None if self.left < 0 else self.trace


class Sweep:
    """A store with three runs: `main` is acted on, `other` and `third` are used in the middle of that."""

    def __init__(self, place: str):
        self.place = place
        self.counts: Counter[str] = Counter()
        self.saved = {"main": 0, "other": 0}
        self.tried = 0
        self.fresh = 0
        self.keep = everstep.open(place)  # a named store in memory lives as long as someone has it open
        self.open()

    def open(self) -> None:
        self.store = everstep.open(self.place)
        self.main = self.store.run("main").__enter__()
        self.other = self.store.run("other").__enter__()

    def shut(self) -> None:
        for run in (self.other, self.main):
            try:
                run.__exit__(None, None, None)
            except EverstepError:
                self.counts["left with an error"] += 1
        self.store.close()

    # what is done in the middle

    def save_other(self) -> None:
        self.tried += 1
        self.other.state["n"] = self.tried
        self.other.checkpoint()
        self.saved["other"] = self.tried

    def save_main(self) -> None:
        self.main.checkpoint()

    def step_other(self) -> None:
        assert self.other.step("inner", lambda: 5) == 5

    def step_main(self) -> None:
        assert self.main.step("inner", lambda: 5) == 5

    def load(self) -> None:
        assert self.store.load("other").get("n", 0) >= 0

    def listing(self) -> None:
        assert {"main", "other"} <= {run.id for run in self.store.runs()}

    def open_third(self) -> None:
        with self.store.run("third") as run:
            run.state["n"] = 1

    def tag(self) -> None:
        self.store.tag("other", "seen")

    def close(self) -> None:
        self.store.close()

    def emit(self) -> None:
        self.main.emit("in the middle", n=self.tried)
        self.main.flush()

    # what is interrupted

    def checkpoint(self, n: int) -> None:
        self.main.state["n"] = n
        self.main.checkpoint()
        self.saved["main"] = n

    def step(self, n: int) -> None:
        assert self.main.step("outer", lambda: n, key=n) == n

    def flush(self, n: int) -> None:
        self.main.emit("event", n=n)
        self.main.flush()

    def whole(self, n: int) -> None:
        """A run from its beginning to its end."""
        self.fresh += 1
        with self.store.run(f"fresh-{self.fresh}") as run:
            run.state["n"] = n

    def guarded(self, operation: Callable[[], None]) -> Callable[[], None]:
        def call() -> None:
            name = operation.__name__
            try:
                operation()
                self.counts[f"{name} done"] += 1
            except Reentered:
                self.counts["refused"] += 1
            except (RunBusy, RunClosed, StoreClosed):
                self.counts["busy"] += 1

        return call

    def once(self, action: Callable[[int], None], operation: Callable[[], None], number: int, n: int) -> bool:
        """One action with one operation in its middle; False if the action has fewer lines."""
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        point = Point(number, self.guarded(operation))
        before = dict(self.saved)
        broken = False
        try:
            sys.settrace(point.trace)
            try:
                action(n)
            finally:
                sys.settrace(None)
        except (RunClosed, StoreClosed, everstep.errors.NotFound) as error:
            self.counts[f"action {type(error).__name__}"] += 1
            broken = True
        self.judge(before, n, broken, operation == self.close)
        return point.reached

    def judge(self, before: dict[str, int], n: int, broken: bool, closed: bool) -> None:
        """Everything that was acknowledged is there; what was broken off is there or not; the handles go on or are opened again."""
        if closed:
            self.shut_quietly()
            self.open()
        main = self.store.load("main").get("n", 0) if self.main.number else 0
        assert main == self.saved["main"] or (broken and main in (before["main"], n)), (main, self.saved, n, broken)
        self.saved["main"] = main
        other = self.store.load("other").get("n", 0) if self.other.number else 0
        assert self.saved["other"] <= other <= self.tried, (other, self.saved, self.tried)
        self.saved["other"] = other

    def shut_quietly(self) -> None:
        try:
            self.shut()
        except EverstepError:
            self.counts["closed"] += 1

    def go(self, stride: int, first: int) -> None:
        operations = [
            self.save_other, self.save_main, self.step_other, self.step_main, self.load, self.listing, self.open_third, self.tag, self.emit, self.close,
        ]  # fmt: skip
        n = 1
        for action in (self.checkpoint, self.step, self.flush, self.whole):
            self.other.checkpoint()
            number = reached = 1 + first % stride
            while reached:
                operation = operations[(n + first) % len(operations)]
                reached = self.once(action, operation, number, n)
                self.counts["points"] += bool(reached)
                n += 1
                number += stride
        faulthandler.cancel_dump_traceback_later()
        self.shut()
        with everstep.open(self.place) as store:
            found = store.verify("full")
            assert found.ok, str(found)
            assert store.load("main").get("n", 0) >= 0
        self.keep.close()


if __name__ == "__main__":
    place, stride, first = sys.argv[1:]
    sweep = Sweep(place)
    sweep.go(int(stride), int(first))
    print(dict(sweep.counts))
