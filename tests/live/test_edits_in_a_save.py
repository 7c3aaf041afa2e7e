"""The state is changed in the middle of a save, by a signal handler, a finalizer or another thread. No checkpoint is of two moments.

A sweep: the change is made at each line of `snapshot` that a save executes, as a signal handler would make it. Every checkpoint must be a state
that the program had, and every base what the deltas say. The canary is a save that does not ask whether anything changed.
"""

import copy
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

import everstep
from everstep.snapshot import delta_builder, saver, tracked

EVERY = 1 if os.environ.get("EVERSTEP_DEEP") else 5  # lines
held: list[Any] = []  # a plain part: the program has a reference of its own


def reordered(state: Any) -> None:
    state["d"]["a"] = state["d"].pop("a")


EDITS: dict[str, Callable[[Any], Any]] = {
    "append": lambda s: s["l"].append("now"),
    "insert": lambda s: s["l"].insert(0, {"now": 1}),
    "delete": lambda s: s["l"].pop(1),
    "set": lambda s: s.update(now=[1, {"x": 2}]),
    "key order": reordered,
    "deep": lambda s: s["l"][2]["deep"].append("now"),
    "plain part": lambda s: held.append("now"),
    "past the methods": lambda s: list.append(s["l"], "now"),
}


class Lines:
    """Calls a function once, at the n-th line of `snapshot`."""

    def __init__(self, at: int, call: Callable[[], None]):
        self.at, self.call, self.count, self.done = at, call, 0, False

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if "/snapshot/" not in frame.f_code.co_filename:
            return None
        if event == "line":
            if self.count == self.at and not self.done:
                self.done = True
                sys.settrace(None)
                self.call()
                sys.settrace(self)
            self.count += 1
        return self

    @contextmanager
    def watching(self) -> Iterator[None]:
        sys.settrace(self)
        try:
            yield
        finally:
            sys.settrace(None)


def life(edit: Callable[[Any], Any], at: int) -> tuple[list[str], int]:
    """One run whose second and third checkpoint are watched: what is wrong in it, and how many lines there were."""
    held[:] = [1, 2]
    seen: list[Any] = []
    with everstep.open("memory://") as store:
        with store.run("r") as run:
            run.state.update({"l": [1, 2, {"deep": [3]}, 4], "d": {"a": 1, "b": 2}, "held": held, "n": 0})

            def change() -> None:
                edit(run.state)
                seen.append(copy.deepcopy(run.state))

            lines = Lines(at, change)
            run.checkpoint()
            for n in range(1, 7):
                run.state["n"] = n
                seen.append(copy.deepcopy(run.state))
                if n in (2, 3):
                    with lines.watching():
                        run.checkpoint()
                else:
                    run.checkpoint()
            final = copy.deepcopy(run.state)
        wrong = [
            f"r@{n}" for n in range(2, store.get("r").checkpoints + 1) if not any(alike(store.load("r", at=n), state) for state in seen)
        ]
        wrong += [] if alike(store.load("r"), final) else ["the end"]
        wrong += [problem.what for problem in store.verify("full").problems]
    return wrong, lines.count


def alike(one: Any, other: Any) -> bool:
    return bool(one == other) and list(one["d"]) == list(other["d"])


def sweep(edit: Callable[[Any], Any], every: int) -> tuple[int, list[tuple[int, list[str]]]]:
    at, last, found = 0, 1, []
    while at < last:
        wrong, last = life(edit, at)
        if wrong:
            found.append((at, wrong))
        at += every
    return at // every, found


@pytest.fixture
def bases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saver, "BASE_EVERY", 3)


@pytest.mark.usefixtures("bases")
@pytest.mark.parametrize("edit", EDITS)
def test_a_change_at_any_line_of_a_save_makes_no_checkpoint_of_two_moments(edit: str) -> None:
    tried, found = sweep(EDITS[edit], EVERY)
    assert tried > 20
    assert found == []


@pytest.mark.usefixtures("bases")
def test_the_sweep_catches_a_save_that_does_not_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracked.Edits, "__iadd__", lambda self, n: self)
    monkeypatch.setattr(delta_builder, "drifted", lambda tracker: False)
    assert sweep(EDITS["append"], 5)[1]
    assert sweep(EDITS["plain part"], 5)[1]


def test_a_thread_that_changes_the_state_while_another_saves_it() -> None:
    """Each checkpoint has a beginning of what was appended; one for which the state never holds still says so, and the next one works."""
    with everstep.open("memory://") as store, store.run("r") as run:
        run.state["l"] = []
        over = threading.Event()

        def append() -> None:
            for n in range(100):
                run.state["l"].append(n)
                time.sleep(0.001)
            over.set()

        thread = threading.Thread(target=append)
        thread.start()
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            while not over.is_set():
                try:
                    run.checkpoint()
                except everstep.EverstepError as error:
                    assert "changed while it was being saved" in error.message  # noqa: PT017 - others must not be raised
        finally:
            sys.setswitchinterval(interval)
            thread.join()
        last = run.checkpoint().number
        for number in range(1, last + 1, max(1, last // 200)):
            items = store.load("r", at=number)["l"]
            assert items == list(range(len(items)))
        assert store.load("r")["l"] == list(range(100))
        assert store.verify("full").ok
