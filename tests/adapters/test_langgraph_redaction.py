"""A store that masks secrets: channels and nodes that are named like secrets, and values that are on their way."""

from __future__ import annotations

from operator import add
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

pytest.importorskip("langgraph", reason="pip install 'everstep[langgraph,dev-adapters]'")

from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

import everstep
from everstep.adapters.langgraph import Saver

CONFIG: Any = {"configurable": {"thread_id": "t"}}


class State(TypedDict, total=False):
    password: str
    log: Annotated[list[str], add]


def builder(calls: list[str], *, inside: str = "") -> Any:
    def login(state: State) -> State:
        calls.append("login")
        return {"password": "hunter2", "log": ["in"]}

    made: Any = StateGraph(State)
    made.add_node("auth_token", login)
    made.add_node("ask", lambda state: {"log": [interrupt("Go on?")]})
    made.add_edge(START, "auth_token")
    made.add_edge("auth_token", "ask")
    if not inside:
        return made
    around: Any = StateGraph(State)
    around.add_node(inside, made.compile())
    around.add_edge(START, inside)
    return around


def graph_in(store: everstep.Store, calls: list[str], inside: str = "") -> Any:
    """With a saver of its own, as another process has it."""
    return builder(calls, inside=inside).compile(checkpointer=Saver(store))


@pytest.mark.parametrize("inside", ["", "shop", "refresh_token"])
def test_a_graph_with_names_of_secrets_continues(tmp_path: Path, inside: str) -> None:
    calls: list[str] = []
    with everstep.open(tmp_path / "s.db", redaction=everstep.Redactor.default()) as store:
        graph_in(store, calls, inside).invoke({"password": "swordfish", "log": []}, CONFIG)
        assert graph_in(store, calls, inside).get_state(CONFIG).next == (inside or "ask",)
        done = graph_in(store, calls, inside).invoke(Command(resume="yes"), CONFIG)
        assert (done["password"], done["log"], calls) == ("[redacted]", ["in", "yes"], ["login"])
        store.fork("t", id="other")
        forked: Any = {"configurable": {"thread_id": "other"}}
        assert graph_in(store, calls, inside).get_state(forked).values["log"] == ["in", "yes"]
        assert graph_in(store, calls, inside).invoke({"password": "again", "log": []}, forked)["__interrupt__"]
    raw = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    assert not any(secret in raw for secret in (b"hunter2", b"swordfish", b"again"))


def test_a_write_on_its_way_is_masked(tmp_path: Path) -> None:
    def fails(state: State) -> State:
        raise ValueError("broken")

    made: Any = StateGraph(State)
    made.add_node("login", lambda state: {"password": "hunter2"})
    made.add_node("fails", fails)
    made.add_edge(START, "login")
    made.add_edge(START, "fails")
    store = everstep.open(tmp_path / "s.db", redaction=everstep.Redactor.default())
    with store, pytest.raises(ValueError, match="broken"):
        made.compile(checkpointer=Saver(store)).invoke({"log": []}, CONFIG)
    raw = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    assert b"hunter2" not in raw
