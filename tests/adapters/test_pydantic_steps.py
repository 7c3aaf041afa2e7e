"""Steps that the harness of Pydantic AI records: the contract, which its own stores keep as well; then what ours adds."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep.errors import InvalidArgument

pytest.importorskip("pydantic_ai_harness", reason="pydantic-ai-harness is not installed: pip install 'everstep[dev-adapters]'")

from pydantic_ai import Agent, BinaryContent
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai_harness.step_persistence import (
    ContinuableSnapshot,
    InMemoryStepStore,
    RunRecord,
    StepEvent,
    StepPersistence,
    ToolEffectRecord,
    continue_run,
)
from pydantic_ai_harness.step_persistence import StepStore as Contract

from everstep.adapters.pydantic_ai import StepStore

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.fixture(params=["everstep", "framework"])
def steps(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return InMemoryStepStore() if request.param == "framework" else StepStore(tmp_path / "s.db")


def said(text: str) -> list[Any]:
    return [ModelRequest(parts=[UserPromptPart(text, timestamp=NOON)]), ModelResponse(parts=[TextPart(text.upper())], timestamp=NOON)]


def snapshot(step: int, state: str = "complete", key: str | None = None, **options: Any) -> ContinuableSnapshot:
    return ContinuableSnapshot(
        run_id="r", step_index=step, messages=said("hi") * (step + 1), state=state, idempotency_key=key, timestamp=NOON, **options
    )  # type: ignore[arg-type]


async def test_records_of_runs(steps: Any) -> None:
    assert isinstance(steps, Contract)
    assert await steps.get_run(run_id="r") is None
    assert await steps.list_runs() == []
    first = RunRecord(run_id="r", conversation_id="c", agent_name="Clerk", metadata={"a": "b"}, started_at=NOON, registration_id="x")
    second = RunRecord(run_id="q", conversation_id="c", parent_run_id="r", started_at=NOON - timedelta(hours=1))
    await steps.register_run(first)
    await steps.register_run(second)
    assert (await steps.get_run(run_id="r"), await steps.get_run(run_id="q")) == (first, second)
    assert await steps.list_runs() == [second, first]
    assert await steps.list_runs(parent_run_id="r") == [second]
    assert await steps.list_runs(conversation_id="c", parent_run_id="no") == []
    assert await steps.list_runs(conversation_id="c") == [second, first]
    first.metadata["a"] = "c"
    await steps.register_run(first)
    assert await steps.get_run(run_id="r") == first


async def test_events_are_kept_in_order_and_once_for_each_key(steps: Any) -> None:
    assert await steps.list_events(run_id="r") == []
    events = [
        StepEvent(run_id="r", kind="run_started", step_index=0, timestamp=NOON, metadata={"n": "1"}),
        StepEvent(
            run_id="r",
            kind="tool_call_started",
            step_index=1,
            tool_call_id="t/1",
            tool_name="look",
            timestamp=NOON,
            idempotency_key="k" * 300,
        ),
        StepEvent(run_id="r", kind="run_failed", step_index=2, error="down", timestamp=NOON, idempotency_key="2:end"),
    ]
    for event in [*events, *events[1:]]:
        await steps.append_event(event)
    assert await steps.list_events(run_id="r") == events
    assert await steps.get_run(run_id="r") is None


async def test_snapshots(steps: Any) -> None:
    assert await steps.latest_snapshot(run_id="r") is None
    await steps.save_snapshot(snapshot(0, key="0:a", conversation_id="c", agent_name="Clerk"))
    await steps.save_snapshot(snapshot(1, key="1:a"))
    await steps.save_snapshot(snapshot(2, "interrupted", key="2:a"))
    await steps.save_snapshot(snapshot(7, key="1:a"))  # a retry
    await steps.save_snapshot(snapshot(7, key="0:b"))  # overtaken
    assert await steps.latest_snapshot(run_id="r") == snapshot(1, key="1:a")
    assert await steps.latest_snapshot(run_id="r", include_interrupted=True) == snapshot(2, "interrupted", key="2:a")
    assert [each.step_index for each in await steps.list_snapshots(run_id="r")] == [0, 1]
    assert [each.step_index for each in await steps.list_snapshots(run_id="r", include_interrupted=True)] == [0, 1, 2]


async def test_effects_of_tools(steps: Any) -> None:
    assert await steps.get_tool_effect(run_id="r", tool_call_id="t") is None
    assert await steps.list_unresolved_tool_effects(run_id="r") == []
    begun = ToolEffectRecord(tool_call_id="t", tool_name="pay", run_id="r", status="started", started_at=NOON)
    other = ToolEffectRecord(tool_call_id="t2", tool_name="pay", run_id="r", status="started", started_at=NOON)
    await steps.record_tool_effect(begun)
    await steps.record_tool_effect(other)
    assert await steps.list_unresolved_tool_effects(run_id="r") == [begun, other]
    ended = ToolEffectRecord(
        tool_call_id="t", tool_name="pay", run_id="r", status="completed", started_at=NOON, ended_at=NOON, effect_summary="5"
    )
    await steps.record_tool_effect(ended)
    assert await steps.get_tool_effect(run_id="r", tool_call_id="t") == ended
    assert await steps.list_unresolved_tool_effects(run_id="r") == [other]


async def test_an_agent_records_its_steps_and_another_process_continues(steps: Any) -> None:
    def model(messages: list[Any], info: Any) -> ModelResponse:
        last = messages[-1].parts[-1]
        return ModelResponse(
            parts=[
                TextPart(f"{len(messages)}")
                if isinstance(last, (ToolReturnPart, UserPromptPart)) and len(messages) > 1
                else ToolCallPart("look", {})
            ]
        )

    agent = Agent(FunctionModel(model), name="Clerk", capabilities=[StepPersistence(store=steps)])
    agent.tool_plain(name="look")(lambda: "nothing")
    await agent.run(["Look", BinaryContent(b"\x00\xff", media_type="image/png")])
    (record,) = await steps.list_runs()
    kinds = [event.kind for event in await steps.list_events(run_id=record.run_id)]
    assert (kinds[0], kinds[-1], kinds.count("tool_call_completed")) == ("run_started", "run_completed", 1)
    history = await continue_run(steps, run_id=record.run_id)
    assert (await agent.run("And?", message_history=history)).output == "5"
    assert await steps.list_unresolved_tool_effects(run_id=record.run_id) == []


async def test_two_writers_lose_nothing_and_only_what_is_new_is_written(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db") as store:
        first, second = StepStore(store), StepStore(store)
        await first.save_snapshot(snapshot(0))
        await second.save_snapshot(snapshot(1))
        await first.save_snapshot(snapshot(2))
        await asyncio.gather(
            *(one.append_event(StepEvent(run_id="r", kind="run_started", step_index=n)) for n in range(5) for one in (first, second))
        )
        assert [each.step_index for each in await second.list_snapshots(run_id="r")] == [0, 1, 2]
        assert len(await first.list_events(run_id="r")) == 10
        info = store.get("steps:r")
        assert (info.status, info.workflow) == ("waiting", "pydantic-ai-steps")
        big = StepStore(store)
        for n in range(30):
            await big.save_snapshot(ContinuableSnapshot(run_id="big", step_index=n, messages=said("x" * 1000) * (n + 1)))
        assert store.get("steps:big").stored_bytes < 200_000  # 30 whole copies are 1.9 MB


async def test_a_run_of_somebody_else_is_refused(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db") as store:
        with store.run("steps:r", state={"n": 1}) as run:
            run.checkpoint()
        with pytest.raises(InvalidArgument, match="not written by StepStore"):
            await StepStore(store).save_snapshot(snapshot(0))
        assert store.load("steps:r") == {"n": 1}
