"""The loop: think, act, checkpoint; resumed, it pays for nothing twice and forgets nothing."""

from __future__ import annotations

import asyncio
import threading
from decimal import Decimal
from typing import Any

import pytest
from agent_helpers import Killed, Script, Ways, call

import everstep
from everstep import AgentLoop, AgentState, Budget, Retry
from everstep.agents.loop import Action, Decision
from everstep.agents.state import Field
from everstep.errors import InvalidArgument, NotFound, StepTimeout, Unstorable


def search(q: str) -> str:
    return f"found {q}"


def loaded(store: everstep.Store, run_id: str = "a") -> AgentState:
    return AgentState(store.load(run_id))


def names(store: everstep.Store, run_id: str = "a") -> list[str]:
    return [step.address for step in store.steps(run_id) if step.name != "now"]


def test_anything_but_a_store_is_refused(store: everstep.Store) -> None:
    loop = AgentLoop(lambda state: "done")
    with pytest.raises(InvalidArgument, match="must be a Store, got 'a'") as caught:
        loop.run("a", store, "Look")  # type: ignore[arg-type]
    assert "loop.run(store, id, task)" in caught.value.remedy

    async def go() -> None:
        async with everstep.open("memory://") as opened:
            with pytest.raises(InvalidArgument, match="must be a Store, got <everstep") as caught:
                loop.run(opened, "a", "Look")
            assert "await loop.arun" in caught.value.remedy

    asyncio.run(go())


def test_it_thinks_and_acts_until_there_is_an_answer(store: everstep.Store, ways: Ways) -> None:
    think = Script(call("search", q="x"), [call("search", q="y"), call("search", q="z")], lambda s: f"from {s.messages[-1]['content']}")
    loop = AgentLoop(ways.fit(think), tools=[search], agent="finder", model="scripted")
    out = ways.run(loop, store, "a", "Find it")
    assert (out.status, out.result, out.run, out.error, out.unwrap()) == ("succeeded", "from found z", "a", None, "from found z")
    assert store.get("a").status == "succeeded"
    state = loaded(store)
    assert (state.agent, state.model, state.task, state.run, state.status) == ("finder", "scripted", "Find it", "a", "succeeded")
    assert (state.turn, state.answer, state.pending, state.tool_counts) == (3, "from found z", [], {"search": 3})
    assert [(a["id"], a["tool"], a["input"], a["turn"], a["status"]) for a in state.finished] == [
        ("1.0", "search", {"q": "x"}, 1, "succeeded"),
        ("2.0", "search", {"q": "y"}, 2, "succeeded"),
        ("2.1", "search", {"q": "z"}, 2, "succeeded"),
    ]
    assert state.tool_results == {"1.0": "found x", "2.0": "found y", "2.1": "found z"}
    assert [m["role"] for m in state.messages] == ["user", "assistant", "tool", "assistant", "tool", "tool", "assistant"]
    assert state.messages[2] == {"role": "tool", "tool_call_id": "1.0", "name": "search", "content": "found x"}
    assert state.messages[1]["tool_calls"][0]["id"] == "1.0"
    assert state.started_at is not None
    assert state.updated_at is not None
    assert names(store) == ["think#0", "search#0", "think#1", "search#1", "search#2", "think#2"]


def test_each_turn_ends_in_a_checkpoint_that_says_what_was_done(store: everstep.Store, ways: Ways) -> None:
    think = Script(call("search", q="x"), Decision(actions=[Action("search", {"q": "y"})], note="looked twice"), "done")
    ways.run(AgentLoop(ways.fit(think), tools=[search]), store, "a", "t")
    notes = [c.note for c in store.checkpoints("a", oldest_first=True)]
    assert notes == ["a new agent", "turn 1: search", "looked twice", "turn 3: answered"]
    assert store.load("a@2")["turn"] == 1
    assert store.load("a@2")["pending"] == []


def test_what_is_used_is_counted_and_reported(store: everstep.Store, ways: Ways) -> None:
    def bill(q: str) -> str:
        everstep.current().usage(tokens=5, cost=0.5)
        return q

    think = Script(Decision(actions=[Action("bill", {"q": "x"})], tokens=100, cost=0.25), Decision("done", tokens=10, cost=0.25))
    ways.run(AgentLoop(ways.fit(think), tools=[bill]), store, "a", "t")
    state = loaded(store)
    assert (state.tokens, state.cost) == (115, 1.0)
    assert [(s.name, s.tokens, s.cost) for s in store.steps("a") if s.name != "now"] == [
        ("think", 100, 0.25),
        ("bill", 5, 0.5),
        ("think", 10, 0.25),
    ]


def test_money_may_be_a_decimal(store: everstep.Store) -> None:
    think = Script(Decision(actions=[Action("search", {"q": "x"})], cost=Decimal("0.10")), Decision("done", cost=Decimal("0.20")))
    AgentLoop(think, tools=[search]).run(store, "a", "t")
    assert loaded(store).cost == Decimal("0.30")


def test_steps_have_their_kinds_for_policies(places: Any) -> None:
    store = places.open(policy=everstep.on("llm"))
    AgentLoop(Script(call("search", q="x"), "done"), tools=[search]).run(store, "a", "t")
    kinds = [c.kind for c in store.checkpoints("a", oldest_first=True)]
    assert kinds.count("automatic") == 2


def test_a_finished_agent_is_not_run_again(store: everstep.Store, ways: Ways) -> None:
    think = Script("done")
    loop = AgentLoop(ways.fit(think))
    ways.run(loop, store, "a", "t")
    before = store.get("a")
    for task in (None, "t"):
        out = ways.run(loop, store, "a", task)
        assert (out.status, out.result) == ("succeeded", "done")
    assert think.asked == [1]
    assert store.get("a") == before


def test_another_task_under_the_same_id_is_refused_and_does_no_harm(store: everstep.Store, ways: Ways) -> None:
    loop = AgentLoop(Script("done"))
    ways.run(loop, store, "a", "t")
    with pytest.raises(InvalidArgument, match="agent 'a' has the task 't', not 'other'"):
        ways.run(loop, store, "a", "other")
    assert store.get("a").status == "succeeded"
    ways.run(loop, store, "b", [{"role": "user", "content": "x" * 50_000}])
    assert ways.run(loop, store, "b", [{"role": "user", "content": "x" * 50_000}]).result == "done"
    with pytest.raises(InvalidArgument, match="agent 'b' has the task"):
        ways.run(loop, store, "b", [{"role": "user", "content": "y"}])


def test_the_task_may_be_a_conversation(store: everstep.Store) -> None:
    said = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"}]
    AgentLoop(Script("done")).run(store, "a", said)
    assert loaded(store).messages == [*said, {"role": "assistant", "content": "done"}]


# Dying and going on


def test_a_step_that_was_finished_is_not_paid_for_again(store: everstep.Store, ways: Ways) -> None:
    paid: list[str] = []

    def fetch(q: str) -> str:
        paid.append(q)
        if q == "y" and paid.count("y") == 1:
            raise Killed
        return q

    think = Script([call("fetch", q="x"), call("fetch", q="y")], call("fetch", q="z"), "done")
    loop = AgentLoop(ways.fit(think), tools=[fetch])
    with pytest.raises(Killed):
        ways.run(loop, store, "a", "t")
    assert (think.asked, paid) == ([1], ["x", "y"])
    out = ways.run(loop, store, "a")
    assert (out.status, out.result, out.report.kept) == ("succeeded", "done", 2)
    assert think.asked == [1, 2, 3]
    assert paid == ["x", "y", "y", "z"]
    assert [m["content"] for m in loaded(store).messages if m["role"] == "tool"] == ["x", "y", "z"]


def test_an_agent_that_thought_wrongly_goes_on_when_it_is_run_again(store: everstep.Store, ways: Ways) -> None:
    trouble = [ConnectionError("no network")]

    def think(state: AgentState) -> Any:
        if state.turn == 1 and trouble:
            raise trouble.pop()
        return call("search", q="x") if state.turn == 0 else "done"

    loop = AgentLoop(ways.fit(think), tools=[search])
    out = ways.run(loop, store, "a", "t")
    assert (out.status, type(out.error), out.result) == ("failed", ConnectionError, None)
    assert store.get("a").status == "failed"
    assert loaded(store).status == "failed"
    out = ways.run(loop, store, "a")
    assert (out.status, out.result) == ("succeeded", "done")
    assert names(store) == ["think#0", "search#0", "think#1", "think#1"]


def test_the_report_says_what_earlier_turns_saved(store: everstep.Store, ways: Ways) -> None:
    def die(q: str) -> str:
        if not alive:
            raise Killed
        return q

    alive: list[int] = []
    lines = [Decision(actions=[Action(tool, {"q": "x"})], tokens=100, cost=0.5) for tool in ("search", "search", "die")]
    loop = AgentLoop(ways.fit(Script(*lines, "done")), tools=[search, die], plan=lambda s: "plan")
    with pytest.raises(Killed):
        ways.run(loop, store, "a", "t")
    alive.append(1)
    report = ways.run(loop, store, "a").report
    assert (report.kept, report.executed) == (6, 2)  # plan, three thoughts, two searches; die and the last thought
    assert (report.tokens_saved, report.cost_saved) == (300, 1.5)
    assert report.seconds_saved > 0
    assert "6 steps kept, 2 steps run" in str(report)


def test_the_plan_is_made_once_and_kept(store: everstep.Store, ways: Ways) -> None:
    planned: list[Any] = []

    def plan(state: AgentState) -> Any:
        planned.append(state.task)
        return ["look", "write"]

    def think(state: AgentState) -> Any:
        assert state.plan == ["look", "write"]
        if state.turn == dies[0]:
            dies[0] = -1
            raise Killed
        return call("search", q="x") if state.turn < 2 else "done"

    loop = AgentLoop(ways.fit(think), tools=[search], plan=ways.fit(plan))
    for turn in (0, 1):
        dies = [turn]
        with pytest.raises(Killed):
            ways.run(loop, store, f"a{turn}", "t")
        assert ways.run(loop, store, f"a{turn}").result == "done"
    assert planned == ["t", "t"]
    assert loaded(store, "a0").plan == ["look", "write"]
    assert [s.name for s in store.steps("a0")].count("plan") == 1


def test_a_plan_that_is_none_is_refused(store: everstep.Store) -> None:
    out = AgentLoop(Script("done"), plan=lambda state: None).run(store, "a", "t")
    assert "plan must return a plan, got None" in str(out.error)


def test_an_agent_restored_from_a_capture_does_not_plan_again(store: everstep.Store) -> None:
    planned: list[int] = []
    think = Script(call("search", q="x"), "done")
    loop = AgentLoop(think, tools=[search], plan=lambda state: planned.append(1) or "the plan")
    loop.run(store, "a", "t")
    captured = AgentState(store.load("a@2")).capture()
    with store.run("b") as run:
        AgentState(run.state).restore(captured)
        assert loop.drive(run) == "done"
    assert planned == [1]
    assert think.asked == [1, 2, 2]
    assert loaded(store, "b").run == "b"


def test_what_think_changes_in_the_state_is_kept_over_death_and_retries(store: everstep.Store, ways: Ways) -> None:
    tries: list[int] = []

    def think(state: AgentState) -> Any:
        state.memory.setdefault("seen", []).append(state.turn)
        state.data["mine"] = state.turn
        tries.append(state.turn)
        if tries.count(state.turn) == 1:
            raise ConnectionError("once")
        return call("die", q="x") if state.turn < 2 else "done"

    died: list[str] = []

    def die(q: str) -> str:
        if len(died) < 2:
            died.append(q)
            raise Killed
        return q

    loop = AgentLoop(ways.fit(think), tools=[die], retry=Retry(attempts=2, delay=0, jitter=0))
    for _ in range(2):
        with pytest.raises(Killed):
            ways.run(loop, store, "a", "t")
    assert ways.run(loop, store, "a").result == "done"
    state = loaded(store)
    assert (state.memory, state.data["mine"]) == ({"seen": [0, 1, 2]}, 2)
    assert tries == [0, 0, 1, 1, 2, 2]


def test_a_think_that_takes_too_long_changes_nothing(store: everstep.Store) -> None:
    free = threading.Event()

    def think(state: AgentState) -> str:
        state.memory["late"] = True
        assert free.wait(30)
        return "late"

    out = AgentLoop(think, timeout=0.02).run(store, "a", "t")
    free.set()
    assert isinstance(out.error, StepTimeout)
    assert loaded(store).memory == {}


def test_what_a_tool_does_to_its_input_or_later_to_its_result_does_not_reach_the_state(store: everstep.Store) -> None:
    results: list[list[int]] = []

    def grow(items: list[int]) -> list[int]:
        items.append(99)
        results.append(items)
        return items

    def think(state: AgentState) -> Any:
        for result in results:
            result.append(-1)
        return call("grow", items=[1]) if state.turn < 2 else "done"

    AgentLoop(think, tools=[grow]).run(store, "a", "t")
    state = loaded(store)
    assert [a["input"] for a in state.finished] == [{"items": [1]}, {"items": [1]}]
    assert state.tool_results == {"1.0": [1, 99], "2.0": [1, 99]}


def test_an_action_list_that_think_uses_again_is_not_changed(store: everstep.Store) -> None:
    again = [Action("search", {"q": "x"})]
    AgentLoop(Script(again, again, "done"), tools=[search]).run(store, "a", "t")
    assert again == [Action("search", {"q": "x"})]
    assert [a["id"] for a in loaded(store).finished] == ["1.0", "2.0"]


# Acting


def test_act_takes_what_is_no_tool(store: everstep.Store, ways: Ways) -> None:
    def act(action: Action) -> Any:
        return [action.tool, action.input, action.id]

    think = Script([call("search", q="x"), call("other", n=1)], "done")
    ways.run(AgentLoop(ways.fit(think), ways.fit(act), tools=[search]), store, "a", "t")
    assert loaded(store).tool_results == {"1.0": "found x", "1.1": ["other", {"n": 1}, "1.1"]}


def test_an_act_that_takes_the_state_may_change_it(store: everstep.Store, ways: Ways) -> None:
    def act(action: Action, state: AgentState) -> str:
        state.memory[action.tool] = state.memory.get(action.tool, 0) + action.input["n"]
        return "noted"

    think = Script(Decision(actions=[Action("add", {"n": 1}), Action("add", {"n": 2})], parallel=True), "done")
    ways.run(AgentLoop(ways.fit(think), ways.fit(act)), store, "a", "t")
    assert loaded(store).memory == {"add": 3}


def test_the_model_is_told_when_a_tool_fails(store: everstep.Store, ways: Ways) -> None:
    def fetch(q: str) -> str:
        raise TimeoutError(f"{q} is slow")

    think = Script([call("fetch", q="x"), call("nothing"), call("fetch", wrong=1)], lambda s: s.messages[-3]["content"])
    out = ways.run(AgentLoop(ways.fit(think), tools=[fetch]), store, "a", "t")
    assert out.result == "TimeoutError: x is slow"
    state = loaded(store)
    assert [(a["status"], a["error"].partition(" ")[0]) for a in state.finished] == [
        ("failed", "TimeoutError:"),
        ("failed", "LookupError:"),
        ("failed", "TypeError:"),
    ]
    assert "there is no tool 'nothing'; available: fetch" in state.messages[-3]["content"]
    assert state.tool_counts == {"fetch": 2, "nothing": 1}
    assert state.tool_results == {}


def test_or_the_run_fails_and_the_tool_is_tried_again_when_it_is_run_again(store: everstep.Store, ways: Ways) -> None:
    trouble = [TimeoutError("slow")]

    def fetch(q: str) -> str:
        if trouble:
            raise trouble.pop()
        return q

    think = Script(call("fetch", q="x"), "done")
    loop = AgentLoop(ways.fit(think), tools=[fetch], errors="raise")
    out = ways.run(loop, store, "a", "t")
    assert (out.status, type(out.error)) == ("failed", TimeoutError)
    assert ways.run(loop, store, "a").result == "done"
    assert think.asked == [1, 2]


def test_an_error_of_the_store_is_not_told_to_the_model(store: everstep.Store, ways: Ways) -> None:
    def look(q: str) -> Any:
        return store.load(q)

    out = ways.run(AgentLoop(Script(call("look", q="nobody"), "done"), tools=[look]), store, "a", "t")
    assert (out.status, type(out.error)) == ("failed", NotFound)


def test_a_result_that_cannot_be_stored_fails_the_run_and_is_named(store: everstep.Store, ways: Ways) -> None:
    out = ways.run(AgentLoop(Script(call("get")), tools={"get": lambda: {"client": object()}}), store, "a", "t")
    assert isinstance(out.error, Unstorable)
    assert out.error.path == "what it returned['result']['client']"


def test_tools_that_are_steps_bring_their_own_retries(store: everstep.Store, ways: Ways) -> None:
    tries: list[int] = []

    @everstep.step(retry=Retry(attempts=3, delay=0, jitter=0))
    def flaky(q: str) -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("again")
        return q

    ways.run(AgentLoop(Script(call("flaky", q="x"), "done"), tools=[flaky]), store, "a", "t")
    assert len(tries) == 3
    assert loaded(store).tool_results == {"1.0": "x"}


def test_actions_are_taken_at_the_same_time_if_the_decision_says_so(store: everstep.Store) -> None:
    together = threading.Barrier(3)

    def fetch(n: int) -> int:
        together.wait(30)
        return n * 10

    think = Script(Decision(actions=[Action("fetch", {"n": n}) for n in range(3)], parallel=True), "done")
    out = AgentLoop(think, tools=[fetch]).run(store, "a", "t")
    assert out.result == "done"
    state = loaded(store)
    assert [m["content"] for m in state.messages if m["role"] == "tool"] == ["0", "10", "20"]
    assert [a["input"]["n"] for a in state.finished] == [0, 1, 2]


def test_async_actions_are_taken_at_the_same_time(store: everstep.Store) -> None:
    async def main() -> everstep.Outcome:
        here = [0]
        all_here = asyncio.Event()

        async def fetch(n: int) -> int:
            here[0] += 1
            if here[0] == 3:
                all_here.set()
            await asyncio.wait_for(all_here.wait(), 30)
            return n * 10

        think = Script([call("fetch", n=n) for n in range(3)], "done")
        return await AgentLoop(think, tools=[fetch], parallel=True).arun(store, "a", "t")

    assert asyncio.run(main()).result == "done"
    assert loaded(store).tool_results == {"1.0": 0, "1.1": 10, "1.2": 20}


def test_of_parallel_actions_only_those_that_had_not_finished_are_taken_again(store: everstep.Store, ways: Ways) -> None:
    taken: list[int] = []

    def fetch(n: int) -> int:
        taken.append(n)
        if n == 2 and taken.count(2) == 1:
            raise Killed
        return n

    think = Script([call("fetch", n=n) for n in range(3)], "done")
    loop = AgentLoop(ways.fit(think), tools=[fetch], parallel=True)
    with pytest.raises(Killed):
        ways.run(loop, store, "a", "t")
    assert ways.run(loop, store, "a").result == "done"
    assert sorted(taken) == [0, 1, 2, 2]
    assert loaded(store).tool_results == {"1.0": 0, "1.1": 1, "1.2": 2}


def test_one_failure_among_parallel_actions_is_told_and_the_others_stand(store: everstep.Store, ways: Ways) -> None:
    def fetch(n: int) -> int:
        return 10 // n

    think = Script([call("fetch", n=n) for n in (0, 1, 2)], "done")
    ways.run(AgentLoop(ways.fit(think), tools=[fetch], parallel=True), store, "a", "t")
    assert [a["status"] for a in loaded(store).finished] == ["failed", "succeeded", "succeeded"]


def test_a_cached_tool_is_not_called_twice_with_the_same_input(store: everstep.Store, ways: Ways) -> None:
    called: list[str] = []

    def fetch(q: str) -> str:
        called.append(q)
        return f"{q}!"

    think = Script(call("fetch", q="x"), call("fetch", q="x"), call("fetch", q="y"), "done")
    ways.run(AgentLoop(ways.fit(think), tools=[fetch], cache=["fetch"]), store, "a", "t")
    assert called == ["x", "y"]
    state = loaded(store)
    assert state.tool_results == {"1.0": "x!", "2.0": "x!", "3.0": "y!"}
    assert [a.get("cached", False) for a in state.finished] == [False, True, False]
    assert state.tool_counts == {"fetch": 2}


def test_specialists_are_noted_while_they_work_and_afterwards(store: everstep.Store, ways: Ways) -> None:
    def lawyer(q: str) -> str:
        raise Killed if not seen else ValueError("no idea")

    seen: list[Any] = []
    think = Script([call("lawyer", q="x"), call("search", q="y")], "done")
    loop = AgentLoop(ways.fit(think), tools=[search], specialists=[lawyer], approve=lambda a: a.tool == "lawyer")
    ways.run(loop, store, "a", "t")
    store.answer("a", store.gates("a")[0].name, "yes")
    with pytest.raises(Killed):
        ways.run(loop, store, "a")
    seen.append(1)
    ways.run(loop, store, "a")
    state = loaded(store)
    assert state.specialists == []
    assert state.specialist_calls == [{"name": "lawyer", "action": "1.0", "turn": 1, "status": "failed"}]


def test_ids_of_the_model_are_kept_and_a_repeated_one_is_told_apart(store: everstep.Store) -> None:
    think = Script(Action("search", {"q": "x"}, "call_1"), Action("search", {"q": "y"}, "call_1"), "done")
    AgentLoop(think, tools=[search]).run(store, "a", "t")
    state = loaded(store)
    assert [(a["id"], a["call"]) for a in state.finished] == [("call_1", "call_1"), ("call_1-2.0", "call_1")]
    assert list(state.tool_results.values()) == ["found x", "found y"]
    assert [m["tool_call_id"] for m in state.messages if m["role"] == "tool"] == ["call_1", "call_1"]


def test_a_tool_with_an_odd_name_can_be_called(store: everstep.Store) -> None:
    AgentLoop(Script(call("web/search#1", q="x"), "done"), tools={"web/search#1": search}, approve=lambda a: True).run(store, "a", "t")
    (gate,) = store.gates("a")
    store.answer("a", gate.name, True)
    out = AgentLoop(Script(None, "done"), tools={"web/search#1": search}).run(store, "a")
    assert out.result == "done"
    assert loaded(store).tool_results == {"1.0": "found x"}


def test_a_mistyped_id_without_a_task_starts_nothing(store: everstep.Store) -> None:
    script = Script("done")
    with pytest.raises(NotFound, match=r"no agent with the id 'agnet-1'.*\n.*pass a task to start a new agent"):
        AgentLoop(script).run(store, "agnet-1")
    assert (script.asked, list(store.runs())) == ([], [])


# Operators, and agents of agents


def test_an_operator_may_say_what_comes_of_a_step(store: everstep.Store, ways: Ways) -> None:
    def fetch(q: str) -> str:
        raise TimeoutError("for ever")

    trouble = [OSError("no plan")]
    think = Script(call("fetch", q="x"), lambda s: f"{s.plan}: {s.messages[-1]['content']}", "never")

    def plan(state: AgentState) -> str:
        raise trouble[0]

    loop = AgentLoop(ways.fit(think), tools=[fetch], errors="raise", plan=ways.fit(plan))
    assert ways.run(loop, store, "a", "t").status == "failed"
    store.skip("a", "plan", "by hand")
    assert ways.run(loop, store, "a").status == "failed"
    store.skip("a", "fetch", "from memory")
    assert ways.run(loop, store, "a").result == "by hand: from memory"
    assert loaded(store).tool_results == {"1.0": "from memory"}


def test_an_operator_may_think_for_the_agent(store: everstep.Store, ways: Ways) -> None:
    def think(state: AgentState) -> Any:
        raise OSError("no model")

    loop = AgentLoop(ways.fit(think), tools=[search])
    ways.run(loop, store, "a", "t")
    store.skip("a", "think", call("search", q="x"))
    store.skip("a", "think#1", "answered by hand")
    assert ways.run(loop, store, "a").result == "answered by hand"
    assert loaded(store).tool_results == {"1.0": "found x"}


def test_a_paused_agent_goes_on_and_a_cancelled_one_does_not(store: everstep.Store, ways: Ways) -> None:
    def pause(q: str) -> str:
        store.pause("a", "lunch")
        return q

    think = Script(call("pause", q="x"), "done")
    loop = AgentLoop(ways.fit(think), tools=[pause])
    out = ways.run(loop, store, "a", "t")
    assert (out.status, out.reason) == ("waiting", "pause: lunch")
    assert ways.run(loop, store, "a").result == "done"

    def cancel(q: str) -> str:
        store.cancel("b", "enough")
        return q

    loop = AgentLoop(ways.fit(Script(call("cancel", q="x"), "done")), tools=[cancel])
    out = ways.run(loop, store, "b", "t")
    assert (out.status, out.reason) == ("cancelled", "cancel: enough")
    out = ways.run(loop, store, "b")
    assert (out.status, out.reason, out.result, out.error) == ("cancelled", "cancel: enough", None, None)


def test_a_specialist_may_be_an_agent_with_a_run_of_its_own(store: everstep.Store) -> None:
    inner = Script(call("search", q="x"), lambda s: f"expert on {s.messages[-1]['content']}")
    expert = AgentLoop(inner, tools=[search], approve=lambda a: True)

    @everstep.workflow(name="tests.agents.expert")
    def research(task: str) -> Any:
        return expert.drive(everstep.current(), task)

    outer = Script(call("research", task="x"), lambda s: s.messages[-1]["content"])
    loop = AgentLoop(outer, specialists={"research": research})
    out = loop.run(store, "boss", "t")
    assert out.status == "waiting"
    (child,) = [info for info in store.runs() if info.id != "boss"]
    store.answer(child.id, store.gates(child.id)[0].name, "yes")
    assert loop.run(store, "boss").result == "expert on found x"
    assert (inner.asked, outer.asked) == ([1, 2], [1, 2])
    assert loaded(store, "boss").specialist_calls == [{"name": "research", "action": "1.0", "turn": 1, "status": "succeeded"}]


def test_a_replay_that_validates_finds_an_agent_unchanged(store: everstep.Store) -> None:
    loop = AgentLoop(Script(call("search", q="x"), "done"), tools=[search], plan=lambda s: ["p"])

    @everstep.workflow(name="tests.agents.validated")
    def agent(task: str) -> Any:
        return loop.drive(everstep.current(), task)

    assert store.start(agent, "t", id="w").result == "done"
    report = store.resume("w", replay="validate").report
    assert (report.executed, report.differences) == (4, [])


# Limits


def test_a_budget_stops_it_and_more_lets_it_go_on(store: everstep.Store, ways: Ways) -> None:
    think = Script(*(Decision(actions=[Action("search", {"q": "x"})], tokens=60) for _ in range(3)), "done")

    def run(budget: Budget | None) -> everstep.Outcome:
        return ways.run(AgentLoop(ways.fit(think), tools=[search], budget=budget), store, "a", "t")

    out = run(Budget(tokens=100))
    assert (out.status, out.result) == ("waiting", None)
    assert "120 tokens of 100" in str(out.reason)
    assert run(None).status == "waiting"  # it is kept with the agent
    assert think.asked == [1, 2]
    assert run(Budget(tokens=1_000)).result == "done"
    assert think.asked == [1, 2, 3, 4]
    assert loaded(store).tokens == 180


def test_the_budget_goes_with_the_state_into_an_open_run(store: everstep.Store) -> None:
    think = Script(*(Decision(actions=[Action("search", {"q": "x"})], cost=0.6) for _ in range(3)), "done")
    with pytest.raises(everstep.errors.Interrupted, match=r"cost 1.2 of 1"), store.run("a") as run:
        AgentLoop(think, tools=[search], budget=Budget(cost=1)).drive(run, "t")
    with pytest.raises(everstep.errors.Interrupted, match=r"cost 1.2 of 1"), store.run("a") as run:
        AgentLoop(think, tools=[search]).drive(run)
    assert store.get("a").status == "waiting"
    assert loaded(store).status == "waiting"


def test_the_number_of_turns_is_limited_and_more_lets_it_go_on(store: everstep.Store, ways: Ways) -> None:
    think = Script(call("search", q="x"), call("search", q="y"), "done")
    out = ways.run(AgentLoop(ways.fit(think), tools=[search], max_turns=2), store, "a", "t")
    assert (out.status, out.reason) == ("waiting", "max_turns: 2 turns without an answer")
    assert ways.run(AgentLoop(ways.fit(think), tools=[search], max_turns=3), store, "a").result == "done"
    assert think.asked == [1, 2, 3]


# Where it runs


def test_it_is_driven_in_a_run_that_is_open(store: everstep.Store) -> None:
    loop = AgentLoop(Script(call("search", q="x"), "done"), tools=[search])
    with store.run("a", state={"mine": 1}) as run:
        assert loop.drive(run, "t") == "done"
        assert AgentState(run.state).answer == "done"
        run.state["after"] = True
        run.checkpoint()
    assert (store.load("a")["mine"], store.load("a")["after"]) == (1, True)


def test_it_is_driven_in_an_async_run_that_is_open(store: everstep.Store) -> None:
    async def main() -> Any:
        loop = AgentLoop(Script(call("search", q="x"), "done"), tools=[search])
        async with store.run("a") as run:
            return await loop.drive(run, "t")

    assert asyncio.run(main()) == "done"
    assert loaded(store).tool_results == {"1.0": "found x"}


def test_an_async_store_will_do(places: Any) -> None:
    async def main() -> everstep.Outcome:
        async with places.open() as store:
            return await AgentLoop(Script("done")).arun(store, "a", "t")

    assert asyncio.run(main()).result == "done"


def test_as_a_workflow_it_is_woken_when_its_gate_is_answered(store: everstep.Store) -> None:
    think = Script(call("search", q="x"), call("search", q="y"), lambda s: f"{s.memory['n']} turns")
    loop = AgentLoop(
        lambda state: state.memory.update(n=state.turn + 1) or think(state), tools=[search], approve=lambda a: a.input["q"] == "y"
    )

    @everstep.workflow(name="tests.agents.asks")
    def asks(task: str) -> Any:
        return loop.drive(everstep.current(), task)

    out = store.start(asks, "t", id="w")
    assert (out.status, [g.name for g in out.gates]) == ("waiting", ["approve-search-2.0"])
    store.answer("w", "approve-search-2.0", "yes")
    (woken,) = store.wake()
    assert (woken.status, woken.result) == ("succeeded", "3 turns")
    assert think.asked == [1, 2, 3]


def test_a_fork_goes_on_from_its_turn_with_another_state(store: everstep.Store) -> None:
    think = Script(call("search", q="x"), lambda s: f"{s.memory.get('tone', 'plain')} after {s.turn}")
    loop = AgentLoop(think, tools=[search])
    assert loop.run(store, "a", "t").result == "plain after 1"
    fork = store.fork("a@2", id="b", edit=lambda state: state["memory"].update(tone="polite"))
    assert loop.run(store, fork.id).result == "polite after 1"
    assert think.asked == [1, 2, 2]
    state = loaded(store, "b")
    assert (state.run, state.parent) == ("b", "a@2")
    assert loaded(store).memory == {}


def test_hooks_are_noted_by_name(store: everstep.Store) -> None:
    @store.on("after_step")
    def tell(event: Any) -> None: ...

    AgentLoop(Script("done")).run(store, "a", "t")
    assert [name.partition(" ")[0] for name in loaded(store).hooks] == ["after_step"]
    assert loaded(store).hooks[0].endswith("tell")


def test_every_message_is_shown_once(store: everstep.Store, ways: Ways) -> None:
    shown: list[str] = []
    think = Script(call("search", q="x"), "done")
    ways.run(AgentLoop(ways.fit(think), tools=[search], on_message=lambda m: shown.append(m["role"])), store, "a", "t")
    assert shown == ["user", "assistant", "tool", "assistant"]


def test_a_finished_agent_takes_another_message(store: everstep.Store, ways: Ways) -> None:
    think = Script("one", call("die", q="x"), "two")
    dies = [True]

    def die(q: str) -> str:
        if dies and dies.pop():
            raise Killed
        return q

    loop = AgentLoop(ways.fit(think), tools=[die])
    assert ways.run(loop, store, "a", "first").result == "one"
    with pytest.raises(Killed):
        ways.run(loop, store, "a", "second", follow_up=True)
    assert ways.run(loop, store, "a").result == "two"
    assert think.asked == [1, 2, 3]
    state = loaded(store)
    assert [m["content"] for m in state.messages if m["role"] == "user"] == ["first", "second"]
    assert (state.task, state.answer, state.turn) == ("second", "two", 3)


def test_a_store_that_is_switched_off_keeps_nothing_and_the_agent_works(ways: Ways) -> None:
    with everstep.open(enabled=False) as store:
        think = Script(call("search", q="x"), "done")
        out = ways.run(AgentLoop(think, tools=[search], plan=lambda s: ["p"]), store, "a", "t")
        assert (out.status, out.result, out.reason) == ("succeeded", "done", None)
        out = ways.run(AgentLoop(Script(call("search", q="x")), tools=[search], approve=lambda a: True), store, "b", "t")
        assert out.status == "waiting"
        assert out.reason
        assert list(store.runs()) == []


class Researcher(AgentState):
    topic: Field[str] = Field(str, lambda: "none yet")


def test_the_state_may_be_of_a_class_of_ones_own(store: everstep.Store) -> None:
    def think(state: Researcher) -> str:
        state.topic = "logs"
        return f"{type(state).__name__}: {state.topic}"

    assert AgentLoop(think, state=Researcher).run(store, "a", "t").result == "Researcher: logs"
    assert Researcher(store.load("a")).topic == "logs"


def test_an_agent_may_have_no_id(store: everstep.Store) -> None:
    out = AgentLoop(Script("done")).run(store, None, "t")
    assert store.get(out.run).status == "succeeded"


def test_options_describe_the_run(store: everstep.Store, ways: Ways) -> None:
    ways.run(AgentLoop(Script("done")), store, "a", "t", tags=["prod"], session="s", meta={"team": "ops"})
    info = store.get("a")
    assert (info.tags, info.session, info.meta) == (("prod",), "s", {"team": "ops"})


def test_a_run_that_another_has_open_is_left_alone(store: everstep.Store, ways: Ways) -> None:
    with store.run("a"), pytest.raises(everstep.errors.LeaseHeld):
        ways.run(AgentLoop(Script("done")), store, "a", "t")


@pytest.mark.parametrize(("options", "words"), [
    ({"think": 5}, "think must be a function, got 5"),
    ({"act": "x"}, "act must be a function, got 'x'"),
    ({"plan": 1}, "plan must be a function, got 1"),
    ({"max_turns": 0}, "max_turns must be an integer of at least 1, got 0"),
    ({"errors": "hide"}, "errors must be 'tell' or 'raise', got 'hide'"),
    ({"cache": "search"}, "cache must be a list of tool names, got 'search'"),
    ({"tools": 5}, "tools must be a list or a dict of functions, got 5"),
    ({"tools": [5]}, "a tool must be a function with a name"),
    ({"tools": {"x": 5}}, "a tool must be a function with a name"),
    ({"budget": {"money": 5}}, "unknown key .money. in a budget"),
    ({"retry": "3"}, "retry must be an everstep.Retry or a number of attempts, got '3'"),
    ({"timeout": 0}, "timeout must be a number of seconds greater than 0, got 0"),
    ({"approve": asyncio.sleep}, "must be a plain function, got the async function"),
    ({"on_message": asyncio.sleep}, "must be a plain function, got the async function"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused_at_once(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        AgentLoop(**{"think": search, **options})
