"""Durable runs of OpenAI agents: an agent that was renamed, and what a recorded error holds."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import everstep
from everstep.errors import InvalidArgument, RunExists

pytest.importorskip("agents", reason="openai-agents is not installed: pip install 'everstep[dev-adapters]'")

from agents import Agent, UserError, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call

from everstep.adapters.openai_agents import run

set_tracing_disabled(True)


def agent(*steps: Any, **options: Any) -> Agent[Any]:
    return Agent(name="Clerk", model=ScriptedModel(steps), **options)


async def test_a_renamed_agent_continues_its_runs_under_its_old_name(store: everstep.Store) -> None:
    down = [True]

    @function_tool(failure_error_function=None)
    def find(what: str) -> str:
        if down:
            down.pop()
            raise ConnectionError("down")
        return "found"

    old = agent([function_call("find", {"what": "bike"}, call_id="c1")], [assistant_message("Here.")], tools=[find])
    with pytest.raises(UserError):
        await run(old, "Find a bike", id="r", store=store)
    new = Agent(name="Librarian", model=old.model, tools=[find])
    with pytest.raises(RunExists):
        await run(new, "Find a bike", id="r", store=store)
    assert (await run(new, "Find a bike", id="r", store=store, name="Clerk")).final_output == "Here."
    assert isinstance(new.model, ScriptedModel)
    assert len(new.model.calls) == 2
    assert {step.name for step in store.steps("r")} == {"Clerk", "find"}
    with pytest.raises(InvalidArgument, match="name must be text"):
        await run(new, "Find a bike", store=store, name="")


async def test_a_failed_run_records_its_error_without_the_agents_in_it(store: everstep.Store) -> None:
    @function_tool(failure_error_function=None)
    def find() -> str:
        raise ConnectionError("down")

    clerk = agent([function_call("find", {}, call_id="c1")], tools=[find])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with pytest.raises(UserError) as raised:
            await run(clerk, "Find a bike", id="r", store=store)
    assert [str(one.message) for one in told if "everstep.register" in str(one.message)] == []
    assert raised.value.run_data is not None  # for the program, as by Runner.run
    recorded = store.wait("r").error
    assert isinstance(recorded, UserError)
    assert (str(recorded), recorded.run_data) == (str(raised.value), None)
