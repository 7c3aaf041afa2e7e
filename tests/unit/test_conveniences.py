"""What a user meets in a shell and in a notebook: help, names, short texts and tables, and refusals that say the right call."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep.errors import InvalidArgument, StepFailed

HOSTILE = "<script>alert('x')</script>&\"<b>"


@pytest.fixture
def store() -> Any:
    with everstep.open("memory://") as opened:
        yield opened


@pytest.mark.parametrize(
    ("given", "call"), [("x.db", r"everstep\.open\('x\.db'\)"), (Path("x.db"), r"everstep\.open\('x\.db'\)"), (5, r"everstep\.open\(\)")]
)
def test_a_store_made_by_hand_is_refused_with_the_right_call(given: Any, call: str) -> None:
    with pytest.raises(InvalidArgument, match=call):
        everstep.Store(given)
    with pytest.raises(InvalidArgument, match=r"everstep\.open\(\)"):
        everstep.Store()


@pytest.mark.parametrize("name", ["commit", "first_commit", "saver", "fork_before", "follow", "change_policy", "at_close", "frame_with"])
def test_a_store_shows_no_internals(store: everstep.Store, name: str) -> None:
    assert not hasattr(store, name)
    assert {"backend", "framer", "keeper", "mask"}.isdisjoint(dir(store))
    assert {"run", "start", "outcome", "url"} <= set(dir(store))


@pytest.mark.parametrize("function", [everstep.step, everstep.workflow])
def test_the_help_of_a_decorator_names_every_option(function: Any) -> None:
    options = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    assert {"name", "retry", "timeout"} <= set(options)
    assert [name for name in options if name not in inspect.getdoc(function)] == []  # type: ignore[operator]


def test_an_async_store_has_every_method_of_a_store() -> None:
    of_store = {name for name in dir(everstep.Store) if name[0] != "_"}
    given = {"run", "on", "hooks", "observe", "unobserve", "drives", "together"}  # set on the instance: they are not awaited
    assert of_store - given == {name for name in dir(everstep.AsyncStore) if name[0] != "_"}
    for name in of_store - given - {"url", "encrypted"}:
        method = getattr(everstep.AsyncStore, name)
        assert inspect.iscoroutinefunction(method) or inspect.iscoroutinefunction(
            inspect.unwrap(method, stop=inspect.iscoroutinefunction)
        ), name


def fill(store: everstep.Store) -> None:
    with store.run("r", note=HOSTILE, meta={"k": HOSTILE}, tags=["t"]) as run:
        run.state["text"] = HOSTILE
        run.checkpoint(HOSTILE)
        run.state["text"] = HOSTILE * 2
        run.step("say", len, HOSTILE)
        run.emit("told", text=HOSTILE)
        run.checkpoint(HOSTILE, tag="end")


def test_every_table_escapes_what_it_shows(store: everstep.Store) -> None:
    fill(store)
    with store.run("r") as run:
        shown = [run._repr_html_(), store.get("r")._repr_html_(), store.runs()._repr_html_(), store.checkpoints("r")._repr_html_()]
        shown += [store.checkpoint("r@end")._repr_html_(), store.diff("r@1", "r@2")._repr_html_(), store.events(run="r")._repr_html_()]  # type: ignore[attr-defined]
    shown += [store.steps("r")._repr_html_(), store.outcome("r")._repr_html_(), run._repr_html_()]  # type: ignore[attr-defined]
    for text in shown:
        assert text.startswith("<table>")
        assert "<script>" not in text
        assert "<b>" not in text
    assert sum("&lt;script&gt;" in text for text in shown) >= 8
    assert store.runs(status="failed")._repr_html_() == "<p>empty</p>"
    assert "not open" in store.run("new")._repr_html_()


def test_a_long_table_is_shortened(store: everstep.Store) -> None:
    with store.run("r") as run:
        for _ in range(60):
            run.checkpoint()
        run.state["big"] = "x" * 100_000
    text = store.checkpoints("r")._repr_html_()
    assert "and 11 more" in text
    assert len(run._repr_html_()) < 1_000


def test_texts_in_a_shell_are_one_short_line(store: everstep.Store) -> None:
    fill(store)
    failed = everstep.Outcome("f", "failed", error=StepFailed("a#0", "ValueError", "no"))
    shown = [store, store.get("r"), store.checkpoint("r"), store.outcome("r"), store.step("r", "say"), store.run("r"), failed]
    assert [repr(one) for one in shown if "\n" in repr(one) or len(repr(one)) > 200] == []
    assert repr(store.get("r")) == "<everstep.RunInfo 'r' succeeded, checkpoints: 2>"
    assert repr(everstep.Outcome("o", "succeeded", 6)) == "<everstep.Outcome 'o' succeeded: 6>"
