"""A workflow of Agent Framework that is killed in a tool call, resumes, and waits for an approval: python examples/adapters/agent_framework_agent.py

Needs agent-framework-core. The model is scripted: no key, no network. The first process kills itself with SIGKILL while it looks for a hotel. The
second one continues from the last superstep and stops at the booking, which a person must approve. The third one books. Each call is written to
a ledger.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from agent_framework import (
    BaseChatClient,
    ChatResponse,
    Content,
    Executor,
    Message,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
)

import everstep
from everstep.adapters.agent_framework import CheckpointStorage, resume

FOLDER = Path(os.environ.get("EXAMPLE_FOLDER", "."))
RUN = "travel:trip-1"  # the name of the workflow and the scope


def bill(call: str) -> None:
    with (FOLDER / "ledger").open("a") as ledger:
        ledger.write(f"{call}\n")


class Scripted(BaseChatClient):
    """Stands for a real model: looks for a flight and a hotel, books, answers."""

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **more: Any) -> Awaitable[ChatResponse]:
        async def answer() -> ChatResponse:
            told = sum(part.type == "function_result" for message in messages for part in message.contents)
            bill(f"model {told}")
            calls = [("find", "flight"), ("find", "hotel"), ("book", "flight and hotel")]
            if told == len(calls):
                return ChatResponse(messages=Message("assistant", ["Your trip is booked."]))
            name, what = calls[told]
            call = Content.from_function_call(f"c{told}", name, arguments={"what": what})
            return ChatResponse(messages=Message("assistant", [call]))

        return answer()


class Model(Executor):
    """Asks the model. The conversation is its state."""

    def __init__(self) -> None:
        super().__init__("model")
        self.client, self.said = Scripted(), list[Message]()

    @handler
    async def hear(self, heard: Message, ctx: WorkflowContext[Content, str]) -> None:
        self.said.append(heard)
        answer = (await self.client.get_response(self.said)).messages[-1]
        self.said.append(answer)
        if answer.contents[0].type == "function_call":
            await ctx.send_message(answer.contents[0])
        else:
            await ctx.yield_output(answer.text)

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"said": self.said}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.said = state["said"]


class Tools(Executor):
    """Makes the calls that the model wants. A person must approve a booking."""

    @handler
    async def call(self, call: Content, ctx: WorkflowContext[Message]) -> None:
        if call.name == "book":
            await ctx.request_info(Content.from_function_approval_request(str(call.call_id), call), Content)
        else:
            await self.made(call, ctx)

    @response_handler
    async def approved(self, asked: Content, answer: Content, ctx: WorkflowContext[Message]) -> None:
        await self.made(answer.function_call, ctx, refused=not answer.approved)

    async def made(self, call: Any, ctx: WorkflowContext[Message], refused: bool = False) -> None:
        what = call.arguments["what"]
        if not refused:
            bill(f"{call.name} {what}")
        if what == "hotel" and not (FOLDER / "killed").exists():
            (FOLDER / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        result = {"refused": what} if refused else {call.name: what}
        await ctx.send_message(Message("tool", [Content.from_function_result(call.call_id, result=json.dumps(result))]))


def build(storage: CheckpointStorage) -> Any:
    model, tools = Model(), Tools("tools")
    made = WorkflowBuilder(name="travel", start_executor=model, checkpoint_storage=storage, output_from=[model])
    return made.add_edge(model, tools).add_edge(tools, model).build()


def process() -> None:
    """Begin the trip, or continue it as `everstep resume` and workers do."""
    with everstep.open(FOLDER / "store.db") as store:
        storage = CheckpointStorage(store, scope="trip-1")
        resume(lambda: build(storage), storage)
        if any(run.id == RUN for run in store.runs()):
            outcome = store.resume(RUN)
            print(f"{outcome.status}: {outcome.result}")
        else:
            asyncio.run(build(storage).run(Message("user", ["Plan a trip"])))


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="everstep-agent-framework-"))
    print(f"Everything happens in {folder}\n")

    def child() -> str:
        command = [sys.executable, __file__, "run"]
        done = subprocess.run(command, env=os.environ | {"EXAMPLE_FOLDER": str(folder)}, stdout=subprocess.PIPE, text=True)
        return f"was killed by signal {-done.returncode}" if done.returncode < 0 else done.stdout.strip()

    print(f"1. The first process {child()}.")
    print(f"2. The second process says: {child()}")
    with everstep.open(folder / "store.db") as store:
        (gate,) = store.questions()
        print(f"3. A person is asked: {gate.ask}")
        store.answer(RUN, gate.name, "yes", by="ann")  # or: everstep answer travel:trip-1 GATE yes
    print(f"4. The third process says: {child()}")
    print("\nThe calls that were made; only the one that was cut off was made twice:")
    print((folder / "ledger").read_text())


if __name__ == "__main__":
    if sys.argv[1:] == ["run"]:
        # The framework compares the modules of the executors, so they must be in a module that is imported, and not in the file that is run.
        import agent_framework_agent

        agent_framework_agent.process()
    else:
        main()
