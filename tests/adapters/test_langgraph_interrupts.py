"""Several interrupts: in one node, in subgraphs, in parallel nodes. An answer belongs to one question, and to no other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from operator import add
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

pytest.importorskip("langgraph", reason="pip install 'everstep[langgraph,dev-adapters]'")

from langgraph.checkpoint.serde.types import INTERRUPT
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

import everstep
from everstep.adapters.langgraph import Saver, resume


class State(TypedDict):
    log: Annotated[list[str], add]


def twice(state: State) -> State:
    return {"log": [f"{interrupt('Pay 1?')}, {interrupt('Pay 1000?')}"]}


def once(state: State) -> State:
    return {"log": [f"{interrupt('And you?')}"]}


def graph_of(saver: Any, *, sub: bool, parallel: bool = False) -> Any:
    builder = StateGraph(State)
    if sub:
        inner = StateGraph(State)
        inner.add_node("pay", twice)
        inner.add_edge(START, "pay")
        builder.add_node("shop", inner.compile())
    else:
        builder.add_node("shop", twice)
    builder.add_edge(START, "shop")
    if parallel:
        builder.add_node("other", once)
        builder.add_edge(START, "other")
    return resume(builder.compile(checkpointer=saver))


CONFIG: Any = {"configurable": {"thread_id": "t"}}


def asked(store: everstep.Store) -> dict[str | None, str]:
    return {gate.ask: gate.address for gate in store.questions()}


@pytest.mark.parametrize("sub", [False, True])
@pytest.mark.parametrize("parallel", [False, True])
def test_each_answer_reaches_its_own_question(sub: bool, parallel: bool) -> None:
    with everstep.open("memory://") as store, Saver(store) as saver:
        graph_of(saver, sub=sub, parallel=parallel).invoke({"log": []}, CONFIG)
        store.answer("t", asked(store)["Pay 1?"], "yes")
        out = store.resume("t")
        assert (out.status, out.error) == ("waiting", None)
        assert set(asked(store)) == {"Pay 1000?", *(["And you?"] if parallel else [])}
        for gate in asked(store).values():
            store.answer("t", gate, "no")
        done = store.resume("t")
        assert done.status == "succeeded"
        assert sorted(done.result["log"]) == (["no", "yes, no"] if parallel else ["yes, no"])


@pytest.mark.parametrize("sub", [False, True])
def test_a_resume_without_an_answer_leaves_the_open_question_open(sub: bool) -> None:
    with everstep.open("memory://") as store, Saver(store) as saver:
        graph_of(saver, sub=sub).invoke({"log": []}, CONFIG)
        store.answer("t", asked(store)["Pay 1?"], "yes")
        store.resume("t")
        before = asked(store)
        store.resume("t")
        assert asked(store) == before
        assert [gate.by for gate in store.gates("t") if gate.ask == "Pay 1000?"] == [None]


def test_a_program_that_resumes_twice_with_the_same_answers_is_asked_again(tmp_path: Path) -> None:
    with Saver(tmp_path / "s.db") as saver:
        graph = graph_of(saver, sub=True)
        graph.invoke({"log": []}, CONFIG)
        saver.store.answer("t", asked(saver.store)["Pay 1?"], "yes")
        graph.invoke(Command(resume=saver.answers("t")), CONFIG)
        assert saver.answers("t") == {}


def test_an_answer_that_comes_while_a_node_is_asking_again_is_kept() -> None:
    with everstep.open("memory://") as store, Saver(store) as saver:

        def slow(state: State) -> State:
            gates = [gate for gate in store.gates("t") if gate.ask == "Slow?" and gate.open]
            if gates:  # a person answers between the start of the node and its interrupt
                store.answer("t", gates[0].address, "yes", by="ann")
            return {"log": [interrupt("Slow?")]}

        builder = StateGraph(State)
        builder.add_node("slow", slow)
        builder.add_node("other", once)
        builder.add_edge(START, "slow")
        builder.add_edge(START, "other")
        resume(builder.compile(checkpointer=saver)).invoke({"log": []}, CONFIG)
        store.answer("t", asked(store)["And you?"], "no")
        store.resume("t")
        assert asked(store) == {}
        assert sorted(store.resume("t").result["log"]) == ["no", "yes"]
        assert [gate.by for gate in store.gates("t") if gate.ask == "Slow?"] == ["ann"]


class Dies(Saver):
    """Is killed after the subgraph has saved its second interrupt, before the graph above has."""

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        if not config["configurable"].get("checkpoint_ns") and writes[0][0] == INTERRUPT:
            os.kill(os.getpid(), signal.SIGKILL)
        super().put_writes(config, writes, task_id, task_path)


def test_an_answer_that_a_killed_subgraph_has_used_is_not_given_to_its_next_question(tmp_path: Path) -> None:
    url = tmp_path / "s.db"
    with Saver(url) as saver:
        graph_of(saver, sub=True).invoke({"log": []}, CONFIG)
        saver.store.answer("t", asked(saver.store)["Pay 1?"], "yes")
    killed = subprocess.run([sys.executable, __file__, str(url)], capture_output=True, text=True, timeout=60)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    with Saver(url) as saver:
        graph_of(saver, sub=True)
        assert saver.store.resume("t").status == "waiting"
        assert [(gate.ask, gate.answer) for gate in saver.store.gates("t")] == [("Pay 1?", "yes"), ("Pay 1000?", None)]
        saver.store.answer("t", asked(saver.store)["Pay 1000?"], "no")
        assert saver.store.resume("t").result == {"log": ["yes, no"]}


if __name__ == "__main__":
    with Dies(sys.argv[1]) as dying:
        graph_of(dying, sub=True)
        dying.store.resume("t")
