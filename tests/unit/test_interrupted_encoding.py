"""An error that a signal handler raises inside of the encoder is never taken for a value that cannot be stored."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

import everstep
from everstep.codec import values
from everstep.errors import Reentered, Unstorable
from everstep.snapshot import delta_builder


class Fault(Exception):
    pass


def raising_once(code: Any) -> Callable[..., Any]:
    """A trace function that raises at the entry of a function, where no `try` of it can see the error."""
    armed = [True]

    def trace(frame: Any, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code is code and armed:
            armed.clear()
            sys.settrace(None)
            raise Fault

    return trace


@pytest.mark.parametrize(
    "value",
    [datetime(2026, 1, 1, tzinfo=UTC), [(1, (2, 3))], {"a": {"b": [datetime(2026, 1, 1, tzinfo=UTC)]}}],
    ids=["flat", "nested", "deep"],
)
def test_an_error_at_the_entry_of_a_hook(value: Any) -> None:
    sys.settrace(raising_once(values.hook.__code__))
    try:
        with pytest.raises(Reentered, match="nothing was written"):
            values.encode(value)
    finally:
        sys.settrace(None)
    assert values.decode(values.encode(value)) == value


def test_a_checkpoint_that_meets_it_is_not_made_and_the_next_one_is() -> None:
    with everstep.open("memory://") as store, store.run("r", state={"parts": [{"text": "long " * 1000}] * 3, "n": 1}) as run:
        sys.settrace(raising_once(delta_builder._known.__code__))
        try:
            with pytest.raises(Reentered):
                run.checkpoint()
        finally:
            sys.settrace(None)
        run.state["n"] = 2
        run.checkpoint()
        assert store.load("r")["n"] == 2


def test_a_value_that_cannot_be_stored_is_still_named() -> None:
    deep: Any = object()
    for _ in range(60):
        deep = (deep,)
    with pytest.raises(Unstorable, match="object"):
        values.encode({"deep": [deep]})
