"""Starting and resuming runs of workflows; children; changed code; the states that a run may take."""

import asyncio
import contextlib
import threading
from typing import Any

import pytest
from runtime_driver import Crash, Driver, addresses, names

import everstep
from everstep.errors import (
    DefinitionChanged,
    IllegalTransition,
    Interrupted,
    InvalidArgument,
    LeaseHeld,
    NotFound,
    RunExists,
    StepFailed,
    UnknownWorkflow,
)


def counting(d: Driver, ran: list[str], result: Any = None) -> Any:
    @d.workflow(name="counting")
    async def work(*args: Any, **kwargs: Any) -> Any:
        def note() -> None:
            ran.append("step")

        await d.run.step("note", d.plain(note))
        return result if result is not None else [list(args), kwargs]

    return work


def test_an_outcome_tells_status_result_and_report(store: everstep.Store, d: Driver) -> None:
    ran: list[str] = []
    out = store.start(counting(d, ran), 1, b=2, id="r")
    assert (out.run, out.status, out.result, out.error, out.reason, out.gates) == ("r", "succeeded", [[1], {"b": 2}], None, None, [])
    assert (out.report.run, out.report.attempt, out.report.kept, out.report.executed) == ("r", 1, 0, 1)
    assert out.unwrap() == [[1], {"b": 2}]
    assert store.get("r").workflow == "counting"


def test_an_id_is_made_where_none_is_given(store: everstep.Store, d: Driver) -> None:
    ran: list[str] = []
    first, second = store.start(counting(d, ran)), store.start(counting(d, ran))
    assert first.run != second.run
    assert len(ran) == 2


def test_starting_an_ended_run_again_gives_its_recorded_outcome(store: everstep.Store, d: Driver) -> None:
    ran: list[str] = []
    flow = counting(d, ran)
    first = store.start(flow, 1, id="r")
    again = store.start(flow, 1, id="r")
    assert again.result == first.result
    assert again.status == "succeeded"
    assert ran == ["step"]
    assert store.resume("r").result == first.result
    assert ran == ["step"]


def test_a_big_result_and_a_big_input_of_a_workflow_come_back(store: everstep.Store, d: Driver) -> None:
    big = {"rows": [f"row {i} " * 30 for i in range(2000)]}
    given: list[Any] = []

    @d.workflow
    async def work(x: Any) -> Any:
        given.append(x)
        if len(given) == 1:
            raise Crash
        return x

    with pytest.raises(Crash):
        store.start(work, big, id="r")
    assert store.resume("r").unwrap() == big
    assert given == [big, big]
    assert store.start(work, big, id="r").result == big


def test_another_input_or_another_workflow_under_a_taken_id_is_refused(store: everstep.Store, d: Driver) -> None:
    ran: list[str] = []
    flow = counting(d, ran)
    store.start(flow, 1, id="r")

    @d.workflow
    async def other(x: int) -> None: ...

    with pytest.raises(RunExists, match="a different input"):
        store.start(flow, 2, id="r")
    with pytest.raises(RunExists, match="counting"):
        store.start(other, 1, id="r")
    with store.run("loop") as run:
        run.checkpoint()
    with pytest.raises(RunExists, match="no workflow"):
        store.start(flow, 1, id="loop")
    with pytest.raises(InvalidArgument, match=r"was opened with store\.run\(\)"):
        store.resume("loop")


def test_starting_a_run_that_broke_off_goes_on_with_it(store: everstep.Store, d: Driver) -> None:
    ran: list[str] = []

    @d.workflow
    async def work(x: int) -> int:
        await d.run.step("a", d.plain(lambda: ran.append("a")))
        if len(ran) == 1 and not again:
            raise Crash
        return x

    again: list[bool] = []
    with pytest.raises(Crash):
        store.start(work, 5, id="r")
    assert store.get("r").status == "running"
    assert not store.get("r").open
    again.append(True)
    assert store.start(work, 5, id="r").unwrap() == 5
    assert ran == ["a"]


def test_starting_a_waiting_run_again_looks_whether_it_can_go_on(store: everstep.Store, d: Driver) -> None:
    @d.workflow
    async def work() -> Any:
        return await d.gate("ok")

    assert store.start(work, id="r").status == "waiting"
    assert store.start(work, id="r").status == "waiting"
    store.answer("r", "ok", "yes")
    assert store.start(work, id="r").unwrap() == "yes"


def test_starting_a_failed_run_again_gives_the_recorded_error_and_runs_nothing(store: everstep.Store, d: Driver) -> None:
    ran: list[int] = []

    @d.workflow
    async def work() -> None:
        ran.append(1)
        raise ValueError("broken")

    out = store.start(work, id="r")
    assert out.status == "failed"
    assert isinstance(out.error, ValueError)
    again = store.start(work, id="r")
    assert (again.status, type(again.error), ran) == ("failed", ValueError, [1])
    with pytest.raises(ValueError, match="broken"):
        again.unwrap()
    assert store.get("r").error["type"] == "ValueError"  # type: ignore[index]


def test_a_run_of_an_unknown_workflow_is_refused_and_nothing_is_imported(store: everstep.Store, d: Driver) -> None:
    from everstep.runtime import workflow as flows

    store.start(counting(d, []), id="r")
    known = flows._known.pop("counting")
    try:
        with pytest.raises(UnknownWorkflow, match="counting"):
            store.resume("r")
    finally:
        flows._known["counting"] = known
    with pytest.raises(NotFound):
        store.resume("nobody")


def test_two_at_once_one_runs_and_one_is_told_who_does(places: Any, d: Driver) -> None:
    one, two = places.open(), places.open()
    inside, release = threading.Event(), threading.Event()

    def hold() -> None:
        inside.set()
        release.wait(30)

    @d.workflow(name="held")
    async def work() -> str:
        await d.run.step("hold", d.plain(hold))
        return "done"

    outcomes: list[Any] = []
    thread = threading.Thread(target=lambda: outcomes.append(one.start(work, id="r")))
    thread.start()
    assert inside.wait(30)
    try:
        with pytest.raises(LeaseHeld):
            two.resume("r")
    finally:
        release.set()
        thread.join()
    assert outcomes[0].unwrap() == "done"
    assert two.resume("r").unwrap() == "done"


def test_an_async_store_awaits_start_and_resume_of_either_colour(places: Any, d: Driver) -> None:
    ran: list[str] = []

    @d.workflow(name="awaited")
    async def work(x: int) -> int:
        await d.run.step("a", d.plain(lambda: ran.append("a")))
        await d.gate("ok")
        return x

    async def main() -> None:
        async with everstep.open(places._url) as store:
            out = await store.start(work, 5, id="r")
            assert out.status == "waiting"
            await store.answer("r", "ok", "yes")
            assert (await store.resume("r")).unwrap() == 5
            assert (await store.start(work, 5, id="r")).unwrap() == 5
            assert [s.address for s in await store.steps("r")] == ["a#0"]

    places.open()
    asyncio.run(main())
    assert ran == ["a"]


def test_store_start_inside_a_loop_is_awaited_for_an_async_workflow(store: everstep.Store) -> None:
    @everstep.workflow
    async def work() -> int:
        return await everstep.current().step("a", lambda: 7)

    async def main() -> Any:
        first = await store.start(work, id="r")
        again = await store.start(work, id="r")
        return first.unwrap(), again.unwrap()

    assert asyncio.run(main()) == (7, 7)


# children


def test_a_child_is_a_run_of_its_own_with_its_own_numbers(store: everstep.Store, d: Driver) -> None:
    @d.workflow(name="kid")
    async def kid(x: int) -> int:
        return await d.run.step("double", d.plain(lambda: x * 2))

    @d.workflow
    async def parent() -> list[int]:
        return [await d.child(kid, 1), await d.child(kid, 2)]

    assert store.start(parent, id="p").unwrap() == [2, 4]
    assert addresses(store, "p") == ["kid#0", "kid#1"]
    children = store.runs(parent="p")
    assert sorted(c.id for c in children) == ["p.kid.0", "p.kid.1"]
    assert [addresses(store, c.id) for c in children] == [["double#0"], ["double#0"]]
    assert {c.status for c in children} == {"succeeded"}


def test_a_parent_that_broke_off_inside_its_child_goes_on_inside_it(store: everstep.Store, d: Driver) -> None:
    ran: list[str] = []

    def work_on(name: str) -> str:
        ran.append(name)
        if name == "b" and ran.count("b") == 1:
            raise Crash
        return name

    @d.workflow(name="kid")
    async def kid() -> str:
        return await d.run.step("w", d.plain(work_on), "a") + await d.run.step("w", d.plain(work_on), "b")

    @d.workflow
    async def parent() -> str:
        return await d.run.step("w", d.plain(work_on), "first") + await d.child(kid)

    with pytest.raises(Crash):
        store.start(parent, id="p")
    assert store.resume("p").unwrap() == "firstab"
    assert ran == ["first", "a", "b", "b"]


def test_a_parent_waits_while_its_child_does_and_goes_on_when_that_was_answered(store: everstep.Store, d: Driver) -> None:
    @d.workflow(name="kid")
    async def kid() -> str:
        return await d.gate("ok")

    @d.workflow
    async def parent() -> str:
        return "got " + await d.child(kid)

    out = store.start(parent, id="p")
    assert out.status == "waiting"
    assert "p.kid.0" in (out.reason or "")
    assert store.due() == []
    store.answer("p.kid.0", "ok", "yes")
    assert store.due() == ["p.kid.0"]
    assert {o.run: o.status for o in store.wake()} == {"p.kid.0": "succeeded", "p": "succeeded"}
    assert store.resume("p").unwrap() == "got yes"


def test_a_failing_child_fails_its_parent_and_both_go_on_by_resuming_the_parent(store: everstep.Store, d: Driver) -> None:
    ran: list[str] = []

    def flaky(name: str) -> str:
        ran.append(name)
        if name == "kid" and ran.count("kid") == 1:
            raise ValueError("kid")
        return name

    @d.workflow(name="kid")
    async def kid() -> str:
        return await d.run.step("f", d.plain(flaky), "kid")

    @d.workflow
    async def parent() -> str:
        return await d.run.step("f", d.plain(flaky), "before") + await d.child(kid)

    out = store.start(parent, id="p")
    assert (out.status, store.get("p.kid.0").status) == ("failed", "failed")
    assert isinstance(out.error, ValueError)
    assert store.resume("p").unwrap() == "beforekid"
    assert ran == ["before", "kid", "kid"]
    assert store.get("p.kid.0").status == "succeeded"


def test_a_childs_failure_does_not_run_a_step_of_the_parent_with_the_same_address_again(store: everstep.Store, d: Driver) -> None:
    ran: list[str] = []

    def fail(name: str) -> str:
        ran.append(name)
        if name == "parent" or ran.count("kid") == 1:
            raise ValueError(name)
        return name

    @d.workflow(name="kid")
    async def kid() -> str:
        return await d.run.step("f", d.plain(fail), "kid")

    @d.workflow
    async def parent() -> str:
        with contextlib.suppress(ValueError):
            await d.run.step("f", d.plain(fail), "parent")
        return await d.child(kid)

    assert store.start(parent, id="p").status == "failed"
    assert store.resume("p").unwrap() == "kid"
    assert ran == ["parent", "kid", "kid"]


def test_cancelling_a_parent_cancels_its_waiting_child(store: everstep.Store, d: Driver) -> None:
    @d.workflow(name="kid")
    async def kid() -> str:
        return await d.gate("ok")

    @d.workflow
    async def parent() -> str:
        return await d.child(kid)

    store.start(parent, id="p")
    store.cancel("p", "no longer needed")
    assert (store.get("p").status, store.get("p.kid.0").status) == ("cancelled", "cancelled")
    with pytest.raises(NotFound):
        store.answer("p.kid.0", "ok", "yes")
    assert store.wake() == []


def test_cancelling_a_parent_while_its_child_runs_stops_both(store: everstep.Store, d: Driver) -> None:
    ran: list[str] = []

    def cancel() -> None:
        store.cancel("p", "enough")

    @d.workflow(name="kid")
    async def kid() -> None:
        await d.run.step("cancel", d.plain(cancel))
        await d.run.step("never", d.plain(lambda: ran.append("kid")))

    @d.workflow
    async def parent() -> None:
        await d.child(kid)
        await d.run.step("never", d.plain(lambda: ran.append("parent")))

    out = store.start(parent, id="p")
    assert (out.status, store.get("p.kid.0").status, ran) == ("cancelled", "cancelled", [])
    assert "enough" in (out.reason or "")


def test_a_child_that_was_cancelled_by_itself_is_a_failed_step_of_its_parent(store: everstep.Store, d: Driver) -> None:
    @d.workflow(name="kid")
    async def kid() -> str:
        return await d.gate("ok")

    @d.workflow
    async def parent() -> str:
        try:
            return await d.child(kid)
        except StepFailed as error:
            return error.type_name

    store.start(parent, id="p")
    store.cancel("p.kid.0", "no")
    assert store.resume("p").unwrap() == "Cancelled"


# changed code


def two_versions(store: everstep.Store, d: Driver, before: Any, after: Any) -> Any:
    """Break a run off at the end of one version of a workflow, and resume it with another."""

    @d.workflow(name="evolving")
    async def first() -> None:
        await before()
        raise Crash

    with pytest.raises(Crash):
        store.start(first, id="r")

    @d.workflow(name="evolving")
    async def second() -> Any:
        return await after()

    return store.resume("r")


def stepper(d: Driver, ran: list[str]) -> Any:
    async def do(name: str, *args: Any) -> str:
        def run_it(*given: Any) -> str:
            ran.append(name)
            return name

        return await d.run.step(name, d.plain(run_it), *args)

    return do


def test_a_renamed_step_runs_as_a_new_one_and_the_old_one_is_reported(store: everstep.Store, d: Driver) -> None:
    ran: list[str] = []
    do = stepper(d, ran)

    async def before() -> None:
        await do("a")
        await do("b")

    async def after() -> str:
        return await do("a") + await do("b2")

    out = two_versions(store, d, before, after)
    assert out.unwrap() == "ab2"
    assert ran == ["a", "b", "b2"]
    assert out.report.unused == ["b#0"]
    assert "b#0" in str(out.report)
    assert out.report.changed
    assert "definition has changed" in str(out.report)


def test_reordered_steps_with_the_same_inputs_keep_their_results(store: everstep.Store, d: Driver) -> None:
    ran: list[str] = []
    do = stepper(d, ran)

    async def before() -> None:
        await do("a", 1)
        await do("b", 2)

    async def after() -> str:
        return await do("b", 2) + await do("a", 1)

    out = two_versions(store, d, before, after)
    assert out.unwrap() == "ba"
    assert ran == ["a", "b"]
    assert out.report.unused == []


def test_a_removed_step_is_reported_and_an_added_one_runs(store: everstep.Store, d: Driver) -> None:
    ran: list[str] = []
    do = stepper(d, ran)

    async def before() -> None:
        for name in "abc":
            await do(name)

    async def after() -> str:
        return await do("a") + await do("new") + await do("c")

    out = two_versions(store, d, before, after)
    assert out.unwrap() == "anewc"
    assert ran == ["a", "b", "c", "new"]
    assert out.report.unused == ["b#0"]


def test_a_step_added_before_others_of_its_name_is_non_determinism_where_inputs_differ(store: everstep.Store, d: Driver) -> None:
    ran: list[str] = []
    do = stepper(d, ran)

    async def before() -> None:
        await do("a", 1)

    async def after() -> None:
        await do("a", 0)
        await do("a", 1)

    out = two_versions(store, d, before, after)
    assert isinstance(out.error, everstep.NonDeterminism)
    assert ran == ["a"]


def test_an_unchanged_definition_is_not_reported(store: everstep.Store, d: Driver) -> None:
    @d.workflow(name="steady")
    async def work() -> None:
        if not again:
            raise Crash

    again: list[bool] = []
    with pytest.raises(Crash):
        store.start(work, id="r")
    again.append(True)
    assert store.resume("r").report.changed == ""


def test_a_definition_that_is_not_compatible_is_refused_with_the_difference_unless_told_to(store: everstep.Store, d: Driver) -> None:
    from everstep.runtime.workflow import Workflow

    async def body() -> None:
        if not again:
            raise Crash

    again: list[bool] = []
    flow = Workflow(d.plain(body), name="strict", definition="old text")
    with pytest.raises(Crash):
        store.start(flow, id="r")
    again.append(True)
    Workflow(d.plain(body), name="strict", definition="new text", compatible=lambda old, begun: [f"it was {old}"])
    with pytest.raises(DefinitionChanged, match="it was old text") as found:
        store.resume("r")
    assert "-old text" in found.value.difference
    assert "+new text" in found.value.difference
    assert store.resume("r", anyway=True).status == "succeeded"


# states


def test_what_has_ended_for_good_takes_no_further_state(store: everstep.Store, d: Driver) -> None:
    ran: list[str] = []
    flow = counting(d, ran)
    store.start(flow, id="done")
    with pytest.raises(IllegalTransition, match="succeeded") as found:
        store.pause("done")
    assert (found.value.run, found.value.before) == ("done", "succeeded")
    assert store.cancel("done") is False

    @d.workflow
    async def waits() -> None:
        await d.gate("ok")

    store.start(waits, id="gone")
    store.cancel("gone")
    with pytest.raises(IllegalTransition, match="cancelled"):
        store.resume("gone")
    assert store.cancel("gone") is True
    with store.run("loop") as run:
        run.checkpoint()
        store.cancel("loop")
        with pytest.raises(Interrupted, match="cancel"):
            run.step("late", lambda: 1)
    assert store.get("loop").status == "cancelled"  # the program caught the interrupt, which does not undo the cancellation
    with pytest.raises(Crash), store.run("broken"):
        raise Crash
    store.cancel("broken")
    with pytest.raises(IllegalTransition), store.run("broken"):
        pass
    assert store.get("broken").status == "cancelled"
    assert store.start(waits, id="gone").status == "cancelled"


def test_the_history_of_states_is_kept(store: everstep.Store, d: Driver) -> None:
    @d.workflow
    async def work() -> None:
        await d.gate("ok")
        if not again:
            raise ValueError("once")

    again: list[bool] = []
    store.start(work, id="r")
    store.answer("r", "ok", 1)
    assert store.resume("r").status == "failed"
    again.append(True)
    store.resume("r").unwrap()
    said = [name for name in names(store, "r") if name.startswith("run_")]
    assert said == ["run_created", "run_waiting", "run_running", "run_failed", "run_running", "run_succeeded"]


def test_a_paused_failed_run_is_refused(store: everstep.Store, d: Driver) -> None:
    @d.workflow
    async def work() -> None:
        raise ValueError

    store.start(work, id="r")
    with pytest.raises(IllegalTransition):
        store.pause("r")
    store.cancel("r")
    assert store.get("r").status == "cancelled"


@pytest.mark.parametrize("function", [5, "text", lambda: 1])
def test_what_is_no_workflow_is_refused(store: everstep.Store, function: Any) -> None:
    with pytest.raises(InvalidArgument):
        store.start(function)
    assert store.runs() == []


@pytest.mark.parametrize("bad", [{"replay": "other"}, {"replay": "validate", "from_step": "a#0"}, {"timeout": 0}, {"budget": 5}])
def test_a_resume_that_makes_no_sense_is_refused_and_changes_nothing(store: everstep.Store, d: Driver, bad: dict[str, Any]) -> None:
    @d.workflow
    async def work() -> None:
        await d.gate("ok")

    store.start(work, id="r")
    before = store.events(run="r")
    with pytest.raises(InvalidArgument):
        store.resume("r", **bad)
    assert store.events(run="r") == before
    assert len(store.runs()) == 1
