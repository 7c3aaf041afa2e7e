"""The contract of checkpoint storages, from the docstrings of the framework's protocol, for ours in every store and for the framework's own ones.

Where its own storages do something else, the test says what.
"""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agent_framework", reason="agent-framework-core is not installed: pip install 'everstep[dev-adapters]'")

from agent_framework import FileCheckpointStorage, InMemoryCheckpointStorage, WorkflowCheckpoint, WorkflowCheckpointException

import everstep
from everstep.adapters.agent_framework import CheckpointStorage
from everstep.errors import InvalidArgument, SaveFailed

OURS = ["sqlite", "memory", "postgres"]
FRAMEWORK = ["in memory", "files"]
UNKNOWN = ["", "c9", "c", "c11", "C1", " c1", "c1 ", "../c1", "a/b", "c1\x00", "c1\ud800", "c%", "x" * 2_000, "flow@1", "flow"]


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> str:
    return str({"memory": "memory://"}.get(kind) or (request.getfixturevalue("place") if kind == "postgres" else tmp_path / "s.db"))


@pytest.fixture
def storage(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> Iterator[Any]:
    if kind in FRAMEWORK:
        yield InMemoryCheckpointStorage() if kind == "in memory" else FileCheckpointStorage(tmp_path / "files")
        return
    with everstep.open(request.getfixturevalue("url")) as store:
        yield CheckpointStorage(store)
        assert store.verify("full").ok


def made(n: int, previous: str | None = None, name: str = "flow", /, *, second: int | None = None, **state: Any) -> WorkflowCheckpoint:
    return WorkflowCheckpoint(
        name,
        "hash",
        checkpoint_id=f"c{n}",
        previous_checkpoint_id=previous,
        timestamp=f"2026-01-01T00:00:{n if second is None else second:02}+00:00",
        state=state,
        iteration_count=n,
        metadata={"n": n},
    )


async def ids(storage: Any, name: str = "flow") -> list[str]:
    found: list[str] = await storage.list_checkpoint_ids(workflow_name=name)
    assert sorted(found) == sorted(one.checkpoint_id for one in await storage.list_checkpoints(workflow_name=name))
    return found


@pytest.mark.parametrize("kind", OURS + FRAMEWORK)
async def test_an_empty_storage_has_nothing(storage: Any) -> None:
    assert await storage.get_latest(workflow_name="flow") is None
    assert await storage.list_checkpoints(workflow_name="flow") == []
    assert await ids(storage) == []
    assert await storage.delete("c1") is False
    with pytest.raises(WorkflowCheckpointException, match="No checkpoint found with ID c1"):
        await storage.load("c1")


@pytest.mark.parametrize("kind", OURS + FRAMEWORK)
async def test_save_returns_the_id_and_stores_a_copy(storage: Any) -> None:
    one = made(1, said=["hi"], deep={"a": [1, {"b": (2, 3)}]})
    before = copy.deepcopy(one)
    assert await storage.save(one) == "c1"
    one.state["said"].append("changed after the save")
    one.metadata["n"] = 7
    assert await storage.load("c1") == before


@pytest.mark.parametrize("kind", OURS + FRAMEWORK)
async def test_what_is_read_is_a_copy(storage: Any) -> None:
    await storage.save(made(1, said=["hi"]))

    async def read() -> list[WorkflowCheckpoint]:
        return [
            await storage.load("c1"),
            await storage.get_latest(workflow_name="flow"),
            *await storage.list_checkpoints(workflow_name="flow"),
        ]

    for one in await read():
        one.state["said"].append("changed by a reader")
        one.metadata["n"] = 7
    assert await read() == [made(1, said=["hi"])] * 3


@pytest.mark.parametrize("kind", OURS + FRAMEWORK)
async def test_lists_have_the_checkpoints_of_one_workflow(storage: Any) -> None:
    for n in range(1, 13):
        await storage.save(made(n, f"c{n - 1}" if n > 1 else None, n=n))
    await storage.save(made(20, None, "flow2"))
    await storage.save(made(21, None, "Flow"))
    found = await ids(storage)
    assert sorted(found) == sorted(f"c{n}" for n in range(1, 13))
    if not isinstance(storage, FileCheckpointStorage):  # it lists files in the order of the folder
        assert found == [f"c{n}" for n in range(1, 13)]
        assert [one.state["n"] for one in await storage.list_checkpoints(workflow_name="flow")] == list(range(1, 13))
    assert await ids(storage, "flow2") == ["c20"]
    assert await ids(storage, "flo") == []


@pytest.mark.parametrize("kind", OURS + FRAMEWORK)
async def test_the_latest_is_the_one_that_was_saved_last(storage: Any) -> None:
    await storage.save(made(1, second=30))
    await storage.save(made(2, "c1", second=40))
    assert (await storage.get_latest(workflow_name="flow")).checkpoint_id == "c2"
    await storage.save(made(3, "c2", second=10))  # the clock was set back: the framework's own storages return an older checkpoint
    latest = await storage.get_latest(workflow_name="flow")
    assert latest.checkpoint_id == ("c3" if isinstance(storage, CheckpointStorage) else "c2")


@pytest.mark.parametrize("kind", OURS + FRAMEWORK)
async def test_a_checkpoint_that_is_saved_again_replaces_the_one_with_its_id(storage: Any) -> None:
    await storage.save(made(1, n=1))
    await storage.save(made(2, "c1", n=2))
    await storage.save(made(2, "c1", n=3))
    assert sorted(await ids(storage)) == ["c1", "c2"]
    assert (await storage.load("c2")).state == {"n": 3}
    assert (await storage.get_latest(workflow_name="flow")).state == {"n": 3}
    assert await storage.delete("c2")
    assert await ids(storage) == ["c1"]
    with pytest.raises(WorkflowCheckpointException):
        await storage.load("c2")


@pytest.mark.parametrize("kind", OURS + FRAMEWORK)
async def test_a_deleted_checkpoint_is_gone_and_the_others_stay(storage: Any) -> None:
    for n in (1, 2, 3, 4):
        await storage.save(made(n, f"c{n - 1}" if n > 1 else None, n=n))
    for gone, left, latest in (("c2", ["c1", "c3", "c4"], 4), ("c4", ["c1", "c3"], 3), ("c1", ["c3"], 3), ("c3", [], None)):
        assert await storage.delete(gone) is True
        assert await storage.delete(gone) is False
        assert sorted(await ids(storage)) == left
        found = await storage.get_latest(workflow_name="flow")
        assert (found and found.state["n"]) == latest
        with pytest.raises(WorkflowCheckpointException):
            await storage.load(gone)
        for one in left:
            assert (await storage.load(one)).state == {"n": int(one[1:])}
    await storage.save(made(5, n=5))
    assert await ids(storage) == ["c5"]


@pytest.mark.parametrize("id", UNKNOWN, ids=range(len(UNKNOWN)))
@pytest.mark.parametrize("kind", OURS + FRAMEWORK)
async def test_an_unknown_id_is_refused_and_nothing_else_is_touched(storage: Any, id: str) -> None:
    await storage.save(made(1, n=1))
    errors = (
        (WorkflowCheckpointException, OSError, ValueError) if isinstance(storage, FileCheckpointStorage) else WorkflowCheckpointException
    )
    with pytest.raises(errors):  # that of files fails with an error of the file system, if the id is too long or has a null byte
        await storage.load(id)
    try:
        assert await storage.delete(id) is False
    except errors as error:
        assert isinstance(storage, FileCheckpointStorage), error  # noqa: PT017 - it refuses some of them
    assert await ids(storage) == ["c1"]


ODD_NAMES = ["order/7", "a@b", "Ünï", "a b", "a:b", "a%3Ab", "x" * 150]


@pytest.mark.parametrize("kind", [*OURS, "in memory"])
async def test_workflows_of_every_name_are_kept_apart(storage: Any) -> None:
    for n, name in enumerate(ODD_NAMES):
        await storage.save(made(n, None, name, name_=name))
    for n, name in enumerate(ODD_NAMES):
        assert await ids(storage, name) == [f"c{n}"]
        assert (await storage.load(f"c{n}")).workflow_name == name


@pytest.mark.parametrize("kind", OURS)
async def test_a_name_and_scope_never_share_a_run_with_another_name_and_scope(url: str) -> None:
    pairs = [(name, scope) for name in ("a", "a:b", "a%3Ab", "b") for scope in (None, "b", "b:c", "c", "a", "/", "é", "B")]
    with everstep.open(url) as store:
        for n, (name, scope) in enumerate(pairs):
            await CheckpointStorage(store, scope=scope).save(made(n, None, name, n=n))
        assert len(store.runs()) == len(pairs)
        for n, (name, scope) in enumerate(pairs):
            storage = CheckpointStorage(store, scope=scope)
            assert [one.state["n"] for one in await storage.list_checkpoints(workflow_name=name)] == [n]
            for other in range(len(pairs)):
                if pairs[other][1] != scope:
                    with pytest.raises(WorkflowCheckpointException):
                        await storage.load(f"c{other}")
                    assert await storage.delete(f"c{other}") is False
        assert len(store.runs()) == len(pairs)


@pytest.mark.parametrize("kind", OURS + FRAMEWORK)
async def test_fifty_tasks_save_and_read_at_once(storage: Any) -> None:
    async def one(n: int) -> None:
        name, before = f"flow{n % 10}-{n}", None
        for step in range(4):
            found = made(100 * n + step, before, name, second=step, n=n, step=step)
            before = await storage.save(found)
            assert await storage.load(before) == found
            latest = await storage.get_latest(workflow_name=name)
            assert latest == found

    await asyncio.gather(*map(one, range(50)))
    for n in range(50):
        assert len(await ids(storage, f"flow{n % 10}-{n}")) == 4


@pytest.mark.parametrize("kind", OURS)
def test_fifty_threads_with_a_loop_each_share_one_storage(url: str) -> None:
    failed: list[BaseException] = []
    with everstep.open(url) as store:
        storage = CheckpointStorage(store, scope="all")

        async def saves(n: int) -> None:
            before = None
            for step in range(4):
                found = made(100 * n + step, before, f"flow{n}", second=step, n=n, step=step)
                before = await storage.save(found)
                assert await storage.get_latest(workflow_name=f"flow{n}") == found

        def work(n: int) -> None:
            try:
                asyncio.run(saves(n))
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        assert store.verify("full").ok
        assert len(store.runs(limit=100)) == 50


@pytest.mark.parametrize("kind", OURS)
async def test_saves_of_one_workflow_at_once_are_one_history(url: str) -> None:
    with everstep.open(url) as store:
        storage = CheckpointStorage(store, strict=False)
        await storage.save(made(0, n=0))
        await asyncio.gather(*(storage.save(made(n, "c0", n=n)) for n in range(1, 51)))
        assert sorted(await ids(storage), key=lambda id: int(id[1:])) == [f"c{n}" for n in range(51)]
        for n in range(51):
            assert (await storage.load(f"c{n}")).state == {"n": n}


@pytest.mark.parametrize("kind", OURS)
async def test_a_strict_storage_lets_one_of_the_writers_on(url: str) -> None:
    with everstep.open(url) as store:
        storages = [CheckpointStorage(store) for _ in range(8)]
        await storages[0].save(made(0, n=0))
        for one in storages:
            await one.load("c0")

        async def save(n: int) -> bool:
            try:
                await storages[n].save(made(n + 1, "c0", n=n))
            except SaveFailed as failed:
                return "has moved on" in str(failed)
            return False

        assert sum(await asyncio.gather(*map(save, range(8)))) == 7
        assert len(await ids(storages[0])) == 2


def test_bad_options_are_refused(tmp_path: Path) -> None:
    store = everstep.open("memory://")
    for options, message in (
        ({"scope": ""}, "scope must be text that is not empty, got ''"),
        ({"scope": 7}, "scope must be text that is not empty, got 7"),
        ({"scope": "a", "run": "b"}, "scope and run must not be given together"),
        ({"types": [int]}, "types must be classes of data"),
        ({"types": [ValueError]}, "types must be classes of data"),
        ({"types": ["app.Order"]}, "types must be classes of data"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            CheckpointStorage(store, **options)
