"""A search for programs that a resume does not treat as promised: random programs, killed at every commit, judged by a model.

Promises: the way taken is the recorded way; a finished step is never called again; a failed one is called again only if nothing was recorded after it
where it was seen; compensation is never undone; the end is that of the undisturbed run; a child whose call was cancelled is cancelled; nothing hangs.
"""

import threading
from collections import Counter
from typing import Any

import pytest
from programs import AsyncEnv, Env, Maker, Model, arun_program, broken_in, is_concurrent, nodes, run_program, steps_in
from situations import DEEP, Down, Kill, Kills, World, drive, journal

import everstep
from everstep.errors import EverstepError, NonDeterminism
from everstep.runtime.engine import finish
from everstep.runtime.steps.underway import StepsUnderway
from everstep.runtime.tasks import in_task
from everstep.runtime.tasks.branches import Branches
from everstep.runtime.tasks.completions import Completions

SECONDS = 30.0  # for one program with all its kills
counts: Counter[str] = Counter()


class Trial:
    """One program and what is known of it."""

    def __init__(self, seed: int, form: str):
        self.program = Maker(seed, form == "concurrent").program()
        self.form = form
        self.world = World(broken_in(self.program))
        self.seen: list[tuple[str, str]] = []
        self.end: tuple[str, Any] = ("", None)

    def flow(self) -> Any:
        """The program as a workflow; each attempt begins a new list of what it saw."""

        def program() -> Any:
            self.seen = []
            return run_program(self.program, Env(self.world, self.seen))

        async def aprogram() -> Any:
            self.seen = []
            return await arun_program(self.program, AsyncEnv(self.world, self.seen))

        return everstep.workflow(program if self.form == "plain" else aprogram, name="random program")

    def undisturbed(self) -> list[Kill]:
        with everstep.open("memory://") as store:
            kills = Kills(store, self.world)
            self.end = ended(drive(store, self.flow(), self.world, most=40))
            self.judge_compensation(store)
            self.judge_children(store)
            assert store.verify("full").ok
        if not is_concurrent(self.program):
            model = Model(self.world.broken)
            status, result = model.drive(self.program)
            assert self.end == (status, result if status == "succeeded" else None)
            assert Counter(self.world.calls) == model.calls
            counts["judged by the model"] += 1
        return kills.found

    def after(self, kill: Kill) -> None:
        counts["kills"] += 1
        self.world.calls = list(kill.calls)
        with kill.open() as store:
            found = store.backend.run("r")
            before, kept, status = journal(store), journal(store, to_run_again=False), found.status if found is not None else "new"
            unsettled = has_unsettled_child(store)
            first = store.start(self.flow(), id="r")
            if status in ("running", "waiting"):
                self.judge_way(kept)
                assert not first.report.unused, f"the program did not come to {first.report.unused} again"
            outcome = drive(store, self.flow(), self.world, most=40)
            again = set(Counter(self.world.calls) - Counter(kill.calls))
            self.judge_calls(before, again)
            self.judge_compensation(store)
            self.judge_children(store)
            assert not isinstance(outcome.error, NonDeterminism), outcome.error
            if not unsettled:
                self.judge_end(outcome)
            assert store.verify("full").ok

    def judge_end(self, outcome: everstep.Outcome) -> None:
        """It ended as undisturbed. Where tasks run beside a handler, it can't be known what they saw: one of both ends may be a recorded failure."""
        found = ended(outcome)
        assert found == self.end or (self.leaves_tasks_behind and "failed" in (found[0], self.end[0]))

    @property
    def leaves_tasks_behind(self) -> bool:
        return any(node.kind == "gather" for node in nodes(self.program))

    def judge_way(self, before: dict[str, tuple[int, str, str]]) -> None:
        """The program saw each recorded end again, as it was, and those of the top in their order."""
        seen = dict(self.seen)
        for name, (_, status, run) in before.items():
            if run == "r" and name in seen:
                same = seen[name] in (status, "cancelled")  # it may have ended when the program had cancelled it already
                assert same, f"{name} was {status}, and is now {seen[name]}"
        top = [name for name, (_, status, run) in sorted(before.items(), key=lambda one: one[1][0]) if run == "r" and status != "cancelled"]
        order = [name for name, outcome in self.seen if name in top and outcome != "cancelled"]
        assert order == [name for name in top if seen.get(name, "cancelled") != "cancelled"], (
            f"the program saw {order}, the journal has {top}"
        )

    def judge_calls(self, before: dict[str, tuple[int, str, str]], again: set[str]) -> None:
        for name, (place, status, _) in before.items():
            if status == "succeeded":
                assert name not in again, f"{name} had succeeded, and was called again"
            elif not self.leaves_tasks_behind and any(before[one][0] > place for one in self.compensation_of(name) if one in before):
                assert name not in again, f"{name} was compensated, and was called again"

    def compensation_of(self, name: str) -> set[str]:
        found: set[str] = set()
        for node in nodes(self.program):
            if node.kind == "try" and name in steps_in(*node.parts):
                found |= steps_in(*node.handler, *node.final)
        return found

    def judge_compensation(self, store: everstep.Store) -> None:
        """Nothing that was compensated succeeds afterwards. What a gather leaves behind runs beside the handler: it is not judged."""
        ends = journal(store)
        for node in nodes(self.program):
            if node.kind != "try" or any(one.kind == "gather" for one in nodes(node.parts[0])):
                continue
            undone = min((ends[name][0] for name in steps_in(*node.handler) if name in ends), default=None)
            for name in steps_in(*node.parts):
                late = undone is not None and name in ends and ends[name][0] > undone and ends[name][1] == "succeeded"
                assert not late, f"{name} succeeded after it was compensated"

    def judge_children(self, store: everstep.Store) -> None:
        """No child outlives a caller that has succeeded. One of a caller that failed may run again with it."""
        runs = {run.id: run for run in store.runs()}
        left = [
            run.id
            for run in runs.values()
            if run.status in ("running", "waiting") and run.parent and runs[run.parent].status == "succeeded"
        ]
        counts["cancelled children"] += sum(run.status == "cancelled" for run in runs.values())
        assert not left, f"{left} were left behind by their callers"


def has_unsettled_child(store: everstep.Store) -> bool:
    """Whether a child has failed. If its caller has not recorded that, it runs again, which may end better."""
    return any(run.status == "failed" and run.parent is not None for run in store.runs())


def ended(outcome: everstep.Outcome) -> tuple[str, Any]:
    return outcome.status, outcome.result if outcome.status == "succeeded" else None


def search(seed: int, form: str, most_kills: int) -> None:
    """Judge one program; a program that hangs is a failure."""
    trouble: list[BaseException] = []
    trial = Trial(seed, form)

    def judge() -> None:
        try:
            kills = trial.undisturbed()
            for kill in kills[:: max(1, len(kills) // most_kills)]:
                trial.after(kill)
        except BaseException as error:
            trouble.append(error)

    thread = threading.Thread(target=judge, daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert not thread.is_alive(), f"seed {seed} ({form}) hangs: {trial.program}"
    counts["programs"] += 1
    if trouble:
        trouble[0].add_note(f"seed {seed} ({form}): {trial.program}")
        raise trouble[0]


FORMS = {"plain": 12, "async": 12, "concurrent": 12}
if DEEP:
    FORMS = dict.fromkeys(FORMS, 1500)


@pytest.mark.parametrize("form", FORMS)
def test_random_programs_are_resumed_as_promised(form: str) -> None:
    for seed in range(FORMS[form]):
        search(seed, form, 1000 if DEEP else 12)


def caught(form: str, most: int = 60) -> int:
    """The first seed by which the search notices that something is wrong."""
    for seed in range(most):
        try:
            search(seed, form, 1000)
        except (AssertionError, EverstepError):
            return seed
    raise AssertionError("the search did not notice")


def test_canary_a_resume_by_the_chain_of_exceptions_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The old rule: a failed step runs again if its error is in the chain of the one that ended the run."""
    chain: list[BaseException | None] = []
    ending_of = finish.ending_of

    def remembered(run: Any, error: BaseException | None) -> Any:
        chain[:] = [error]
        for one in chain:
            if one is not None and len(chain) < 100:
                chain.extend([one.__cause__, one.__context__, *getattr(one, "exceptions", ())])
        return ending_of(run, error)

    def in_the_chain(self: Branches, inside: str = "") -> list[str]:
        names = {str(one) for one in chain if isinstance(one, Down)}
        return [address for address in self._failed if address.startswith(inside) and address.partition("#")[0] in names]

    monkeypatch.setattr(finish, "ending_of", remembered)
    monkeypatch.setattr(Branches, "unseen", in_the_chain)
    assert caught("plain") >= 0


def test_canary_ends_in_the_order_of_calls_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Completions, "is_next", lambda self, seq: True)
    assert caught("concurrent") >= 0


def test_canary_waits_that_end_before_other_tasks_begin_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The old rule: a recorded end is handed out at once if no other task has asked for anything yet."""
    is_next = Completions.is_next

    def at_once(self: Completions, seq: int) -> bool:
        self._ready, self._cancelled = (), []
        return is_next(self, seq)

    monkeypatch.setattr(Completions, "is_next", at_once)
    assert caught("concurrent") >= 0


def test_canary_cancelled_steps_without_a_record_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "SECONDS", 6.0)  # a step of 30 seconds that is called again is noticed as one that hangs
    monkeypatch.setattr(StepsUnderway, "give_up", lambda self, ticket: self.flight.pop(ticket.address, None))
    assert caught("concurrent") >= 0


def test_canary_children_that_outlive_a_cancelled_call_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StepsUnderway, "cancel_lost", lambda self: self.lost.clear())
    monkeypatch.setattr(StepsUnderway, "cancel_left_behind", lambda self: None)
    monkeypatch.setattr(in_task, "cancel_children_of", lambda ticket: None)
    with pytest.raises(AssertionError, match="left behind"):
        search_all(range(20))


def search_all(seeds: range) -> None:
    for seed in seeds:
        search(seed, "concurrent", 12)
