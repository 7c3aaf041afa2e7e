"""Threads of graphs: stale writers, many threads, subgraphs, time travel, delta channels, bad input."""

from __future__ import annotations

import asyncio
import operator
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

pytest.importorskip("langgraph", reason="pip install 'everstep[langgraph,dev-adapters]'")

import warm
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Send

import everstep
from everstep.adapters.langgraph import Saver
from everstep.errors import Conflict, Damaged, InvalidArgument


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    done: Annotated[list[str], operator.add]


def of(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


def echo(state: State) -> State:
    return {"messages": [AIMessage(f"echo {state['messages'][-1].content}")], "done": [str(state["messages"][-1].content)]}


def graph_of(saver: Any, node: Any = echo) -> Any:
    builder = StateGraph(State)
    builder.add_node("echo", node)
    builder.add_edge(START, "echo")
    return builder.compile(checkpointer=saver)


def say(graph: Any, thread: str, text: str, **options: Any) -> Any:
    return graph.invoke({"messages": [HumanMessage(text)]}, of(thread), **options)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_conversation_goes_on_in_another_saver(places: Any, durability: Any) -> None:
    store = places.open()
    for i in range(3):
        result = say(graph_of(Saver(store)), "user@example.com/a b", f"m{i}", durability=durability)
    assert result["done"] == ["m0", "m1", "m2"]
    assert [message.content for message in result["messages"]][-2:] == ["m2", "echo m2"]
    assert store.get(everstep.quote("user@example.com/a b")).status == "waiting"
    assert store.verify("full").ok


def test_async_graphs(places: Any) -> None:
    async def main() -> Any:
        saver = Saver(places.open())
        graph = graph_of(saver)
        await asyncio.gather(*(graph.ainvoke({"messages": [HumanMessage("a")]}, of(f"t{i}")) for i in range(5)))
        await graph.ainvoke({"messages": [HumanMessage("b")]}, of("t0"))
        return [one async for one in graph.aget_state_history(of("t0"))]

    history = asyncio.run(main())
    assert history[0].values["done"] == ["a", "b"]
    assert len(history) == 6


def test_fifty_threads_at_once(places: Any) -> None:
    store = places.open()
    graph = graph_of(Saver(store))
    with ThreadPoolExecutor(50) as pool:
        list(pool.map(lambda i: [say(graph, f"t{i}", f"{i}.{k}") for k in range(2)], range(50)))
    for i in range(50):
        assert graph.get_state(of(f"t{i}")).values["done"] == [f"{i}.0", f"{i}.1"]
    assert len(store.runs(workflow="langgraph", limit=100)) == 50


def test_a_stale_writer_gets_an_error_and_overwrites_nothing(places: Any) -> None:
    """Two savers stand for two processes: both read the thread before either wrote."""
    store = places.open()
    say(graph_of(Saver(store)), "t", "first")
    read, go = threading.Event(), threading.Event()

    def slow(state: State) -> State:
        read.set()
        assert go.wait(30)
        return echo(state)

    with ThreadPoolExecutor(1) as pool:
        stale = pool.submit(say, graph_of(Saver(store), slow), "t", "stale", durability="sync")
        assert read.wait(30)
        say(graph_of(Saver(store)), "t", "second")
        go.set()
        with pytest.raises(Conflict, match="has moved on"):
            stale.result(30)
    assert graph_of(Saver(store)).get_state(of("t")).values["done"] == ["first", "second"]


def test_two_savers_that_begin_one_thread(places: Any) -> None:
    store = places.open()
    one, other = Saver(store), Saver(store)
    assert one.get_tuple(of("t")) is None
    assert other.get_tuple(of("t")) is None
    put(one)
    with pytest.raises(Conflict, match="is the first, but another process has saved"):
        put(other)
    assert len(list(one.list(of("t")))) == 1


def put(saver: Saver, parent: str | None = None, thread: str = "t", **metadata: Any) -> str:
    checkpoint = empty_checkpoint()
    config = {"configurable": {"thread_id": thread, "checkpoint_ns": "", "checkpoint_id": parent}}
    saver.put(config, checkpoint, {"source": "loop", "step": 0, "parents": {}, **metadata}, {})  # type: ignore[typeddict-item]
    return checkpoint["id"]


@pytest.mark.parametrize("source", ["input", "loop", "update"])
def test_a_checkpoint_must_follow_the_newest_or_one_that_was_asked_for(places: Any, source: str) -> None:
    store = places.open()
    saver = Saver(store)
    first = put(saver)
    second = put(saver, first)
    with pytest.raises(Conflict, match="has moved on"):
        put(Saver(store), first, source=source)
    with pytest.raises(Conflict, match="has moved on"):
        put(saver, first, source=source)
    asked = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": first}}
    assert saver.get_tuple(asked) is not None
    put(saver, first, source=source)  # time travel
    put(Saver(store, strict=False), second, source=source)
    assert len(list(saver.list(of("t")))) == 4


def test_two_processes_on_one_thread_lose_nothing_silently(tmp_path: Path) -> None:
    url = str(tmp_path / "s.db")
    with Saver(url) as saver:
        say(graph_of(saver), "t", "first")
    program = (
        "import sys, test_langgraph_threads as t\n"
        f"graph = t.graph_of(t.Saver({url!r}))\n"
        "for i in range(8):\n"
        "    try:\n"
        "        t.say(graph, 't', f'{sys.argv[1]}{i}')\n"
        "        print(f'{sys.argv[1]}{i}')\n"
        "    except t.Conflict:\n"
        "        pass\n"
    )
    environment = {"PYTHONPATH": ":".join([str(Path(__file__).parent), str(Path(__file__).parents[1]), *sys.path])}
    command = [sys.executable, "-c", program]
    processes = [warm.Popen([*command, name], env=environment, stdout=-1, stderr=-1, text=True) for name in "ab"]
    said = []
    for process in processes:
        out, problem = process.communicate(timeout=60)
        assert process.returncode == 0, problem
        said += out.split()
    with Saver(url) as saver:
        kept = graph_of(saver).get_state(of("t")).values["done"]
        assert set(said) <= set(kept)
        assert saver.store.verify("full").ok


def test_time_travel_and_update_state(places: Any) -> None:
    store = places.open()
    graph = graph_of(Saver(store))
    say(graph, "t", "one")
    say(graph, "t", "two")
    history = list(graph.get_state_history(of("t")))
    past = next(one for one in history if one.values.get("done") == ["one"] and not one.next)
    graph.invoke({"messages": [HumanMessage("instead")]}, past.config)
    assert graph.get_state(of("t")).values["done"] == ["one", "instead"]
    graph.update_state(of("t"), {"done": ["by hand"]}, as_node="echo")
    say(graph, "t", "three")
    assert graph.get_state(of("t")).values["done"] == ["one", "instead", "by hand", "three"]
    assert len(list(graph.get_state_history(of("t")))) == len(history) + 3 + 1 + 3
    assert [one.metadata["source"] for one in graph.get_state_history(of("t"), filter={"source": "update"})] == ["update"]
    assert len(list(graph.get_state_history(of("t"), limit=2))) == 2


@pytest.mark.parametrize("keeps", [None, True])
def test_subgraphs(places: Any, keeps: Any) -> None:
    """A subgraph that belongs to one call, and one that keeps its own history."""
    store = places.open()
    inner = StateGraph(State)
    inner.add_node("echo", echo)
    inner.add_edge(START, "echo")
    graph = graph_of(Saver(store), inner.compile(checkpointer=keeps))
    for text in "abc":
        result = say(graph, "t", text)
    assert result["done"][-1] == "c"
    past = [one for one in graph.get_state_history(of("t")) if one.next == ("echo",)]
    graph.invoke(None, past[-1].config)
    state = store.load("t")
    assert ("subgraphs" in state) is bool(keeps)
    assert store.verify("full").ok


def test_work_that_is_sent_to_nodes_in_parallel(places: Any) -> None:
    builder = StateGraph(State)
    builder.add_node("work", lambda given: {"done": [given["name"]]})
    builder.add_conditional_edges(START, lambda _: [Send("work", {"name": name}) for name in "abc"], ["work"])
    graph = builder.compile(checkpointer=Saver(places.open()))
    assert graph.invoke({"messages": []}, of("t"))["done"] == ["a", "b", "c"]
    assert len(list(graph.get_state_history(of("t")))) == 3


@pytest.mark.parametrize("durability", ["sync", "exit"])
def test_delta_channels_are_rebuilt_and_survive_pruning(places: Any, durability: Any) -> None:
    class Deltas(TypedDict):
        log: Annotated[list[str], DeltaChannel(lambda old, new: [*old, *(x for part in new for x in part)], list, snapshot_frequency=3)]

    store = places.open()
    for i in range(8):
        builder = StateGraph(Deltas)
        builder.add_node("add", lambda state: {"log": [f"n{len(state['log'])}"]})
        builder.add_edge(START, "add")
        graph = builder.compile(checkpointer=Saver(store))
        result = graph.invoke({"log": [f"in{i}"]}, of("t"), durability=durability)
    assert len(result["log"]) == 16
    graph.checkpointer.prune(["t"])
    again = builder.compile(checkpointer=Saver(store))
    assert again.get_state(of("t")).values == result
    assert again.invoke({"log": ["more"]}, of("t"), durability=durability)["log"] == [*result["log"], "more", "n17"]


def test_a_saver_knows_nothing_of_a_thread_that_it_pruned(places: Any) -> None:
    saver = Saver(places.open())
    put(saver, put(saver))
    saver.prune(["t"], strategy="delete")
    assert saver.get_tuple(of("t")) is None
    again = put(saver)
    assert [one.checkpoint["id"] for one in saver.list(of("t"))] == [again]


def test_what_is_deleted_is_gone(places: Any) -> None:
    store = places.open()
    saver = Saver(store)
    first = put(saver, run_id="keep")
    secret = put(saver, first, run_id="secret-run")
    saver.delete_for_runs(["secret-run"])
    found = list(saver.list(of("t")))
    assert [one.checkpoint["id"] for one in found] == [first]
    assert saver.get_tuple(of("t")) is not None
    assert secret not in str([one.meta for one in store.checkpoints("t")])
    put(saver, first, run_id="next")
    assert len(list(Saver(store).list(of("t")))) == 2
    saver.delete_thread("t")
    assert saver.get_tuple(of("t")) is None
    assert list(store.runs()) == []
    put(saver)
    assert len(list(saver.list(None))) == 1
    assert store.verify("full").ok


def test_a_fork_made_by_everstep_is_a_thread(places: Any) -> None:
    store = places.open()
    say(graph_of(Saver(store)), "t", "one")
    store.fork("t", id="copy")
    graph = graph_of(Saver(store))
    assert graph.get_state(of("copy")).values["done"] == ["one"]
    assert say(graph, "copy", "two")["done"] == ["one", "two"]
    assert graph.get_state(of("t")).values["done"] == ["one"]


def test_bad_input(places: Any) -> None:
    store = places.open()
    saver = Saver(store)
    graph = graph_of(saver)
    assert graph.get_state(of("unknown")).values == {}
    assert list(graph.get_state_history(of("unknown"))) == []
    with pytest.raises(InvalidArgument, match="must have a thread_id"):
        saver.get_tuple({"configurable": {}})
    with store.run("foreign", state={"mine": 1}) as run:
        run.checkpoint()
    for call in (lambda: graph.get_state(of("foreign")), lambda: say(graph, "foreign", "x"), lambda: saver.delete_thread("foreign")):
        with pytest.raises(InvalidArgument, match="'foreign' is not a LangGraph thread"):
            call()
    assert store.load("foreign") == {"mine": 1}
    with pytest.raises(InvalidArgument, match="strategy must be one of"):
        saver.prune(["t"], strategy="keep_some")
    with pytest.raises(InvalidArgument, match="put_writes needs"):
        saver.put_writes(of("t"), [("a", 1)], "task")
    with pytest.raises(InvalidArgument):
        say(graph, "x" * 500, "too long")


def test_a_damaged_checkpoint_is_an_error_and_not_an_empty_thread(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "s.db"
    with Saver(str(path)) as saver:
        say(graph_of(saver), "t", "one")
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE records SET body = x'00' WHERE kind = 'checkpoint'")
    with Saver(str(path)) as saver, pytest.raises(Damaged):
        graph_of(saver).get_state(of("t"))


@pytest.mark.parametrize(
    ("found", "problem"), [("1.1.9", "needs langgraph 1.2.20 or newer, found 1.1.9: pip install"), (None, "needs langgraph: pip install")]
)
def test_a_missing_or_old_langgraph_is_named(found: Any, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from everstep.adapters.langgraph import version

    def installed(package: str) -> str:
        if found is None:
            raise version.PackageNotFoundError
        return str(found)

    monkeypatch.setattr(version, "version", installed)
    with pytest.raises(ImportError, match=problem):
        version.check()
    monkeypatch.setattr(version, "version", lambda package: "9.0.0")
    with pytest.warns(UserWarning, match="newer than the versions"):
        version.check()
