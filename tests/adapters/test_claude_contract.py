"""The contract of session stores, from the docstrings of the SDK's protocol, and the SDK's own functions on a store.

They run with ours in every kind of store and with the SDK's InMemorySessionStore. Where that one does something else, the test says what.
"""

from __future__ import annotations

import asyncio
import copy
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import warm

import everstep

pytest.importorskip("claude_agent_sdk", reason="claude-agent-sdk is not installed: pip install 'everstep[dev-adapters]'")

import claude_agent_sdk as sdk
from claude_agent_sdk import InMemorySessionStore, project_key_for_directory

from everstep.adapters.claude import SessionStore

OURS, FRAMEWORK = ["sqlite", "memory", "postgres"], "framework"
FOLDER = "/home/ann/shop"
PROJECT = project_key_for_directory(FOLDER)
ID = "5f0c1a34-77aa-4b1e-9f52-3a0d6d0f1c11"
KEY: Any = {"project_key": PROJECT, "session_id": ID}
SUB: Any = {**KEY, "subpath": "subagents/agent-a"}


def entry(n: int, text: str = "", role: str = "user", session: str = ID, **more: Any) -> Any:
    uuid = f"00000000-0000-4000-8000-{n:012}"
    parent = f"00000000-0000-4000-8000-{n - 1:012}" if n > 1 else None
    content = text or f"message {n}"
    about = {
        "type": role,
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": session,
        "timestamp": f"2026-01-01T00:00:{n % 60:02}Z",
        "cwd": FOLDER,
    }
    return {**about, "message": {"role": role, "content": content if role == "user" else [{"type": "text", "text": content}]}, **more}


def url_of(kind: str, request: pytest.FixtureRequest, folder: Path) -> str:
    return {"memory": "memory://", "sqlite": str(folder / "s.db")}.get(kind) or str(request.getfixturevalue("place"))


@pytest.fixture
def make(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> Any:
    return InMemorySessionStore if kind == FRAMEWORK else lambda: SessionStore(url_of(kind, request, tmp_path))


class Opened:
    """A session store that is closed at the end of a test."""

    def __init__(self, make: Any):
        self.sessions = make()

    async def __aenter__(self) -> Any:
        return self.sessions

    async def __aexit__(self, *problem: object) -> None:
        if isinstance(self.sessions, SessionStore):
            await self.sessions.close()


ALL = pytest.mark.parametrize("kind", [*OURS, FRAMEWORK])


@ALL
async def test_a_key_that_was_never_written_has_nothing(make: Any) -> None:
    async with Opened(make) as sessions:
        assert await sessions.load(KEY) is None
        assert await sessions.list_sessions(PROJECT) == await sessions.list_session_summaries(PROJECT) == []
        assert await sessions.list_subkeys(KEY) == []
        await sessions.delete(KEY)
        await sessions.append(KEY, [])
        if isinstance(sessions, SessionStore):  # the SDK's own one lists a session that has no entry
            assert await sessions.load(KEY) is None
            assert await sessions.list_sessions(PROJECT) == []


@ALL
async def test_entries_come_back_in_the_order_of_the_appends_and_nothing_is_shared(make: Any) -> None:
    async with Opened(make) as sessions:
        given = [entry(n, deep={"a": [n]}) for n in range(1, 8)]
        before = copy.deepcopy(given)
        for n in (0, 1, 4):
            await sessions.append(KEY, given[n : {0: 1, 1: 4, 4: 7}[n]])
        assert await sessions.load(KEY) == before
        found = await sessions.load(KEY)
        found.append("changed by a reader")
        assert await sessions.load(KEY) == before
        if isinstance(sessions, SessionStore):  # the SDK's own one keeps the very objects
            given[0]["deep"]["a"].append(7)
            (await sessions.load(KEY))[1]["deep"]["a"].append(7)
            assert await sessions.load(KEY) == before


@ALL
async def test_an_entry_with_a_uuid_is_kept_once(make: Any) -> None:
    async with Opened(make) as sessions:
        title = {"type": "custom-title", "customTitle": "t", "sessionId": ID}
        await sessions.append(KEY, [entry(1), title])
        await sessions.append(KEY, [entry(1), entry(2), title])
        found = await sessions.load(KEY)
        if isinstance(sessions, SessionStore):
            assert found == [entry(1), title, entry(2), title]
        else:  # the SDK's own one does not do what the protocol asks for: a batch that is tried again is there twice
            assert found == [entry(1), title, entry(1), entry(2), title]


@ALL
async def test_the_times_of_writes_grow_and_a_summary_is_as_new_as_its_session(make: Any) -> None:
    async with Opened(make) as sessions:
        seen = []
        for n in range(1, 4):
            await sessions.append(KEY, [entry(n)])
            (listed,) = await sessions.list_sessions(PROJECT)
            (summary,) = await sessions.list_session_summaries(PROJECT)
            assert (listed["session_id"], summary["session_id"]) == (ID, ID)
            assert summary["mtime"] == listed["mtime"]  # otherwise the SDK reads the whole session again
            seen.append(listed["mtime"])
            await asyncio.sleep(0.003)
        assert seen == sorted(set(seen))


@ALL
async def test_transcripts_of_subagents_are_apart_from_their_session(make: Any) -> None:
    async with Opened(make) as sessions:
        await sessions.append(SUB, [entry(1, "of the subagent")])
        assert await sessions.list_sessions(PROJECT) == []
        await sessions.append(KEY, [entry(2, "of the session")])
        await sessions.append({**SUB, "subpath": "subagents/agent-b"}, [entry(3)])
        assert [one["session_id"] for one in await sessions.list_sessions(PROJECT)] == [ID]
        (summary,) = await sessions.list_session_summaries(PROJECT)
        assert "of the subagent" not in str(summary)
        assert sorted(await sessions.list_subkeys(KEY)) == ["subagents/agent-a", "subagents/agent-b"]
        await sessions.delete(SUB)
        assert await sessions.list_subkeys(KEY) == ["subagents/agent-b"]
        assert await sessions.load(KEY) == [entry(2, "of the session")]
        other = {**KEY, "session_id": ID[:-1] + "2"}
        await sessions.append(other, [entry(4)])
        await sessions.delete(KEY)
        assert await sessions.load(KEY) is None
        assert await sessions.list_subkeys(KEY) == []
        assert await sessions.load({**SUB, "subpath": "subagents/agent-b"}) is None
        assert await sessions.load(other) == [entry(4)]


@ALL
async def test_the_sdks_functions_work_on_the_store(make: Any) -> None:
    async with Opened(make) as sessions:
        await sessions.append(KEY, [entry(1, "Buy a bike"), entry(2, "Which one?", "assistant"), entry(3, "The red one")])
        await sessions.append(SUB, [entry(1, "Look", isSidechain=True)])
        (info,) = await sdk.list_sessions_from_store(sessions, directory=FOLDER)
        assert (info.session_id, info.first_prompt) == (ID, "Buy a bike")
        messages = await sdk.get_session_messages_from_store(sessions, ID, directory=FOLDER)
        assert [one.type for one in messages] == ["user", "assistant", "user"]
        await sdk.rename_session_via_store(sessions, ID, "Bikes", directory=FOLDER)
        await sdk.tag_session_via_store(sessions, ID, "shop", directory=FOLDER)
        found = await sdk.get_session_info_from_store(sessions, ID, directory=FOLDER)
        assert found is not None
        assert (found.custom_title, found.tag) == ("Bikes", "shop")
        (info,) = await sdk.list_sessions_from_store(sessions, directory=FOLDER)
        assert (info.custom_title, info.tag) == ("Bikes", "shop")
        assert await sdk.list_subagents_from_store(sessions, ID, directory=FOLDER) == ["a"]
        fork = await sdk.fork_session_via_store(sessions, ID, directory=FOLDER)
        assert len(await sdk.get_session_messages_from_store(sessions, fork.session_id, directory=FOLDER)) == 3
        assert len(await sdk.list_sessions_from_store(sessions, directory=FOLDER)) == 2
        await sdk.delete_session_via_store(sessions, ID, directory=FOLDER)
        assert [one.session_id for one in await sdk.list_sessions_from_store(sessions, directory=FOLDER)] == [fork.session_id]


@ALL
async def test_fifty_tasks_write_fifty_sessions_and_read_them(make: Any) -> None:
    async with Opened(make) as sessions:

        async def one(n: int) -> None:
            key = {"project_key": PROJECT, "session_id": f"s{n}"}
            for step in range(1, 4):
                await sessions.append(key, [entry(step, f"{n} {step}")])
                assert await sessions.load(key) == [entry(k, f"{n} {k}") for k in range(1, step + 1)]

        await asyncio.gather(*map(one, range(50)))
        assert len(await sessions.list_sessions(PROJECT)) == len(await sessions.list_session_summaries(PROJECT)) == 50


@pytest.mark.parametrize("kind", OURS)
async def test_fifty_tasks_append_to_one_session(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    with everstep.open(url_of(kind, request, tmp_path)) as opened:
        stores = [SessionStore(opened) for _ in range(3)]
        await asyncio.gather(*(stores[n % 3].append(KEY, [entry(2 * n + 1), entry(2 * n + 2)]) for n in range(50)))
        found = [int(one["uuid"][-4:]) for one in await stores[0].load(KEY) or ()]
        assert sorted(found) == list(range(1, 101))
        assert all(found[n + 1] == found[n] + 1 for n in range(0, 100, 2))  # each batch is whole
        assert opened.verify("full").ok


@pytest.mark.parametrize("kind", OURS)
def test_fifty_threads_with_a_store_each_append_to_one_session(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    failed: list[BaseException] = []
    with everstep.open(url_of(kind, request, tmp_path)) as opened:

        async def append(n: int) -> None:
            sessions = SessionStore(opened)
            for step in range(2):
                await sessions.append(KEY, [entry(2 * n + step + 1)])

        def work(n: int) -> None:
            try:
                asyncio.run(append(n))
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        found = asyncio.run(SessionStore(opened).load(KEY)) or []
        assert sorted(int(one["uuid"][-4:]) for one in found) == list(range(1, 101))
        assert opened.verify("full").ok


PROCESS = """
import asyncio, sys
from everstep.adapters.claude import SessionStore
async def main(url, name):
    async with SessionStore(url) as sessions:
        for n in range(25):
            await sessions.append({"project_key": "p", "session_id": "s"}, [{"type": "user", "uuid": f"{name}{n}"}, {"type": name}])
asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_two_processes_on_one_session_lose_nothing(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url = url_of(kind, request, tmp_path)
    everstep.open(url).close()
    running = [subprocess.Popen([sys.executable, "-c", PROCESS, url, name]) for name in "ab"]
    assert [await asyncio.to_thread(one.wait) for one in running] == [0, 0]
    async with SessionStore(url) as sessions:
        found = await sessions.load({"project_key": "p", "session_id": "s"}) or []
    assert len(found) == 100
    for name in "ab":
        assert [one["uuid"] for one in found if one.get("uuid", "")[:1] == name] == [f"{name}{n}" for n in range(25)]
    assert all(two == {"type": one["uuid"][0]} for one, two in zip(found[::2], found[1::2], strict=True))  # each batch is whole
    with everstep.open(url) as opened:
        assert opened.verify("full").ok


VALUES = [
    None,
    True,
    False,
    0,
    -1,
    2**53,
    10**25,
    1.5,
    -0.0,
    1e300,
    "",
    "ä\u2028\x00",
    "lone \ud800",
    [],
    {},
    [[{"a": [None]}]],
    {"@": 1, "$": 2},
]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_another_process_reads_every_value(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url = url_of(kind, request, tmp_path)

    async def write() -> None:
        async with SessionStore(url) as sessions:
            await sessions.append(KEY, [entry(n, value=value) for n, value in enumerate(VALUES, 1)])

    asyncio.run(write())
    program = (
        "import asyncio, test_claude_contract as t\n"
        "async def main():\n"
        f"    async with t.SessionStore({url!r}) as sessions:\n"
        "        found = [one['value'] for one in await sessions.load(t.KEY)]\n"
        "    assert found == t.VALUES and list(map(type, found)) == list(map(type, t.VALUES)) and repr(found) == repr(t.VALUES)\n"
        "asyncio.run(main())\n"
    )
    environment = {"PYTHONPATH": ":".join([str(Path(__file__).parent), str(Path(__file__).parents[1]), *sys.path])}
    done = warm.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
