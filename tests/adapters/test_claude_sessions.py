"""Sessions of the Claude Agent SDK: its own conformance suite, then what it leaves open."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep.errors import Damaged, InvalidArgument

pytest.importorskip("claude_agent_sdk", reason="claude-agent-sdk is not installed: pip install 'everstep[dev-adapters]'")

from claude_agent_sdk import InMemorySessionStore
from claude_agent_sdk.testing import run_session_store_conformance

from everstep.adapters.claude import SessionStore

KEY: Any = {"project_key": "-home-ann-shop", "session_id": "5f0c1a34-77aa-4b1e-9f52-3a0d6d0f1c11"}
RUN = "claude/-home-ann-shop/5f0c1a34-77aa-4b1e-9f52-3a0d6d0f1c11"


def entry(n: int, text: str = "", **more: Any) -> Any:
    message = {"role": "user", "content": text or f"message {n}"}
    return {"type": "user", "uuid": f"u{n}", "sessionId": KEY["session_id"], "message": message, **more}


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
async def test_the_sdks_own_conformance_suite_passes(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = {"memory": "memory://", "sqlite": str(tmp_path / "s.db")}.get(kind) or request.getfixturevalue("place")
    made: list[SessionStore] = []

    async def make() -> SessionStore:  # each contract begins with an empty store
        with everstep.open(url) as opened:
            for info in opened.runs():
                opened.delete(info.id)
        made.append(SessionStore(url))
        return made[-1]

    await run_session_store_conformance(make)
    assert len(made) > 14
    for one in made:
        await one.close()


@pytest.fixture(params=["everstep", "framework"])
def sessions(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return SessionStore(tmp_path / "s.db") if request.param == "everstep" else InMemorySessionStore()


ODD = ["ä\u2028\x00", "lone \ud800", {"@": "human", "a": [None, True, 1.5, 2**53, -1, "", {}, []]}, 10**25, {"$x": 1, "": 2}]


@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
async def test_every_json_value_comes_back_equal(sessions: Any, value: Any) -> None:
    odd = [entry(1, data=value), {"type": "x", "@": value}, {"type": "x", "@": "entry"}, {"type": "x"}]
    await sessions.append(KEY, odd)
    found = await sessions.load(KEY)
    assert found == odd
    assert [list(one) for one in found] == [list(one) for one in odd]


KEYS = ["a/b", "a", "/", "%2F", "x@y ~z", "Ü" * 40, "p" * 300, "p" * 299 + "q", "%z", "..", "a%"]


async def test_keys_of_every_kind_are_kept_apart_and_found(tmp_path: Path) -> None:
    store = SessionStore(tmp_path / "s.db")
    for project in KEYS:
        for session in KEYS:
            await store.append({"project_key": project, "session_id": session}, [entry(1, f"{project}|{session}")])
    for project in KEYS:
        assert sorted(one["session_id"] for one in await store.list_sessions(project)) == sorted(KEYS)
        for session in KEYS:
            (found,) = await store.load({"project_key": project, "session_id": session}) or ()
            assert found["message"]["content"] == f"{project}|{session}"
    for subpath in KEYS:
        await store.append({"project_key": "a", "session_id": "a", "subpath": subpath}, [entry(1, subpath)])
    assert await store.list_subkeys({"project_key": "a", "session_id": "a"}) == sorted(KEYS)
    await store.delete({"project_key": "a", "session_id": "a"})
    assert await store.list_subkeys({"project_key": "a", "session_id": "a"}) == []
    assert len(await store.list_sessions("a")) == len(KEYS) - 1
    await store.close()


async def test_an_entry_is_kept_once_and_one_without_a_uuid_each_time(tmp_path: Path) -> None:
    first, second = SessionStore(tmp_path / "s.db"), SessionStore(tmp_path / "s.db")
    title = {"type": "custom-title", "customTitle": "Shop"}
    await first.append(KEY, [entry(1), entry(1), title])
    await second.append(KEY, [entry(1), entry(2), title])
    await first.append(KEY, [entry(2)])
    await first.append(KEY, [entry(2), entry(3)])
    assert await second.load(KEY) == [entry(1), title, entry(2), title, entry(3)]
    with everstep.open(tmp_path / "s.db") as store:
        assert store.get(RUN).checkpoints == 3  # a batch that has nothing new writes nothing
    await first.close()
    await second.close()


async def test_a_session_that_was_deleted_elsewhere_begins_again(tmp_path: Path) -> None:
    first, second = SessionStore(tmp_path / "s.db"), SessionStore(tmp_path / "s.db")
    for again in (False, True):
        await first.append(KEY, [entry(1), entry(2)])
        await second.delete(KEY)
        if again:
            await second.append(KEY, [entry(7), entry(8), entry(9)])
        await first.append(KEY, [entry(1)])
        assert [one["uuid"] for one in await second.load(KEY) or ()] == (["u7", "u8", "u9", "u1"] if again else ["u1"])
        await first.delete(KEY)
    await first.close()
    await second.close()


async def test_an_append_stores_the_new_entries_and_not_the_transcript_again(tmp_path: Path) -> None:
    async with SessionStore(tmp_path / "s.db") as store:
        for n in range(200):
            await store.append(KEY, [entry(n, f"{n} " * 300)])
    with everstep.open(tmp_path / "s.db") as opened:
        given = sum(len(json.dumps(entry(n, f"{n} " * 300))) for n in range(200))
        assert opened.get(RUN).stored_bytes < 3 * given


BAD: list[tuple[Any, Any, str]] = [
    ({"project_key": "", "session_id": "s"}, [entry(1)], "project_key of a session key must be a text"),
    ({"project_key": "p"}, [entry(1)], "session_id of a session key must be a text"),
    ({**KEY, "subpath": 7}, [entry(1)], "subpath of a session key must be a text"),
    (KEY, [entry(1), "text"], "an entry of a transcript must be a dict"),
    (KEY, [entry(1), {"type": "x", "v": object()}], "entry.v must be JSON data"),
    (KEY, [entry(1), {"type": "x", 7: 1}], "keys must be texts"),
]


@pytest.mark.parametrize(("key", "entries", "message"), BAD, ids=range(len(BAD)))
async def test_bad_input_is_refused_and_nothing_of_the_batch_is_saved(key: Any, entries: Any, message: str, tmp_path: Path) -> None:
    async with SessionStore(tmp_path / "s.db") as store:
        with pytest.raises(InvalidArgument, match=message):
            await store.append(key, entries)
        assert await store.list_sessions("p") == await store.list_sessions(KEY["project_key"]) == []


async def test_a_run_of_someone_else_is_refused(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db") as opened, opened.run(RUN, state={"mine": 1}) as run:
        run.checkpoint()
    async with SessionStore(tmp_path / "s.db") as store:
        for call in (store.load(KEY), store.append(KEY, [entry(1)])):
            with pytest.raises(InvalidArgument, match="is not a transcript of Claude"):
                await call
        assert await store.list_sessions(KEY["project_key"]) == []
    with everstep.open(tmp_path / "s.db") as opened:
        assert opened.load(RUN) == {"mine": 1}


async def test_a_fork_is_a_session_of_its_own(tmp_path: Path) -> None:
    async with SessionStore(tmp_path / "s.db") as store:
        await store.append(KEY, [entry(1)])
        await store.append(KEY, [entry(2)])
        with everstep.open(tmp_path / "s.db") as opened:
            opened.fork(f"{RUN}@1", RUN[:-2] + "22")
        fork: Any = {**KEY, "session_id": KEY["session_id"][:-2] + "22"}
        assert await store.load(fork) == [{**entry(1), "sessionId": fork["session_id"]}]
        await store.append(fork, [entry(3, sessionId=fork["session_id"])])
        assert [one["uuid"] for one in await store.load(fork) or ()] == ["u1", "u3"]
        assert [one["uuid"] for one in await store.load(KEY) or ()] == ["u1", "u2"]
        assert len(await store.list_session_summaries(KEY["project_key"])) == 2


async def test_a_redaction_that_masks_links_is_reported_on_load(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db", redaction=everstep.Redactor.default(keys=["uuid"])) as opened:
        store = SessionStore(opened)
        await store.append(KEY, [entry(1)])
        with pytest.raises(Damaged, match="masked 'uuid'"):
            await store.load(KEY)


def test_a_store_is_used_in_one_event_loop_after_another(tmp_path: Path) -> None:
    store = SessionStore(tmp_path / "s.db")
    for n in range(3):
        asyncio.run(store.append(KEY, [entry(n)]))
    assert len(asyncio.run(store.load(KEY)) or ()) == 3
    asyncio.run(store.close())
