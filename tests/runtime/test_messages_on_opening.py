"""Messages that arrive while a run is being opened are not lost."""

from contextlib import suppress
from typing import Any

import pytest

import everstep
from everstep.backends.wrap import Wrapped
from everstep.errors import Interrupted


class PostsBefore(Wrapped):
    """Calls a function once, right before the first call of one method."""

    def __init__(self, backend: Any, method: str, work: Any) -> None:
        super().__init__(backend)
        self._method, self._work = method, work

    def call(self, name: str, method: Any, args: Any, options: Any) -> Any:
        if name == self._method and self._work is not None:
            work, self._work = self._work, None
            work()
        return method(*args, **options)


def fail(store: everstep.Store) -> None:
    with suppress(ZeroDivisionError), store.run("r") as run:
        run.state["texts"] = ["long text " * 1000] * 3
        run.checkpoint()
        raise ZeroDivisionError


def work(store: everstep.Store, called: list[int]) -> None:
    with store.run("r") as run:
        run.step("work", called.append, 1)
        run.step("work", called.append, 2)


@pytest.mark.parametrize("method", ["locate", "commit"])
def test_a_run_that_is_cancelled_while_it_is_opened_stops_at_its_next_step(store: everstep.Store, method: str) -> None:
    fail(store)
    other = store.backend
    called: list[int] = []

    def cancel() -> None:
        mine, store.backend = store.backend, other
        store.cancel("r", "enough")
        store.backend = mine

    store.backend = PostsBefore(other, method, cancel)  # type: ignore[assignment]
    try:
        with pytest.raises(Interrupted, match="enough"):
            work(store, called)
    finally:
        store.backend = other
    assert called == []
    assert store.get("r").status == "cancelled"


def test_a_cancelled_run_is_refused_as_one_that_cannot_run(store: everstep.Store) -> None:
    fail(store)
    store.cancel("r", "enough")
    with pytest.raises(everstep.errors.IllegalTransition, match="is cancelled and cannot change to running"), store.run("r"):
        pass
