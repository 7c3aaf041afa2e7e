"""Durable runs of Pydantic AI agents: approvals, errors, limits, streams, agents in tools, and input that makes no sense."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

import everstep
from everstep.errors import InvalidArgument, LeaseHeld, NonDeterminism, RunExists

pytest.importorskip("pydantic_ai", reason="pydantic-ai-slim is not installed: pip install 'everstep[dev-adapters]'")

from pydantic_ai import Agent, BinaryContent, CallDeferred, ModelRetry, RunContext, UsageLimitExceeded, UserError
from pydantic_ai.messages import ModelResponse, PartStartEvent, TextPart, ToolCallPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai.usage import RequestUsage, UsageLimits

from everstep.adapters.pydantic_ai import durable


class Script:
    """A model that gives these answers in turn, and keeps what it was asked."""

    def __init__(self, *answers: Any):
        self.answers, self.asked = list(answers), []

    def _next(self, messages: list[Any]) -> list[Any]:
        self.asked.append(messages)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, list) else [TextPart(answer)]

    def request(self, messages: list[Any], info: Any) -> ModelResponse:
        return ModelResponse(parts=self._next(messages), usage=RequestUsage(input_tokens=6, output_tokens=4))

    async def stream(self, messages: list[Any], info: Any) -> Any:
        for index, part in enumerate(self._next(messages)):
            yield {index: DeltaToolCall(part.tool_name, part.args_as_json_str())} if isinstance(part, ToolCallPart) else part.content


def made(*answers: Any, **options: Any) -> tuple[Script, Agent[Any, Any]]:
    script = Script(*answers)
    return script, Agent(FunctionModel(script.request, stream_function=script.stream), name=options.pop("name", "Clerk"), **options)


def call(name: str, **arguments: Any) -> ToolCallPart:
    return ToolCallPart(name, arguments, tool_call_id=arguments.pop("id", "c1"))


@pytest.fixture
def store() -> Any:
    with everstep.open("memory://") as opened:
        yield opened


async def test_a_finished_run_is_not_run_again_and_its_result_is_the_same(store: everstep.Store) -> None:
    script, agent = made("Hello.")
    clerk = durable(agent, store=store, price=lambda response: response.usage.total_tokens * 0.5)
    first = await clerk.run("Hi", id="r")
    again = await clerk.run("Hi", id="r")
    assert first.output == again.output == "Hello."
    assert first.all_messages() == again.all_messages() == again.new_messages()
    assert first.usage == again.usage
    assert (len(script.asked), first.usage.total_tokens) == (1, 10)
    assert [(step.address, step.tokens, step.cost) for step in store.steps("r")] == [("Clerk#0", 10, 5.0)]


async def test_a_conversation_goes_on_with_its_history(store: everstep.Store) -> None:
    script, agent = made("Hello.", "Again.")
    first = await durable(agent).run("Hi", id="a", store=store)
    second = await durable(agent).run("And now?", id="b", store=store, message_history=first.all_messages())
    assert (second.output, len(second.all_messages()), len(second.new_messages()), len(script.asked[1])) == ("Again.", 4, 2, 3)


async def test_another_input_or_agent_under_the_same_id_is_refused(store: everstep.Store) -> None:
    script, agent = made("Hello.")
    await durable(agent).run("Hi", id="r", store=store)
    with pytest.raises(RunExists):
        await durable(agent).run("Bye", id="r", store=store)
    with pytest.raises(RunExists):
        await durable(made("Hm.", name="Other")[1]).run("Hi", id="r", store=store)
    assert len(script.asked) == 1


async def test_an_approval_is_a_gate_and_the_answer_may_come_in_another_process(store: everstep.Store) -> None:
    sent = []
    script, agent = made([call("send", id="a", to="ann"), call("send", id="b", to="bob")], "Done.")

    @agent.tool_plain(requires_approval=True)
    def send(to: str) -> str:
        sent.append(to)
        return f"sent to {to}"

    waiting = await durable(agent).run("Write", id="r", store=store)
    assert (waiting.status, waiting.output, sent) == ("waiting", None, [])
    assert [gate.ask for gate in waiting.gates] == ['Let Clerk call send({"to": "ann"})?', 'Let Clerk call send({"to": "bob"})?']
    store.answer("r", "approve-send#0", "yes", by="zoe")
    store.answer("r", "approve-send#1", {"answer": "no", "reason": "not Bob"})
    done = await durable(agent).run("Write", id="r", store=store)
    assert (done.output, sent, len(script.asked)) == ("Done.", ["ann"], 2)
    assert "refused by a person: not Bob" in str(done.all_messages())


async def test_a_call_that_is_made_elsewhere_is_a_gate(store: everstep.Store) -> None:
    script, agent = made([call("fetch", page=1)], "Done.")

    @agent.tool_plain
    def fetch(page: int) -> str:
        raise CallDeferred

    clerk = durable(agent, store=store)
    assert [gate.name for gate in (await clerk.run("Go", id="r")).gates] == ["call-fetch"]
    store.answer("r", "call-fetch", {"text": "page one"})
    assert (await clerk.run("Go", id="r")).output == "Done."
    assert "page one" in str(script.asked[1])


async def test_an_approval_inside_an_agent_in_a_tool_is_a_gate_and_resume_by_name_goes_on(store: everstep.Store) -> None:
    paid = []
    inner, cashier = made([call("pay", sum=5)], "Paid.", name="Cashier")
    outer, agent = made([call("cash")], "All done.")

    @cashier.tool_plain(requires_approval=True)
    def pay(sum: int) -> str:
        paid.append(sum)
        return "paid"

    @agent.tool
    async def cash(context: RunContext[None]) -> str:
        return str((await durable(cashier).run("pay 5", usage=context.usage)).output)

    clerk = durable(agent, store=store)
    waiting = await clerk.run("Pay", id="r")
    assert [gate.address for gate in waiting.gates] == ["cash@1.c1.0/approve-pay#0"]
    store.answer("r", waiting.gates[0].address, True)
    out = await store.resume("r")
    assert (out.status, paid, len(inner.asked), len(outer.asked)) == ("succeeded", [5], 2, 2)
    assert (await clerk.run("Pay", id="r")).usage.total_tokens == 40


async def test_a_retry_that_a_tool_asks_for_is_recorded(store: everstep.Store) -> None:
    tries = []
    script, agent = made([call("guess", id="a", n=1)], [call("guess", id="b", n=2)], ConnectionError("down"), "Two.")

    @agent.tool_plain
    def guess(n: int) -> str:
        tries.append(n)
        if n == 1:
            raise ModelRetry("higher")
        return "yes"

    with pytest.raises(ConnectionError):
        await durable(agent).run("Guess", id="r", store=store)
    assert (await durable(agent).run("Guess", id="r", store=store)).output == "Two."
    assert (tries, len(script.asked)) == ([1, 2], 4)
    assert "higher" in str(script.asked[-1])


async def test_a_tool_that_fails_the_run_is_called_again_by_the_next_attempt(store: everstep.Store) -> None:
    tries, keys = [], set()
    script, agent = made([call("fragile"), call("fine", id="c2")], "Done.")

    @agent.tool_plain
    def fragile() -> str:
        tries.append("fragile")
        keys.add(everstep.current().step_key)
        if tries.count("fragile") == 1:
            raise ValueError("once")
        return "ok"

    @agent.tool_plain
    def fine() -> str:
        tries.append("fine")
        return "ok"

    with pytest.raises(ValueError, match="once"):
        await durable(agent).run("Try", id="r", store=store)
    assert (await durable(agent).run("Try", id="r", store=store)).output == "Done."
    assert (tries.count("fragile"), len(script.asked), len(keys)) == (2, 2, 1)  # a service recognises the second call by its key


@dataclass
class Total:
    sum: int


async def test_structured_output_comes_back_as_its_type_and_its_validators_may_ask_again(store: everstep.Store) -> None:
    script, agent = made([call("final_result", sum=1)], [call("final_result", id="c2", sum=5)], output_type=Total)

    @agent.output_validator
    def enough(output: Total) -> Total:
        if output.sum < 5:
            raise ModelRetry("more")
        return output

    assert (await durable(agent).run("Add", id="r", store=store)).output == Total(5)
    assert (await durable(agent).run("Add", id="r", store=store)).output == Total(5)
    assert len(script.asked) == 2
    lister = made([call("final_result", response=[1, 2])], output_type=list[int])[1]
    assert (await durable(lister).run("Add", id="l", store=store)).output == [1, 2]
    either = made([call("final_result_Total", sum=7)], output_type=[Total, list[int]])[1]
    assert (await durable(either).run("Add", id="e", store=store)).output == Total(7)


async def test_contents_of_a_prompt_and_results_of_tools_reach_the_model_as_they_were(store: everstep.Store) -> None:
    script, agent = made([call("give")], ConnectionError("down"), "Seen.")

    @agent.tool_plain
    def give() -> dict[str, Any]:
        return {"total": Total(3), "numbers": (1, 2)}

    prompt = ["Look", BinaryContent(b"\x89PNG\x00\xff", media_type="image/png")]
    with pytest.raises(ConnectionError):
        await durable(agent).run(prompt, id="r", store=store)
    assert (await durable(agent).run(prompt, id="r", store=store)).output == "Seen."
    (first, second) = ([part.content for part in messages[-1].parts] for messages in script.asked[1:])
    assert first == second
    assert [getattr(each, "data", each) for each in script.asked[0][0].parts[-1].content] == ["Look", b"\x89PNG\x00\xff"]


async def test_limits_of_the_framework_end_the_run_and_higher_ones_go_on(store: everstep.Store) -> None:
    script, agent = made([call("look", id="a")], [call("look", id="b")], "Done.")

    @agent.tool_plain
    def look() -> str:
        return "nothing"

    with pytest.raises(UsageLimitExceeded):
        await durable(agent).run("Look", id="r", store=store, usage_limits=UsageLimits(request_limit=2))
    assert (await durable(agent).run("Look", id="r", store=store)).output == "Done."
    assert len(script.asked) == 3


async def test_a_changed_prompt_goes_on_with_what_was_recorded(store: everstep.Store) -> None:
    before = made([call("look")], ConnectionError("down"), instructions="Be brief.")[1]
    before.tool_plain(name="look")(lambda: "nothing")
    with pytest.raises(ConnectionError):
        await durable(before).run("Look", id="r", store=store)
    script, after = made("Done.", instructions="Be polite.")
    after.tool_plain(name="look")(lambda: "nothing")
    assert (await durable(after).run("Look", id="r", store=store)).output == "Done."
    assert script.asked[0][-1].instructions == "Be polite."


async def test_a_conversation_that_took_another_path_is_refused(store: everstep.Store) -> None:
    words = ["one"]
    script, agent = made([call("look")], ConnectionError("down"), "never", system_prompt=())
    agent.tool_plain(name="look")(lambda: "nothing")
    agent.system_prompt(lambda: words[0])
    with pytest.raises(ConnectionError):
        await durable(agent).run("Look", id="r", store=store)
    words[0] = "two"
    with pytest.raises(NonDeterminism):
        await durable(agent).run("Look", id="r", store=store)
    assert len(script.asked) == 2


async def test_a_stream_shows_recorded_texts_in_one_piece_and_can_be_stopped(store: everstep.Store) -> None:
    reached, done = asyncio.Event(), []
    script, agent = made([TextPart("First."), call("hang")], "Second.")

    @agent.tool_plain
    async def hang() -> str:
        reached.set()
        await (asyncio.Event().wait() if not done else asyncio.sleep(0))
        return "ok"

    stream = durable(agent).run_stream_events("Go", id="r", store=store)
    with pytest.raises(InvalidArgument):
        stream.result()
    await asyncio.wait_for(reached.wait(), 20)
    stream.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stream
    assert store.get("r").status == "running"
    done.append(True)
    stream = durable(agent).run_stream_events("Go", id="r", store=store)
    texts = [event.part.content async for event in stream if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart)]
    assert (texts, (await stream).output, stream.is_complete, len(script.asked)) == (["First.", "Second."], "Second.", True, 2)
    over = durable(agent).run_stream_events("Go", id="r", store=store)
    assert ([event async for event in over], (await over).output) == ([], "Second.")


async def test_a_run_that_began_as_a_stream_goes_on_without_one(store: everstep.Store) -> None:
    script, agent = made([call("look")], ConnectionError("down"), "Done.")
    agent.tool_plain(name="look")(lambda: "nothing")
    stream = durable(agent).run_stream_events("Go", id="r", store=store)
    with pytest.raises(ConnectionError):
        assert [event async for event in stream]
    assert (await durable(agent).run("Go", id="r", store=store)).output == "Done."
    assert len(script.asked) == 3


async def test_two_that_run_the_same_id_one_gets_it(store: everstep.Store) -> None:
    reached, leave = asyncio.Event(), asyncio.Event()
    _, agent = made([call("hang")], "Done.")

    @agent.tool_plain
    async def hang() -> str:
        reached.set()
        await leave.wait()
        return "ok"

    first = asyncio.ensure_future(durable(agent).run("Go", id="r", store=store))
    await asyncio.wait_for(reached.wait(), 20)
    with pytest.raises(LeaseHeld):
        await durable(agent).run("Go", id="r", store=store)
    leave.set()
    assert (await first).output == "Done."


async def test_inside_a_workflow_the_calls_are_steps_of_it(store: everstep.Store) -> None:
    _, agent = made("Hello.", "Bye.")

    @everstep.workflow
    async def day(name: str) -> list[str]:
        return [(await durable(agent).run(f"{word} {name}")).output for word in ("Greet", "Dismiss")]

    assert (await store.start(day, "Ann", id="d")).result == ["Hello.", "Bye."]
    assert [step.address for step in store.steps("d")] == ["Clerk#0", "Clerk#1"]


async def test_many_agents_run_at_the_same_time(store: everstep.Store) -> None:
    async def one(n: int) -> Any:
        _, agent = made([call("twice", n=n)], f"{2 * n}", name=f"Clerk {n}")
        agent.tool_plain(name="twice")(lambda n: 2 * n)
        return (await durable(agent).run(f"{n}", id=f"r{n}", store=store)).output

    assert await asyncio.gather(*(one(n) for n in range(20))) == [f"{2 * n}" for n in range(20)]


def test_sync_callers_and_stores_by_address(tmp_path: Any) -> None:
    _, agent = made("Hello.")
    clerk = durable(agent, store=tmp_path / "s.db")
    assert clerk.run_sync("Hi", id="r").output == clerk.run_sync("Hi", id="r").output == "Hello."
    with everstep.open(tmp_path / "s.db") as store:
        assert store.get("r").workflow == "pydantic-ai:Clerk"


async def test_input_that_makes_no_sense_is_refused_before_anything_is_written(store: everstep.Store) -> None:
    _, agent = made()
    for prompt, options in [
        (5, {}),
        ([object()], {}),
        ("Hi", {"turns": 5}),
        ("Hi", {"run_id": "x"}),
        ("Hi", {"message_history": [5]}),
        ("Hi", {"id": "a b"}),
    ]:
        with pytest.raises(everstep.EverstepError):
            await durable(agent).run(prompt, store=store, **options)
    for wrong in ("agent", Agent(name=None)):
        with pytest.raises(InvalidArgument):
            durable(wrong)  # type: ignore[arg-type]
    assert list(store.runs()) == []


async def test_a_result_that_is_no_json_fails_clearly(store: everstep.Store) -> None:
    _, agent = made([call("odd")], "never")
    agent.tool_plain(name="odd")(lambda: object())
    with pytest.raises(UserError, match="as JSON"):
        await durable(agent).run("Go", id="r", store=store)
    assert store.get("r").status == "failed"
