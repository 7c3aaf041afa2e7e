"""An agent's state: every field, captured and restored, tracked like any other state."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import everstep
from everstep import AgentState
from everstep.agents.state import Draft, Field, redo
from everstep.codec.values import encode
from everstep.errors import InvalidArgument, Unstorable


@everstep.register(name="tests.agents.Note")
@dataclass
class Note:
    text: str
    tags: tuple[str, ...] = ()


FULL: dict[str, Any] = {
    "agent": "triage",
    "model": "some-model",
    "task": "Find out",
    "status": "waiting",
    "turn": 7,
    "messages": [{"role": "user", "content": "Find out"}, ("odd", 1), Note("n", ("a",))],
    "memory": {"facts": {"a", "b"}, 3: "three", ("x", 1): None},
    "plan": ["look", {"then": "write"}],
    "pending": [{"id": "7.0", "call": "c", "tool": "search", "input": {"q": "x"}, "turn": 7, "status": "pending"}],
    "finished": [{"id": "6.0", "call": "b", "tool": "search", "input": {}, "turn": 6, "status": "succeeded"}],
    "approvals": [
        {"action": "6.0", "tool": "search", "gate": "g", "answer": "yes", "reason": None, "at": datetime(2030, 1, 2, tzinfo=UTC)}
    ],
    "tool_counts": {"search": 3},
    "tool_results": {"6.0": b"raw", "5.0": Note("r")},
    "answer": Decimal("1.50"),
    "tokens": 12_345,
    "cost": Decimal("0.0123"),
    "budget": {"tokens": 50_000, "cost": 2.5},
    "specialists": ["lawyer"],
    "specialist_calls": [{"name": "lawyer", "action": "5.0", "turn": 5, "status": "failed"}],
    "run": "agent-1",
    "parent": "agent-0@4",
    "workflow": {"step": 3, "range": range(3)},
    "control": {"gate": "approve-search-7.0"},
    "hooks": ["after_step tell"],
    "events": [{"name": "planned", "turn": 0}],
    "started_at": datetime(2030, 1, 1, 8, tzinfo=timezone(timedelta(hours=2))),
    "updated_at": datetime(2030, 1, 1, 9, tzinfo=UTC),
    "meta": {"team": "ops", "nested": {"n": [1.5, None]}},
}


def test_there_is_a_value_for_every_field_in_these_tests() -> None:
    assert list(AgentState.fields()) == list(FULL)


def test_it_has_all_that_an_agent_is_made_of() -> None:
    theirs_to_ours = {
        "agent_id": "agent", "model": "model", "timestamp": "started_at", "updated_at": "updated_at", "step_number": "turn",
        "conversation_history": "messages", "memory_contents": "memory", "pending_actions": "pending", "completed_actions": "finished",
        "budget_spent_usd": "cost", "approval_history": "approvals", "tool_usage_counts": "tool_counts",
        "tool_results_cache": "tool_results", "active_specialists": "specialists", "specialist_invocations": "specialist_calls",
        "workflow_run_id": "run", "workflow_state": "workflow", "control_protocol_state": "control", "registered_hooks": "hooks",
        "hook_event_history": "events", "parent_checkpoint_id": "parent", "status": "status", "metadata": "meta", "plan": "plan",
    }  # fmt: skip
    assert set(theirs_to_ours.values()) <= set(AgentState.fields())


def same(a: Any, b: Any) -> bool:
    """Equal, and of the same types throughout."""
    return bool(a == b) and encode(a) == encode(b)


@pytest.mark.parametrize("name", FULL)
def test_a_field_comes_back_from_the_store_with_its_type(store: everstep.Store, name: str) -> None:
    with store.run("r") as run:
        state = AgentState(run.state)
        setattr(state, name, copy.deepcopy(FULL[name]))
        run.checkpoint()
    with store.run("r") as run:
        back = getattr(AgentState(run.state), name)
        assert same(back, FULL[name])
    assert same(getattr(AgentState(store.load("r")), name), FULL[name])


def test_capture_restore_capture_gives_equal_states(store: everstep.Store) -> None:
    first = AgentState(copy.deepcopy(FULL)).capture()
    assert same(first, FULL)
    with store.run("r") as run:
        state = AgentState(run.state)
        state.restore(first)
        assert same(state.capture(), first)
        run.checkpoint()
    with store.run("r") as run:
        assert same(AgentState(run.state).capture(), first)
    other = AgentState()
    other.restore(store.load("r"))
    assert other == AgentState(copy.deepcopy(FULL))
    assert same(other.capture(), first)


def test_what_was_captured_does_not_change_with_the_state() -> None:
    state = AgentState(messages=[{"role": "user"}])
    captured = state.capture()
    state.messages[0]["role"] = "else"
    state.messages.append(1)
    assert captured["messages"] == [{"role": "user"}]
    state.restore(captured)
    state.messages.append(2)
    assert captured["messages"] == [{"role": "user"}]


def test_a_name_is_the_key_itself(store: everstep.Store) -> None:
    with store.run("r", state={"messages": [1], "mine": 5}) as run:
        state = AgentState(run.state)
        assert state.messages is run.state["messages"]
        state.messages.append(2)
        state.turn += 1
        run.state["memory"]["k"] = "v"
        assert (run.state["messages"], run.state["turn"], state.memory) == ([1, 2], 1, {"k": "v"})
        run.checkpoint()
    assert store.load("r")["messages"] == [1, 2]


def test_a_change_costs_what_was_changed(store: everstep.Store) -> None:
    with store.run("r") as run:
        state = AgentState(run.state, messages=[{"role": "user", "content": f"{i}" * 50} for i in range(2_000)])
        run.checkpoint()
        state.messages.append({"role": "user", "content": "one more"})
        run.checkpoint()
        before = store.get("r").stored_bytes
        state.messages.append({"role": "user", "content": "and another"})
        state.tokens += 10
        run.checkpoint()
        assert store.get("r").stored_bytes - before < 1_000


def test_keys_that_are_no_fields_survive(store: everstep.Store) -> None:
    with store.run("r", state={"mine": {"a": (1,)}, 5: "five"}) as run:
        captured = AgentState(run.state).capture()
        run.checkpoint()
    assert (captured["mine"], captured[5]) == ({"a": (1,)}, "five")
    other = AgentState({"gone": 1})
    other.restore(captured)
    assert same(other.capture(), captured)
    assert "gone" not in other.data


def test_only_the_difference_is_saved_after_a_restore(store: everstep.Store) -> None:
    with store.run("r") as run:
        state = AgentState(run.state, **copy.deepcopy(FULL))
        captured = state.capture()
        run.checkpoint()
        state.turn = 99
        state.memory["new"] = 1
        state.data["extra"] = 1
        run.checkpoint()
        state.restore(captured)
        run.checkpoint()
    assert sorted(change.path[0] for change in store.diff("r@2", "r@3")) == ["extra", "memory", "turn"]
    assert store.load("r@1") == store.load("r@3")


def test_first_values_leave_alone_what_is_there() -> None:
    data: dict[str, Any] = {}
    AgentState(data, agent="one", turn=3)
    assert (AgentState(data, agent="two", turn=9).agent, data["turn"]) == ("one", 3)


@pytest.mark.parametrize(("name", "value"), [
    ("messages", ()), ("messages", None), ("memory", []), ("turn", "3"), ("turn", True), ("tokens", 1.5), ("status", "completed"),
    ("status", None), ("agent", 5), ("started_at", "today"), ("budget", 5), ("tool_counts", [("a", 1)]),
])  # fmt: skip
def test_a_wrong_value_is_refused_and_named(name: str, value: Any) -> None:
    state = AgentState()
    before = state.capture()
    with pytest.raises(InvalidArgument, match=f"{name} of an agent's state must be"):
        setattr(state, name, value)
    with pytest.raises(InvalidArgument, match=f"{name} of an agent's state must be"):
        AgentState({name: value})
    with pytest.raises(InvalidArgument, match=f"{name} of an agent's state must be"):
        AgentState(**{name: value})
    with pytest.raises(InvalidArgument, match=f"{name} of an agent's state must be"):
        state.restore({**FULL, name: value})
    assert state.capture() == before


def test_an_unknown_status_is_told_which_there_are() -> None:
    with pytest.raises(InvalidArgument) as caught:
        AgentState().status = "completed"
    assert "queued, running, waiting, succeeded, failed, cancelled" in caught.value.remedy


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(AttributeError):
        AgentState().mesages = []  # type: ignore[attr-defined]
    with pytest.raises(InvalidArgument, match="an agent's state has no field mesages"):
        AgentState(mesages=[])


def test_what_is_no_dict_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="must be a dict, got"):
        AgentState([])  # type: ignore[arg-type]


def test_a_value_that_cannot_be_stored_is_refused_with_its_path() -> None:
    with pytest.raises(Unstorable) as caught:
        AgentState(memory={"client": object()}).capture()
    assert caught.value.path == "agent['memory']['client']"


class Researcher(AgentState):
    """With a field of its own."""

    topic: Field[str] = Field(str, lambda: "none yet")


def test_a_class_of_ones_own_has_further_fields() -> None:
    state = Researcher(topic="logs")
    assert (state.topic, Researcher().topic, state.capture()["topic"]) == ("logs", "none yet", "logs")
    with pytest.raises(InvalidArgument, match="topic of an agent's state must be of type str, got 5"):
        state.topic = 5  # type: ignore[assignment]


def test_it_shows_itself_in_one_line() -> None:
    assert repr(AgentState(copy.deepcopy(FULL))) == (
        "<agent 'triage', waiting: turn 7, 3 messages, 1 actions pending and 1 finished, 12,345 tokens, cost 0.0123>"
    )


# Drafts: what a recorded function may change


def test_a_draft_leaves_its_source_alone_and_knows_what_changed() -> None:
    state = AgentState(copy.deepcopy(FULL))
    draft = AgentState.over(Draft(state.data))
    draft.messages.append("new")
    draft.memory["facts"].add("c")
    draft.plan = None
    draft.data["extra"] = [1]
    del draft.data["meta"]
    assert state == AgentState(copy.deepcopy(FULL))
    changes = draft.data.changes()  # type: ignore[attr-defined]
    assert sorted(op[1][0] for op in changes) == ["extra", "memory", "messages", "meta", "plan"]
    redo(state, changes)
    assert state.messages == [*FULL["messages"], "new"]
    assert state.memory["facts"] == {"a", "b", "c"}
    assert (state.plan, state.data["extra"], "meta" in state.data) == (None, [1], False)


def test_a_draft_copies_only_what_is_touched() -> None:
    touched: list[Any] = []

    class Watched(dict[Any, Any]):
        def __getitem__(self, key: Any) -> Any:
            touched.append(key)
            return super().__getitem__(key)

    source = Watched({"big": list(range(10_000)), "small": 1})
    draft = Draft(source)
    assert (draft["small"], len(draft), "big" in draft, list(draft)) == (1, 2, True, ["big", "small"])
    assert draft.changes() == []
    assert touched == ["small"]


def test_a_draft_appends_to_a_long_list_by_its_end_alone() -> None:
    draft = Draft({"messages": [{"n": i} for i in range(1_000)]})
    draft["messages"].append({"n": "new"})
    assert len(encode(draft.changes())) < 60


def test_an_object_in_a_draft_is_changed_as_a_whole(store: everstep.Store) -> None:
    with store.run("r", state={"note": Note("old"), "l": [Note("a"), Note("b")]}) as run:
        draft = Draft(run.state)
        draft["note"].text = "new"
        draft["l"][1].tags = ("t",)
        redo(AgentState.over(run.state), draft.changes())
        run.checkpoint()
    assert store.load("r") == {"note": Note("new"), "l": [Note("a"), Note("b", ("t",))]}


scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "b" * 200, "b" * 199 + "c"]) | st.just((1, "t"))
values = st.recursive(scalars, lambda v: st.lists(v, max_size=6) | st.dictionaries(st.sampled_from("abcd"), v, max_size=4), max_leaves=12)
states = st.dictionaries(st.sampled_from(["m", "n", "o"]), values, max_size=3)


@given(before=states, after=states)
def test_redo_makes_of_any_state_any_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    with everstep.open("memory://", checking=True) as store, store.run("r", state=before) as run:
        run.checkpoint()
        draft = Draft(run.state)
        for key in [k for k in draft if k not in after]:
            del draft[key]
        for key, value in after.items():
            if key in draft and isinstance(draft[key], list) and isinstance(value, list):
                draft[key][:] = copy.deepcopy(value)
            else:
                draft[key] = copy.deepcopy(value)
        changes = draft.changes()
        assert run.state == before
        redo(AgentState.over(run.state), changes)
        assert same({k: run.state[k] for k in sorted(run.state)}, {k: after[k] for k in sorted(after)})
        run.checkpoint()
        assert store.load("r") == after
