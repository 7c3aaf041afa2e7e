"""Lines: appending to a run without a lease. Each situation of two writers, a driver, a crash and an unknown outcome."""

import asyncio
import random
import signal
import threading
from contextvars import copy_context
from typing import Any

import pytest

import everstep
from everstep.backends.contract.core import submit
from everstep.backends.wrap import Counted
from everstep.errors import (
    Conflict,
    IllegalTransition,
    InvalidArgument,
    LeaseHeld,
    NotFound,
    RunClosed,
    RunDeleted,
    StoreFailed,
)
from everstep.runtime.lines import ways
from everstep.runtime.lines.appender import Appender


@pytest.fixture
def store(places: Any) -> everstep.Store:
    return places.open()


def in_thread(call: Any) -> Any:
    """What a call in a thread of its own, outside of any run, returns or raises."""
    found: list[Any] = []

    def work() -> None:
        try:
            found.append(call())
        except everstep.EverstepError as error:
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return found[0]


def test_opening_and_closing_a_line_writes_nothing(store: everstep.Store) -> None:
    before = store.stats(), store.backend.manifest().writes
    with store.line("r", state={"n": 1}) as line:
        assert (line.exists, line.number, line.state) == (False, 0, {"n": 1})
        with pytest.raises(everstep.errors.RunClosed):
            everstep.current()
    assert (store.stats(), store.backend.manifest().writes) == before
    with pytest.raises(RunClosed):
        line.checkpoint()


def test_a_line_installs_no_signal_handler(store: everstep.Store) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with store.line("r") as line:
        line.checkpoint()
        assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_the_first_checkpoint_creates_a_run_that_waits(store: everstep.Store) -> None:
    given = {"n": [1]}
    line = store.line("r", state=given, workflow="graph", session="s", tags="t", note="n", meta={"k": 1})
    given["n"].append(2)
    made = line.checkpoint("first", "tag", {"m": 2})
    info = store.get("r")
    assert (made.number, made.note, made.tags, made.meta, made.kind) == (1, "first", ("tag",), {"m": 2}, "manual")
    assert (info.status, info.open, info.workflow, info.session, info.tags, info.note, info.meta) == (
        "waiting", False, "graph", "s", ("t",), "n", {"k": 1},
    )  # fmt: skip
    assert store.load("r") == {"n": [1]}
    assert store.verify("full").ok


def test_an_append_follows_the_one_before(store: everstep.Store) -> None:
    line = store.line("r")
    for n in range(60):
        line.state.setdefault("items", []).append(n)
        assert line.checkpoint().number == n + 1
    assert store.load("r@30") == {"items": list(range(30))}
    assert store.load("r") == line.state == {"items": list(range(60))}
    assert store.verify("full").ok


def test_a_state_that_is_handed_in_becomes_the_state(store: everstep.Store) -> None:
    big = [random.Random(n).randbytes(500).hex() for n in range(50)]
    store.line("r").checkpoint(state={"items": big})
    line = store.line("r")
    stored = store.get("r").stored_bytes
    line.checkpoint(state={"items": [*big, "y"]})
    assert store.get("r").stored_bytes - stored < 1000, "the first state of a new handle is compared with the stored one"
    assert store.load("r") == line.state
    line.state["items"].append("z")
    line.checkpoint()
    assert store.load("r")["items"][-2:] == ["y", "z"]
    assert store.verify("full").ok


def test_changes_made_before_another_state_is_handed_in_are_in_no_way_lost_or_doubled(store: everstep.Store) -> None:
    line = store.line("r", state={"a": [1], "b": 1})
    line.checkpoint()
    line = store.line("r")
    line.state["a"].append(2)
    line.checkpoint(state={"a": [1, 2, 3], "b": 1})
    assert store.load("r") == {"a": [1, 2, 3], "b": 1}
    assert store.verify("full").ok


def test_a_stale_writer_gets_a_conflict_with_the_newest_number(places: Any) -> None:
    one, other = places.open().line("r"), places.open().line("r")
    one.state["by"] = "one"
    one.checkpoint()
    other.state["by"] = "other"
    with pytest.raises(Conflict) as caught:
        other.checkpoint()
    assert (caught.value.number, caught.value.written) == (1, "no")
    assert (other.number, other.state) == (1, {"by": "one"}), "the handle is caught up"
    other.state["and"] = "other"
    assert other.checkpoint().number == 2
    one.state["mine"] = 1
    with pytest.raises(Conflict):
        one.checkpoint()
    assert places.open().load("r") == one.state == {"by": "one", "and": "other"}


def test_two_writers_lose_no_update(places: Any) -> None:
    def work(name: str) -> int:
        line, conflicts = places.open().line("r"), 0
        for n in range(25):
            while True:
                line.state.setdefault(name, []).append(n)
                try:
                    line.checkpoint()
                    break
                except Conflict:
                    conflicts += 1
        return conflicts

    threads = [threading.Thread(target=work, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store = places.open()
    assert store.load("r") == {"a": list(range(25)), "b": list(range(25))}
    assert store.get("r").checkpoints == 50
    assert store.verify("full").ok


def test_refresh_applies_what_others_have_appended(places: Any) -> None:
    one, store = places.open().line("r", state={"items": [{"n": n} for n in range(100)], "text": "x" * 600}), places.open()
    one.checkpoint()
    other = store.line("r")
    assert other.state == one.state
    held = other.state["items"]
    assert other.refresh() is False
    for n in range(100, 110):
        one.state["items"].append({"n": n})
        one.state["items"][0]["n"] = n
        one.state["text"] += "y"
        one.checkpoint()
    counted = store.backend = Counted(store.backend)  # type: ignore[assignment]
    assert other.refresh() is True
    assert "chunks" not in counted.calls, "nothing was loaded again"
    assert other.number == 11
    assert other.state == one.state
    assert other.state["items"] is held
    other.state["items"].pop()
    other.checkpoint()
    assert len(places.open().load("r")["items"]) == 109
    assert places.open().verify("full").ok


def test_refresh_over_many_bases_and_after_own_changes(places: Any) -> None:
    one, other = places.open().line("r", state={"items": []}), places.open().line("r")
    for n in range(130):
        one.state["items"].append("x" * 50 + str(n))
        one.checkpoint()
        if n % 7 == 0:
            other.refresh()
            assert other.state == one.state
    other.refresh()
    other.state["mine"] = 1
    one.state["last"] = 1
    one.checkpoint()
    assert other.refresh() is True
    assert other.state == one.state, "unsaved changes are dropped"
    for n in range(60):  # over the next base
        other.state["items"].append(n)
        other.checkpoint()
    assert places.open().verify("full").ok


def test_values_of_registered_types_come_back_after_a_refresh(places: Any) -> None:
    import dataclasses

    @dataclasses.dataclass
    class Point:
        x: int

    everstep.register(Point, name="lines.Point")
    one, other = places.open().line("r", state={"p": [Point(1)]}), places.open().line("r")
    one.checkpoint()
    assert other.refresh()
    assert other.state == {"p": [Point(1)]}
    one.state["p"].append(Point(2))
    one.checkpoint()
    assert other.refresh()
    assert other.state == {"p": [Point(1), Point(2)]}


def test_nothing_is_appended_while_somebody_else_drives_the_run(places: Any) -> None:
    store = places.open()
    line = store.line("r")
    line.checkpoint()
    with places.open().run("r") as run:
        run.state["by"] = "driver"
        run.checkpoint()
        for call in (line.checkpoint, lambda: line.attach(1, "a", 1), lambda: line.status("failed")):
            assert isinstance(in_thread(call), LeaseHeld)
        assert isinstance(in_thread(lambda: store.line("r").checkpoint()), LeaseHeld)
        assert run.checkpoint().number == 3, "the driver was not disturbed"
    with pytest.raises(Conflict):
        line.checkpoint()
    line.state["and"] = "line"
    line.checkpoint()
    assert store.load("r") == {"by": "driver", "and": "line"}
    assert store.get("r").status == "waiting", "it had succeeded, and has moved on"


def test_inside_a_driver_a_line_saves_through_the_lease(places: Any) -> None:
    store = places.open()
    line = store.line("r", state={"n": 0})
    line.checkpoint()
    with store.run("r") as run:
        assert line.state is run.state
        run.state["n"] = 1
        assert line.checkpoint("by the line").number == 2
        assert run.checkpoint().number == line.number == 3
        assert places.open().line("r").checkpoint(state={"n": 2}).number == 4, "another store of the same address, too"
        assert run.state == {"n": 2}
        context = copy_context()
        assert in_thread(lambda: context.run(line.checkpoint)).number == 5
        assert (line.attach(1, "a", 1), line.attach(1, "a", 2), line.attach(1, "a", 3, replace=True)) == (True, False, True)
        with pytest.raises(NotFound):
            line.attach(9, "a", 1)
        with pytest.raises(InvalidArgument):
            line.status("failed")
    assert [one.value for one in store.attached("r", 1)] == [3]
    assert store.get("r").status == "succeeded"
    assert store.verify("full").ok


def test_a_line_does_not_touch_the_journal_of_a_workflow(store: everstep.Store) -> None:
    @everstep.workflow(name="lines.flow")
    def flow() -> str:
        everstep.current().checkpoint()
        with pytest.raises(InvalidArgument):
            store.line("w").checkpoint()
        assert store.line("w").attach(1, "seen", True)
        return "done"

    assert store.start(flow, id="w").result == "done"
    for call in (store.line("w").checkpoint, lambda: store.line("w").status("failed")):
        with pytest.raises(InvalidArgument):
            call()
    assert store.line("w").attach(1, "later", 1)
    assert store.start(flow, id="w").result == "done"
    assert [one.name for one in store.attached("w")] == ["seen", "later"]


def test_a_run_whose_driver_died_waits_when_a_line_has_appended(places: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = places.open()
    with store.run("r") as run:
        run.checkpoint()
    row = store.backend.run("r")
    assert row is not None
    worker = store.keeper.worker
    store.backend.acquire("r", worker)
    chain = everstep.store.chain.Chain(store.framer, *[store.backend.run("r")] * 2, store.backend.seal)  # type: ignore[arg-type]
    chain.status(everstep.records.Status.RUNNING)
    store.backend.commit(chain.commit())
    other = places.open()
    with pytest.raises(LeaseHeld):
        other.line("r").checkpoint()
    monkeypatch.setattr(other.backend, "holder", lambda row: None)  # its process is dead
    line = other.line("r")
    line.attach(1, "a", 1)
    assert other.get("r").status == "running", "an entry changes no status"
    line.checkpoint()
    assert (other.get("r").status, other.get("r").open) == ("waiting", False)
    with pytest.raises(Conflict):  # a driver that was only slow is fenced
        store.backend.commit(everstep.store.chain.Chain(store.framer, *[chain.commit().run] * 2, store.backend.seal).commit())  # type: ignore[arg-type]


def test_statuses(store: everstep.Store) -> None:
    line = store.line("r")
    line.checkpoint()
    for word in ("succeeded", "failed", "waiting"):
        line.status(word, "because")
        assert store.get("r").status == word
    line.status("failed")
    line.checkpoint()
    assert store.get("r").status == "waiting"
    with pytest.raises(InvalidArgument):
        line.status("running")
    line.status("cancelled")
    for call in (line.checkpoint, lambda: line.status("waiting")):
        with pytest.raises(IllegalTransition):
            call()
    assert store.get("r").checkpoints == 2
    assert [event.data.get("reason") for event in store.events(run="r") if event.name == "run_succeeded"] == ["because"]


def test_a_deleted_run_is_not_made_again_by_a_handle_that_knew_it(places: Any) -> None:
    store = places.open()
    line, other = store.line("r"), store.line("r")
    line.checkpoint()
    other.refresh()
    store.delete("r")
    for call in (line.checkpoint, line.refresh, lambda: line.attach(1, "a", 1)):
        with pytest.raises(RunDeleted):
            call()
    store.line("r").checkpoint(state={"new": 1})
    with pytest.raises(Conflict):
        other.checkpoint()
    assert other.state == {"new": 1}


def test_two_handles_create_one_run_at_the_same_time(places: Any) -> None:
    one, other = places.open().line("r"), places.open().line("r")
    one.checkpoint()
    with pytest.raises(Conflict):
        other.checkpoint()
    one, other = places.open().line("s"), places.open().line("s")
    with places.open().run("s"):
        pass  # without a checkpoint: nothing was overtaken
    other.state["a"] = 1
    other.checkpoint()
    assert places.open().load("s") == {"a": 1}


def test_a_state_that_cannot_be_stored_changes_nothing(store: everstep.Store) -> None:
    line = store.line("r", state={"a": 1})
    line.checkpoint()
    line.state["bad"] = object()
    with pytest.raises(everstep.errors.Unstorable):
        line.checkpoint()
    del line.state["bad"]
    line.state["a"] = 2
    line.checkpoint()
    assert store.load("r") == {"a": 2}
    with pytest.raises(everstep.errors.Unstorable):
        line.attach(1, "a", object())
    assert store.verify("full").ok


@pytest.mark.parametrize("made", [True, False])
def test_an_unknown_outcome_is_found_out_by_the_next_checkpoint(store: everstep.Store, monkeypatch: pytest.MonkeyPatch, made: bool) -> None:
    line = store.line("r", state={"n": 1})
    line.checkpoint()
    commit = store.backend.commit

    def broken(*commits: Any) -> Any:
        if made:
            commit(*commits)
        raise StoreFailed("the answer was lost", written="unknown")

    monkeypatch.setattr(store.backend, "commit", broken)
    line.state["n"] = 2
    with pytest.raises(StoreFailed):
        line.checkpoint()
    monkeypatch.undo()
    line.state["n"] = 3
    assert line.checkpoint().number == (3 if made else 2)
    assert store.load("r") == {"n": 3}
    assert store.verify("full").ok


@pytest.mark.parametrize("made", [True, False])
def test_an_unknown_outcome_is_found_out_by_the_next_call(store: everstep.Store, monkeypatch: pytest.MonkeyPatch, made: bool) -> None:
    line = store.line("r", state={"n": 1})
    line.checkpoint()
    commit = store.backend.commit

    def broken(*commits: Any) -> Any:
        if made:
            commit(*commits)
        raise StoreFailed("the answer was lost", written="unknown")

    monkeypatch.setattr(store.backend, "commit", broken)
    line.state["n"] = 2
    with pytest.raises(StoreFailed):
        line.checkpoint()
    with pytest.raises(StoreFailed):
        line.attach(1, "a", 1)
    monkeypatch.undo()
    line.state["n"] = 3
    assert line.checkpoint().number == (3 if made else 2)
    assert line.attach(1, "a", 2) is not made
    assert store.load("r") == {"n": 3}
    assert store.verify("full").ok


def test_an_entry_of_another_writer_is_no_conflict_for_a_checkpoint(places: Any) -> None:
    one, other = places.open().line("r"), places.open().line("r")
    one.checkpoint()
    other.refresh()
    for n in range(5):
        assert one.attach(1, f"a{n}", n)
        other.state["n"] = n
        assert other.checkpoint().number == n + 2
        assert one.number == 1
    one.state["n"] = "stale"
    with pytest.raises(Conflict):
        one.checkpoint()


def test_a_checkpoint_that_an_entry_was_in_the_way_of_writes_what_has_changed_and_not_the_whole_state(places: Any) -> None:
    one, other, text = places.open(), places.open(), random.Random(1).randbytes(500).hex()
    line, attaching = one.line("r", state={"text": text, "n": 0}), other.line("r")
    line.checkpoint()
    for n in range(3):
        attaching.refresh()
        assert attaching.attach(1, f"a{n}", n)
        line.state["n"] = n + 1
        assert line.checkpoint().number == n + 2
    sizes = [len(record.body) for record in one.backend.records("r", 1, 100, ("checkpoint", "base"))]
    assert len(sizes) == 4
    assert sizes[0] > 400 > 100 > max(sizes[1:])
    assert other.load("r") == {"text": text, "n": 3}


def test_ctrl_c_right_after_the_commit_of_a_checkpoint_is_found_out_by_the_next_one(
    store: everstep.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    line = store.line("r", state={"n": 1})
    line.checkpoint()
    monkeypatch.setattr(Appender, "_has_saved", interrupted)
    line.state["n"] = 2
    with pytest.raises(KeyboardInterrupt):
        line.checkpoint()
    monkeypatch.undo()
    line.state["n"] = 3
    assert line.checkpoint().number == 3
    assert [store.load(f"r@{number}")["n"] for number in (1, 2, 3)] == [1, 2, 3]
    assert store.verify("full").ok


def test_threads_may_share_a_line(store: everstep.Store) -> None:
    line = store.line("r")
    line.checkpoint()
    threads = [threading.Thread(target=line.attach, args=(1, f"t{n}", n)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {one.name for one in store.attached("r", 1)} == {f"t{n}" for n in range(8)}


def test_hooks_hear_of_checkpoints(store: everstep.Store) -> None:
    heard: list[int] = []
    store.on("after_checkpoint", lambda event: heard.append(event.data["checkpoint"].number))
    store.line("r").checkpoint()
    assert heard == [1]


def test_redaction_masks_what_a_line_writes(places: Any) -> None:
    from everstep.redact import Redactor

    store = places.open(redaction=Redactor.default())
    line = store.line("r", state={"password": "hunter2"})
    line.checkpoint(meta={"password": "hunter2"})
    line.attach(1, "a", {"password": "hunter2"})
    line.state["n"] = 1
    line.checkpoint()
    seen = [store.load("r@1"), store.load("r"), store.attached("r"), store.checkpoint("r@1").meta]
    assert "hunter2" not in repr(seen)


def test_async_lines_do_the_same(places: Any) -> None:
    async def main() -> None:
        async with places.open() as store:
            line = await store.line("r", state={"n": 0}, workflow="w")
            (await line.state())["n"] = 1
            assert (await line.checkpoint("x")).number == line.number == 1
            other = await store.line("r")
            await other.checkpoint(state={"n": 2})
            with pytest.raises(Conflict) as caught:
                await line.checkpoint()
            assert caught.value.number == 2
            assert await line.state() == {"n": 2}
            assert [await line.attach(1, "a", 1), await other.attach(1, "a", 2)] == [True, False]
            assert sorted(await asyncio.gather(*(line.attach(2, f"t{n % 3}", n) for n in range(6)))) == [False] * 3 + [True] * 3
            await line.status("succeeded")
            async with store.run("r") as run:
                assert (await line.checkpoint("through")).number == 3
                assert await line.attach(3, "a", 1)
                assert run.number == line.number == 3
            assert await other.refresh()
            with pytest.raises(TypeError):
                await store.line("r", colour=1)
            assert (await store.verify("full")).ok

    asyncio.run(main())


def test_saves_of_many_async_lines_share_commits(places: Any) -> None:
    async def main() -> int:
        plain = places.open()
        async with plain as store:
            lines = [await store.line(f"r{n}") for n in range(50)]
            await asyncio.gather(*(line.checkpoint() for line in lines))
            before: int = plain.backend.manifest().writes
            await asyncio.gather(*(line.checkpoint() for line in lines))
            return int(plain.backend.manifest().writes - before)

    if places.kind == "sqlite":
        assert asyncio.run(main()) < 25


def test_a_cancelled_task_still_saves(places: Any) -> None:
    async def main() -> None:
        async with places.open() as store:
            line = await store.line("r")
            await line.checkpoint()
            (await line.state())["n"] = 1
            task = asyncio.create_task(line.checkpoint())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            (await line.state())["n"] = 2
            assert (await line.checkpoint()).number in (2, 3)
            assert await store.load("r") == {"n": 2}

    asyncio.run(main())


def test_a_refresh_changes_one_place_of_a_value_that_is_in_two(places: Any) -> None:
    first, second = places.open(), places.open()
    line = first.line("r", state={"a": [1]})
    line.checkpoint()
    line.state["b"] = line.state["a"]
    line.checkpoint()
    other = second.line("r")
    other.state["a"].append(2)
    other.checkpoint()
    assert line.refresh()
    assert line.state == first.load("r") == {"a": [1, 2], "b": [1]}
    for n in range(60):  # a base is among them
        line.state["n"] = n
        line.checkpoint()
    assert first.load("r") == {"a": [1, 2], "b": [1], "n": 59}
    assert first.verify("full").ok


def test_a_refresh_drops_what_was_written_past_the_methods(places: Any) -> None:
    first, second = places.open(), places.open()
    line = first.line("r", state={"deep": [{"items": [5, 6, 7]} for _ in range(40)]})
    line.checkpoint()
    line = first.line("r")
    list.insert(line.state["deep"][3]["items"], 0, 1)
    other = second.line("r")
    other.state["deep"][3]["items"][2] = 70
    other.checkpoint()
    assert line.refresh()
    assert line.state["deep"][3] == first.load("r")["deep"][3] == {"items": [5, 6, 70]}


@everstep.workflow(name="lines.waits")
def waits() -> None:
    everstep.gate("boss")


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("call", ["checkpoint", "ask", "status"])
def test_a_workflow_that_took_the_id_meanwhile_is_left_alone(places: Any, call: str, known: bool) -> None:
    first, second = places.open(), places.open()
    line = first.line("r")
    if known:
        line.checkpoint()
        second.delete("r")
    second.start(waits, id="r")
    before = second.backend.run("r")
    append = {"checkpoint": line.checkpoint, "ask": lambda: line.ask("q"), "status": lambda: line.status("succeeded")}[call]
    for _ in range(3):
        with pytest.raises((Conflict, InvalidArgument, NotFound)):
            append()
    assert second.backend.run("r") == before


def test_a_checkpoint_waits_for_one_whose_task_was_cancelled(places: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would look for the other one before it is written, and be refused."""

    def late(backend: Any, commit: Any, done: Any) -> None:
        threading.Timer(0.2, submit, (backend, commit, done)).start()

    async def main() -> None:
        async with places.open() as store:
            line = await store.line("r", state={"n": 1})
            await line.checkpoint()
            monkeypatch.setattr(ways, "submit", late)
            (await line.state())["n"] = 2
            task = asyncio.create_task(line.checkpoint())
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            monkeypatch.undo()
            (await line.state())["n"] = 3
            assert (await line.checkpoint()).number == 3
            assert [await store.load(f"r@{number}") for number in (1, 2, 3)] == [{"n": 1}, {"n": 2}, {"n": 3}]

    asyncio.run(main())
