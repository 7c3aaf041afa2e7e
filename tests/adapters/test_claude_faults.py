"""What goes wrong around a session: saves that fail and that the SDK swallows, a damaged transcript, a run of someone else, bad keys."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep.errors import EverstepError, InvalidArgument

pytest.importorskip("claude_agent_sdk", reason="claude-agent-sdk is not installed: pip install 'everstep[dev-adapters]'")

import claude_program
from claude_agent_sdk import ResultMessage, project_key_for_directory, query
from claude_agent_sdk.types import MirrorErrorMessage

from everstep.adapters.claude import SessionStore, durable, keys
from everstep.adapters.claude.transcript import Transcript

ID = "5f0c1a34-77aa-4b1e-9f52-3a0d6d0f1c11"
KEY: Any = {"project_key": "-home-ann-shop", "session_id": ID}


def entry(n: int, **more: Any) -> Any:
    return {"type": "user", "uuid": f"u{n}", "sessionId": ID, "message": {"role": "user", "content": f"message {n}"}, **more}


class Failing:
    """Lets commits of a store fail: those of the given numbers, from now on."""

    def __init__(self, opened: Any, numbers: Any):
        self.made, self.numbers = 0, numbers
        self.backend = opened.backend
        self.commit, self.submit = self.backend.commit, self.backend.submit
        self.backend.commit, self.backend.submit = self._commit, self._submit

    def _check(self) -> None:
        self.made += 1
        if self.made in self.numbers:
            raise OSError(28, "No space left on device")

    def _commit(self, given: Any) -> Any:
        self._check()
        return self.commit(given)

    def _submit(self, given: Any, done: Any) -> None:
        self._check()
        self.submit(given, done)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Any]:
    with everstep.open(tmp_path / "s.db") as store:
        yield store


async def test_entries_of_a_save_that_failed_are_saved_before_the_next_ones(opened: Any, caplog: pytest.LogCaptureFixture) -> None:
    sessions = SessionStore(opened)
    await sessions.append(KEY, [entry(1)])
    failing = Failing(opened, range(1, 5))
    title = {"type": "custom-title", "customTitle": "Shop"}
    for _ in range(3):  # the SDK tries a batch three times, then it drops it and continues with the next one
        with pytest.raises((EverstepError, OSError)):
            await sessions.append(KEY, [entry(2), title])
    assert sessions.failed is not None
    assert "was not saved" in caplog.text
    with pytest.raises((EverstepError, OSError)):
        await sessions.append(KEY, [entry(3), entry(4)])
    assert [one.get("uuid") for one in await sessions.load(KEY) or ()] == ["u1"]
    await sessions.append(KEY, [entry(5)])
    assert failing.made > 4
    assert await sessions.load(KEY) == [entry(1), entry(2), title, entry(3), entry(4), entry(5)]
    assert sessions.failed is None
    assert opened.verify("full").ok


async def test_closing_saves_what_has_failed_or_says_that_it_is_lost(opened: Any) -> None:
    for works in (True, False):
        sessions = SessionStore(opened)
        key = {**KEY, "project_key": f"p{works}"}
        Failing(opened, [1] if works else range(1, 99))
        with pytest.raises((EverstepError, OSError)):
            await sessions.append(key, [entry(1)])
        if works:
            await sessions.close()
            assert await SessionStore(opened).load(key) == [entry(1)]
        else:
            with pytest.raises((EverstepError, OSError)):
                await sessions.close()


async def test_a_deleted_session_does_not_come_back_with_what_has_failed(opened: Any) -> None:
    sessions = SessionStore(opened)
    await sessions.append(KEY, [entry(1)])
    Failing(opened, [1])
    with pytest.raises((EverstepError, OSError)):
        await sessions.append(KEY, [entry(2)])
    await sessions.delete(KEY)
    await sessions.append(KEY, [entry(3)])
    assert await sessions.load(KEY) == [entry(3)]


async def answers(opened: Any) -> None:
    while True:
        for gate in opened.questions():
            opened.answer(gate.run, gate.name, "yes")
        await asyncio.sleep(0.05)


async def test_a_session_whose_saves_fail_for_a_while_has_no_hole(opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    person = asyncio.ensure_future(answers(opened))
    sessions = SessionStore(opened)
    made = await durable(claude_program.options(tmp_path), id=ID, store=sessions)
    appended, tries = Transcript._appended, 0

    async def sometimes(self: Any, stored: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries in (2, 3, 4):  # all attempts at one batch
            raise OSError(28, "No space left on device")
        return await appended(self, stored)

    monkeypatch.setattr(Transcript, "_appended", sometimes)
    seen = [message async for message in query(prompt="Buy a bike", options=made)]
    person.cancel()
    assert any(isinstance(message, ResultMessage) and message.result == "Done." for message in seen)
    file = next((tmp_path / "home" / "projects").rglob(f"{ID}.jsonl"))
    stored = await sessions.load({"project_key": project_key_for_directory(tmp_path), "session_id": ID})
    assert [one["uuid"] for one in stored or ()] == [json.loads(line)["uuid"] for line in file.read_text().splitlines()]
    assert sum(isinstance(message, MirrorErrorMessage) for message in seen) == 1  # the SDK has dropped the batch
    assert sessions.failed is None


async def test_a_damaged_transcript_is_an_error_and_never_a_wrong_session(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with SessionStore(path) as sessions:
        for n in range(3):
            await sessions.append(KEY, [entry(n, text=f"unmistakable-{n}")])
    found = 0
    for file in (path, path.with_name("s.db-wal")):
        if file.exists():
            data = file.read_bytes()
            found += data.count(b"unmistakable-1")
            file.write_bytes(data.replace(b"unmistakable-1", b"unmistakaple-1"))
    assert found
    async with SessionStore(path) as sessions:
        with pytest.raises(EverstepError, match=keys.run_of(KEY)):
            await sessions.load(KEY)
    sessions = SessionStore(path)
    with pytest.raises(EverstepError):
        await sessions.append(KEY, [entry(7)])
    with pytest.raises(EverstepError):
        await sessions.close()  # its entry is lost
    with everstep.open(path) as store:
        assert not store.verify("full").ok


@pytest.mark.parametrize("change", [{"entries": [7]}, {"entries": 7}, {"entries": [{"@": "new"}]}, {"$session": None}], ids=range(4))
async def test_a_transcript_that_was_changed_by_hand_is_an_error(opened: Any, change: dict[str, Any]) -> None:
    sessions = SessionStore(opened)
    await sessions.append(KEY, [entry(1)])
    with opened.line(keys.run_of(KEY)) as line:
        line.checkpoint(state={**{key: value for key, value in line.state.items() if change.get(key, 1) is not None}, **change})
    if change != {"$session": None}:
        with pytest.raises(InvalidArgument, match="is not a transcript of Claude"):
            await sessions.load(KEY)


UNKNOWN = [{"session_id": "x"}, {"project_key": "-home-ann"}, {"subpath": "s"}, {"session_id": ID[:-1]}, {"session_id": ID.upper()}]


@pytest.mark.parametrize("key", UNKNOWN, ids=range(len(UNKNOWN)))
async def test_an_unknown_key_has_nothing_and_touches_nothing(opened: Any, key: dict[str, str]) -> None:
    sessions = SessionStore(opened)
    await sessions.append(KEY, [entry(1)])
    other: Any = {**KEY, **key}
    assert await sessions.load(other) is None
    await sessions.delete(other)
    assert await sessions.load(KEY) == [entry(1)]
