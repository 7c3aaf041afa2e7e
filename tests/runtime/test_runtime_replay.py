"""Replay in its three modes, resuming from a step, forks; many steps at once."""

import asyncio
import random
import threading
from typing import Any

import pytest
from runtime_driver import Crash, Driver, addresses, kinds

import everstep
from everstep import every
from everstep.errors import InvalidArgument, NotFound


def chain(d: Driver, ran: list[str], policy: Any = None, fail: list[str] | None = None) -> Any:
    """A workflow of five steps, each of which needs the one before."""

    def work_on(name: str, before: str) -> str:
        ran.append(name)
        if fail and name in fail:
            raise ValueError(name)
        return before + name

    @d.workflow(name="chain", policy=policy)
    async def work() -> str:
        run, got = d.run, ""
        for name in "abcde":
            got = await run.step(name, d.plain(work_on), name, got)
            run.state[name] = got
        return got

    return work


# validate


def test_validation_runs_everything_reports_what_differs_and_writes_nothing(store: everstep.Store, d: Driver) -> None:
    factor, ran = [1], []

    def compute(x: int) -> int:
        ran.append(x)
        return x * factor[0]

    @d.workflow
    async def work() -> list[int]:
        run = d.run
        run.now()
        got = [await run.step("same", d.plain(lambda: 5)), await run.step("compute", d.plain(compute), 3)]
        run.emit("said", n=1)
        await run.checkpoint()
        return got

    store.start(work, id="r").unwrap()
    before, row = store.events(), store.backend.run("r")
    clean = store.resume("r", replay="validate")
    assert (clean.report.differences, clean.report.executed, clean.status) == ([], 2, "succeeded")
    factor[0] = 2
    out = store.resume("r", replay="validate")
    (found,) = out.report.differences
    assert (found.address, found.recorded, found.now) == ("compute#0", "3", "6")
    assert "compute#0: recorded 3, now 6" in str(out.report)
    assert ran == [3, 3, 3]
    assert store.events() == before
    assert store.backend.run("r") == row
    assert not store.get("r").open


def test_validation_compares_errors_nested_steps_and_a_run_that_is_not_finished(store: everstep.Store, d: Driver) -> None:
    mood = ["bad"]

    def fail() -> str:
        if mood[0] == "bad":
            raise ValueError("x")
        return "fine"

    async def outer() -> str:
        try:
            return await d.run.step("inner", d.plain(fail))
        except ValueError:
            return "handled"

    @d.workflow
    async def work() -> str:
        got = await d.run.step("outer", d.plain(outer))
        await d.gate("ok")
        return got

    store.start(work, id="r")
    head = store.backend.run("r")
    assert store.resume("r", replay="validate").report.differences == []
    mood[0] = "good"
    out = store.resume("r", replay="validate")
    assert [x.address for x in out.report.differences] == ["outer#0/inner#0"]  # the outer step got the recorded failure
    assert out.status == "differs"
    assert store.backend.run("r") == head
    store.answer("r", "ok", 1)
    assert store.resume("r").unwrap() == "handled"


def test_validation_of_a_failed_run_changes_nothing(store: everstep.Store, d: Driver) -> None:
    ran: list[str] = []
    flow = chain(d, ran, fail=["c"])
    store.start(flow, id="r")
    head = store.backend.run("r")
    out = store.resume("r", replay="validate")
    assert out.status == "failed"
    assert store.backend.run("r") == head
    assert out.report.differences == []


# republish


def test_republishing_tells_hooks_again_what_was_recorded_and_flags_it(store: everstep.Store, d: Driver) -> None:
    ran: list[str] = []
    flow = chain(d, ran, policy=every(steps=2))
    heard: list[tuple[str, Any, bool]] = []
    store.on("after_step", lambda e: heard.append(("step", e.data["step"], e.replayed)))
    store.on("after_checkpoint", lambda e: heard.append(("checkpoint", None, e.replayed)))
    store.start(flow, id="r").unwrap()
    live = [h for h in heard if h[0] == "step"]
    assert [h[1:] for h in live] == [(f"{n}#0", False) for n in "abcde"]
    heard.clear()
    store.resume("r").unwrap()
    assert heard == []
    store.resume("r", replay="republish").unwrap()
    again = [h for h in heard if h[2]]
    assert [h[1] for h in again if h[0] == "step"] == [f"{n}#0" for n in "abcde"]
    assert [h for h in heard if h[0] == "step" and not h[2]] == []
    assert len([h for h in again if h[0] == "checkpoint"]) == 3
    assert ran == list("abcde")


def test_a_normal_resume_publishes_only_what_is_new(store: everstep.Store, d: Driver) -> None:
    ran: list[str] = []
    fail = ["d"]
    flow = chain(d, ran, fail=fail)
    store.start(flow, id="r")
    fail.clear()
    heard: list[str] = []
    for name in ("before_step", "after_step"):
        store.on(name, lambda e, name=name: heard.append(f"{name} {e.data['step']}"))
    store.resume("r").unwrap()
    assert heard == ["before_step d#0", "after_step d#0", "before_step e#0", "after_step e#0"]


# from a step


@pytest.mark.parametrize("name", list("abcde"))
def test_from_a_step_on_everything_runs_again_on_a_fork_and_the_parent_stays(store: everstep.Store, d: Driver, name: str) -> None:
    ran: list[str] = []
    flow = chain(d, ran, policy=every(steps=2))
    store.start(flow, id="r").unwrap()
    head, listed = store.backend.run("r"), store.steps("r")
    ran.clear()
    out = store.resume("r", from_step=f"{name}#0")
    assert out.unwrap() == "abcde"
    assert out.run != "r"
    assert ran == list("abcde"["abcde".index(name) :])
    assert (out.report.kept, out.report.executed) == ("abcde".index(name), 5 - "abcde".index(name))
    assert store.backend.run("r") == head
    assert store.steps("r") == listed
    assert addresses(store, out.run) == [f"{n}#0" for n in "abcde"]
    info = store.get(out.run)
    assert (info.parent, info.status, info.workflow) == ("r", "succeeded", "chain")


def test_from_a_nested_step_only_what_comes_after_it_inside_runs_again(store: everstep.Store, d: Driver) -> None:
    ran: list[str] = []

    async def outer() -> None:
        for name in "xyz":
            await d.run.step(name, d.plain(ran.append), name)

    @d.workflow
    async def work() -> None:
        await d.run.step("outer", d.plain(outer))

    store.start(work, id="r").unwrap()
    ran.clear()
    store.resume("r", from_step="outer#0/y#0").unwrap()
    assert ran == ["y", "z"]


def test_from_a_step_that_is_not_there_names_those_that_are(store: everstep.Store, d: Driver) -> None:
    store.start(chain(d, []), id="r")
    with pytest.raises(NotFound) as found:
        store.resume("r", from_step="nope#0")
    assert "a#0" in found.value.remedy
    assert len(store.runs()) == 1


def test_from_a_failed_step_of_a_failed_run(store: everstep.Store, d: Driver) -> None:
    ran: list[str] = []
    fail = ["c"]
    flow = chain(d, ran, fail=fail)
    store.start(flow, id="r")
    fail.clear()
    ran.clear()
    assert store.resume("r", from_step="c#0").unwrap() == "abcde"
    assert ran == list("cde")
    assert store.get("r").status == "failed"


def test_from_a_gate_it_is_asked_again_on_the_fork(store: everstep.Store, d: Driver) -> None:
    @d.workflow
    async def work() -> Any:
        return await d.gate("ok")

    store.start(work, id="r")
    store.answer("r", "ok", "first")
    store.resume("r").unwrap()
    out = store.resume("r", from_step="ok#0")
    assert out.status == "waiting"
    store.answer(out.run, "ok", "second")
    assert store.resume(out.run).unwrap() == "second"
    assert store.resume("r").unwrap() == "first"


# forks


def test_a_workflow_forked_at_each_checkpoint_keeps_what_came_before_and_runs_the_rest(store: everstep.Store, d: Driver) -> None:
    ran: list[str] = []
    store.start(chain(d, ran, policy=every(steps=1)), id="r").unwrap()
    numbers = [c.number for c in reversed(store.checkpoints("r"))]
    assert numbers == [1, 2, 3, 4, 5, 6]
    for number in numbers:
        ran.clear()
        fork = store.fork(f"r@{number}")
        assert (fork.parent, fork.parent_number, fork.status) == ("r", number, "waiting")
        assert store.load(fork.id) == store.load(f"r@{number}")
        out = store.resume(fork.id)
        assert out.unwrap() == "abcde"
        assert ran == list("abcde")[number:]


def test_a_workflow_forked_with_an_edit_at_its_own_checkpoint_goes_on_with_the_edited_state(store: everstep.Store, d: Driver) -> None:
    ran: list[str] = []

    @d.workflow
    async def work() -> str:
        run = d.run
        run.state["topic"] = await run.step("plan", d.plain(lambda: ran.append("plan") or "logs"))
        await run.checkpoint("planned")
        return await run.step("write", d.plain(lambda topic: f"about {topic}"), run.state["topic"])

    assert store.start(work, id="r").unwrap() == "about logs"
    fork = store.fork("r@1", id="f", edit={"topic": "forks"})
    assert store.resume(fork.id).unwrap() == "about forks"
    assert ran == ["plan"]
    assert store.resume("r").unwrap() == "about logs"


def test_the_name_that_a_workflow_gave_to_its_state_sees_the_edit_of_a_fork(store: everstep.Store, d: Driver) -> None:
    @d.workflow
    async def work() -> list[Any]:
        run = d.run
        state, words = run.state, ["a"]
        state.update(topic="logs", words=words, size=1)
        await run.checkpoint("first")
        await run.checkpoint("planned")
        words.append(state["topic"])
        await run.checkpoint("done")
        return [list(run.state["words"]), state["topic"], list(state), words == run.state["words"], state is run.state]

    original = [["a", "logs"], "logs", ["topic", "words", "size"], True, True]
    assert store.start(work, id="r").unwrap() == original
    fork = store.fork("r@2", id="f", edit={"topic": "forks"})
    assert store.resume(fork.id).unwrap() == [["a", "forks"], "forks", ["topic", "words", "size"], True, True]
    assert store.load("f") == {"topic": "forks", "words": ["a", "forks"], "size": 1}
    store.fork("f@1", id="g", edit={"size": 2})  # an edit of an edited state
    assert store.resume("g").unwrap() == [["a", "forks"], "forks", ["topic", "words", "size"], True, True]
    assert store.load("g") == {"topic": "forks", "words": ["a", "forks"], "size": 2}
    assert store.resume("r").unwrap() == original


def test_an_edit_never_changes_an_object_that_the_program_uses_elsewhere(store: everstep.Store, d: Driver) -> None:
    shared = {"limit": 1}

    @d.workflow
    async def work() -> Any:
        run = d.run
        run.state["settings"] = shared
        await run.checkpoint("begun")
        return dict(run.state["settings"])

    store.start(work, id="r").unwrap()
    fork = store.fork("r@1", id="f", edit={"settings": {"limit": 9}})
    assert store.resume(fork.id).unwrap() == {"limit": 9}
    assert shared == {"limit": 1}


def test_an_edit_of_one_of_two_places_of_the_same_list_changes_that_place_alone(store: everstep.Store, d: Driver) -> None:
    @d.workflow
    async def work() -> Any:
        run = d.run
        run.state["a"] = []
        await run.checkpoint("begun")
        run.state["b"] = run.state["a"]
        await run.checkpoint("twice")
        return [list(run.state["a"]), list(run.state["b"])]

    store.start(work, id="r").unwrap()
    fork = store.fork("r@2", id="f", edit={"a": [1]})
    assert store.resume(fork.id).unwrap() == [[1], []]
    assert store.load("f") == {"a": [1], "b": []}


def test_checkpoints_of_a_workflow_are_not_made_twice_when_it_is_resumed_or_forked_again(store: everstep.Store, d: Driver) -> None:
    again: list[bool] = []

    @d.workflow
    async def work() -> int:
        run = d.run
        for i in range(3):
            await run.step("s", d.plain(lambda i=i: i), i)
            run.state["i"] = i
            made = await run.checkpoint(f"note {i}")
            assert made.note == f"note {i}" or made.note is None or made.note.startswith("fork")
        if not again:
            raise Crash
        return int(run.state["i"])

    with pytest.raises(Crash):
        store.start(work, id="r")
    again.append(True)
    assert store.resume("r").unwrap() == 2
    assert [c.note for c in reversed(store.checkpoints("r")) if c.kind == "manual"] == ["note 0", "note 1", "note 2"]
    one = store.fork("r@2", id="one")
    assert store.resume(one.id).unwrap() == 2
    assert [c.note for c in reversed(store.checkpoints("one")) if c.kind == "manual"] == ["fork of r@2", "note 2"]
    two = store.fork("one@1", id="two")
    assert store.resume(two.id).unwrap() == 2
    assert [c.note for c in reversed(store.checkpoints("two")) if c.kind == "manual"] == ["fork of one@1", "note 2"]
    three = store.fork("one@2", id="three")
    assert store.resume(three.id).unwrap() == 2
    assert [c.note for c in reversed(store.checkpoints("three")) if c.kind == "manual"] == ["fork of one@2"]


def test_a_state_that_was_handed_in_is_rebuilt_on_a_fork_and_in_validation(store: everstep.Store, d: Driver) -> None:
    @d.workflow
    async def work() -> Any:
        await d.run.checkpoint(state={"mine": 1})
        await d.run.step("a", d.plain(lambda: 1))
        return dict(d.run.state)

    assert store.start(work, id="r").unwrap() == {"mine": 1}
    assert store.resume("r", replay="validate").result == {"mine": 1}
    assert store.resume(store.fork("r@1").id).unwrap() == {"mine": 1}


def test_a_fork_of_a_failed_run_at_its_last_checkpoint_runs_the_failed_step_again(store: everstep.Store, d: Driver) -> None:
    ran: list[str] = []
    fail = ["c"]
    store.start(chain(d, ran, fail=fail), id="r")
    assert kinds(store, "r") == [(1, "error")]
    fail.clear()
    ran.clear()
    assert store.resume(store.fork("r").id).unwrap() == "abcde"
    assert ran == list("cde")


def test_a_fork_stays_whole_when_its_parent_is_deleted(store: everstep.Store, d: Driver) -> None:
    big = {"rows": [f"row {i} " * 30 for i in range(2000)]}

    @d.workflow
    async def work() -> Any:
        got = await d.run.step("big", d.plain(lambda: big))
        await d.gate("ok")
        return got

    store.start(work, id="r")
    fork = store.fork("r")
    store.delete("r")
    store.answer(fork.id, "ok", 1)
    assert store.resume(fork.id).unwrap() == big


def test_a_loop_forked_at_each_checkpoint_goes_on_from_there(store: everstep.Store, d: Driver) -> None:
    ran: list[int] = []

    async def body(run: Any) -> list[int]:
        while len(run.state["got"]) < 4:
            i = len(run.state["got"])
            run.state["got"].append(await run.step("s", d.plain(lambda i=i: ran.append(i) or i * run.state["factor"]), i))
            await run.checkpoint()
        return list(run.state["got"])

    d.loop(store, "r", body, state={"got": [], "factor": 1})
    for number in (1, 2, 3, 4):
        ran.clear()
        fork = store.fork(f"r@{number}", edit={"factor": 10})
        expected = list(range(number)) + [10 * i for i in range(number, 4)]
        assert d.loop(store, fork.id, body) == expected
        assert ran == list(range(number, 4))
        assert addresses(store, fork.id) == [f"s#{i}" for i in range(number, 4)]
    assert store.load("r")["got"] == [0, 1, 2, 3]


def test_a_loop_goes_on_from_its_own_checkpoint_and_not_from_an_automatic_one(store: everstep.Store, d: Driver) -> None:
    ran: list[int] = []

    async def body(run: Any) -> list[int]:
        while len(run.state["got"]) < 6:
            i = len(run.state["got"])
            run.state["got"].append(await run.step("s", d.plain(lambda i=i: ran.append(i) or i), i))
            if i == 1:
                await run.checkpoint("mine")
            if i == 4 and not again:
                raise Crash
        return list(run.state["got"])

    again: list[bool] = []
    with pytest.raises(Crash):
        d.loop(store, "r", body, state={"got": []}, policy=every(steps=1))
    again.append(True)
    assert d.loop(store, "r", body, state={"got": []}, policy=every(steps=1)) == [0, 1, 2, 3, 4, 5]
    assert ran == [0, 1, 2, 3, 4, 5]


def test_a_milestone_is_a_base_that_a_loop_goes_on_from(store: everstep.Store, d: Driver) -> None:
    seen: list[int] = []

    async def body(run: Any) -> None:
        seen.append(len(run.state["got"]))
        while len(run.state["got"]) < 4:
            i = len(run.state["got"])
            run.state["got"].append(await run.step("s", d.plain(lambda i=i: i), i))
            if i == 1:
                run.milestone("half")
            if i == 2 and not again:
                raise Crash

    again: list[bool] = []
    with pytest.raises(Crash):
        d.loop(store, "r", body, state={"got": []}, policy=everstep.on("milestone"))
    again.append(True)
    d.loop(store, "r", body, state={"got": []}, policy=everstep.on("milestone"))
    assert seen == [0, 2]
    assert addresses(store, "r") == ["s#0", "s#1", "s#2", "s#3"]


def test_a_loop_with_very_many_names_counts_on_from_its_base(store: everstep.Store, d: Driver) -> None:
    async def body(run: Any) -> None:
        for i in range(40):
            await run.step(f"n{i}", d.plain(lambda turn: turn), run.state["turn"])
        run.state["turn"] += 1
        await run.checkpoint()
        await run.step("n0", d.plain(_same), "after")

    for _ in range(2):
        d.loop(store, "r", body, state={"turn": 0})
    assert addresses(store, "r").count("n39#1") == 1
    assert [a for a in addresses(store, "r") if a.startswith("n0#")] == ["n0#0", "n0#1", "n0#2", "n0#3"]


# many at once


def test_a_hundred_gathered_steps_replay_in_order_whatever_order_they_ended_in(store: everstep.Store) -> None:
    ran: list[int] = []
    seen: list[list[int]] = []

    async def work_on(i: int) -> int:
        ran.append(i)
        for _ in range((i * 37) % 11):
            await asyncio.sleep(0)
        return i * i

    @everstep.workflow
    async def work() -> list[int]:
        run = everstep.current()
        seen.append(list(await asyncio.gather(*(run.step("s", work_on, i) for i in range(100)))))
        if len(seen) == 1:
            raise Crash
        return seen[-1]

    with pytest.raises(Crash):
        store.start(work, id="r")
    ended = addresses(store, "r")
    assert sorted(ended) == sorted(f"s#{i}" for i in range(100))
    out = store.resume("r")
    assert out.unwrap() == seen[0] == [i * i for i in range(100)]
    assert sorted(ran) == list(range(100))
    assert (out.report.kept, out.report.executed) == (100, 0)


def test_gathered_steps_of_which_some_were_cut_off_run_only_those_again(store: everstep.Store) -> None:
    ran: list[int] = []
    again: dict[int, bool] = {}
    crash = [True]

    async def work_on(i: int) -> int:
        ran.append(i)
        again[i] = everstep.current().step_again
        if i == 20 and crash:
            raise Crash
        if i > 20 and crash:
            await asyncio.Event().wait()
        return i

    @everstep.workflow
    async def work() -> list[int]:
        run = everstep.current()
        tasks = [asyncio.ensure_future(run.step("s", work_on, i)) for i in range(30)]
        await asyncio.gather(*tasks[:20])
        return list(await asyncio.gather(*tasks))

    with pytest.raises(Crash):
        store.start(work, id="r")
    done = {int(a.removeprefix("s#")) for a in addresses(store, "r")}
    assert done == set(range(20))
    ran.clear()
    crash.clear()
    assert store.resume("r").unwrap() == list(range(30))
    assert sorted(ran) == list(range(20, 30))
    assert all(again[i] for i in range(20, 30))


def test_map_replays_in_order_and_runs_nothing_twice(store: everstep.Store, d: Driver) -> None:
    ran: list[int] = []
    lock = threading.Lock()

    def work_on(i: int) -> int:
        with lock:
            ran.append(i)
            if len(ran) == 13:
                raise Crash
        return i * i

    @d.workflow
    async def work() -> list[int]:
        return await d.run.map(d.plain(work_on), range(40), concurrency=4)

    with pytest.raises(Crash):
        store.start(work, id="r")
    done = {int(a.removeprefix("work_on#")) for a in addresses(store, "r")}
    before = list(ran)
    assert store.resume("r").unwrap() == [i * i for i in range(40)]
    later = ran[len(before) :]
    assert not done & set(later)
    assert set(later) | done == set(range(40))
    assert len(later) == len(set(later))


def test_map_really_runs_several_at_once_and_no_more_than_allowed(store: everstep.Store) -> None:
    together = threading.Barrier(4)
    lock, now, most = threading.Lock(), [0], [0]

    def work_on(i: int) -> int:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        together.wait(30)
        with lock:
            now[0] -= 1
        return i

    with store.run("r") as run:
        assert run.map(work_on, range(8), concurrency=4) == list(range(8))
    assert most[0] == 4


def test_nested_maps_have_addresses_that_do_not_depend_on_who_was_first(store: everstep.Store, d: Driver) -> None:
    def leaf(x: int) -> int:
        return x + 1

    async def branch(x: int) -> int:
        return sum(await d.run.map(d.plain(leaf), [x * 10, x * 10 + 1], concurrency=2))

    @d.workflow
    async def work() -> list[int]:
        return await d.run.map(d.plain(branch), range(5), concurrency=3)

    expected = [x * 20 + 3 for x in range(5)]
    assert store.start(work, id="r").unwrap() == expected
    assert sorted(addresses(store, "r")) == sorted(
        [f"branch#{i}" for i in range(5)] + [f"branch#{i}/leaf#{j}" for i in range(5) for j in (0, 1)]
    )
    for step in store.steps("r"):
        if "leaf" in step.address:
            branch_number, leaf_number = (int(part.partition("#")[2]) for part in step.address.split("/"))
            assert step.result == branch_number * 10 + leaf_number + 1


def test_one_failure_in_a_map_lets_the_others_end_and_is_run_again(store: everstep.Store, d: Driver) -> None:
    ran: list[int] = []
    bad = [True]

    def work_on(i: int) -> int:
        ran.append(i)
        if i == 2 and bad:
            raise ValueError(f"item {i}")
        return i

    @d.workflow
    async def work() -> list[int]:
        return await d.run.map(d.plain(work_on), range(6), concurrency=1)

    out = store.start(work, id="r")
    assert (out.status, str(out.error)) == ("failed", "item 2")
    bad.clear()
    assert store.resume("r").unwrap() == list(range(6))
    assert ran == [0, 1, 2, 2, 3, 4, 5]


def test_a_failure_in_a_task_group_is_run_again_when_the_run_is_resumed(store: everstep.Store) -> None:
    ran: list[str] = []
    again: list[bool] = []

    async def good() -> str:
        ran.append("good")
        again.append(everstep.current().step_again)
        if len(ran) == 2:
            await asyncio.Event().wait()
        return "good"

    async def bad() -> str:
        ran.append("bad")
        if ran.count("bad") == 1:
            raise ValueError("bad")
        return "better"

    @everstep.workflow
    async def work() -> list[str]:
        run = everstep.current()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run.step("bad", bad)), group.create_task(run.step("good", good))]
        return [task.result() for task in tasks]

    assert store.start(work, id="r").status == "failed"
    assert store.resume("r").unwrap() == ["better", "good"]
    assert ran[:2] == ["bad", "good"]
    assert sorted(ran[2:]) == ["bad", "good"]  # both run again, side by side
    assert again == [False, True]


def test_an_empty_map_and_a_bad_concurrency(store: everstep.Store, d: Driver) -> None:
    async def body(run: Any) -> Any:
        with pytest.raises(InvalidArgument):
            await run.map(d.plain(lambda x: x), [1], concurrency=0)
        return await run.map(d.plain(_same), [])

    assert d.loop(store, "r", body) == []


def _same(x: Any) -> Any:
    return x


def test_steps_in_threads_of_the_program_are_recorded_through_the_handle(store: everstep.Store) -> None:
    with store.run("r") as run:
        threads = [threading.Thread(target=run.step, args=(f"t{i}", _same, i)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(addresses(store, "r")) == [f"t{i}#0" for i in range(8)]


def test_steps_and_checkpoints_of_many_runs_in_many_threads_do_not_mix(store: everstep.Store) -> None:
    def drive(name: str) -> None:
        with store.run(name, state={"n": []}, policy=every(steps=2)) as run:
            for i in range(10):
                run.state["n"].append(run.step("s", _same, f"{name}-{i}"))

    threads = [threading.Thread(target=drive, args=(f"r{i}",)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(6):
        assert store.load(f"r{i}") == {"n": [f"r{i}-{j}" for j in range(10)]}
        assert len(addresses(store, f"r{i}")) == 10


def test_random_orders_of_endings_never_change_an_address(store: everstep.Store) -> None:
    chance = random.Random(5)
    for round in range(3):
        order = [chance.randrange(6) for _ in range(30)]

        async def work_on(i: int, waits: int) -> int:
            for _ in range(waits):
                await asyncio.sleep(0)
            return i

        async def main(order: list[int] = order, name: str = f"r{round}") -> list[Any]:
            async with store.run(name) as run:
                return list(await asyncio.gather(*(run.step("s", work_on, i, order[i]) for i in range(30))))

        assert asyncio.run(main()) == list(range(30))
        assert {s.address: s.result for s in store.steps(f"r{round}")} == {f"s#{i}": i for i in range(30)}


@pytest.mark.parametrize("waits", [1, 4, 15, 50])
def test_a_task_that_is_still_running_when_its_run_fails_does_no_harm(store: everstep.Store, waits: int) -> None:
    ended: list[int] = []

    async def fail() -> None:
        raise ValueError("first")

    async def late(i: int) -> int:
        for _ in range(waits * i):
            await asyncio.sleep(0)
        ended.append(i)
        return i

    @everstep.workflow
    async def work() -> list[Any]:
        run = everstep.current()
        run.state["much"] = [f"item {i}" for i in range(50_000)]  # so that ending takes a while
        tasks = [run.step("late", late, i) for i in range(6)]
        return list(await asyncio.gather(*tasks, run.step("fail", fail)))

    async def main() -> Any:
        out = await store.start(work, id="r")
        for _ in range(waits * 6):
            await asyncio.sleep(0)
        return out

    out = asyncio.run(main())
    assert (out.status, str(out.error)) == ("failed", "first")
    assert [e.name for e in store.events(run="r")][-1] == "run_failed"
    assert not store.get("r").open


def test_a_key_that_an_edit_took_away_is_gone_and_the_keys_have_the_order_of_the_edit(store: everstep.Store, d: Driver) -> None:
    @d.workflow
    async def work() -> list[Any]:
        run = d.run
        run.state.update({"a": 1, "b": 2})
        await run.checkpoint("half")
        return [list(run.state.items()), await run.step("end", d.plain(lambda: "end"))]

    assert store.start(work, id="r").unwrap() == [[("a", 1), ("b", 2)], "end"]
    fork = store.fork("r@1", id="f", edit=lambda state: {"c": 3, "a": state["a"]})
    assert store.resume(fork.id).unwrap() == [[("c", 3), ("a", 1)], "end"]
    assert store.verify("full").ok
