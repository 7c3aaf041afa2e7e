"""A Secret in the state of a framework is stored only where that is allowed, comes back, and shows its value nowhere."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest

import everstep
from everstep import Secret
from everstep.errors import PlainSecret

SECRET = Secret("hunter2-hunter2")


class State(TypedDict):
    key: Any
    length: int


def graph_of(store: everstep.Store) -> Any:
    graphs = pytest.importorskip("langgraph.graph")
    from everstep.adapters.langgraph import Saver

    builder = graphs.StateGraph(State)
    builder.add_node("use", lambda state: {"length": len(state["key"].reveal())})
    builder.add_edge(graphs.START, "use")
    builder.add_edge("use", graphs.END)
    return builder.compile(checkpointer=Saver(store))


def test_a_graph_gets_it_back() -> None:
    config = {"configurable": {"thread_id": "t"}}
    with everstep.open("memory://", plain_secrets=True) as store:
        assert graph_of(store).invoke({"key": SECRET, "length": 0}, config) == {"key": SECRET, "length": 15}
        assert graph_of(store).get_state(config).values["key"] == SECRET
        assert "hunter2" not in repr(store.load("t"))


def test_a_graph_in_a_store_without_a_key_is_refused() -> None:
    with everstep.open("memory://") as store, pytest.raises(PlainSecret) as caught:
        graph_of(store).invoke({"key": SECRET, "length": 0}, {"configurable": {"thread_id": "t"}})
    assert "hunter2" not in str(caught.value)


def test_the_state_of_an_adk_session_keeps_it() -> None:
    pytest.importorskip("google.adk")
    from everstep.adapters.adk.values import to_plain

    assert to_plain({"key": [SECRET], "set": {SECRET}}, "state") == {"key": [SECRET], "set": {SECRET}}
