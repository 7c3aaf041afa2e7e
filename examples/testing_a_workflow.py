"""Tests of a workflow, fast and without files: python -m pytest examples/testing_a_workflow.py

A store in memory takes the place of the file, a fake clock lets a week pass in a moment, and a plain function takes the place of the model.
Nothing of Everstep is mocked: the same code runs as in production. The four tests show what is worth testing: the result, an answer, a
crash, and a deadline.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import everstep
from everstep.testing.clock import FakeClock

WEEK = 7 * 24 * 3600
calls: list[str] = []


def model(text: str) -> str:
    """Call a model; the tests replace it."""
    raise NotImplementedError


@everstep.step(retry=everstep.Retry(attempts=3, delay=60, only=(ConnectionError,)))
def summary(text: str) -> str:
    return model(text)


@everstep.workflow
def publish(text: str) -> str:
    short = summary(text)
    answer = everstep.gate("editor", ask=f"Publish {short!r}?", choices=["yes", "no"], timeout=WEEK, default="no")
    return f"published: {short}" if answer == "yes" else "dropped"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[everstep.Store]:
    def scripted(text: str) -> str:
        calls.append(text)
        return text[:5]

    calls.clear()
    monkeypatch.setitem(globals(), "model", scripted)
    with everstep.open("memory://") as opened:
        yield opened


def test_an_approved_text_is_published(store: everstep.Store) -> None:
    out = store.start(publish, "Hello, world", id="p")
    assert (out.status, out.gates[0].ask) == ("waiting", "Publish 'Hello'?")
    store.answer("p", "editor", "yes")
    assert store.resume("p").unwrap() == "published: Hello"


def test_the_model_is_not_paid_twice_after_a_crash(store: everstep.Store) -> None:
    store.start(publish, "Hello, world", id="p")
    out = store.start(publish, "Hello, world", id="p")  # what a new process does after kill -9
    assert (out.report.kept, out.report.executed) == (1, 0)
    assert calls == ["Hello, world"]


def test_a_busy_model_is_asked_again(store: everstep.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(text: str) -> str:
        calls.append(text)
        if len(calls) < 3:
            raise ConnectionError("busy")
        return "short"

    monkeypatch.setitem(globals(), "model", busy)
    with FakeClock():  # the minutes between the attempts pass at once
        assert store.start(publish, "Hello", id="p").status == "waiting"
    assert [step.status for step in store.steps("p")] == ["failed", "failed", "succeeded"]


def test_a_text_without_an_answer_is_dropped_after_a_week(store: everstep.Store) -> None:
    with FakeClock() as clock:
        store.start(publish, "Hello", id="p")
        clock.advance(WEEK - 1)
        assert store.wake() == []
        clock.advance(2)
        assert [out.unwrap() for out in store.wake()] == ["dropped"]
