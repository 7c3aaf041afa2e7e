"""Sessions of ADK beyond the contract: many processes and sessions, one commit for all scopes, bad input, redaction, questions to people."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep.errors import Damaged, InvalidArgument, LeaseHeld

pytest.importorskip("google.adk", reason="google-adk is not installed: pip install 'everstep[dev-adapters]'")

import adk_writer
from google.adk.agents import LlmAgent
from google.adk.errors import StaleSessionError
from google.adk.events.event import Event
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.tools import FunctionTool, LongRunningFunctionTool
from google.genai import types

from everstep.adapters.adk import SessionService

DEEP = bool(os.environ.get("EVERSTEP_DEEP"))
ME = adk_writer.ME


def start(url: str, name: str, count: int) -> subprocess.Popen[str]:
    paths = [str(Path(everstep.__file__).parents[1]), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    command = [sys.executable, adk_writer.__file__, url, name, str(count)]
    return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)}, stdout=subprocess.PIPE, text=True)


def consistent(store: everstep.Store) -> Any:
    """Check that each scope has what the events say; return the session."""
    session = asyncio.run(SessionService(store).get_session(**ME))
    state: dict[str, Any] = {}
    for event in session.events:
        state.update(event.actions.state_delta)
    assert session.state == state
    assert state.get("total", 0) == len(session.events)  # no update was lost
    assert store.verify("full").ok
    return session


@pytest.mark.parametrize("where", ["sqlite", "postgres"])
def test_two_processes_on_one_session_lose_nothing(request: pytest.FixtureRequest, tmp_path: Path, where: str) -> None:
    url = request.getfixturevalue("place") if where == "postgres" else str(tmp_path / "s.db")
    everstep.open(url).close()
    running = [start(url, name, 20) for name in "xy"]
    stored = [one.communicate(timeout=120)[0].split() for one in running]
    assert [one.returncode for one in running] == [0, 0]
    with everstep.open(url) as store:
        session = consistent(store)
        assert {event.id for event in session.events} == {*stored[0], *stored[1]}
        assert (session.state["total"], session.state["app:x"], session.state["user:y"]) == (40, 20, 20)


@pytest.mark.parametrize("seed", range(10 if DEEP else 1))
def test_killed_at_a_random_time_the_scopes_agree(tmp_path: Path, seed: int) -> None:
    draw, url, stored = random.Random(seed), str(tmp_path / "s.db"), []
    running = start(url, "x", 10_000)
    assert running.stdout is not None
    stored += [running.stdout.readline().strip() for _ in range(3)]
    time.sleep(draw.random() / 5)
    os.kill(running.pid, signal.SIGKILL)
    stored += running.communicate()[0].split()
    with everstep.open(url) as store:
        session = consistent(store)
        assert {one for one in stored if len(one) == 36} <= {event.id for event in session.events}


async def test_fifty_sessions_in_parallel_merge_their_app_state(tmp_path: Path) -> None:
    async def converse(service: SessionService, n: int) -> None:
        session = await service.create_session(
            app_name="a", user_id=f"u{n % 5}", session_id=f"{n}", state=[{}, {"app:first": n}, {"user:first": n}][n % 3]
        )
        for turn in range(3):
            delta = {"turn": turn, f"user:{n}": turn, f"app:{n}": turn, "app:last": n}
            await service.append_event(session, Event(author="user", message=f"{n}.{turn}", state=delta))

    with everstep.open(tmp_path / "s.db") as store:
        one, two = SessionService(store), SessionService(store)  # as two processes: each knows only its own lines
        await asyncio.gather(*(converse(one if n % 2 else two, n) for n in range(50)))
        listed = (await one.list_sessions(app_name="a")).sessions
        assert len(listed) == 50
        for session in listed:
            app = {key: value for key, value in session.state.items() if key.startswith("app:") and key not in ("app:last", "app:first")}
            assert app == {f"app:{n}": 2 for n in range(50)}
            assert sum(key.startswith("user:") for key in session.state) == 11
            assert session.state["turn"] == 2
        assert store.get("app:a").checkpoints == 150 + 17
        assert store.verify("full").ok


def test_threads_and_event_loops_may_share_a_service(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db") as store:
        service = SessionService(store)
        threads = [threading.Thread(target=lambda name=name: asyncio.run(adk_writer.write(service, name, 5))) for name in "xyz"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(consistent(store).events) == 15


async def test_an_append_is_one_commit(tmp_path: Path) -> None:
    """A conflict in one scope leaves the others as they were, and nothing of a failed append is saved later."""
    with everstep.open(tmp_path / "s.db") as store:
        service = SessionService(store)
        session = await service.create_session(**ME, state={"app:n": 0, "user:n": 0})
        open_, done = threading.Event(), threading.Event()

        def drive() -> None:  # somebody drives the run of the user's state
            with store.run("user:a/u"):
                open_.set()
                done.wait(30)

        driver = threading.Thread(target=drive)
        driver.start()
        open_.wait(30)
        event = Event(author="user", message="x", state={"s": 1, "app:n": 1, "user:n": 1})
        with pytest.raises(LeaseHeld):
            await service.append_event(session, event)
        done.set()
        driver.join()
        assert (session.events, store.get("a/u/s").checkpoints, store.get("app:a").checkpoints) == ([], 1, 1)
        await service.append_event(session, Event(author="user", message="y", state={"user:m": 1}))
        assert (await service.get_session(**ME)).state == {"app:n": 0, "user:n": 0, "user:m": 1}


async def test_entries_of_others_do_not_make_a_session_stale(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db") as store:
        service = SessionService(store)
        session = await service.create_session(**ME)
        stop = threading.Event()

        def attach() -> None:  # as an answer of somebody does
            line, n = store.line("a/u/s"), 0
            while not stop.wait(0.002):
                line.attach(1, f"note-{(n := n + 1)}", n)

        thread = threading.Thread(target=attach)
        thread.start()
        try:
            for n in range(30):
                await service.append_event(session, Event(author="user", message=f"{n}", state={"total": n} if n % 2 else {"app:n": n}))
        finally:
            stop.set()
            thread.join()
        assert len((await service.get_session(**ME)).events) == 30


async def test_an_append_that_is_cancelled_is_known_to_its_session(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db") as store:
        service = SessionService(store)
        session = await service.create_session(**ME)
        task = asyncio.create_task(service.append_event(session, Event(author="user", message="x")))
        while not service._turns:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(session.events) == len((await service.get_session(**ME)).events)
        await service.append_event(session, Event(author="user", message="y"))
        assert not service._turns


async def test_a_session_that_was_created_again_is_another_one(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db") as store:
        one, two = SessionService(store), SessionService(store)
        old = await one.create_session(**ME)
        await two.delete_session(**ME)
        await two.create_session(**ME)
        with pytest.raises(StaleSessionError):
            await one.append_event(old, Event(author="user", message="x"))
        assert (await one.get_session(**ME)).events == []


async def test_recent_events_are_read_without_loading_all(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db") as store:
        service = SessionService(store)
        session = await service.create_session(**ME)
        for n in range(300):
            await service.append_event(session, Event(author="user", message=f"{n} " + "x" * 2_000, timestamp=1_000.0 + n))

    async def cost(config: GetSessionConfig | None) -> float:
        best = 1e9
        for _ in range(5):
            with everstep.open(tmp_path / "s.db") as fresh:
                service = SessionService(fresh)
                await service.get_user_state(app_name="a", user_id="u")  # opens what is opened once
                began = time.process_time()
                found = await service.get_session(**ME, config=config)
                best = min(best, time.process_time() - began)
                assert len(found.events) == (300 if config is None else 3)
        return best

    everything = await cost(None)
    for config in (GetSessionConfig(num_recent_events=3), GetSessionConfig(after_timestamp=1_297.0)):
        assert await cost(config) < everything * 0.7


async def test_bad_input_is_refused_and_writes_nothing(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db") as store:
        service = SessionService(store)
        with store.run("a/u/mine", state={"n": 1}) as run:
            run.checkpoint()
        line = store.line("app:b", state={"mine": 1}, workflow="chat")
        line.checkpoint()
        for call in (
            service.get_session(app_name="a", user_id="u", session_id="mine"),
            service.create_session(app_name="a", user_id="u", session_id="mine"),
            service.delete_session(app_name="a", user_id="u", session_id="mine"),
            service.create_session(app_name="b", user_id="u", state={"app:x": 1}),
            service.create_session(app_name="b", user_id="u"),
        ):
            with pytest.raises(InvalidArgument, match="not made by ADK"):
                await call
        for wrong in (7, None, "x" * 300):
            with pytest.raises(everstep.EverstepError):
                await service.create_session(app_name=wrong, user_id="u", session_id="s")
        assert {run.id for run in store.runs()} == {"a/u/mine", "app:b"}
        assert store.load("a/u/mine") == {"n": 1}
        async with store as handle:
            with pytest.raises(InvalidArgument, match="async handle"):
                SessionService(handle)  # type: ignore[arg-type]
    with pytest.raises(everstep.EverstepError):
        await SessionService(tmp_path / "no" / "such" / "s.db").get_session(**ME)


async def test_a_damaged_session_is_an_error_and_never_another_conversation(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with SessionService(path) as service:
        session = await service.create_session(**ME)
        await service.append_event(session, Event(author="user", message="a sentence that is easily found"))
    data = bytearray(path.read_bytes())
    at = data.find(b"easily found")
    assert at > 0
    while at > 0:
        data[at] ^= 1
        at = data.find(b"easily found")
    path.write_bytes(data)
    async with SessionService(path) as service:
        for config in (None, GetSessionConfig(num_recent_events=1)):
            with pytest.raises(Damaged):
                await service.get_session(**ME, config=config)
        with pytest.raises(Damaged):
            await service.append_event(session, Event(author="user", message="more"))


async def test_masked_values_come_back_masked_and_the_rest_intact(tmp_path: Path) -> None:
    masks = everstep.Redactor.default(keys=["pin", "total_token_count", "*_ids"], patterns=["email"])
    with everstep.open(tmp_path / "s.db", redaction=masks) as store:
        service = SessionService(store)
        session = await service.create_session(**ME, state={"pin": 1234, "user:mail": "ann@example.com"})
        usage = types.GenerateContentResponseUsageMetadata(total_token_count=9, prompt_token_count=4)
        for n in range(2):
            call = types.Part(function_call=types.FunctionCall(id="c", name="f", args={"pin": n, "n": n}))
            content = types.Content(role="model", parts=[types.Part(text="write to ann@example.com"), call])
            event = Event(author="bot", content=content, usage_metadata=usage, long_running_tool_ids={"c"}, state={"pin": n, "n": n})
            await service.append_event(session, event)
            session = await SessionService(store).get_session(**ME)
        read = await SessionService(store).get_session(**ME)
        assert read.state == {"pin": "[redacted]", "user:mail": "[redacted]", "n": 1}
        for event in read.events:
            assert event.content.parts[0].text == "write to [redacted]"
            assert event.content.parts[1].function_call.args["pin"] == "[redacted]"
            assert event.usage_metadata.total_token_count is None  # masked: a number can't be the text of the mask
            assert event.usage_metadata.prompt_token_count == 4
        assert b"ann@example.com" not in (tmp_path / "s.db").read_bytes()


# Questions to people.


class Clerk(BaseLlm):
    """Calls the tool that the user names, and says what it returned."""

    model: str = "scripted"

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
        last = llm_request.contents[-1].parts[-1]
        if last.function_response is not None:
            parts = [types.Part(text=f"{last.function_response.response}")]
        else:
            parts = [types.Part(function_call=types.FunctionCall(id=f"{name}-1", name=name, args={"n": 1})) for name in last.text.split()]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


def clerk(service: SessionService, paid: list[int]) -> Runner:
    def pay(n: int) -> dict[str, int]:
        """Pay."""
        paid.append(n)
        return {"paid": n}

    def send(n: int) -> dict[str, int]:
        """Send."""
        return {"sent": n}

    def ticket(n: int) -> None:
        """Open a ticket that somebody has to close."""

    tools = [FunctionTool(pay, require_confirmation=True), FunctionTool(send, require_confirmation=True), LongRunningFunctionTool(ticket)]
    return Runner(agent=LlmAgent(name="clerk", model=Clerk(), tools=tools), app_name="a", session_service=service, auto_create_session=True)


async def say(runner: Runner, message: Any) -> list[str]:
    content = types.UserContent(message) if isinstance(message, str) else message
    found = [event async for event in runner.run_async(user_id="u", session_id="s", new_message=content)]
    return [part.text for event in found for part in (event.content.parts if event.content else ()) if part.text]


@pytest.mark.parametrize(
    ("answer", "confirmed"),
    [("yes", True), (True, True), ("no", False), ({"answer": "yes", "payload": {"k": 1}}, True), ({"answer": "no"}, False)],
)
async def test_a_confirmation_is_a_question_that_anybody_can_answer(tmp_path: Path, answer: Any, confirmed: bool) -> None:
    with everstep.open(tmp_path / "s.db") as store:
        paid: list[int] = []
        assert await say(clerk(SessionService(store), paid), "pay") == []
        (gate,) = store.questions()
        assert (gate.run, gate.ask) == ("a/u/s", 'Let the agent call pay({"n": 1})?')
        service = SessionService(store)
        assert await service.answers(**ME) is None
        with pytest.raises(everstep.EverstepError):
            store.answer(gate.run, gate.name, "perhaps")
        store.answer(gate.run, gate.name, answer, by="ann")
        message = await service.answers(**ME)
        assert message == await SessionService(store).answers(**ME)  # until it is sent
        response = message.parts[0].function_response.response
        assert response == {"confirmed": confirmed, **({"payload": {"k": 1}} if isinstance(answer, dict) and "payload" in answer else {})}
        texts = await say(clerk(service, paid), message)
        assert (paid, len(texts)) == (([1] if confirmed else []), 1)
        assert await service.answers(**ME) is None
        assert (list(store.questions()), store.due()) == ([], [])


async def test_two_confirmations_and_a_ticket_at_once(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db") as store:
        service, paid = SessionService(store), []
        await say(clerk(service, paid), "pay send ticket")
        gates = {gate.name.rpartition("-")[0]: gate for gate in store.questions()}
        assert set(gates) == {"confirm-pay", "confirm-send", "result-ticket"}
        store.answer("a/u/s", gates["result-ticket"].name, "closed")
        message = await service.answers(**ME)
        assert [part.function_response.response for part in message.parts] == [{"result": "closed"}]
        store.answer("a/u/s", gates["confirm-pay"].name, "yes")
        store.answer("a/u/s", gates["confirm-send"].name, "no")
        message = await service.answers(**ME)
        assert {part.function_response.name for part in message.parts} == {"adk_request_confirmation", "ticket"}
        await say(clerk(service, paid), message)
        assert paid == [1]
        assert await service.answers(**ME) is None


async def test_the_program_may_answer_itself(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db") as store:
        service, paid = SessionService(store), []
        await say(clerk(service, paid), "pay")
        await say(clerk(service, paid), "ticket")  # the question stays open
        session = await service.get_session(**ME)
        (call,) = (call for event in session.events for call in event.get_function_calls() if call.name == "adk_request_confirmation")
        response = types.FunctionResponse(id=call.id, name=call.name, response={"confirmed": True})
        await say(clerk(service, paid), types.Content(role="user", parts=[types.Part(function_response=response)]))
        assert paid == [1]
        found = {gate.name.rpartition("-")[0]: gate for gate in store.gates("a/u/s")}
        assert (found["confirm-pay"].answer, found["confirm-pay"].by, found["result-ticket"].open) == ("yes", "program", True)
        assert store.due() == []


async def test_a_fork_asks_its_own_questions(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db") as store:
        service, paid = SessionService(store), []
        await say(clerk(service, paid), "pay")
        store.fork("a/u/s", "a/u/fork")
        other = {**ME, "session_id": "fork"}
        assert await service.answers(**other) is None
        (gate,) = (gate for gate in store.questions() if gate.run == "a/u/fork")
        store.answer("a/u/fork", gate.name, "yes")
        assert await service.answers(**other) is not None
        assert await service.answers(**ME) is None
        assert {one.id for one in (await service.list_sessions(app_name="a")).sessions} == {"s", "fork"}
