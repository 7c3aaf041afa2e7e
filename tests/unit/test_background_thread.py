"""A thread of a store: it serves or it is said that it can't, it goes on without memory, and it ends when it is told."""

import threading
import time
from _thread import start_new_thread
from collections.abc import Callable
from typing import Any

import pytest

from everstep.errors import StoreBusy
from everstep.testing.waiting import until
from everstep.threads.background import BackgroundThread

PATIENCE = 20


def test_it_does_its_turn_when_woken_and_ends_on_request() -> None:
    turns: list[int] = []
    thread = BackgroundThread(lambda: turns.append(threading.get_ident()))
    assert not thread.started
    thread.start()
    thread.start()
    assert thread.started
    assert turns == []
    thread.wake()
    assert until(lambda: len(turns) == 1)
    thread.wake()
    assert until(lambda: len(turns) == 2)
    assert len(set(turns)) == 1
    assert turns[0] != threading.get_ident()
    thread.end()
    thread.wake()
    time.sleep(0.02)
    assert len(turns) == 2


def test_it_does_its_turn_every_so_many_seconds() -> None:
    turns: list[int] = []
    thread = BackgroundThread(lambda: turns.append(1), every=0.005)
    thread.start()
    assert until(lambda: len(turns) > 3)
    thread.end()
    done = len(turns)
    time.sleep(0.03)
    assert len(turns) == done


def test_a_turn_without_memory_does_not_end_it() -> None:
    turns: list[int] = []

    def turn() -> None:
        turns.append(1)
        if len(turns) < 3:
            raise MemoryError

    thread = BackgroundThread(turn, every=0.005)
    thread.start()
    assert until(lambda: len(turns) > 4)
    thread.end()


def test_one_that_dies_before_it_begins_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def start(serve: Callable[[], None], arguments: tuple[()]) -> Any:
        asked.append(1)
        return start_new_thread(serve if len(asked) > 2 else lambda: None, arguments)

    monkeypatch.setattr("everstep.threads.background.start_new_thread", start)
    monkeypatch.setattr("everstep.threads.background._PATIENCE", 0.01)
    turns: list[int] = []
    thread = BackgroundThread(lambda: turns.append(1))
    thread.start()
    assert thread.started
    assert len(asked) > 2
    thread.wake()
    assert until(lambda: bool(turns))
    thread.end()


def test_where_none_begins_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everstep.threads.background.start_new_thread", lambda _serve, _arguments: 1)
    monkeypatch.setattr("everstep.threads.background._PATIENCE", 0.001)
    thread = BackgroundThread(lambda: None)
    for _ in range(2):
        with pytest.raises(StoreBusy, match="could not start a thread: none began"):
            thread.start()
    assert not thread.started
    monkeypatch.undo()
    thread.start()
    thread.end()


def test_one_that_begins_late_leaves_the_place_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    late = threading.Event()
    gone: list[int] = []
    asked: list[int] = []

    def start(serve: Callable[[], None], arguments: tuple[()]) -> Any:
        asked.append(1)

        def begin_late() -> None:
            late.wait(PATIENCE)
            serve()
            gone.append(1)

        return start_new_thread(begin_late if len(asked) == 1 else serve, arguments)

    monkeypatch.setattr("everstep.threads.background.start_new_thread", start)
    monkeypatch.setattr("everstep.threads.background._PATIENCE", 0.01)
    turns: list[int] = []
    thread = BackgroundThread(lambda: turns.append(threading.get_ident()), every=0.002)
    thread.start()
    late.set()
    assert until(lambda: bool(gone))
    assert until(lambda: len(turns) > 3)
    assert len(set(turns)) == 1
    thread.end()


def test_many_that_start_it_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def start(serve: Callable[[], None], arguments: tuple[()]) -> Any:
        asked.append(1)
        return start_new_thread(serve, arguments)

    monkeypatch.setattr("everstep.threads.background.start_new_thread", start)
    background = BackgroundThread(lambda: None)
    threads = [threading.Thread(target=background.start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert asked == [1]
    background.end()


def test_it_may_end_itself() -> None:
    ended: list[int] = []
    thread = BackgroundThread(lambda: (thread.end(), ended.append(1)))  # type: ignore[func-returns-value, arg-type, return-value]
    thread.start()
    thread.wake()
    assert until(lambda: bool(ended))
    thread.end()


def test_an_error_ends_it_and_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", reported.append)

    def turn() -> None:
        raise ValueError("a mistake")

    thread = BackgroundThread(turn)
    thread.start()
    thread.wake()
    assert until(lambda: bool(reported))
    assert str(reported[0].exc_value) == "a mistake"
    thread.end()
