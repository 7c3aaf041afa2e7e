"""No view hands out a secret, wherever it is stored: in states, notes, metadata, questions, answers, events, errors, inputs of schedules."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import everstep
from everstep.errors import Waiting
from everstep.redact import Redactor
from everstep.views import graph, health, journal, outcome, queues, run, runs, states, stats, step
from everstep.views.json import to_json
from everstep.views.masking import Masking

KEY = "sk-abcdefghijklmnopqrstuvwx"
WORD = "hunter2-hunter2"
TEXT = f"call it with {KEY}, please"


def fails() -> None:
    raise ValueError(TEXT)


def _fail(opened: everstep.Run) -> None:
    opened.step("logs in", dict, api_key=WORD, text=TEXT)
    opened.step("fails", fails)


@everstep.workflow(name="vault-flow")
def vault_flow(password: str) -> str:
    return password


@pytest.fixture
def vault(store: everstep.Store) -> everstep.Store:
    with store.run("secret", note=TEXT, meta={"password": WORD, "text": TEXT}) as opened:
        opened.state.update(api_key=WORD, text=TEXT, deep=[{"token": WORD, "text": TEXT}], credentials={"user": WORD})
        opened.state[KEY] = 1
        opened.checkpoint(TEXT, meta={"token": WORD})
        opened.state.update(api_key=f"{WORD}2", text=f"{TEXT}2", credentials={"user": f"{WORD}2"})
        opened.emit("told", password=WORD, text=TEXT)
        opened.checkpoint(TEXT)
    with pytest.raises(Waiting), store.run("gated") as opened:
        opened.gate("g", ask=TEXT, choices=[KEY, "no"])
    with pytest.raises(Waiting), store.run("answered") as opened:
        opened.gate("g", ask=TEXT)
    store.answer("answered", "g", {"password": WORD})
    with store.run("answered") as opened:
        opened.gate("g", ask=TEXT)
    with pytest.raises(ValueError), store.run("failed") as opened:
        _fail(opened)
    store.fork("secret", "fork")
    store.enqueue(vault_flow, password=WORD, id="queued", key=KEY, dedupe=KEY)
    store.schedule("nightly", vault_flow, password=WORD, cron="0 3 * * *", key=KEY)
    return store


VIEWS: dict[str, Callable[[everstep.Store, Masking], Any]] = {
    "runs": lambda store, mask: runs.list_runs(store, mask),
    "failed": lambda store, mask: runs.failed_runs(store, mask, "ValueError"),
    "forest": lambda store, mask: runs.forest(store, mask, runs.list_runs(store, mask).runs),
    "run": lambda store, mask: run.detail(store, mask, "secret"),
    "failed run": lambda store, mask: run.detail(store, mask, "failed"),
    "gated run": lambda store, mask: run.detail(store, mask, "gated"),
    "queued run": lambda store, mask: run.detail(store, mask, "queued"),
    "gates": lambda store, mask: [run.gate_view(gate, mask) for gate in store.gates("answered")],
    "checkpoint": lambda store, mask: run.checkpoint(store, mask, "secret@1"),
    "timeline": lambda store, mask: journal.timeline(store, mask, "secret"),
    "timeline of a failure": lambda store, mask: journal.timeline(store, mask, "failed"),
    "timeline of an answer": lambda store, mask: journal.timeline(store, mask, "answered"),
    "state": lambda store, mask: states.state(store, mask, "secret"),
    "part of a state": lambda store, mask: states.state(store, mask, "secret", ["credentials", "user"]),
    "newest good state": lambda store, mask: states.state(store, mask, "secret", newest_good=True),
    "diff": lambda store, mask: states.diff(store, mask, "secret@1", "secret@2"),
    "blame": lambda store, mask: states.blame(store, mask, "secret", ["api_key"], "api_key"),
    "bisect": lambda store, mask: states.bisect(store, mask, "secret", "always", lambda state: True, False, lambda done, of: None),
    "outcome": lambda store, mask: outcome.outcome(store, mask, "queued"),
    "outcome of a failure": lambda store, mask: outcome.outcome(store, mask, "failed"),
    "step": lambda store, mask: step.step(store, mask, "failed", "logs in"),
    "failed step": lambda store, mask: step.step(store, mask, "failed", "fails"),
    "queue_entry": lambda store, mask: queues.queue_entry(store, mask, "queued"),
    "schedules": lambda store, mask: queues.schedules(store, mask),
    "queues": lambda store, mask: queues.queues(store),
    "stats": lambda store, mask: stats.stats(store, None, 100, lambda done, of: None),
    "graph": lambda store, mask: graph.graph(store, "secret"),
    "doctor": lambda store, mask: health.doctor(store, mask),
    "verify": lambda store, mask: health.verify(store, mask, "full"),
}


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_holds_no_secret_and_is_json(vault: everstep.Store, mask: Masking, view: str) -> None:
    found = VIEWS[view](vault, mask)
    for text in (repr(found), json.dumps(to_json(found), allow_nan=False)):
        assert KEY not in text
        assert WORD not in text


def test_the_secrets_are_there_unless_they_are_masked(vault: everstep.Store) -> None:
    """Otherwise the test above would pass whatever a view does."""
    bare = Masking(lambda: Redactor(keys=(), patterns=()))
    seen = {view: repr(VIEWS[view](vault, bare)) for view in VIEWS}
    silent = {"queues", "stats", "graph", "doctor", "verify"}
    assert {view for view, text in seen.items() if KEY not in text and WORD not in text} == silent


def test_only_who_asks_for_secrets_gets_them(vault: everstep.Store, mask: Masking) -> None:
    assert states.state(vault, mask, "secret", ["api_key"], show_secrets=True).state == f"{WORD}2"
    assert states.stored_state(vault, "secret")[1]["api_key"] == f"{WORD}2"


def test_an_outcome_is_masked(store: everstep.Store, mask: Masking) -> None:
    done = store.start(vault_flow, {"password": WORD, "text": TEXT}, id="o")
    view = outcome.outcome_view(done, mask)
    assert view.status == "succeeded"
    assert WORD not in repr(view)
    assert KEY not in repr(view)
    assert to_json(view)["report"]["executed"] == 0


def test_masking_loads_what_is_configured_once_and_only_when_there_is_a_value() -> None:
    loaded: list[int] = []

    def load() -> Redactor:
        loaded.append(1)
        return Redactor.default()

    mask = Masking(load)
    assert mask(None) is None
    assert mask({}) == {}
    assert loaded == []
    assert mask({"password": WORD}) != {"password": WORD}
    assert mask("plain", ["password"]) != "plain"
    assert loaded == [1]
