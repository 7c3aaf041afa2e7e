"""States with unusual keys, damaged rows, and work that is cancelled or interrupted halfway."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

import everstep
from everstep.codec.kinds import _by_name, _by_type
from everstep.codec.values import encode
from everstep.errors import DamagedRun, StoreClosed
from everstep.records import Tag
from everstep.runtime.run import attempt_of
from everstep.snapshot import saver, tree


@pytest.mark.parametrize("key", [float("nan"), (1, float("nan")), Decimal("NaN")])
@pytest.mark.parametrize("plain", [True, False])
def test_a_key_that_is_not_equal_to_itself_is_kept_through_every_change(store: everstep.Store, plain: bool, key: Any) -> None:
    with store.run("r", state={"d": {1: 1}}) as run:
        mine = run.state["d"]
        if plain:
            run.state["d"] = mine = {}
        mine[key] = [1]
        for change in (lambda: mine[key].append(2), lambda: mine.update(x=1), lambda: mine.__setitem__(key, "y"), lambda: mine.pop(key)):
            run.checkpoint()
            assert encode(store.load("r")) == encode(run.state)
            change()
        run.checkpoint()
        assert encode(store.load("r")) == encode(run.state)


@pytest.mark.parametrize(
    ("one", "other"), [(0.0, -0.0), ((1,), (True,)), (Decimal("1.0"), Decimal("1.00")), (frozenset({1}), frozenset({True})), (1, True)]
)
def test_a_key_that_gave_way_to_an_equal_one_of_another_kind_is_saved(store: everstep.Store, one: Any, other: Any) -> None:
    with store.run("r") as run:
        run.state["d"] = mine = {one: "x", "more": 1}
        run.checkpoint()
        mine.clear()
        mine.update({other: "x", "more": 1})
        run.checkpoint()
    assert encode(store.load("r")) == encode({"d": {other: "x", "more": 1}})


def test_a_damaged_tag_is_an_error_and_not_an_older_checkpoint(store: everstep.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with store.run("r", state={"n": 0}) as run:
        for n in range(4):
            run.state["n"] = n
            run.checkpoint(tags="good" if n in (1, 3) else ())
    assert store.load("r@good") == {"n": 3}
    tags = store.backend.tags("r")
    bad = [Tag(t.key, t.name, t.number, t.at + (t.number == 4), t.check) for t in tags]
    monkeypatch.setattr(store.backend, "tags", lambda run, first=None, last=None, name=None: bad)
    with pytest.raises(DamagedRun, match="tag"):
        store.load("r@good")
    assert store.load("r@4") == {"n": 3}


def test_a_view_shows_changes_inside_a_large_object_of_an_unknown_type(store: everstep.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass
    class Big:
        items: list[str]
        n: int = 0

    everstep.register(Big, name="test:big")
    big = Big(["long text " * 20] * 500)
    monkeypatch.setattr(saver, "BASE_EVERY", 1)
    with store.run("r") as run:
        run.checkpoint(state=big)
        monkeypatch.setattr(saver, "BASE_EVERY", 100)
        big.n = 7
        big.items[3] = "changed"
        run.checkpoint(state=big)
    assert store.view("r") == big
    del _by_name["test:big"], _by_type[Big]
    assert store.view("r").fields["n"] == store.load("r").fields["n"] == 7
    assert store.view("r").fields["items"][3] == "changed"


def test_a_damaged_chunk_is_healed_by_a_save_of_the_same_content(store: everstep.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "INLINE", 64)
    monkeypatch.setattr(saver, "BASE_EVERY", 1)
    with store.run("r") as run:
        run.state["l"] = [f"item {n}" for n in range(500)]
        run.checkpoint()
        row = store.backend.run("r")
        assert row is not None
        digest, *_ = store.backend.chunk_sizes(row.family)
        good = store.backend.chunks(row.family, [digest])[digest]
        from everstep.backends.contract.core import Commit

        broken = row.sealed(updated_at=row.updated_at + 1)
        store.backend.commit(Commit(broken, row, (), ((digest, bytes([good[0] ^ 255]) + good[1:]),)))
        assert not store.verify("full").ok
        healed = broken.sealed(updated_at=row.updated_at + 2)
        store.backend.commit(Commit(healed, broken, (), ((digest, good),)))
        assert store.verify("full").ok
        attempt_of(run).row = healed


def test_a_task_that_is_cancelled_while_it_opens_a_run_leaves_no_lease(store: everstep.Store) -> None:
    async def main() -> None:
        task = asyncio.ensure_future(opened())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(200):
            await asyncio.sleep(0.01)
            if (row := store.backend.run("r")) is not None and row.epoch and row.worker is None:
                return
        raise AssertionError("the lease is still held")

    async def opened() -> None:
        async with store.run("r"):
            await asyncio.sleep(10)

    asyncio.run(main())
    with store.run("r") as run:
        run.checkpoint()


def test_a_store_that_was_closed_under_a_deferred_save_does_not_hang_the_end_of_its_run() -> None:
    store = everstep.open("memory://")
    run = store.run("r", durability="async")
    run.__enter__()
    store.close()
    with pytest.raises(StoreClosed):
        run.checkpoint()

    def leave() -> None:
        with pytest.raises(StoreClosed):
            run.__exit__(None, None, None)

    end = threading.Thread(target=leave)
    end.start()
    end.join(10)
    assert not end.is_alive()


def test_verify_raises_no_false_alarm_beside_a_writer(store: everstep.Store) -> None:
    stop = threading.Event()

    def write() -> None:
        with store.run("w", state={"n": 0}) as run:
            while not stop.is_set():
                run.state["n"] += 1
                run.checkpoint(tags="t")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        reports = [store.verify(depth) for _ in range(15) for depth in ("quick", "records")]
    finally:
        stop.set()
        writer.join()
    assert [problem for report in reports for problem in report.problems] == []


def test_ctrl_c_in_the_encoder_is_ctrl_c(store: everstep.Store) -> None:
    class Slow:
        pass

    def interrupted(_: Slow) -> dict[str, Any]:
        raise KeyboardInterrupt

    everstep.register(Slow, name="test:slow", encode=interrupted, decode=lambda fields: Slow())
    with store.run("r", state={"n": 1}) as run:
        run.checkpoint()
        run.state["x"] = Slow()
        with pytest.raises(KeyboardInterrupt):
            run.checkpoint()
        del run.state["x"]
        run.state["n"] = 2
        run.checkpoint()
    assert store.load("r") == {"n": 2}
    del _by_name["test:slow"], _by_type[Slow]
