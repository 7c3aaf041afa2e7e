"""Durable runs of OpenAI agents: approvals, errors, timeouts, limits, streams, nested agents, and input that makes no sense."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

import everstep
from everstep.errors import InvalidArgument, LeaseHeld, NonDeterminism, RunExists

pytest.importorskip("agents", reason="openai-agents is not installed: pip install 'everstep[dev-adapters]'")

from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    InputGuardrailTripwireTriggered,
    LocalShellTool,
    MaxTurnsExceeded,
    ModelBehaviorError,
    ModelRetrySettings,
    ModelSettings,
    OutputGuardrail,
    RunConfig,
    Runner,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolOutputText,
    Usage,
    function_tool,
    handoff,
    retry_policies,
    set_tracing_disabled,
)
from agents.run_config import SandboxRunConfig
from agents.testing import ScriptedModel, assistant_message, function_call

from everstep.adapters import openai_agents
from everstep.adapters.openai_agents import run, run_streamed, run_sync

set_tracing_disabled(True)
TEN = Usage(requests=1, input_tokens=4, output_tokens=6, total_tokens=10)


def agent(*steps: Any, **options: Any) -> Agent[Any]:
    return Agent(name=options.pop("name", "Clerk"), model=ScriptedModel(steps, default_usage=TEN), **options)


def call(name: str, id: str = "c1", **arguments: Any) -> Any:
    return function_call(name, arguments, call_id=id)


def says(text: str) -> list[Any]:
    return [assistant_message(text)]


def asked(agent: Agent[Any]) -> int:
    """How often the model was asked."""
    assert isinstance(agent.model, ScriptedModel)
    return len(agent.model.calls)


@pytest.fixture
def store() -> Any:
    with everstep.open("memory://") as opened:
        yield opened


@pytest.mark.parametrize("name", ["small-model", ""])
async def test_the_price_depends_on_the_name_of_the_model(name: str, store: everstep.Store) -> None:
    priced = []
    clerk = agent(says("Hello."))
    if name:
        clerk.model.model = name  # type: ignore[union-attr]
    await run(clerk, "Hi", id="r", store=store, price=lambda response, model: priced.append(model) or 2.0)  # type: ignore[func-returns-value]
    assert priced == [name]


async def test_a_finished_run_is_not_run_again_and_its_result_is_the_same(store: everstep.Store) -> None:
    clerk = agent(says("Hello."))
    first = await run(clerk, "Hi", id="r", store=store, price=lambda response, model: response.usage.total_tokens * 0.5)
    again = await run(clerk, "Hi", id="r", store=store)
    assert first.final_output == again.final_output == "Hello."
    assert first.to_input_list() == again.to_input_list()
    assert first.usage == again.usage
    assert (asked(clerk), first.usage.total_tokens, again.last_agent) == (1, 10, clerk)
    assert [(step.address, step.tokens, step.cost) for step in store.steps("r")] == [("Clerk#0", 10, 5.0)]
    assert isinstance(clerk.model, ScriptedModel)  # the agent itself was not changed


async def test_another_input_or_agent_under_the_same_id_is_refused(store: everstep.Store) -> None:
    clerk = agent(says("Hello."))
    await run(clerk, "Hi", id="r", store=store)
    with pytest.raises(RunExists):
        await run(clerk, "Bye", id="r", store=store)
    with pytest.raises(RunExists):
        await run(agent(says("Hm."), name="Other"), "Hi", id="r", store=store)
    assert asked(clerk) == 1


async def test_an_approval_is_a_gate_and_the_answer_may_come_in_another_process(store: everstep.Store) -> None:
    sent = []

    @function_tool(needs_approval=True)
    def send(to: str) -> str:
        sent.append(to)
        return f"sent to {to}"

    clerk = agent([call("send", "a", to="ann"), call("send", "b", to="bob")], says("Done."), tools=[send])
    waiting = await run(clerk, "Write", id="r", store=store)
    assert (waiting.status, waiting.final_output, sent) == ("waiting", None, [])
    assert [gate.ask for gate in waiting.gates] == ['Let Clerk call send({"to":"ann"})?', 'Let Clerk call send({"to":"bob"})?']
    store.answer("r", "approve-send#0", "yes", by="zoe")
    store.answer("r", "approve-send#1", {"answer": "no", "reason": "not Bob"})
    done = await run(clerk, "Write", id="r", store=store)
    assert (done.final_output, sent, asked(clerk)) == ("Done.", ["ann"], 2)
    assert "refused by a person: not Bob" in str(done.to_input_list())


async def test_an_approval_inside_an_agent_that_is_a_tool_is_a_gate(store: everstep.Store) -> None:
    paid = []

    @function_tool(needs_approval=True)
    def pay(sum: int) -> str:
        paid.append(sum)
        return "paid"

    cashier = agent([call("pay", sum=5)], says("Paid."), name="Cashier", tools=[pay])
    clerk = agent([call("cashier", input="pay 5")], says("All done."), tools=[cashier.as_tool("cashier", "Pays")])
    waiting = await run(clerk, "Pay", id="r", store=store)
    assert (waiting.status, [gate.address for gate in waiting.gates], paid) == ("waiting", ["cashier@1.c1/approve-pay#0"], [])
    store.answer("r", waiting.gates[0].address, True)
    done = await run(clerk, "Pay", id="r", store=store)
    assert (done.final_output, paid, asked(clerk), asked(cashier)) == ("All done.", [5], 2, 2)
    assert done.usage.total_tokens == 40


async def test_resume_by_name_and_wake_go_on_with_an_approved_run(store: everstep.Store) -> None:
    @function_tool(needs_approval=True)
    def send() -> str:
        return "sent"

    clerk = agent([call("send")], says("Done."), tools=[send])
    flow = openai_agents.workflow(clerk)
    out = await store.start(flow, "Write", id="r")
    store.answer("r", out.gates[0].name, "yes")
    out = await store.resume("r")
    assert out.result["output"] == ["plain", "Done."]
    assert (await run(clerk, "Write", id="r", store=store)).final_output == "Done."


async def test_an_error_of_a_tool_that_the_model_is_told_is_not_made_again(store: everstep.Store) -> None:
    tries = []

    @function_tool
    def flaky() -> str:
        tries.append(1)
        raise ValueError("no luck")

    clerk = agent([call("flaky")], ConnectionError("down"), says("It failed."), tools=[flaky])
    with pytest.raises(ConnectionError):
        await run(clerk, "Try", id="r", store=store)
    done = await run(clerk, "Try", id="r", store=store)  # goes on where it failed: the model is asked again, the tool is not called
    assert (done.final_output, len(tries), asked(clerk)) == ("It failed.", 1, 3)
    assert "error occurred" in str(done.to_input_list())


async def test_a_tool_that_fails_the_run_is_called_again_by_the_next_attempt(store: everstep.Store) -> None:
    tries = []

    @function_tool(failure_error_function=None)
    def fragile() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("once")
        return "fine"

    clerk = agent([call("fragile")], says("Done."), tools=[fragile])
    with pytest.raises(Exception, match="once"):
        await run(clerk, "Try", id="r", store=store)
    assert (await run(clerk, "Try", id="r", store=store)).final_output == "Done."
    assert (len(tries), asked(clerk)) == (2, 2)


async def test_a_timeout_of_a_tool_is_recorded(store: everstep.Store) -> None:
    begun = []

    @function_tool(timeout=0.02)
    async def slow() -> str:
        begun.append(1)
        await asyncio.Event().wait()
        return "never"

    clerk = agent([call("slow")], ConnectionError("down"), says("Too slow."), tools=[slow])
    with pytest.raises(ConnectionError):
        await run(clerk, "Wait", id="r", store=store)
    assert (await run(clerk, "Wait", id="r", store=store)).final_output == "Too slow."
    assert len(begun) == 1
    assert "timed out" in next(step for step in store.steps("r") if step.name == "slow").result


async def test_the_framework_retries_a_model_and_a_resume_does_not_repeat_its_failures(store: everstep.Store) -> None:
    settings = ModelSettings(retry=ModelRetrySettings(max_retries=2, policy=retry_policies.network_error()))
    clerk = agent(ConnectionError("busy"), [call("nothing")], says("never"), model_settings=settings)
    with pytest.raises((ModelBehaviorError, ConnectionError)):  # it calls a tool that does not exist
        await run(clerk, "Try", id="r", store=store)
    first = asked(clerk)
    with pytest.raises((ModelBehaviorError, ConnectionError)):
        await run(clerk, "Try", id="r", store=store)
    assert asked(clerk) - first <= 1


async def test_a_tripwire_ends_the_run_and_is_recorded(store: everstep.Store) -> None:
    checks = []

    def polite(context: Any, agent: Any, input: Any) -> GuardrailFunctionOutput:
        checks.append(agent.name)
        return GuardrailFunctionOutput(output_info={"rude": True}, tripwire_triggered=True)

    clerk = agent(says("never"), input_guardrails=[InputGuardrail(polite, run_in_parallel=False)])
    for _ in range(2):
        with pytest.raises(InputGuardrailTripwireTriggered):
            await run(clerk, "You!", id="r", store=store)
    assert (checks, asked(clerk), store.get("r").status) == (["Clerk"], 0, "failed")


async def test_a_tripwire_beside_the_model_call_cancels_it_the_same_way_again(store: everstep.Store) -> None:
    async def polite(context: Any, agent: Any, input: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

    clerk = agent(says("maybe"), says("never"), input_guardrails=[InputGuardrail(polite)])
    for _ in range(2):
        with pytest.raises(InputGuardrailTripwireTriggered):
            await asyncio.wait_for(run(clerk, "You!", id="r", store=store), 20)
    assert asked(clerk) <= 1


async def test_guardrails_of_output_and_tools_are_steps(store: everstep.Store) -> None:
    seen = []

    def checked(context: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
        seen.append(output)
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=False)

    def unsafe(data: Any) -> ToolGuardrailFunctionOutput:
        seen.append("tool")
        return ToolGuardrailFunctionOutput.reject_content("not allowed")

    @function_tool(tool_input_guardrails=[ToolInputGuardrail(unsafe)])
    def erase() -> str:
        raise AssertionError

    clerk = agent([call("erase")], ConnectionError("down"), says("OK."), tools=[erase], output_guardrails=[OutputGuardrail(checked)])
    with pytest.raises(ConnectionError):
        await run(clerk, "Erase", id="r", store=store)
    done = await run(clerk, "Erase", id="r", store=store)
    assert (seen, done.final_output) == (["tool", "OK."], "OK.")
    assert "not allowed" in str(done.to_input_list())


async def test_a_handoff_calls_its_function_once_and_agents_may_hand_over_in_circles(store: everstep.Store) -> None:
    told = []
    second = agent([call("transfer_to_clerk", "h2")], name="Second")
    first = agent([call("transfer_to_second", "h1")], ConnectionError("down"), says("Back."))
    first.handoffs = [handoff(second, on_handoff=lambda context: told.append("second"))]
    second.handoffs = [first]
    with pytest.raises(ConnectionError):
        await run(first, "Go", id="r", store=store)
    done = await run(first, "Go", id="r", store=store)
    assert (done.final_output, done.last_agent, told, asked(first), asked(second)) == ("Back.", first, ["second"], 3, 1)
    assert [step.name for step in store.steps("r") if step.status == "succeeded"] == [
        "Clerk", "transfer_to_second", "Second", "transfer_to_clerk", "Clerk",
    ]  # fmt: skip


async def test_max_turns_ends_the_run_and_a_higher_limit_goes_on(store: everstep.Store) -> None:
    @function_tool
    def look() -> str:
        return "nothing"

    clerk = agent([call("look", "a")], [call("look", "b")], says("Done."), tools=[look])
    with pytest.raises(MaxTurnsExceeded):
        await run(clerk, "Look", id="r", store=store, max_turns=2)
    assert (await run(clerk, "Look", id="r", store=store, max_turns=5)).final_output == "Done."
    assert asked(clerk) == 3


@dataclass
class Total:
    sum: int


async def test_structured_output_comes_back_as_its_type(store: everstep.Store) -> None:
    clerk = agent(says('{"response": {"sum": 5}}'), output_type=Total)
    assert (await run(clerk, "Add", id="r", store=store)).final_output == Total(5)
    assert (await run(clerk, "Add", id="r", store=store)).final_output == Total(5)
    lister = agent(says('{"response": [1, 2]}'), output_type=list[int])
    assert (await run(lister, "Add", store=store)).final_output == [1, 2]


async def test_results_of_tools_of_every_kind_reach_the_model_unchanged(store: everstep.Store) -> None:
    class Odd:
        def __str__(self) -> str:
            return "odd one"

    values = [ToolOutputText(text="structured"), {"a": [1, None, 2.5]}, Odd(), Total(3), None, b"raw"]

    @function_tool
    def give(n: int) -> Any:
        return values[n]

    def made() -> Agent[Any]:
        calls = [call("give", f"c{n}", n=n) for n in range(len(values))]
        return agent(calls, ConnectionError("down"), says("Done."), tools=[give])

    plain, clerk = made(), made()
    with pytest.raises(ConnectionError):
        await Runner.run(plain, "Give")
    with pytest.raises(ConnectionError):
        await run(clerk, "Give", id="r", store=store)
    done = await run(clerk, "Give", id="r", store=store)
    assert done.final_output == "Done."
    assert clerk.model.calls[1].input == clerk.model.calls[2].input == plain.model.calls[1].input


async def test_a_changed_prompt_goes_on_with_what_was_recorded(store: everstep.Store) -> None:
    @function_tool
    def look() -> str:
        return "nothing"

    with pytest.raises(ConnectionError):
        await run(agent([call("look")], ConnectionError("down"), instructions="Be brief.", tools=[look]), "Look", id="r", store=store)
    after = agent(says("Done."), instructions="Be polite.", tools=[look])
    assert (await run(after, "Look", id="r", store=store)).final_output == "Done."
    assert after.model.calls[0].system_instructions == "Be polite."


async def test_a_conversation_that_took_another_path_is_refused(store: everstep.Store) -> None:
    from agents import RunConfig
    from agents.run import ModelInputData

    def config(word: str) -> RunConfig:
        return RunConfig(call_model_input_filter=lambda data: ModelInputData([{"role": "user", "content": word}], None))

    clerk = agent(says("x"), says("y"))
    with pytest.raises(ZeroDivisionError):
        await run(clerk, "Look", id="r", store=store, run_config=config("one"), hooks=_Failing())
    with pytest.raises(NonDeterminism):
        await run(clerk, "Look", id="r", store=store, run_config=config("two"))
    assert asked(clerk) == 1


class _Failing:
    """Hooks that fail when the agent ends."""

    def __new__(cls) -> Any:
        from agents import RunHooks

        class Hooks(RunHooks[Any]):
            async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
                raise ZeroDivisionError

        return Hooks()


async def test_a_stream_shows_recorded_texts_in_one_piece_and_can_be_stopped(store: everstep.Store) -> None:
    @function_tool
    async def hang() -> str:
        reached.set()
        await (asyncio.Event().wait() if not done else asyncio.sleep(0))
        return "ok"

    def texts(event: Any) -> str:
        return getattr(event.data, "delta", "") if event.type == "raw_response_event" else ""

    reached, done = asyncio.Event(), []
    clerk = agent([assistant_message("First."), call("hang")], says("Second."), tools=[hang])
    stream = run_streamed(clerk, "Go", id="r", store=store)
    with pytest.raises(InvalidArgument):
        assert stream.final_output
    await asyncio.wait_for(reached.wait(), 20)
    stream.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stream
    assert store.get("r").status == "running"
    done.append(True)
    stream = run_streamed(clerk, "Go", id="r", store=store)
    assert "".join([texts(event) async for event in stream.stream_events()]) == "First.Second."
    assert (stream.final_output, stream.is_complete, asked(clerk)) == ("Second.", True, 2)
    over = run_streamed(clerk, "Go", id="r", store=store)
    assert ([event async for event in over.stream_events()], (await over).final_output) == ([], "Second.")


async def test_a_stream_waits_for_approvals_and_raises_errors(store: everstep.Store) -> None:
    @function_tool(needs_approval=True)
    def send() -> str:
        return "sent"

    clerk = agent([call("send")], ConnectionError("down"), says("Done."), tools=[send])
    stream = run_streamed(clerk, "Go", id="r", store=store)
    assert [event async for event in stream.stream_events()]
    assert (await stream).status == "waiting"
    store.answer("r", "approve-send", "yes")
    stream = run_streamed(clerk, "Go", id="r", store=store)
    with pytest.raises(ConnectionError):
        assert [event async for event in stream.stream_events()]
    assert (await run(clerk, "Go", id="r", store=store)).final_output == "Done."


async def test_two_that_run_the_same_id_one_gets_it(store: everstep.Store) -> None:
    @function_tool
    async def hang() -> str:
        reached.set()
        await leave.wait()
        return "ok"

    reached, leave = asyncio.Event(), asyncio.Event()
    clerk = agent([call("hang")], says("Done."), tools=[hang])
    first = asyncio.ensure_future(run(clerk, "Go", id="r", store=store))
    await asyncio.wait_for(reached.wait(), 20)
    with pytest.raises(LeaseHeld):
        await run(clerk, "Go", id="r", store=store)
    leave.set()
    assert (await first).final_output == "Done."


async def test_inside_a_workflow_the_calls_are_steps_of_it(store: everstep.Store) -> None:
    clerk = agent(says("Hello."), says("Bye."))

    @everstep.workflow
    async def day(name: str) -> list[str]:
        return [(await run(clerk, f"{word} {name}")).final_output for word in ("Greet", "Dismiss")]

    assert (await store.start(day, "Ann", id="d")).result == ["Hello.", "Bye."]
    assert [step.address for step in store.steps("d")] == ["Clerk#0", "Clerk#1"]


async def test_many_agents_run_at_the_same_time(store: everstep.Store) -> None:
    @function_tool
    async def twice(n: int) -> int:
        await asyncio.sleep(0)
        return 2 * n

    async def one(n: int) -> Any:
        return (await run(agent([call("twice", n=n)], says(f"{2 * n}"), tools=[twice]), f"{n}", id=f"r{n}", store=store)).final_output

    assert await asyncio.gather(*(one(n) for n in range(20))) == [f"{2 * n}" for n in range(20)]


def test_sync_callers_and_stores_by_address(tmp_path: Any) -> None:
    clerk = agent(says("Hello."))
    path = tmp_path / "s.db"
    assert run_sync(clerk, "Hi", id="r", store=path).final_output == "Hello."
    assert run_sync(clerk, "Hi", id="r", store=str(path)).final_output == "Hello."
    with everstep.open(path) as store:
        assert store.get("r").workflow == "openai-agents:Clerk"


async def test_input_that_makes_no_sense_is_refused_before_anything_is_written(store: everstep.Store) -> None:
    clerk = agent()
    for wrong, options in [
        ((clerk, 5), {}),
        (("clerk", "Hi"), {}),
        ((clerk, "Hi"), {"turns": 5}),
        ((clerk, "Hi"), {"session": object()}),
        ((clerk, "Hi"), {"conversation_id": "c"}),
        ((clerk, "Hi"), {"run_config": RunConfig(sandbox=SandboxRunConfig())}),
        ((clerk, "Hi"), {"id": "a b"}),
        ((agent(handoffs=[agent(tools=[LocalShellTool(executor=lambda request: "")])]), "Hi"), {}),
    ]:
        with pytest.raises(everstep.EverstepError):
            await run(*wrong, store=store, **options)
    assert list(store.runs()) == []

    @everstep.workflow
    def plain() -> None:
        asyncio.run(run(clerk, "Hi"))

    assert isinstance((await asyncio.to_thread(store.start, plain)).error, (InvalidArgument, RuntimeError))
