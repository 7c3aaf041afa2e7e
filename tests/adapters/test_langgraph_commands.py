"""The command line on the runs of LangGraph: messages as messages, no bookkeeping, answers from the shell."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph", reason="pip install 'everstep[langgraph,dev-adapters]'")

import warm

from everstep.cli.draw.values import pretty, shown

APP = """
from typing import Annotated, TypedDict
from langchain_core.messages import AIMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt
from everstep.adapters.langgraph import Saver, durable, resume

class State(TypedDict, total=False):
    messages: Annotated[list, add_messages]

@durable
def charge(amount):
    return f"charged {amount}"

def plan(state):
    return {"messages": [AIMessage("Let me pay.", tool_calls=[{"name": "charge", "args": {"amount": 30}, "id": "1", "type": "tool_call"}])]}

def pay(state):
    return {"messages": [("ai", f"{charge(30)}, approved: {interrupt('Pay 30?')}")]}

builder = StateGraph(State)
builder.add_node("plan", plan)
builder.add_node("pay", pay)
builder.add_edge(START, "plan")
builder.add_edge("plan", "pay")
graph = resume(builder.compile(checkpointer=Saver("s.db")))
if __name__ == "__main__":
    graph.invoke({"messages": [("human", "Buy it.")]}, {"configurable": {"thread_id": "ada@example.com"}})
"""


def test_a_thread_in_the_shell(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)

    def run(*command: str) -> str:
        done = warm.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return str(done.stdout) + str(done.stderr)

    def everstep(*arguments: str) -> str:
        return run("-m", "everstep", *arguments, "--store", "s.db")

    run("app.py")
    assert "ada%40example.com" in everstep("runs", "--workflow", "langgraph")
    log = everstep("log", "ada@example.com")
    assert "tool charge" in log
    assert "◆ checkpoint @3  plan" in log
    assert "Pay 30?" in log
    assert "$" not in log
    assert "Pay 30?" in everstep("inbox", "--workflow", "langgraph")
    gate = log.partition("? gate ")[2].partition("#")[0]
    change = everstep("diff", "ada%40example.com@3")
    assert change == "+ values.messages[1]: ai: Let me pay. -> charge(amount=30)\n"
    assert "$langgraph" in everstep("diff", "ada%40example.com@3", "--all")
    assert "$langgraph" not in everstep("state", "ada@example.com")
    assert "$langgraph" in everstep("state", "ada@example.com", "--all")
    assert "@3" in everstep("blame", "ada@example.com", "values.messages[1]")
    everstep("answer", "ada@example.com", gate, "yes")
    assert "succeeded" in everstep("resume", "ada@example.com", "--import", "app")
    assert "charged 30, approved: yes" in everstep("state", "ada@example.com", "values.messages[2]")
    everstep("fork", "ada@example.com", "other")
    everstep("verify", "--depth", "full")


@pytest.mark.parametrize(
    ("stored", "text"),
    [
        ({"@": "human", "content": "hi", "id": "1"}, "human: hi"),
        ({"@": "ai", "content": "", "tool_calls": [{"name": "f", "args": {"q": "x"}}]}, 'ai: -> f(q="x")'),
        ({"@": "ai", "content": [{"type": "text", "text": "a"}, "b", {"type": "image"}]}, 'ai: a b {"type": "image"}'),
        ({"@": "tool", "content": "found", "name": "search"}, "tool search: found"),
        ({"@": "remove", "content": "", "id": "7"}, "remove: message 7"),
        ({"@": "object", "type": "app.Order", "fields": {"id": 7}}, "Order(id=7)"),
        ({"@": "object", "type": "app.Colour", "value": "red"}, 'Colour("red")'),
        ({"@": 7}, '{"@": 7}'),
        ({"@": "human", "content": {"odd": 1}}, 'human: {"odd": 1}'),
        ({"@": "unknown kind"}, '{"@": "unknown kind"}'),
    ],
)
def test_messages_are_printed_as_messages(stored: Any, text: str) -> None:
    assert shown(stored) == text
    assert text[:6].replace('"', '\\"') in pretty([stored], 100) or stored.get("@") in (7, "unknown kind")
