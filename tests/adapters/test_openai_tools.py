"""Where tools of OpenAI agents run: MCP servers, other event loops, workers; and the key by which a service recognises a repeated call."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import everstep

pytest.importorskip("agents", reason="openai-agents is not installed: pip install 'everstep[dev-adapters]'")

from agents import Agent, Runner, Usage, function_tool, set_tracing_disabled
from agents.mcp import MCPServer
from agents.testing import ScriptedModel, assistant_message, function_call
from mcp.types import CallToolResult, TextContent, Tool

from everstep.adapters import openai_agents
from everstep.adapters.openai_agents import run

set_tracing_disabled(True)
TEN = Usage(requests=1, input_tokens=4, output_tokens=6, total_tokens=10)


def agent(*steps: Any, **options: Any) -> Agent[Any]:
    return Agent(name=options.pop("name", "Clerk"), model=ScriptedModel(steps, default_usage=TEN), **options)


class Server(MCPServer):
    """An MCP server in this process."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[Any] = []

    name = "local"

    async def connect(self) -> None: ...

    async def cleanup(self) -> None: ...

    async def list_tools(self, *args: Any, **options: Any) -> list[Any]:
        return [Tool.model_validate({"name": "look", "inputSchema": {"type": "object", "properties": {"at": {"type": "string"}}}})]

    async def call_tool(self, tool_name: str, arguments: Any, *args: Any, **options: Any) -> Any:
        self.called.append((tool_name, arguments))
        return CallToolResult(content=[TextContent(type="text", text="nothing")])

    async def list_prompts(self) -> Any: ...

    async def get_prompt(self, name: str, arguments: Any = None) -> Any: ...


async def test_tools_of_an_mcp_server_are_steps() -> None:
    server = Server()
    with everstep.open("memory://") as store:
        look = function_call("look", {"at": "sea"}, call_id="c1")
        clerk = agent([look], ConnectionError("down"), [assistant_message("Done.")], mcp_servers=[server])
        with pytest.raises(ConnectionError):
            await run(clerk, "Look", id="r", store=store)
        assert (await run(clerk, "Look", id="r", store=store)).final_output == "Done."
        assert server.called == [("look", {"at": "sea"})]
        assert "look@1.c1" in [step.address for step in store.steps("r")]


async def test_an_agent_in_another_event_loop_is_part_of_its_tool() -> None:
    inner = agent([assistant_message("inner")], name="Inner")

    @function_tool
    def ask() -> str:
        return str(asyncio.run(Runner.run(inner, "Hm?")).final_output)

    with everstep.open("memory://") as store:
        clerk = agent([function_call("ask", {}, call_id="c1")], [assistant_message("Done.")], tools=[ask])
        assert (await run(clerk, "Ask", id="r", store=store)).final_output == "Done."
        assert [step.address for step in store.steps("r")] == ["Clerk#0", "ask@1.c1", "Clerk#1"]


async def test_an_agent_outside_of_durable_runs_is_not_touched() -> None:
    with everstep.open("memory://") as store:
        await run(agent([assistant_message("x")]), "Hi", id="r", store=store)
        assert (await Runner.run(agent([assistant_message("plain")]), "Hi")).final_output == "plain"
        assert [info.id for info in store.runs()] == ["r"]


async def test_a_tool_has_a_key_for_services_that_is_the_same_when_it_is_called_again() -> None:
    keys = []

    @function_tool(failure_error_function=None)
    async def pay() -> str:
        keys.append(everstep.current().step_key)
        if len(keys) == 1:
            raise ConnectionError("no answer: paid or not?")
        return "paid"

    with everstep.open("memory://") as store:
        clerk = agent([function_call("pay", {}, call_id="c1")], [assistant_message("Done.")], tools=[pay])
        with pytest.raises(Exception, match="paid or not"):
            await run(clerk, "Pay", id="r", store=store)
        assert (await run(clerk, "Pay", id="r", store=store)).final_output == "Done."
        assert keys[0] == keys[1]


async def test_an_agent_that_is_streamed_in_a_tool_is_recorded_and_its_approvals_are_refused() -> None:
    paid = []

    @function_tool(needs_approval=True)
    def pay() -> str:
        paid.append(1)
        return "paid"

    def clerk(inner: Agent[Any]) -> Agent[Any]:
        tool = inner.as_tool("inner", "Asks", on_stream=lambda event: None, failure_error_function=None)
        asks = [function_call("inner", {"input": "x"}, call_id="c1")]
        return agent(asks, ConnectionError("down"), [assistant_message("Done.")], tools=[tool])

    with everstep.open("memory://") as store:
        inner = agent([assistant_message("inner")], name="Inner")
        outer = clerk(inner)
        with pytest.raises(ConnectionError):
            await run(outer, "Ask", id="r", store=store)
        assert (await run(outer, "Ask", id="r", store=store)).usage.total_tokens == 30
        assert "inner@1.c1/Inner#0" in [step.address for step in store.steps("r")]
        with pytest.raises(Exception, match="needs an approval"):
            await run(clerk(agent([function_call("pay", {}, call_id="p")], name="Inner", tools=[pay])), "Ask", id="q", store=store)
        assert paid == []


def test_a_worker_runs_an_agent(tmp_path: Path) -> None:
    clerk = agent([assistant_message("Hello.")], name="Worker's clerk")
    with everstep.open(tmp_path / "s.db") as store:
        queued = store.enqueue(openai_agents.workflow(clerk), "Hi", id="r")
        store.worker(concurrency=1).run(until_idle=True)
        assert queued.wait(0).result["output"] == ["plain", "Hello."]
        assert openai_agents.run_sync(clerk, "Hi", id="r", store=store).final_output == "Hello."
