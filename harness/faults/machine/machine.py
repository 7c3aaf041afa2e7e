"""Random histories through the public API against plain dicts, with a crash between any two calls.

Runs, edits, checkpoints, steps, gates and answers, tags, forks, deletions, prune, gc, verify, loads of any old checkpoint, queues. A crash in this
process abandons all handles without closing anything and lets their leases expire; their owners may wake up later, and must not be able to
write. In the other half a separate process does all of this and is killed with -9, also in the middle of a save. The canary is a backend that
says "durable" before it writes. Needs hypothesis. The seed of a failure is in its note; hypothesis adds the calls that led to it.
"""

from __future__ import annotations

import copy
import shutil
import tempfile
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule, run_state_machine_as_test

from everstep.errors import EverstepError
from harness.faults.count import Count, Progress
from harness.faults.machine.actions import Refused, change, shorten
from harness.faults.machine.assertions import guarded, refused, same
from harness.faults.machine.oracle import OVER, Entry, Model
from harness.faults.machine.places import Far, Near
from harness.faults.machine.queues import PICK, QueueRules

NAMES = ("a", "b", "c", "d", "e")
TAGS = ("good", "bad", "milestone")
STEPS_OF_ONE = 50
SHORT, DEEP = 3_000, 100_000
SCALARS = st.sampled_from([None, True, 0, 1, -5, 2.5, "", "text", "long " * 60, b"bytes", (1, 2)])
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=4), st.dictionaries(st.sampled_from("xyz"), SCALARS, max_size=3))
EDITS = st.lists(
    st.tuples(st.sampled_from(["set", "append", "append", "pop", "double", "drop", "take", "put back"]), st.sampled_from(["k", "list", "more"]), VALUES),
    min_size=1, max_size=3,
)  # fmt: skip


class Machine(QueueRules):
    """The calls, each compared with the model at once; everything is compared at the end."""

    kind: ClassVar[type[Near] | type[Far]] = Near
    forgetful: ClassVar[bool] = False
    steps: ClassVar[int] = 0
    failures: ClassVar[list[str]] = []
    crashes: ClassVar[int] = 0

    inside = 0

    @initialize()
    @guarded
    def begin(self) -> None:
        self._short = shorten()
        self._short.__enter__()
        memory = Path("/dev/shm")  # noqa: S108 -- the power stays on here, and syncs take most of the time
        self.folder = Path(tempfile.mkdtemp(prefix="everstep-machine-", dir=memory if memory.is_dir() else None))
        self.model = Model()
        self.near = self.kind(self.folder / "s.db", self.forgetful)
        self.result = 0
        self.begin_jobs()
        self.new_run("first", True)

    def teardown(self) -> None:
        try:
            if hasattr(self, "near") and not self.inside:
                guarded(Machine._settle)(self)
        finally:
            if hasattr(self, "near"):
                self.near.end()
            self._short.__exit__(None, None, None)
            shutil.rmtree(self.folder, ignore_errors=True)

    def _settle(self) -> None:
        for name in list(self.model.runs):
            self._leave(name)
        for name, entry in self.model.runs.items():
            for number in range(1, len(entry.saved) + 1):
                self._check(name, number)
        self.check_queue_entries()
        same(self._do("verify", "full"), "", "verify")

    def _do(self, what: str, *args: Any) -> Any:
        return self.near.do(what, *args)

    @invariant()
    def count_steps(self) -> None:
        type(self).steps += 1

    def _some(self, pick: int) -> tuple[str, Entry]:
        names = list(self.model.runs)
        name = names[pick % len(names)]
        return name, self.model.runs[name]

    def _opened(self, pick: int) -> tuple[str, Entry]:
        """Return a run that is open, or open one: with the state that it should resume with."""
        name, entry = self._some(pick)
        if entry.live is None:
            state, number = self._do("enter", name)
            same(state, entry.opened(), f"the state with which {name} resumes")
            same(number, len(entry.saved), f"the newest checkpoint of {name}")
        return name, entry

    def _leave(self, name: str) -> None:
        entry = self.model.runs[name]
        if entry.live is None:
            return
        same(self._do("leave", name), None, "leave")
        self._ended(name, entry, "succeeded")

    def _ended(self, name: str, entry: Entry, status: str) -> None:
        """Note the end of a run. A last checkpoint without changes may be left out."""
        found, checkpoints, _ = self._do("look", name)
        same(found, status, f"the status of {name}")
        last = entry.saved[-1].state if entry.saved else {}
        assert len(checkpoints) in (len(entry.saved), len(entry.saved) + 1)
        if len(checkpoints) > len(entry.saved):
            entry.save(asked_for=status == "succeeded")
        else:
            assert last == entry.live or entry.base < len(entry.saved), f"unsaved changes of {name} were lost: {entry.live!r:.200}"
        entry.status, entry.live = status, None

    def _check(self, name: str, number: int) -> None:
        found = self._do("load", f"{name}@{number}")
        saved = self.model.runs[name].saved[number - 1]
        if saved.pruned:
            refused(found, "PrunedCheckpoint")
        else:
            same(found, saved.state, f"{name}@{number}")

    @precondition(lambda self: len(self.model.runs) < len(NAMES))
    @rule(value=VALUES, entered=st.booleans())
    @guarded
    def new_run(self, value: Any, entered: bool) -> None:
        name = next(name for name in NAMES if name not in self.model.runs)
        state = {"list": [], "first": value}
        found, number = self._do("enter", name, state)
        same((found, number), (state, 0), f"a new run {name}")
        entry = self.model.add(name, Entry(first={}))
        entry.opened()
        entry.live = copy.deepcopy(state)
        if not entered:
            self._leave(name)

    @precondition(lambda self: self.model.runs)
    @rule(pick=PICK, edits=EDITS)
    @guarded
    def edit(self, pick: int, edits: list[tuple[str, str, Any]]) -> None:
        name, entry = self._opened(pick)
        same(self._do("edit", name, edits), None, "edit")
        for how, key, value in edits:
            change(entry.live, how, key, copy.deepcopy(value), entry.aside)

    @precondition(lambda self: self.model.runs)
    @rule(pick=PICK, edits=EDITS, tags=st.sets(st.sampled_from(TAGS), max_size=1))
    @guarded
    def checkpoint(self, pick: int, edits: list[tuple[str, str, Any]], tags: set[str]) -> None:
        self.edit(pick, edits)
        name, entry = self._some(pick)
        same(self._do("checkpoint", name, None, tuple(tags)), entry.save(tuple(tags)), f"a checkpoint of {name}")

    @precondition(lambda self: self.model.runs)
    @rule(pick=PICK, step=st.sampled_from(["think", "act"]), size=st.sampled_from([1, 1, 40, 400]))
    @guarded
    def step(self, pick: int, step: str, size: int) -> None:
        name, entry = self._opened(pick)
        self.result += 1
        result = [f"result {self.result}"] * size
        same(self._do("step", name, step, result), entry.step(step, result), f"step {step} of {name}")

    @precondition(lambda self: self.model.runs)
    @rule(pick=PICK)
    @guarded
    def gate(self, pick: int) -> None:
        name, entry = self._opened(pick)
        address = entry.address("ask")
        found = self._do("gate", name, "ask")
        if found == ("waiting", None):
            assert address not in entry.answers or address in entry.unheard, f"{name} waits at {address}, which has its answer"
            self._ended(name, entry, "waiting")
        else:
            assert address in entry.answers, f"{name} went past {address} without an answer"
            same(found, ("answered", entry.answers[address]), f"{name} {address}")

    @precondition(lambda self: self.model.runs)
    @rule(pick=PICK, ahead=st.integers(0, 1), value=VALUES)
    @guarded
    def answer(self, pick: int, ahead: int, value: Any) -> None:
        name, entry = self._some(pick)
        counts = entry.saved[entry.base - 1].counts if entry.base else {}
        address = f"ask#{counts.get('ask', 0) + ahead}"
        found = self._do("answer", name, address, value)
        if found is None:
            assert address not in entry.answers, f"{name} {address} was answered twice"
            entry.answers[address] = value
            if entry.live is not None:
                entry.unheard.add(address)
        elif found.kind == "AlreadyAnswered":
            assert address in entry.answers
        else:
            refused(found, "NotFound")
            assert entry.status in OVER, f"{name} is {entry.status}, and {address} cannot be answered"

    @precondition(lambda self: self.model.runs)
    @rule(pick=PICK, at=PICK, tag=st.sampled_from(TAGS))
    @guarded
    def tag(self, pick: int, at: int, tag: str) -> None:
        name, entry = self._some(pick)
        if entry.saved:
            number = at % len(entry.saved) + 1
            same(self._do("tag", f"{name}@{number}", tag), None, "tag")
            entry.saved[number - 1].tags.add(tag)
            newest = entry.tagged(tag)
            if not entry.saved[newest - 1].pruned:
                same(self._do("load", f"{name}@{tag}"), entry.saved[newest - 1].state, f"{name}@{tag}")

    @precondition(lambda self: self.model.runs and len(self.model.runs) < len(NAMES))
    @rule(pick=PICK, at=PICK, edit=st.none() | st.dictionaries(st.sampled_from(["k", "list"]), VALUES, max_size=2))
    @guarded
    def fork(self, pick: int, at: int, edit: Any) -> None:
        name, entry = self._some(pick)
        child = next(name for name in NAMES if name not in self.model.runs)
        number = at % len(entry.saved) + 1 if entry.saved else 1
        found = self._do("fork", f"{name}@{number}", child, edit)
        if not entry.saved or entry.saved[number - 1].pruned:
            assert isinstance(found, Refused), f"{name}@{number} cannot be forked, and was"
            return
        assert found is None
        made = self.model.add(child, Entry(status="waiting", parent=(entry.serial, number)))
        made.live = {**entry.saved[number - 1].state, **(edit or {})}
        made.counts = dict(entry.saved[number - 1].counts)
        made.save()
        made.live = None

    @precondition(lambda self: self.model.runs)
    @rule(pick=PICK)
    @guarded
    def leave(self, pick: int) -> None:
        self._leave(self._some(pick)[0])

    @precondition(lambda self: self.model.runs)
    @rule(pick=PICK)
    @guarded
    def delete(self, pick: int) -> None:
        name, entry = self._some(pick)
        if entry.live is not None:
            refused(self._do("delete", name), "LeaseHeld")
            self._leave(name)
        same(self._do("delete", name), None, "delete")
        del self.model.runs[name]
        assert self._do("runs") == list(self.model.runs)

    @precondition(lambda self: self.model.runs)
    @rule(pick=PICK, at=PICK)
    @guarded
    def load(self, pick: int, at: int) -> None:
        name, entry = self._some(pick)
        if entry.saved:
            self._check(name, at % len(entry.saved) + 1)

    @precondition(lambda self: self.model.runs)
    @rule(pick=PICK)
    @guarded
    def look(self, pick: int) -> None:
        name, entry = self._some(pick)
        status, checkpoints, steps = self._do("look", name)
        same((status, steps), (entry.status, [address for address, _ in entry.journal]), f"status and steps of {name}")
        tags = [(n, set(tags)) for n, tags in checkpoints]
        same(tags, [(n, saved.tags) for n, saved in enumerate(entry.saved, 1)], f"the checkpoints of {name}")
        same(self._do("runs"), list(self.model.runs), "the list of runs")

    @precondition(lambda self: self.model.runs)
    @rule(keep_last=st.integers(1, 4), tagged=st.booleans(), dry_run=st.booleans())
    @guarded
    def prune(self, keep_last: int, tagged: bool, dry_run: bool) -> None:
        dropped = self._do("prune", keep_last, tagged, dry_run)
        for name, numbers in dropped.items():
            stay = self.model.must_stay(name, keep_last, tagged) & set(numbers)
            assert not stay, f"prune dropped {name}@{stay}"
            for number in numbers if not dry_run else ():
                self.model.runs[name].saved[number - 1].pruned = True

    @precondition(lambda self: self.model.runs)
    @rule(pick=PICK, lines=st.integers(10, 60))
    @guarded
    def put_back_what_gc_has_freed(self, pick: int, lines: int) -> None:
        """Take a part out of the state, let gc free its chunks, and then put the same object back."""
        self.edit(pick, [("set", "more", [f"line {i} of {lines} " * 4 for i in range(lines)])])
        for edits in ([], [("take", "more", None)], [("put back", "more", None)], [("append", "more", "end")]):
            for turn in range(5):
                self.checkpoint(pick, [*edits, ("set", "k", f"turn {turn} " * 40)], set())
                edits = []
            self.prune(1, False, False)
            self.gc()
        name, entry = self._some(pick)
        self._check(name, len(entry.saved))

    @precondition(lambda self: self.model.runs)
    @rule()
    @guarded
    def gc(self) -> None:
        same(self._do("gc"), None, "gc")

    @precondition(lambda self: self.model.runs)
    @rule(depth=st.sampled_from(["quick", "records", "full"]))
    @guarded
    def verify(self, depth: str) -> None:
        same(self._do("verify", depth), "", f"verify {depth}")

    @precondition(lambda self: self.model.runs)
    @rule()
    @guarded
    def crash(self) -> None:
        type(self).crashes += 1
        self.near.crash()
        self.workers_died()
        for entry in self.model.runs.values():
            entry.lost()

    @precondition(lambda self: self.model.runs)
    @rule(pick=PICK, edits=EDITS)
    @guarded
    def crash_inside_a_save(self, pick: int, edits: list[tuple[str, str, Any]]) -> None:
        """Crash inside a save. Only the save in flight may or may not be there."""
        self.edit(pick, edits)
        name, entry = self._some(pick)
        type(self).crashes += 1
        self.near.crash_inside("checkpoint", name, None, ())
        made = len(self._do("look", name)[1]) - len(entry.saved)
        assert made in (0, 1)
        if made:
            entry.save()
        self.workers_died()
        for other in self.model.runs.values():
            other.lost()

    @precondition(lambda self: self.model.runs)
    @rule()
    @guarded
    def reopen(self) -> None:
        for name in list(self.model.runs):
            self._leave(name)
        self.workers_died()
        self.near.reopen()

    @precondition(lambda self: self.near.ghosts)
    @rule(pick=PICK)
    @guarded
    def a_ghost_writes(self, pick: int) -> None:
        """Write through a handle from before a crash; if its run was taken over since, the write has no effect."""
        ghost = self.near.ghosts[pick % len(self.near.ghosts)]
        for name in list(ghost.open):
            entry = self.model.runs.get(name)
            if entry is not None and entry.live is not None:
                before = self._do("look", name)
                refused(ghost.do("late", name, name), "LostLease", "Conflict")  # the latter for another run of the same name
                same(self._do("look", name), before, f"what there is of {name} after a ghost wrote")


def _settings(examples: int) -> settings:
    return settings(
        max_examples=examples, stateful_step_count=STEPS_OF_ONE, deadline=None, database=None, print_blob=False,
        phases=(Phase.generate,), suppress_health_check=list(HealthCheck),
    )  # fmt: skip


def run(folder: Path, *, deep: bool, seed: int = 0, progress: Progress = None) -> Count:
    """3,000 steps; deep: 100,000, a tenth of them in processes that are killed."""
    count = Count("a crash between any two calls")
    with count.timed():
        wanted = DEEP if deep else SHORT
        for kind, steps in ((Near, wanted * 9 // 10), (Far, wanted // 10)):
            drive(kind, steps, seed, count, progress)
        count.tell_canary('a backend that says "durable" before it writes', canary(folder))
    return count


def drive(kind: type[Near] | type[Far], wanted: int, seed: int, count: Count, progress: Progress) -> None:
    """Run random histories until enough steps were made, or one of them failed."""
    machine: Any = type(f"{kind.__name__}Machine", (Machine,), {"kind": kind, "steps": 0, "crashes": 0, "failures": []})
    while machine.steps < wanted and not count.notes:
        before = machine.steps
        try:
            run_state_machine_as_test(seeded(seed)(machine), settings=_settings(10))
        except Exception as error:  # noqa: BLE001 -- every exception is a failure, with the calls that led to it
            count.wrong += 1
            count.note(
                f"seed {seed}, {kind.__name__}: {machine.failures[-1:]} {error!r:.600}\n    "
                + "\n    ".join(getattr(error, "__notes__", ()))
            )
        count.tried += machine.steps - before
        count.held += machine.steps - before if not count.notes else 0
        seed += 1
        if progress is not None:
            progress(count)


def canary(folder: Path) -> bool:
    """Whether a lost acknowledged save is detected after a crash."""
    machine = type("ForgetfulMachine", (Machine,), {"forgetful": True, "steps": 0, "crashes": 0, "failures": []})
    for seed in range(5):
        try:
            run_state_machine_as_test(seeded(seed)(machine), settings=_settings(20))
        except (AssertionError, EverstepError, ExceptionGroup):  # as a wrong answer, an unexplained error, or both
            return True
    return False
