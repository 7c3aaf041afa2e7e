"""Sessions of OpenAI agents: the contract, which the framework's own session keeps as well; then what ours adds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep.errors import InvalidArgument

pytest.importorskip("agents", reason="openai-agents is not installed: pip install 'everstep[dev-adapters]'")

from agents import Agent, Runner, SessionSettings, SQLiteSession, function_tool, set_tracing_disabled
from agents.memory import Session as Contract
from agents.testing import ScriptedModel, assistant_message, function_call

from everstep.adapters.openai_agents import Session

set_tracing_disabled(True)
Open = Callable[..., Any]


def item(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


@pytest.fixture(params=["everstep", "framework"])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    if request.param == "framework":
        return lambda id, **options: SQLiteSession(id, tmp_path / "f.db", **options)
    return lambda id, **options: Session(id, tmp_path / "s.db", **options)


async def test_items_come_back_in_order_and_limits_take_the_newest(session: Open) -> None:
    one = session("user@example.com/7 ~x")
    assert isinstance(one, Contract)
    assert await one.get_items() == []
    items = [item("ä"), item("b", "assistant"), {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, item("d")]
    await one.add_items(items[:3])
    await one.add_items([])
    await one.add_items(items[3:])
    assert await one.get_items() == items
    assert await one.get_items(limit=2) == items[2:]
    assert await one.get_items(limit=9) == items
    assert await one.get_items(limit=0) == []
    assert await one.get_items(limit=-1) == items
    limited = session("user@example.com/7 ~x", session_settings=SessionSettings(limit=1))
    assert (await limited.get_items(), await limited.get_items(limit=2)) == (items[3:], items[2:])


async def test_pop_and_clear(session: Open) -> None:
    one, other = session("a"), session("b")
    assert await one.pop_item() is None
    await one.clear_session()
    await one.add_items([item("x"), item("y")])
    await other.add_items([item("z")])
    assert await one.pop_item() == item("y")
    assert await session("a").get_items() == [item("x")]
    await one.clear_session()
    assert (await one.get_items(), await one.pop_item(), await other.get_items()) == ([], None, [item("z")])
    await one.add_items([item("again")])
    assert await one.get_items() == [item("again")]


async def test_what_a_caller_changes_is_not_saved(session: Open) -> None:
    one, given = session("a"), item("x")
    await one.add_items([given])
    given["content"] = "changed"
    (await one.get_items())[0]["content"] = "changed"
    await one.add_items([item("y")])
    assert await session("a").get_items() == [item("x"), item("y")]


async def test_a_conversation_with_a_runner(session: Open) -> None:
    model = ScriptedModel([[assistant_message("Hello.")], [assistant_message("Bye.")]])
    for text in ("Hi", "I go"):
        await Runner.run(Agent(name="Clerk", model=model), text, session=session("a"))
    assert [each.get("role") for each in await session("a").get_items()] == ["user", "assistant", "user", "assistant"]
    assert [each["content"] for each in model.calls[1].input if each["role"] == "user"] == ["Hi", "I go"]


async def test_a_batch_is_one_checkpoint_and_one_that_cannot_be_stored_leaves_nothing(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db") as store:
        one = Session("a", store)
        await one.add_items([item("x"), item("y")])
        with pytest.raises(everstep.EverstepError):
            await one.add_items([item("fine"), item("\ud800")])
        await one.add_items([item("z")])
        assert [len(state["items"]) for _, state in store.states("a", newest_first=False)] == [2, 3]
        assert (store.get("a").status, store.get("a").workflow) == ("waiting", "openai-session")


async def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db") as store:
        first, second = Session("a", store), Session("a", store)
        await first.add_items([item("0")])
        assert await second.get_items() == [item("0")]
        await asyncio.gather(*(one.add_items([item(f"{n}")]) for n in range(10) for one in (first, second)))
        assert len(await first.get_items()) == 21
        await second.add_items([item("last")])
        assert await first.pop_item() == item("last")
        assert len(await second.get_items()) == 21


def test_threads_and_event_loops_may_share_a_store(tmp_path: Path) -> None:
    def add(name: str) -> None:
        one = Session("a", store)
        for n in range(5):
            asyncio.run(one.add_items([item(f"{name}{n}")]))

    with everstep.open(tmp_path / "s.db") as store:
        threads = [threading.Thread(target=add, args=(name,)) for name in "xyz"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        kept = [each["content"] for each in asyncio.run(Session("a", store).get_items())]
    assert sorted(kept) == sorted(f"{name}{n}" for name in "xyz" for n in range(5))
    assert [each for each in kept if each.startswith("x")] == [f"x{n}" for n in range(5)]


async def test_a_turn_is_saved_whole_or_not_at_all(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db") as store:
        one, other = Session("a", store), Session("a", store)
        with pytest.raises(ConnectionError):
            async with one.turn():
                await Runner.run(Agent(name="Clerk", model=ScriptedModel([ConnectionError("down")])), "Hi", session=one)
        assert await one.get_items() == []
        async with one.turn() as turn:
            result = await Runner.run(Agent(name="Clerk", model=ScriptedModel([[assistant_message("Hello.")]])), "Hi", session=one)
            await turn.save(result)
            assert len(await one.get_items()) == 2
            assert await other.get_items() == []  # not saved yet
            await other.add_items([item("meanwhile")])
            with pytest.raises(InvalidArgument):
                await one.turn().__aenter__()
        assert [each["content"] for each in await other.get_items()][:2] == ["meanwhile", "Hi"]
        assert [len(state["items"]) for _, state in store.states("a", newest_first=False)] == [1, 3]


async def test_the_state_of_an_interrupted_run_is_saved_with_the_items(tmp_path: Path) -> None:
    sent = []

    @function_tool(needs_approval=True)
    def send(to: str) -> str:
        sent.append(to)
        return "sent"

    def clerk(*steps: Any) -> Agent[Any]:
        return Agent(name="Clerk", model=ScriptedModel(steps), tools=[send])

    with everstep.open(tmp_path / "s.db") as store:
        one = Session("a", store)
        async with one.turn() as turn:
            await turn.save(await Runner.run(clerk([function_call("send", {"to": "ann"}, call_id="c")]), "Write", session=one))
        assert store.get("a").checkpoints == 1
        later = Session("a", store)
        agent = clerk([assistant_message("Done.")])
        state = await later.run_state(agent)
        assert state is not None
        state.approve(state.get_interruptions()[0])
        async with later.turn() as turn:
            result = await Runner.run(agent, state, session=later)
            await turn.save(result)
        assert (result.final_output, sent, await one.run_state(agent)) == ("Done.", ["ann"], None)
        assert [each.get("type", each.get("role")) for each in await one.get_items()] == [
            "user",
            "function_call",
            "function_call_output",
            "message",
        ]


async def test_input_that_makes_no_sense(tmp_path: Path) -> None:
    for wrong in ("", None, 5):
        with pytest.raises(InvalidArgument):
            Session(wrong)  # type: ignore[arg-type]
    with everstep.open(tmp_path / "s.db") as store:
        with store.run("mine", state={"n": 1}) as run:
            run.checkpoint()
        with pytest.raises(InvalidArgument, match="not a session"):
            await Session("mine", store).add_items([item("x")])
        assert store.load("mine") == {"n": 1}


async def test_a_session_opens_and_closes_its_own_store_and_takes_an_async_one(tmp_path: Path) -> None:
    async with Session("a", tmp_path / "s.db") as one:
        await one.add_items([item("x")])
        assert (tmp_path / "s.db-wal").exists()
    assert not (tmp_path / "s.db-wal").exists()
    async with everstep.open(tmp_path / "s.db") as store:
        assert await Session("a", store).get_items() == [item("x")]
