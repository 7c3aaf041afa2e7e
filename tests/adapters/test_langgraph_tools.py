"""Durable tools run once for each task and arguments; interrupts are gates; drivers resume threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

pytest.importorskip("langgraph", reason="pip install 'everstep[langgraph,dev-adapters]'")

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, RetryPolicy, interrupt

import everstep
from everstep.adapters.langgraph import Saver, durable, resume
from everstep.errors import AlreadyAnswered, Conflict, InvalidArgument, LeaseHeld
from everstep.runtime import drivers

T: Any = {"configurable": {"thread_id": "t"}}


@pytest.fixture(autouse=True)
def _no_drivers_left() -> Iterator[None]:
    before = dict(drivers._known)
    yield
    drivers._known.clear()
    drivers._known.update(before)


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    got: list[Any]


def graph_of(saver: Any, node: Any, **options: Any) -> Any:
    builder = StateGraph(State)
    builder.add_node("node", node, **options)
    builder.add_edge(START, "node")
    return builder.compile(checkpointer=saver)


def test_finished_calls_are_not_made_again_when_the_task_is(places: Any) -> None:
    calls: list[Any] = []
    broken = [True]

    @durable
    def charge(card: str, amount: int = 1) -> Any:
        calls.append((card, amount))
        return {"id": len(calls)}

    def node(state: State) -> State:
        got = [charge("a"), charge("a", 1), charge("a", amount=2)]
        if broken:
            broken.pop()
            raise RuntimeError("the process is out of luck")
        return {"got": [*got, charge("b")]}

    store = places.open()
    with pytest.raises(RuntimeError, match="luck"):
        graph_of(Saver(store), node).invoke({"messages": []}, T)
    result = graph_of(Saver(store), node).invoke(None, T)
    assert calls == [("a", 1), ("a", 1), ("a", 2), ("b", 1)]
    assert result["got"] == [{"id": 1}, {"id": 2}, {"id": 3}, {"id": 4}]
    graph_of(Saver(store), node).invoke({"messages": []}, T)
    assert len(calls) == 8, "another turn is another task"


def test_a_retry_of_the_node_keeps_finished_calls(places: Any) -> None:
    calls: list[str] = []

    @durable
    def tick(name: str) -> int:
        calls.append(name)
        if calls == ["a", "b"]:
            raise ConnectionError
        return len(calls)

    policy = RetryPolicy(max_attempts=2, initial_interval=0.001, jitter=False)
    graph = graph_of(Saver(places.open()), lambda _: {"got": [tick("a"), tick("b")]}, retry_policy=policy)
    assert graph.invoke({"messages": []}, T)["got"] == [1, 3]
    assert calls == ["a", "b", "b"], "an error is not recorded"


def test_the_second_of_two_processes_receives_the_first_result(places: Any) -> None:
    """Both savers stand for processes that resume the same task at the same time."""
    store = places.open()
    meet = threading.Barrier(2, timeout=30)
    results = iter(["first", "second"])
    broken = [True]

    @durable
    def charge() -> str:
        meet.wait()
        return next(results)

    def node(state: State) -> State:
        if broken:
            broken.pop()
            raise RuntimeError
        return {"got": [charge()]}

    with pytest.raises(RuntimeError):
        graph_of(Saver(store), node).invoke({"messages": []}, T)

    def again() -> Any:
        try:
            return graph_of(Saver(store), node).invoke(None, T)["got"]
        except Conflict:
            return None  # the other one has saved the end of the turn

    with ThreadPoolExecutor(2) as pool:
        got = [one for one in pool.map(lambda _: again(), range(2)) if one is not None]
    recorded = [one.value for one in store.attached("t") if one.name.startswith("tool ")]
    assert len(recorded) == 1
    assert got
    assert all(one == recorded for one in got)


def test_async_tools_and_tools_of_langchain(places: Any) -> None:
    calls: list[str] = []

    @tool
    @durable
    def search(q: str) -> str:
        """Search."""
        calls.append(q)
        return f"found {q}"

    @durable
    async def think(n: int) -> int:
        calls.append(f"think {n}")
        return n + 1

    async def node(state: State) -> State:
        return {"got": [await think(1)]}

    wanted = [{"name": "search", "args": {"q": q}, "id": q, "type": "tool_call"} for q in ("a", "b")]
    store = places.open()
    done = graph_of(Saver(store), ToolNode([search])).invoke({"messages": [AIMessage("", tool_calls=wanted)]}, T)
    assert [message.content for message in done["messages"][1:]] == ["found a", "found b"]
    assert asyncio.run(graph_of(Saver(store), node).ainvoke({"messages": []}, {"configurable": {"thread_id": "u"}}))["got"] == [2]
    assert sorted(calls) == ["a", "b", "think 1"]
    assert search.invoke({"q": "outside"}) == "found outside", "outside of a graph it is a plain function"


def test_a_durable_tool_that_could_not_be_durable_says_so(places: Any) -> None:
    @durable
    def charge() -> int:
        raise AssertionError("not called")

    def node(state: State) -> State:
        return {"got": [charge()]}

    with pytest.raises(InvalidArgument, match="needs a graph with Everstep's Saver, got the checkpointer InMemorySaver"):
        graph_of(InMemorySaver(), node).invoke({"messages": []}, T)
    with pytest.raises(InvalidArgument, match='got "exit"'):
        graph_of(Saver(places.open()), node).invoke({"messages": []}, T, durability="exit")
    with pytest.raises(InvalidArgument, match="comparable across processes"):
        graph_of(Saver(places.open()), lambda _: {"got": [durable(lambda x: 1)(object())]}).invoke({"messages": []}, T)
    with pytest.raises(InvalidArgument, match="durable needs a function"):
        durable(7)  # type: ignore[type-var]


def approving(saver: Any) -> Any:
    def node(state: State) -> State:
        first = interrupt("Pay 30?")
        second = interrupt({"question": "Really?", "amount": 30})
        return {"got": [first, second]}

    return graph_of(saver, node)


def test_an_interrupt_is_a_question_that_anybody_can_answer(places: Any) -> None:
    store = places.open()
    graph = resume(approving(Saver(store)))
    graph.invoke({"messages": []}, T)
    (asked,) = store.questions(workflow="langgraph")
    assert (asked.run, asked.ask, store.get("t").status) == ("t", "Pay 30?", "waiting")
    store.answer("t", asked.name, "yes", by="boss")
    assert store.due() == ["t"]
    (outcome,) = store.wake()
    assert outcome.status == "waiting", "the next question is open"
    (asked,) = store.questions()
    assert asked.ask == '{"question": "Really?", "amount": 30}'
    store.answer("t", asked.name, {"sure": True})
    assert store.resume("t").result == {"messages": [], "got": ["yes", {"sure": True}]}
    assert graph.get_state(T).values["got"] == ["yes", {"sure": True}]
    assert (list(store.questions()), store.due(), store.get("t").status) == ([], [], "succeeded")
    graph.invoke({"messages": [HumanMessage("next turn")]}, T)
    assert store.get("t").status == "waiting"
    assert store.verify("full").ok


def test_the_program_may_answer_itself(places: Any) -> None:
    store = places.open()
    saver = Saver(store)
    graph = approving(saver)
    graph.invoke({"messages": []}, T)
    store.answer("t", store.questions()[0].name, "from the inbox")
    graph.invoke(Command(resume=saver.answers("t")), T)
    assert saver.answers("t") == {}
    result = graph.invoke(Command(resume="from the program"), T)
    assert result["got"] == ["from the inbox", "from the program"]
    assert [(one.answer, one.by) for one in store.gates("t")] == [("from the inbox", None), ("from the program", "program")]
    assert (list(store.questions()), store.due()) == ([], [])


def test_a_question_is_closed_when_the_thread_moves_on(places: Any) -> None:
    store = places.open()
    graph = approving(Saver(store))
    graph.invoke({"messages": []}, T)
    old = store.questions()[0]
    graph.invoke({"messages": [HumanMessage("something else")]}, T)
    (asked,) = store.questions()
    assert asked.name != old.name
    with pytest.raises(AlreadyAnswered):
        store.answer("t", old.name, "late")
    assert store.due() == []


def test_an_interrupt_in_a_subgraph_is_one_question(places: Any) -> None:
    store = places.open()
    inner = approving(None)
    graph = resume(graph_of(Saver(store), inner))
    graph.invoke({"messages": []}, T)
    for answer in ("one", "two"):
        (asked,) = store.questions()
        store.answer("t", asked.name, answer)
        store.wake()
    assert graph.get_state(T).values["got"] == ["one", "two"]


def test_a_worker_takes_over_a_thread_whose_process_died(tmp_path: Path) -> None:
    """The thread stopped in the middle: a driver continues it without an answer."""
    broken = [True]

    def node(state: State) -> State:
        if broken:
            broken.pop()
            raise RuntimeError("killed")
        return {"got": ["done"]}

    with Saver(str(tmp_path / "s.db")) as saver:
        graph = resume(graph_of(saver, node))
        with pytest.raises(RuntimeError):
            graph.invoke({"messages": []}, T)
        assert saver.store.resume("t").status == "succeeded"
        assert graph.get_state(T).values["got"] == ["done"]


def test_resume_needs_a_graph_with_our_saver() -> None:
    with pytest.raises(InvalidArgument, match="InMemorySaver"):
        resume(approving(InMemorySaver()))
    assert everstep.adapters.langgraph.Saver is Saver


def test_many_durable_tools_in_one_event_loop_do_not_starve_the_saves(places: Any) -> None:
    """Sync nodes of async graphs wait in asyncio's threads for saves: these must not need the same threads."""
    calls: list[int] = []

    @durable
    def charge(n: int) -> int:
        calls.append(n)
        return n

    graph = graph_of(Saver(places.open()), lambda state: {"got": [charge(state["got"][0])]})

    async def main() -> list[Any]:
        return await asyncio.gather(*(graph.ainvoke({"got": [i]}, {"configurable": {"thread_id": f"t{i}"}}) for i in range(40)))

    assert [one["got"] for one in asyncio.run(asyncio.wait_for(main(), 50))] == [[i] for i in range(40)]
    assert sorted(calls) == list(range(40))


def test_a_saver_holds_the_states_of_few_threads(places: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from everstep.adapters.langgraph import saver as module

    monkeypatch.setattr(module, "_MOST_LIVE", 2)
    saver = Saver(places.open())
    graph = graph_of(saver, lambda state: {"got": [*state.get("got", []), 1]})
    for _ in range(2):
        for i in range(5):
            graph.invoke({"messages": []}, {"configurable": {"thread_id": f"t{i}"}})
    for i in range(5):
        assert graph.get_state({"configurable": {"thread_id": f"t{i}"}}).values["got"] == [1, 1]


def test_the_functional_api(places: Any) -> None:
    """An entrypoint follows its input checkpoint directly: its question must not be closed by that."""
    calls: list[str] = []

    @task
    def write(text: str) -> str:
        calls.append(text)
        return text.upper()

    store = places.open()

    @entrypoint(checkpointer=Saver(store))
    def essay(text: str) -> dict[str, Any]:
        done = write(text).result()
        return {"text": done, "approved": interrupt("Good?")}

    for i in range(3):
        config: Any = {"configurable": {"thread_id": f"t{i}"}}
        essay.invoke("a", config)
        (asked,) = store.questions()
        assert essay.invoke(Command(resume="yes"), config) == {"text": "A", "approved": "yes"}
        assert store.gates(f"t{i}")[0].answer == "yes"
        assert asked.ask == "Good?"
    assert calls == ["a"] * 3, "a finished task is not run again"


def test_a_driver_resumes_async_graphs(places: Any) -> None:
    async def node(state: State) -> State:
        return {"got": [interrupt("Pay?")]}

    store = places.open()
    graph = resume(graph_of(Saver(store), node))
    asyncio.run(graph.ainvoke({"messages": []}, T))
    store.answer("t", store.questions()[0].name, "yes")
    assert [outcome.status for outcome in store.wake()] == ["succeeded"]
    assert graph.get_state(T).values["got"] == ["yes"]


def test_other_writers_are_refused_while_a_driver_runs_the_thread(places: Any) -> None:
    store = places.open()
    problems: list[Any] = []

    def other() -> None:
        try:
            graph_of(Saver(store), lambda _: {}).invoke({"messages": []}, T)
        except LeaseHeld as problem:
            problems.append(problem)

    def node(state: State) -> State:
        answer = interrupt("Pay?")
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(30)
        return {"got": [answer]}

    graph = resume(graph_of(Saver(store), node))
    graph.invoke({"messages": []}, T)
    store.answer("t", store.questions()[0].name, "yes")
    store.wake()
    assert len(problems) == 1
    assert graph.get_state(T).values["got"] == ["yes"]


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_the_tools_of_a_stale_process_do_not_run(places: Any, durability: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from everstep.adapters.langgraph import thread

    monkeypatch.setattr(thread, "_GRACE_SECONDS", 0.05)
    store = places.open()
    calls: list[str] = []

    @durable
    def charge(who: str) -> str:
        calls.append(who)
        return who

    def node(state: State) -> State:
        return {"got": [charge(str(state["messages"][-1].content))]}

    class Overtaken(Saver):
        """Reads the thread, and then another process is faster."""

        def get_tuple(self, config: Any) -> Any:
            found = super().get_tuple(config)
            if not calls:
                graph_of(Saver(store), node).invoke({"messages": [HumanMessage("other")]}, T)
            return found

    graph_of(Saver(store), lambda _: {"got": []}).invoke({"messages": []}, T)
    with pytest.raises(Conflict, match="has moved on"):
        graph_of(Overtaken(store), node).invoke({"messages": [HumanMessage("stale")]}, T, durability=durability)
    assert calls == ["other"]
    assert graph_of(Saver(store), node).get_state(T).values["got"] == ["other"]
