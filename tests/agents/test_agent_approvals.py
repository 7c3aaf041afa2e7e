"""Actions that a person must allow: asked at a gate, answered from anywhere, at any time."""

from __future__ import annotations

from typing import Any

import pytest
from agent_helpers import Script, Ways, call

import everstep
from everstep import AgentLoop, AgentState
from everstep.agents.loop import Action
from everstep.errors import BadAnswer

GATE = "approve-send-1.0"


class Post:
    """A tool that must not be used without being asked for, and what it was used for."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.looked: list[str] = []

    def send(self, to: str) -> str:
        self.sent.append(to)
        return f"sent to {to}"

    def look(self, q: str) -> str:
        self.looked.append(q)
        return q


@pytest.fixture
def post() -> Post:
    return Post()


def make(ways: Ways, post: Post, think: Any, approve: Any = None, **options: Any) -> AgentLoop:
    return AgentLoop(ways.fit(think), tools=[post.send, post.look], approve=approve or (lambda a: a.tool == "send"), **options)


def loaded(store: everstep.Store) -> AgentState:
    return AgentState(store.load("a"))


def test_it_waits_for_the_answer_and_goes_on_with_it(store: everstep.Store, ways: Ways, post: Post) -> None:
    think = Script(call("send", to="ann"), lambda s: s.messages[-1]["content"])
    loop = make(ways, post, think)
    out = ways.run(loop, store, "a", "t")
    assert (out.status, out.result, post.sent) == ("waiting", None, [])
    assert [(g.name, g.ask) for g in out.gates] == [(GATE, 'Let the agent call send({"to": "ann"})?')]
    assert store.get("a").status == "waiting"
    state = loaded(store)
    assert (state.status, state.control, [a["tool"] for a in state.pending]) == ("waiting", {"gate": GATE}, ["send"])
    assert ways.run(loop, store, "a").status == "waiting"
    store.answer("a", GATE, "yes", by="zoe")
    out = ways.run(loop, store, "a")
    assert (out.status, out.result, post.sent) == ("succeeded", "sent to ann", ["ann"])
    assert think.asked == [1, 2]
    state = loaded(store)
    assert [(a["action"], a["tool"], a["gate"], a["answer"], a["reason"]) for a in state.approvals] == [("1.0", "send", GATE, "yes", None)]
    assert (state.status, state.control) == ("succeeded", {})


@pytest.mark.parametrize(("answer", "told"), [
    ("no", "refused by a person"), (False, "refused by a person"), ({"answer": "no", "reason": "too late"}, "refused by a person: too late"),
])  # fmt: skip
def test_what_is_refused_is_not_done_and_the_model_is_told(store: everstep.Store, ways: Ways, post: Post, answer: Any, told: str) -> None:
    loop = make(ways, post, Script(call("send", to="ann"), lambda s: s.messages[-1]["content"]))
    ways.run(loop, store, "a", "t")
    store.answer("a", GATE, answer)
    assert ways.run(loop, store, "a").result == told
    state = loaded(store)
    assert (post.sent, state.tool_counts, state.tool_results) == ([], {}, {})
    assert [(a["status"], a["error"]) for a in state.finished] == [("refused", told)]


def test_a_person_may_change_the_input_and_the_model_is_told(store: everstep.Store, ways: Ways, post: Post) -> None:
    loop = make(ways, post, Script(call("send", to="ann"), lambda s: s.messages[-1]["content"]))
    ways.run(loop, store, "a", "t")
    store.answer("a", GATE, {"answer": "yes", "input": {"to": "bob"}})
    assert ways.run(loop, store, "a").result == '(a person changed the input to {"to": "bob"}) sent to bob'
    assert post.sent == ["bob"]
    (done,) = loaded(store).finished
    assert (done["input"], done["edited"]) == ({"to": "bob"}, True)


@pytest.mark.parametrize("answer", ["maybe", 1, None, {"reason": "x"}, {"answer": "yes", "input": []}, {"answer": "yes", "more": 1}])
def test_an_answer_that_is_none_is_refused(store: everstep.Store, post: Post, answer: Any) -> None:
    make(Ways("sync"), post, Script(call("send", to="ann"))).run(store, "a", "t")
    with pytest.raises(BadAnswer):
        store.answer("a", GATE, answer)


def test_nothing_of_a_turn_is_done_before_all_its_questions_are_answered(store: everstep.Store, ways: Ways, post: Post) -> None:
    think = Script([call("look", q="x"), call("send", to="ann"), call("send", to="bob")], "done")
    loop = make(ways, post, think)
    out = ways.run(loop, store, "a", "t")
    assert (post.looked, [g.name for g in out.gates]) == ([], ["approve-send-1.1"])
    store.answer("a", "approve-send-1.1", "no")
    out = ways.run(loop, store, "a")
    assert (post.looked, [g.name for g in out.gates]) == ([], ["approve-send-1.2"])
    store.answer("a", "approve-send-1.2", True)
    assert ways.run(loop, store, "a").result == "done"
    assert (post.looked, post.sent) == (["x"], ["bob"])
    assert [a["status"] for a in loaded(store).finished] == ["succeeded", "refused", "succeeded"]


def test_the_question_may_be_ones_own(store: everstep.Store, post: Post) -> None:
    approve = lambda a: f"Write to {a.input['to']}?" if a.tool == "send" else None  # noqa: E731
    out = make(Ways("sync"), post, Script(call("send", to="ann")), approve).run(store, "a", "t")
    assert [g.ask for g in out.gates] == ["Write to ann?"]


def test_what_approve_does_to_the_action_does_not_change_what_is_done(store: everstep.Store, post: Post) -> None:
    def approve(action: Action) -> bool:
        action.input["to"] = "mallory"
        action.tool = "look"
        return False

    make(Ways("sync"), post, Script(call("send", to="ann"), "done"), approve).run(store, "a", "t")
    assert post.sent == ["ann"]


def test_an_answer_may_come_before_the_question(store: everstep.Store, ways: Ways, post: Post) -> None:
    loop = make(ways, post, Script(call("look", q="x"), call("send", to="ann"), "done"), max_turns=1)
    ways.run(loop, store, "a", "t")
    store.answer("a", "approve-send-2.0", "yes")
    loop = make(ways, post, Script(None, call("send", to="ann"), "done"))
    assert ways.run(loop, store, "a").result == "done"
    assert post.sent == ["ann"]


def test_parallel_actions_are_approved_one_by_one(store: everstep.Store, ways: Ways, post: Post) -> None:
    think = Script([call("send", to="ann"), call("send", to="bob"), call("look", q="x")], "done")
    loop = make(ways, post, think, parallel=True)
    ways.run(loop, store, "a", "t")
    store.answer("a", "approve-send-1.0", "no")
    store.answer("a", "approve-send-1.1", "yes")
    assert ways.run(loop, store, "a").result == "done"
    assert (post.sent, post.looked) == (["bob"], ["x"])


def test_a_fork_from_the_open_question_asks_again(store: everstep.Store, post: Post) -> None:
    loop = make(Ways("sync"), post, Script(call("send", to="ann"), "done"))
    loop.run(store, "a", "t")
    fork = store.fork("a", id="b")
    out = loop.run(store, fork.id)
    assert (out.status, [g.name for g in out.gates]) == ("waiting", [GATE])
    store.answer("b", GATE, "yes")
    assert loop.run(store, "b").result == "done"
    assert post.sent == ["ann"]
    assert store.get("a").status == "waiting"
