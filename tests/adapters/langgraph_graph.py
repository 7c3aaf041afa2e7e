"""A graph with a scripted model, two tools and an approval, for tests and for the processes that they start and kill.

python langgraph_graph.py URL THREAD LOG [KILL_AT]      run or continue the thread; each model and tool call writes a line to LOG, and the
                                                        call with the number KILL_AT kills the process after its effect, or before it if
                                                        the number is negative
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

from everstep.adapters.langgraph import Saver, durable

SCRIPT: list[list[tuple[str, dict[str, Any]]]] = [[("search", {"q": "bike"}), ("search", {"q": "lock"})], [("charge", {"amount": 30})], []]
CALLS = 6  # three of the model, three of tools


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    spent: int


class Calls:
    """Writes down each call, and kills the process at one of them."""

    def __init__(self, log: Path | None = None, kill_at: int = 0):
        self.log = log
        self.kill_at = kill_at
        self.made: list[str] = []

    def __call__(self, name: str) -> None:
        self.made.append(name)
        if self.kill_at == -len(self.made):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.log is not None:
            with self.log.open("a") as file:
                file.write(name + "\n")
        if self.kill_at == len(self.made):
            os.kill(os.getpid(), signal.SIGKILL)


def build(saver: Any, calls: Calls, approve: Any = None) -> Any:
    """Return the compiled graph."""

    @durable
    def ask_model(turn: int) -> AIMessage:
        calls(f"model {turn}")
        wanted = SCRIPT[turn]
        tool_calls = [{"name": name, "args": args, "id": f"call-{turn}-{i}", "type": "tool_call"} for i, (name, args) in enumerate(wanted)]
        return AIMessage("" if wanted else "Done: 30 spent.", tool_calls=tool_calls)

    @durable
    def search(q: str) -> str:
        calls(f"search {q}")
        return f"found {q}"

    @durable
    def charge(amount: int) -> str:
        calls(f"charge {amount}")
        return f"charged {amount}"

    tools = {"search": search, "charge": charge}

    def model(state: State) -> State:
        return {"messages": [ask_model(sum(isinstance(message, AIMessage) for message in state["messages"]))]}

    def use_tools(state: State) -> State:
        wanted = state["messages"][-1].tool_calls  # type: ignore[union-attr]
        out = [ToolMessage(tools[call["name"]](**call["args"]), tool_call_id=call["id"]) for call in wanted]
        return {"messages": out, "spent": state.get("spent", 0) + sum(call["args"].get("amount", 0) for call in wanted)}

    builder = StateGraph(State)
    builder.add_node("model", model)
    builder.add_node("tools", use_tools)
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", lambda state: "tools" if state["messages"][-1].tool_calls else END, ["tools", END])
    builder.add_edge("tools", "model")
    return builder.compile(checkpointer=saver)


def run(url: str, thread: str, calls: Calls) -> Any:
    """Begin a thread, or continue it where the last process stopped."""
    with Saver(url) as saver:
        graph = build(saver, calls)
        config = {"configurable": {"thread_id": thread}}
        begun = graph.get_state(config).values
        return graph.invoke(None if begun else {"messages": [HumanMessage("Buy a bike.", id="h")]}, config, durability="sync")


if __name__ == "__main__":
    result = run(sys.argv[1], sys.argv[2], Calls(Path(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else 0))
    print([type(message).__name__ + ":" + str(message.content) for message in result["messages"]], result["spent"])
