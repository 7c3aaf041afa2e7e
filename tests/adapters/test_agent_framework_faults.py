"""What goes wrong around a workflow: a second process, a run of someone else, a damaged or changed checkpoint, a store that fails."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from killed import Ledger

import everstep

pytest.importorskip("agent_framework", reason="agent-framework-core is not installed: pip install 'everstep[dev-adapters]'")

import agent_framework_program as program
import agent_framework_writer
from agent_framework import Executor, WorkflowBuilder, WorkflowCheckpoint, WorkflowCheckpointException, WorkflowContext, handler

from everstep.adapters.agent_framework import CheckpointStorage
from everstep.errors import Conflict, EverstepError, InvalidArgument, SaveFailed

COUNT = 20


def start(url: str, name: str) -> subprocess.Popen[str]:
    paths = [str(Path(everstep.__file__).parents[1]), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    command = [sys.executable, str(agent_framework_writer.__file__), url, name, str(COUNT)]
    return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)}, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("where", ["sqlite", "postgres"])
def test_two_processes_on_one_scope_lose_nothing_silently(request: pytest.FixtureRequest, tmp_path: Path, where: str) -> None:
    url = request.getfixturevalue("place") if where == "postgres" else str(tmp_path / "s.db")
    everstep.open(url).close()
    with everstep.open(url) as store:  # both begin with the same checkpoint: otherwise each would start the workflow
        asyncio.run(agent_framework_writer.write(CheckpointStorage(store, scope="all"), "z", 1))
    running = [start(url, name) for name in "xy"]
    out = [one.communicate(timeout=120)[0] for one in running]
    assert [one.returncode for one in running] == [0, 0]
    with everstep.open(url) as store:
        said = store.load("shared:all")["state"]["said"]
        for name in "xy":
            assert [one for one in said if one[0] == name] == [f"{name}{n}" for n in range(COUNT)]
        assert len(said) == 2 * COUNT + 1
        assert store.get("shared:all").checkpoints == len(said), f"a save was made twice or not at all: {out}"
        assert store.verify("full").ok


async def test_two_processes_that_continue_one_workflow_make_one_history(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db") as one, everstep.open(tmp_path / "s.db") as two:
        storages = [program.Acknowledging(store, tmp_path / f"saved-{n}") for n, store in enumerate((one, two))]
        workflows = [program.build(storage, Ledger(tmp_path / "ledger")) for storage in storages]
        await workflows[0].run(program.Message("user", ["Book a trip"]))
        latest = await storages[1].get_latest(workflow_name="trip")
        answers = dict.fromkeys(latest.pending_request_info_events, True)
        await workflows[1].run(checkpoint_id=latest.checkpoint_id, responses=answers)
        with pytest.raises(SaveFailed) as caught:
            await workflows[0].run(responses=answers)
        assert isinstance(caught.value.error, Conflict)
        assert one.load("trip:ann%40example.com")["state"]["booked"] == "Rome"
        assert one.verify("full").ok


@pytest.mark.parametrize("run", ["trip", "trip:7"])
async def test_a_run_of_someone_else_is_refused_and_stays_as_it_is(run: str) -> None:
    with everstep.open("memory://") as store:
        with store.run(run, state={"mine": 1}) as opened:
            opened.checkpoint()
        before = store.get(run)
        storage = CheckpointStorage(store, scope=run.partition(":")[2] or None)
        with pytest.raises(SaveFailed, match="is not a workflow of Agent Framework: it has no workflow") as caught:
            await storage.save(WorkflowCheckpoint("trip", "h"))
        assert isinstance(caught.value.error, InvalidArgument)
        for call in (storage.get_latest, storage.list_checkpoints, storage.list_checkpoint_ids, storage.responses):
            with pytest.raises(InvalidArgument, match="is not a workflow of Agent Framework"):
                await call(workflow_name="trip")
        assert store.load(run) == {"mine": 1}
        assert store.get(run) == before


BROKEN: list[tuple[str, Any, str]] = [
    ("messages", {"a": [{"@": "new", "x": 1}]}, "it holds a value of kind 'new'.*Upgrade Everstep"),
    ("state", {"x": {"@": "object", "type": "os.system", "fields": {}}}, "value of type os.system, which this storage does not restore"),
    ("state", {"x": {"@": "object", "type": "agent_framework.Executor", "fields": {}}}, "value of type agent_framework.Executor"),
    ("state", {"x": {"@": "object"}}, "KeyError"),
    ("state", {"x": {"@": "type", "name": "subprocess.Popen"}}, "value of type subprocess.Popen"),
    (
        "state",
        {"x": {"@": "object", "type": "agent_framework._workflows._agent_executor.AgentExecutorRequest", "fields": 7}},
        "AttributeError",
    ),
    ("state", 7, "TypeError"),
    ("messages", {"a": [{"@": "user"}]}, "KeyError: 'content'"),
    ("$agent_framework", {"version": "1.0"}, "KeyError"),
]


@pytest.mark.parametrize(("key", "value", "message"), BROKEN, ids=range(len(BROKEN)))
async def test_a_state_that_was_changed_by_hand_is_an_error_that_names_it(key: str, value: Any, message: str) -> None:
    with everstep.open("memory://") as store:
        storage = CheckpointStorage(store)
        await storage.save(WorkflowCheckpoint("trip", "h", checkpoint_id="c1", state={"n": 1}))
        with store.line("trip") as line:
            line.checkpoint(state={**line.state, key: value}, meta={"checkpoint_id": "c2"})
        with pytest.raises(WorkflowCheckpointException, match=f"run 'trip' cannot be restored: .*{message}"):
            await storage.load("c2")
        with pytest.raises(WorkflowCheckpointException, match="run 'trip' cannot be restored"):
            await storage.get_latest(workflow_name="trip")
        assert (await storage.load("c1")).state == {"n": 1}


def flip(path: Path, text: bytes) -> None:
    """Change one byte of a stored text, in the file and in the log beside it."""
    found = 0
    for file in (path, path.with_name(path.name + "-wal")):
        if file.exists():
            data = file.read_bytes()
            found += data.count(text)
            file.write_bytes(data.replace(text, bytes([text[0] ^ 1]) + text[1:]))
    assert found


async def test_a_damaged_checkpoint_is_an_error_and_never_a_wrong_state(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db") as store:
        storage = CheckpointStorage(store)
        previous = None
        for n in range(3):
            previous = await storage.save(WorkflowCheckpoint("trip", "h", f"c{n}", previous, state={"x": f"unmistakable-{n}"}))
    flip(tmp_path / "s.db", b"unmistakable-2")
    with everstep.open(tmp_path / "s.db") as store:
        storage = CheckpointStorage(store)
        for read in (storage.get_latest, storage.list_checkpoints):
            with pytest.raises(EverstepError, match="trip"):
                await read(workflow_name="trip")
        with pytest.raises(EverstepError, match="trip"):
            await storage.load("c2")
        with pytest.raises(SaveFailed):
            await storage.save(WorkflowCheckpoint("trip", "h", "c3", "c2", state={"x": 1}))
        assert not store.verify("full").ok


async def test_a_workflow_of_another_shape_does_not_continue_a_checkpoint(tmp_path: Path) -> None:
    with everstep.open("memory://") as store:
        storage = program.Acknowledging(store, tmp_path / "saved")
        await program.build(storage, Ledger(tmp_path / "ledger")).run(program.Message("user", ["Book a trip"]))
        latest = await storage.get_latest(workflow_name="trip")
        other = WorkflowBuilder(
            name="trip", start_executor=program.Reporter(Ledger(tmp_path / "ledger")), checkpoint_storage=storage
        ).build()
        with pytest.raises(WorkflowCheckpointException, match="graph"):
            await other.run(checkpoint_id=latest.checkpoint_id)
        assert (await storage.get_latest(workflow_name="trip")).checkpoint_id == latest.checkpoint_id


class Broken(Executor):
    """An executor whose state cannot be stored from the second superstep on."""

    turns = 0

    @handler
    async def work(self, n: int, ctx: WorkflowContext[int]) -> None:
        self.turns += 1
        if n:
            await ctx.send_message(n - 1)

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"socket": object() if self.turns > 1 else None}


@pytest.mark.parametrize("strict", [True, False])
async def test_a_save_that_fails_stops_the_workflow_or_is_only_noted(strict: bool, caplog: pytest.LogCaptureFixture) -> None:
    with everstep.open("memory://") as store:
        storage, executors = CheckpointStorage(store, strict=strict), [Broken("a"), Broken("b")]
        made = WorkflowBuilder(name="trip", start_executor=executors[0], checkpoint_storage=storage)
        workflow = made.add_edge(*executors).add_edge(*reversed(executors)).build()
        if strict:
            with pytest.raises(SaveFailed, match=r"not saved, so the workflow stops: executors.a.socket is of type builtins.object"):
                await workflow.run(5)
        else:
            await workflow.run(5)
        assert "of run 'trip' was not saved: executors.a.socket is of type" in caplog.text
        assert storage.failed is not None
        latest = await storage.get_latest(workflow_name="trip")
        assert latest is not None
        assert latest.iteration_count == 2
        assert sum(one.turns for one in executors) == (3 if strict else 6)
        assert store.verify("full").ok


class Passing(Executor):
    @handler
    async def work(self, n: int, ctx: WorkflowContext[int]) -> None:
        if n:
            await ctx.send_message(n - 1)


class Stubborn(Executor):
    turns = 0

    @handler
    async def work(self, n: int, ctx: WorkflowContext[int]) -> None:
        self.turns += 1
        if n:
            await ctx.send_message(n - 1)

    async def on_checkpoint_save(self) -> dict[str, Any]:
        if self.turns == 1:
            raise RuntimeError("not now")
        return {"turns": self.turns}


async def test_an_executor_that_does_not_give_its_state_costs_checkpoints_and_no_state() -> None:
    with everstep.open("memory://") as store:
        storage, executors = CheckpointStorage(store), [Stubborn("a"), Passing("b")]
        made = WorkflowBuilder(name="trip", start_executor=executors[0], checkpoint_storage=storage)
        await made.add_edge(*executors).add_edge(*reversed(executors)).build().run(4)
        stored = await storage.list_checkpoints(workflow_name="trip")
        assert [one.iteration_count for one in stored] == [0, 3, 4, 5]  # the framework has not called the storage
        assert stored[1].previous_checkpoint_id == stored[0].checkpoint_id
        assert stored[-1].state["_executor_state"]["a"] == {"turns": 3}
        assert store.verify("full").ok


def test_a_version_that_is_too_old_or_too_new_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from everstep.adapters.agent_framework import version

    for found, message in (("1.22.9", "needs agent-framework-core 1.23 or newer, found 1.22.9"), ("0.9", "found 0.9: pip install")):
        monkeypatch.setattr(version, "version", lambda _, found=found: found)
        with pytest.raises(ImportError, match=message):
            version.check()
    monkeypatch.setattr(version, "version", lambda _: "1.24.0")
    with pytest.warns(UserWarning, match=r"1\.24\.0 is newer than the versions"):
        version.check()
