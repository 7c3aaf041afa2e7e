"""One store for many threads and tasks; durability that lags behind; the async face."""

# ruff: noqa: PT012 -- a run that raises has a block

import asyncio
import sys
import threading
from typing import Any

import pytest

import everstep
from everstep.errors import EverstepError, LeaseHeld, NotFound, StoreFull, Unstorable
from everstep.runtime.tasks.writer import Bridge


def test_sixteen_threads_write_sixteen_runs_through_one_store(store: everstep.Store) -> None:
    errors: list[BaseException] = []

    def drive(name: str) -> None:
        try:
            with store.run(name, state={"l": []}) as run:
                for i in range(30):
                    run.state["l"].append(f"{name} {i}")
                    assert run.checkpoint().number == i + 1
                    if i % 10 == 0:
                        assert store.load(name) == run.state
                        list(store.runs(limit=5))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=drive, args=(f"run{i}",)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    for i in range(16):
        assert store.load(f"run{i}")["l"] == [f"run{i} {k}" for k in range(30)]
    assert store.verify("full").ok


def test_of_many_threads_that_want_one_run_one_gets_it(store: everstep.Store) -> None:
    outcomes: list[str] = []
    barrier, done = threading.Barrier(8), threading.Barrier(8)

    def want() -> None:
        barrier.wait()
        try:
            with store.run("r") as run:
                done.wait(10)
                run.checkpoint()
                outcomes.append("wrote")
        except LeaseHeld:
            outcomes.append("refused")
            done.wait(10)

    threads = [threading.Thread(target=want) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["refused"] * 7 + ["wrote"]
    assert store.get("r").checkpoints == 1


def test_readers_see_whole_checkpoints_while_a_writer_goes_on(store: everstep.Store) -> None:
    stop = threading.Event()
    seen: list[int] = []
    errors: list[BaseException] = []

    def read() -> None:
        try:
            while not stop.is_set():
                try:
                    state = store.load("r")
                except NotFound:
                    continue
                assert state["a"] == state["b"] == len(state["l"])
                seen.append(state["a"])
        except BaseException as error:
            errors.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    with store.run("r", state={"a": 0, "l": [], "b": 0}) as run:
        for i in range(1, 150):
            run.state["a"] = i
            run.state["l"].append("x" * 300)
            run.state["b"] = i
            run.checkpoint()
    stop.set()
    for reader in readers:
        reader.join()
    assert errors == []
    assert seen
    assert store.load("r")["a"] == 149


@pytest.mark.parametrize("durability", ["async", "exit"])
def test_what_lags_behind_is_there_after_a_flush_and_at_the_end(store: everstep.Store, durability: Any) -> None:
    with store.run("r", state={"l": []}, durability=durability) as run:
        for i in range(150):
            run.state["l"].append(i)
            assert run.checkpoint(tags=[f"t{i}"] if i % 50 == 0 else ()).number == i + 1
        run.flush()
        assert store.get("r").checkpoints == 150
        assert store.load("r") == {"l": list(range(150))}
        run.state["l"].append("last")
        run.checkpoint()
    assert store.load("r")["l"][-1] == "last"
    assert store.load("r@7") == {"l": list(range(7))}
    assert store.load("r@t50") == {"l": list(range(51))}
    assert store.verify("full").ok


def test_with_exit_nothing_is_written_before_the_end(store: everstep.Store) -> None:
    with store.run("r", durability="exit") as run:
        for i in range(10):
            run.state["i"] = i
            run.checkpoint()
        assert store.get("r").checkpoints == 0
    assert store.get("r").checkpoints == 10


def test_exit_flushes_by_itself_before_it_becomes_too_much(store: everstep.Store) -> None:
    with store.run("r", durability="exit") as run:
        for i in range(1500):
            run.state["i"] = i
            run.checkpoint()
        assert 1000 <= store.get("r").checkpoints < 1500
    assert store.load("r") == {"i": 1499}


def test_an_error_of_a_lagging_write_is_raised_and_not_lost(store: everstep.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    original = store.backend.submit
    fail = False

    def submit(commit: Any, done: Any) -> None:
        done(StoreFull("full")) if fail else original(commit, done)

    monkeypatch.setattr(store.backend, "submit", submit)
    with pytest.raises(StoreFull), store.run("r", durability="async") as run:
        run.state["a"] = 1
        run.checkpoint()
        run.flush()
        fail = True
        run.state["a"] = 2
        run.checkpoint()
        with pytest.raises(StoreFull):
            run.flush()
        with pytest.raises(StoreFull):
            run.checkpoint()
    assert store.load("r") == {"a": 1}
    fail = False
    with store.run("r") as run:
        assert run.state == {"a": 1}
    assert store.verify("full").ok


def test_async_with_gives_the_same_handles(store: everstep.Store) -> None:
    async def work() -> None:
        async with store.run("r", state={"l": []}) as run:
            assert run.id == "r"
            assert run.number == 0
            for i in range(20):
                run.state["l"].append(i)
                checkpoint = await run.checkpoint(note=f"n{i}", tags=["t"], meta={"i": i})
                assert checkpoint.number == i + 1
            run.state = {"other": run.state["l"]}
            await run.checkpoint()
            await run.checkpoint(state={"handed": "in"})
            await run.flush()
            assert run.number == 22

    asyncio.run(work())
    assert store.load("r@20") == {"l": list(range(20))}
    assert store.load("r") == {"handed": "in"}
    assert store.get("r").status == "succeeded"
    assert not store.get("r").open


def test_a_task_that_fails_leaves_a_failed_run(store: everstep.Store) -> None:
    async def work() -> None:
        async with store.run("r") as run:
            await run.checkpoint()
            raise ValueError("no")

    with pytest.raises(ValueError):
        asyncio.run(work())
    assert store.get("r").status == "failed"


def test_two_hundred_tasks_share_a_store(store: everstep.Store) -> None:
    async def drive(i: int) -> None:
        async with store.run(f"task{i}", state={"i": i, "l": []}) as run:
            for k in range(4):
                run.state["l"].append(k)
                await run.checkpoint()

    async def main() -> None:
        await asyncio.gather(*(drive(i) for i in range(200)))

    asyncio.run(asyncio.wait_for(main(), 60))
    assert store.stats()["runs"] == 200
    for i in range(0, 200, 17):
        assert store.load(f"task{i}") == {"i": i, "l": [0, 1, 2, 3]}
    assert store.verify("records").ok


def test_the_loop_is_not_blocked_while_a_save_waits(store: everstep.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    original = store.backend.submit
    gate = threading.Event()

    def slow(commit: Any, done: Any) -> None:
        threading.Thread(target=lambda: (gate.wait(5), original(commit, done))).start()

    async def work() -> None:
        async with store.run("r") as run:
            monkeypatch.setattr(store.backend, "submit", slow)
            run.state["a"] = 1
            saving = asyncio.create_task(run.checkpoint())
            ticks = 0
            while not saving.done() and ticks < 5:
                await asyncio.sleep(0.005)
                ticks += 1
            assert ticks == 5
            assert not saving.done()
            gate.set()
            await saving

    asyncio.run(work())
    assert store.load("r") == {"a": 1}


def test_a_cancelled_task_leaves_a_whole_store_and_the_save_still_takes_place(
    store: everstep.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = store.backend.submit
    gate = threading.Event()

    def slow(commit: Any, done: Any) -> None:
        threading.Thread(target=lambda: (gate.wait(5), original(commit, done))).start()

    async def drive() -> None:
        async with store.run("r") as run:
            run.state["a"] = 1
            await run.checkpoint()
            monkeypatch.setattr(store.backend, "submit", slow)
            run.state["a"] = 2
            try:
                await run.checkpoint()
            finally:
                gate.set()
                while store.get("r").checkpoints < 2:
                    await asyncio.sleep(0.001)

    async def main() -> None:
        task = asyncio.create_task(drive())
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert store.load("r") == {"a": 2}
    assert not store.get("r").open
    assert store.verify("full").ok
    with store.run("r") as run:
        run.state["a"] = 3
        run.checkpoint()


def test_an_async_refusal_leaves_the_head_and_the_handle(store: everstep.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    original = store.backend.submit
    error: EverstepError | None = None

    def submit(commit: Any, done: Any) -> None:
        done(error) if error else original(commit, done)

    monkeypatch.setattr(store.backend, "submit", submit)

    async def work() -> None:
        nonlocal error
        async with store.run("r", state={"l": [1]}) as run:
            await run.checkpoint()
            run.state["l"].append(print)
            with pytest.raises(Unstorable):
                await run.checkpoint()
            run.state["l"].pop()
            run.state["l"].append(2)
            error = StoreFull("full")
            with pytest.raises(StoreFull):
                await run.checkpoint()
            assert store.load("r") == {"l": [1]}
            error = None
            run.state["l"].append(3)
            assert (await run.checkpoint()).number == 2

    asyncio.run(work())
    assert store.load("r") == {"l": [1, 2, 3]}
    assert store.verify("full").ok


def test_an_async_store_awaits_what_reads(places: Any) -> None:
    async def work() -> None:
        async with places.open() as store:
            async with store.run("r", state={"a": 1}) as run:
                await run.checkpoint()
                run.state["a"] = 2
                await run.checkpoint()
            assert await store.load("r") == {"a": 2}
            assert [info.id for info in await store.runs()] == ["r"]
            assert [c.number for c in await store.checkpoints("r")] == [2, 1]
            assert (await store.fork("r@1", "child")).parent == "r"
            assert len(await store.diff("r@1", "r")) == 1
            await store.tag("r", "t")
            assert (await store.verify("full")).ok
            assert (await store.get("child")).id == "child"
            assert (await store.stats())["runs"] == 2
            await store.delete("child")
            with pytest.raises(NotFound):
                await store.load("child")

    asyncio.run(work())


class Outcome:
    """Stands for a save that waits for the writer."""

    def __init__(self, future: "asyncio.Future[None]"):
        self.future = future

    def settled(self, error: BaseException | None) -> None:
        self.future.set_result(None)


@pytest.mark.parametrize("line", range(1, 6))
def test_no_outcome_is_lost_between_the_writer_and_the_loop(line: int) -> None:
    """While the writer hands over its second outcome, at each of its lines in turn, the loop gets to deliver the first."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        bridge = Bridge(loop)
        busy, idle = threading.Event(), threading.Event()
        futures = [loop.create_future() for _ in range(2)]

        def settle() -> None:
            bridge.settle(Outcome(futures[0]), None)  # type: ignore[arg-type]
            lines = 0

            def trace(frame: Any, event: str, argument: Any) -> Any:
                nonlocal lines
                if frame.f_code is not Bridge.settle.__code__:
                    return None
                lines += event == "line"
                if lines == line and event == "line":
                    busy.set()
                    loop.call_soon_threadsafe(idle.set)
                    idle.wait(0.05)
                return trace

            sys.settrace(trace)
            bridge.settle(Outcome(futures[1]), None)  # type: ignore[arg-type]
            sys.settrace(None)
            busy.set()

        writer = threading.Thread(target=settle)
        loop.call_soon(lambda: (writer.start(), busy.wait(5)))
        await asyncio.wait_for(asyncio.gather(*futures), 3)
        writer.join()

    asyncio.run(main())


def test_a_save_that_fails_after_its_task_was_cancelled_and_its_run_left_disturbs_nobody(
    store: everstep.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = store.backend.submit
    waiting: list[Any] = []

    async def main() -> None:
        async def cancelled() -> None:
            async with store.run("gone") as run:
                monkeypatch.setattr(store.backend, "submit", lambda commit, done: waiting.append(done))
                try:
                    await run.checkpoint()
                finally:
                    monkeypatch.setattr(store.backend, "submit", original)

        async with store.run("other", state={"a": 1}) as other:
            task = asyncio.create_task(cancelled())
            while not waiting:
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises((asyncio.CancelledError, EverstepError)):
                await task
            problems: list[Any] = []
            asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))
            waiting[0](StoreFull("full"))
            await asyncio.wait_for(other.checkpoint(), 5)
            assert problems == []

    asyncio.run(main())
    assert store.load("other") == {"a": 1}
