"""A LangGraph agent that is killed twice with kill -9, and continues: python examples/adapters/langgraph_agent.py

Every model and tool call is made once. The model is a list of answers: no key, no network. The parent starts the agent again each time it
dies. Needs pip install '.[langgraph]' in a checkout.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

from everstep.adapters.langgraph import Saver, durable

SCRIPT = [("search", {"item": "bike"}), ("search", {"item": "lock"}), ("pay", {"amount": 330}), None]
DIES_BEFORE = {"first": "search lock", "second": "pay 330", "third": None}


class State(TypedDict):
    messages: Annotated[list[Any], add_messages]


def effect(what: str) -> None:
    """Something that costs money. Before some of them, the process is killed."""
    if os.environ.get("DIES_BEFORE") == what:
        os.kill(os.getpid(), signal.SIGKILL)
    with Path("effects.txt").open("a") as file:
        file.write(what + "\n")


@durable
def ask_model(turn: int) -> AIMessage:
    effect(f"model {turn}")
    wanted = SCRIPT[turn]
    if wanted is None:
        return AIMessage("Bought a bike and a lock for 330.")
    return AIMessage("", tool_calls=[{"name": wanted[0], "args": wanted[1], "id": f"call-{turn}", "type": "tool_call"}])


@durable
def search(item: str) -> str:
    effect(f"search {item}")
    return f"found a {item}"


@durable
def pay(amount: int) -> str:
    effect(f"pay {amount}")
    return f"paid {amount}"


def model(state: State) -> Any:
    return {"messages": [ask_model(sum(message.type == "ai" for message in state["messages"]))]}


def tools(state: State) -> Any:
    known = {"search": search, "pay": pay}
    calls = state["messages"][-1].tool_calls
    return {"messages": [ToolMessage(known[call["name"]](**call["args"]), tool_call_id=call["id"]) for call in calls]}


def build(saver: Saver) -> Any:
    builder = StateGraph(State)
    builder.add_node("model", model)
    builder.add_node("tools", tools)
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", lambda state: "tools" if state["messages"][-1].tool_calls else END, ["tools", END])
    builder.add_edge("tools", "model")
    return builder.compile(checkpointer=saver)


def agent() -> None:
    """Begin the thread, or continue it where the last process died."""
    with Saver("agent.db") as saver:
        graph = build(saver)
        config = {"configurable": {"thread_id": "shopping"}}
        begun = bool(graph.get_state(config).values)
        result = graph.invoke(None if begun else {"messages": [HumanMessage("Buy a bike and a lock.")]}, config, durability="sync")
        print(result["messages"][-1].content)


def parent() -> None:
    os.chdir(tempfile.mkdtemp())
    for attempt, dies_before in DIES_BEFORE.items():
        environment = os.environ | {"DIES_BEFORE": dies_before or ""}
        done = subprocess.run([sys.executable, __file__, "agent"], env=environment, check=False)
        print(f"{attempt} process: {'killed' if done.returncode == -signal.SIGKILL else 'finished'}", flush=True)
    effects = Path("effects.txt").read_text().splitlines()
    print(f"{len(effects)} calls, each made once: {'yes' if len(effects) == len(set(effects)) == 7 else 'no'}")


if __name__ == "__main__":
    agent() if sys.argv[1:] == ["agent"] else parent()
