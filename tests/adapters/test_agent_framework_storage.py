"""The contract of checkpoint storages, run against the framework's own ones as well; what ours adds; requests as gates."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import warm

pytest.importorskip("agent_framework")

from agent_framework import (
    Executor,
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    Message,
    RunContext,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowCheckpointException,
    WorkflowContext,
    handler,
    response_handler,
    step,
    workflow,
)

import everstep
from everstep.adapters.agent_framework import CheckpointStorage, resume
from everstep.errors import BadAnswer, Conflict, SaveFailed, Unstorable


@dataclass
class Order:
    id: int
    lines: tuple[str, ...]


def storages(folder: Path) -> list[Any]:
    return [CheckpointStorage(folder / "store.db"), InMemoryCheckpointStorage(), FileCheckpointStorage(str(folder / "files"))]


def made(n: int, previous: str | None = None, name: str = "flow", **state: Any) -> WorkflowCheckpoint:
    return WorkflowCheckpoint(
        name,
        "hash",
        checkpoint_id=f"c{n}",
        previous_checkpoint_id=previous,
        timestamp=f"2026-01-01T00:00:{n:02}+00:00",
        state=state,
        iteration_count=n,
    )


@pytest.mark.parametrize("which", [0, 1, 2], ids=["everstep", "memory", "file"])
async def test_checkpoints_are_saved_loaded_listed_and_deleted(which: int, tmp_path: Path) -> None:
    storage = storages(tmp_path)[which]
    first, second = made(1, k=1), made(2, "c1", k=[1, {"a": (2,)}], _executor_state={"a": {}, "b": {"k": 1}})
    assert await storage.get_latest(workflow_name="flow") is None
    assert [await storage.save(one) for one in (first, second)] == ["c1", "c2"]
    await storage.save(made(3, name="other"))
    assert await storage.load("c1") == first
    assert await storage.get_latest(workflow_name="flow") == second
    assert sorted(await storage.list_checkpoint_ids(workflow_name="flow")) == ["c1", "c2"]
    assert sorted(await storage.list_checkpoints(workflow_name="flow"), key=lambda one: one.checkpoint_id) == [first, second]
    assert await storage.list_checkpoints(workflow_name="unknown") == []
    assert await storage.delete("c2")
    assert not await storage.delete("c2")
    assert await storage.get_latest(workflow_name="flow") == first
    with pytest.raises(WorkflowCheckpointException):
        await storage.load("c2")
    assert await storage.delete("c1")
    assert await storage.get_latest(workflow_name="flow") is None


async def test_scopes_do_not_see_each_other() -> None:
    store = everstep.open("memory://")
    ann, bob = CheckpointStorage(store, scope="ann@example.com"), CheckpointStorage(store, scope="bob")
    await ann.save(made(1))
    assert await bob.get_latest(workflow_name="flow") is None
    assert not await bob.delete("c1")
    with pytest.raises(WorkflowCheckpointException):
        await bob.load("c1")


async def test_values_come_back_equal_and_types_must_be_allowed(tmp_path: Path) -> None:
    store = everstep.open(tmp_path / "store.db")
    one = made(1, order=Order(7, ("a", "b")), said=[Message("user", ["hi"])], odd={"@": 1})
    with pytest.raises(SaveFailed) as caught:
        await CheckpointStorage(store).save(one)
    assert isinstance(caught.value.error, Unstorable)
    assert not store.runs()
    await CheckpointStorage(store, types=[Order]).save(one)
    found = await CheckpointStorage(store, types=[Order]).load("c1")
    assert found.state["order"] == one.state["order"]
    assert found.state["odd"] == {"@": 1}
    assert found.state["said"][0].to_dict() == one.state["said"][0].to_dict()
    with pytest.raises(WorkflowCheckpointException, match="allow it"):
        await CheckpointStorage(store).load("c1")


async def test_a_stale_writer_is_refused(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "store.db") as store, everstep.open(tmp_path / "store.db") as again:
        mine, other = CheckpointStorage(store), CheckpointStorage(again)
        await mine.save(made(1))
        assert (await other.load("c1")).checkpoint_id == "c1"
        await mine.save(made(2, "c1"))
        with pytest.raises(SaveFailed) as caught:
            await other.save(made(3, "c1"))
        assert isinstance(caught.value.error, Conflict)
        assert other.failed is caught.value.error
        assert await other.list_checkpoint_ids(workflow_name="flow") == ["c1", "c2"]
        await other.load("c1")  # time travel
        await other.save(made(4, "c1"))
        assert store.verify("full").ok


class Mailer(Executor):
    @handler
    async def write(self, text: str, ctx: WorkflowContext[str]) -> None:
        ctx.set_state("text", text)
        await ctx.request_info(f"Send {text}?", bool)

    @response_handler
    async def send(self, asked: str, yes: bool, ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output(f"{ctx.get_state('text')}: {yes}")


def mail(storage: Any) -> Any:
    return WorkflowBuilder(name="mail", start_executor=Mailer("mailer"), checkpoint_storage=storage).build()


async def test_a_request_is_a_gate_and_its_answer_is_a_response() -> None:
    store = everstep.open("memory://")
    storage = CheckpointStorage(store, scope="7")
    await mail(storage).run("hi")
    (gate,) = store.questions()
    assert (gate.run, gate.ask) == ("mail:7", "Send hi?")
    store.answer(gate.run, gate.name, True)
    latest = await storage.get_latest(workflow_name="mail")
    assert latest is not None
    done = await mail(storage).run(checkpoint_id=latest.checkpoint_id, responses=await storage.responses(workflow_name="mail"))
    assert done.get_outputs() == ["hi: True"]
    assert store.get("mail:7").status == "succeeded"
    assert not store.due()


async def test_the_response_of_the_program_closes_the_gate() -> None:
    store = everstep.open("memory://")
    workflow = mail(CheckpointStorage(store))
    (asked,) = (await workflow.run("hi")).get_request_info_events()
    await workflow.run(responses={asked.request_id: False})
    (gate,) = store.gates("mail")
    assert (gate.answer, gate.by) == (False, "program")
    assert not store.questions()
    assert not store.due()


async def test_a_failed_save_stops_the_workflow() -> None:
    storage = CheckpointStorage(everstep.open("memory://"), scope="7")
    storage.store.close()
    with pytest.raises(SaveFailed):
        await mail(storage).run("hi")


PROGRAM = """
import asyncio, os, signal, sys
from agent_framework import Executor, WorkflowBuilder, WorkflowContext, handler
from everstep.adapters.agent_framework import CheckpointStorage
url, ledger, deadly = sys.argv[1], sys.argv[2], int(sys.argv[3])
class Pay(Executor):
    @handler
    async def pay(self, n: int, ctx: WorkflowContext[int]) -> None:
        open(ledger, "a").write(f"{n}\\n")
        if n < 4:
            await ctx.send_message(n + 1)
class Killing(CheckpointStorage):
    saves = 0
    async def save(self, checkpoint):
        id = await super().save(checkpoint)
        self.saves += 1
        if self.saves == deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return id
async def main():
    storage = Killing(url)
    a, b = Pay("a"), Pay("b")
    workflow = WorkflowBuilder(name="pay", start_executor=a, checkpoint_storage=storage).add_edge(a, b).add_edge(b, a).build()
    latest = await storage.get_latest(workflow_name="pay")
    if latest is None:
        await workflow.run(1)
    elif latest.messages:
        await workflow.run(checkpoint_id=latest.checkpoint_id)
asyncio.run(main())
"""


@pytest.mark.parametrize("deadly", [1, 2, 3, 4, 5])
def test_kill_after_a_save_pays_nothing_twice(deadly: int, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = os.environ | {"PYTHONPATH": str(Path(everstep.__file__).parents[1])}
    for number, code in ((deadly, -signal.SIGKILL), (0, 0)):
        command = [sys.executable, str(program), str(tmp_path / "store.db"), str(tmp_path / "ledger"), str(number)]
        done = warm.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == code, done.stderr
    assert (tmp_path / "ledger").read_text().split() == ["1", "2", "3", "4"]
    with everstep.open(tmp_path / "store.db") as store:
        assert store.verify("full").ok


class Twice(Executor):
    @handler
    async def write(self, text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.request_info("one?", int)
        await ctx.request_info("two?", Order)

    @response_handler
    async def one(self, asked: str, answer: int, ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output(f"one: {answer}")

    @response_handler
    async def two(self, asked: str, answer: Order, ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output(f"two: {answer}")


async def test_of_two_requests_one_is_answered_and_the_other_stays_open() -> None:
    store = everstep.open("memory://")
    storage = CheckpointStorage(store, types=[Order])

    def build() -> Any:
        return WorkflowBuilder(name="twice", start_executor=Twice("asker"), checkpoint_storage=storage).build()

    await build().run("hi")
    answers = {"one?": (7, "one: 7"), "two?": ({"id": 1, "lines": ["a"]}, "two: Order(id=1, lines=('a',))")}
    for left in (1, 0):
        gate = next(iter(store.questions()))
        value, output = answers.pop(gate.ask)
        with pytest.raises(BadAnswer):
            store.answer(gate.run, gate.name, "perhaps")
        store.answer(gate.run, gate.name, value)
        assert store.due() == ["twice"]
        latest = await storage.get_latest(workflow_name="twice")
        assert latest is not None
        done = await build().run(checkpoint_id=latest.checkpoint_id, responses=await storage.responses(workflow_name="twice"))
        assert done.get_outputs() == [output]
        assert len(list(store.questions())) == left
        assert store.due() == []  # the answer was given: a worker has nothing to do
    assert store.get("twice").status == "succeeded"


CALLS: list[str] = []  # the framework wants steps that capture nothing


def functional(storage: Any) -> Any:
    @step
    async def price(city: str) -> int:
        CALLS.append(f"price {city}")
        return 400

    @step
    async def book(city: str) -> str:
        CALLS.append(f"book {city}")
        return f"booked {city}"

    @workflow(name="function")
    async def trip(city: str, ctx: RunContext) -> str:
        prices = [await price(city), await price("Lisbon")]
        yes = await ctx.request_info(f"Book for {min(prices)}?", response_type=bool)
        return await book(city) if yes else "not booked"

    return trip.build(checkpoint_storage=storage)


@pytest.mark.filterwarnings("ignore:.*FUNCTIONAL_WORKFLOWS")
@pytest.mark.parametrize("driven", [False, True])
def test_a_functional_workflow_makes_each_step_once_and_is_continued(driven: bool) -> None:
    store = everstep.open("memory://")
    storage = CheckpointStorage(store, scope="7")
    CALLS.clear()

    async def continued() -> list[Any]:
        latest = await storage.get_latest(workflow_name="function")
        assert latest is not None
        answers = await storage.responses(workflow_name="function")
        return (await functional(storage).run(checkpoint_id=latest.checkpoint_id, responses=answers)).get_outputs()  # type: ignore[no-any-return]

    asyncio.run(functional(storage).run("Rome"))
    (gate,) = store.questions()
    assert gate.ask == "Book for 400?"
    store.answer(gate.run, gate.name, "yes")
    if driven:
        resume(lambda: functional(storage), storage)
        outcome = store.resume(gate.run)
        assert (outcome.status, outcome.result) == ("succeeded", ["booked Rome"])
    else:
        assert asyncio.run(continued()) == ["booked Rome"]
    assert CALLS == ["price Rome", "price Lisbon", "book Rome"]
    assert (list(store.questions()), store.due()) == ([], [])
    assert store.verify("full").ok
