"""Random histories through the public API against a plain model: edits, checkpoints, reopening, forks, diffs, tags, deletions."""

import copy
import shutil
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, rule
from pace import examples

import everstep
from everstep.backends.memory import data as memory
from everstep.codec.values import encode
from everstep.errors import NotFound, Unstorable
from everstep.snapshot.diff import patch

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.floats(allow_nan=False),
    st.text("abü", max_size=4),
    st.just("long " * 300),
    st.binary(max_size=3),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(["a", "b", 1]), inner, max_size=3),
        st.tuples(inner),
        st.frozensets(st.integers(0, 3), max_size=2),
    ),
    max_leaves=8,
)
KEYS = st.sampled_from(["a", "b", "c", "list", 7])


class Model:
    """One run as it should be: the state of each checkpoint, and the tags."""

    def __init__(self, state: Any):
        self.live = copy.deepcopy(state)
        self.saved: list[Any] = []
        self.tags: dict[str, int] = {}


class Histories(RuleBasedStateMachine):
    kind: ClassVar[str]
    runs = Bundle("runs")

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.url = str(self.folder / "s.db") if self.kind == "sqlite" else f"memory://{self.folder.name}"
        self.store = everstep.open(self.url, checking=True)
        self.models: dict[str, Model] = {}
        self.open: dict[str, everstep.Run] = {}
        self.count = 0

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        self.leave_all()
        assert self.store.verify("full").ok
        for name in self.models:
            self.check_all(name)
        self.store.close()
        memory._named.pop(self.folder.name, None)
        shutil.rmtree(self.folder)

    def live(self, name: str) -> everstep.Run:
        if name not in self.open:
            self.open[name] = self.store.run(name).__enter__()
            saved = self.models[name].saved
            self.models[name].live = copy.deepcopy(saved[-1]) if saved else {}
        return self.open[name]

    def leave_all(self) -> None:
        for name in list(self.open):
            self.leave_one(name)

    def leave_one(self, name: str) -> None:
        """Leaving saves what is unsaved; a last checkpoint that says nothing new may be left out."""
        self.open.pop(name).__exit__(None, None, None)
        model = self.models[name]
        known = model.saved[-1] if model.saved else {}
        if self.store.get(name).checkpoints > len(model.saved) or encode(known) != encode(model.live):
            model.saved.append(copy.deepcopy(model.live))

    def check_all(self, name: str) -> None:
        for number, state in enumerate(self.models[name].saved, 1):
            assert encode(self.store.load(f"{name}@{number}")) == encode(state)

    @rule(target=runs, state=st.dictionaries(KEYS, VALUES, max_size=3), durability=st.sampled_from(["sync", "sync", "async", "exit"]))
    def new_run(self, state: Any, durability: Any) -> str:
        self.count += 1
        name = f"run{self.count}"
        self.open[name] = self.store.run(name, state=state, durability=durability).__enter__()
        self.models[name] = Model(state)
        return name

    @rule(name=runs, key=KEYS, value=VALUES)
    def set_key(self, name: str, key: Any, value: Any) -> None:
        self.live(name).state[key] = value
        self.models[name].live[key] = copy.deepcopy(value)

    @rule(name=runs, key=KEYS)
    def drop_key(self, name: str, key: Any) -> None:
        self.live(name).state.pop(key, None)
        self.models[name].live.pop(key, None)

    @rule(name=runs, key=KEYS, how=st.integers(0, 9), at=st.integers(-3, 5), value=VALUES)
    def edit_inside(self, name: str, key: Any, how: int, at: int, value: Any) -> None:
        for state, new in ((self.live(name).state, value), (self.models[name].live, copy.deepcopy(value))):
            inner = state.get(key)
            if isinstance(inner, list):
                edit_list(inner, how, at, new)
            elif isinstance(inner, dict):
                edit_dict(inner, how, new)
            elif isinstance(inner, str):
                state[key] = inner[:at] + "Q" + inner[at:]

    @rule(name=runs)
    def checkpoint(self, name: str) -> None:
        run = self.live(name)
        model = self.models[name]
        assert run.checkpoint().number == len(model.saved) + 1
        model.saved.append(copy.deepcopy(model.live))
        run.flush()
        assert encode(self.store.load(name)) == encode(model.live)

    @rule(name=runs, value=VALUES)
    def hand_in(self, name: str, value: Any) -> None:
        run, model = self.live(name), self.models[name]
        model.live = {**model.live, "c": copy.deepcopy(value)}
        run.checkpoint(state=copy.deepcopy(model.live))
        model.saved.append(copy.deepcopy(model.live))

    @rule(name=runs)
    def refused(self, name: str) -> None:
        run, before = self.live(name), len(self.models[name].saved)
        run.flush()
        run.state["bad"] = [print]
        with pytest.raises(Unstorable):
            run.checkpoint()
        del run.state["bad"]
        assert self.store.get(name).checkpoints == before

    @rule()
    def reopen(self) -> None:
        self.leave_all()
        self.store.close()
        self.store = everstep.open(self.url, checking=True)

    @rule(name=runs)
    def leave(self, name: str) -> None:
        if name in self.open:
            self.leave_one(name)

    @rule(target=runs, name=runs, pick=st.integers(0, 100), edit=st.none() | st.dictionaries(KEYS, VALUES, max_size=2))
    def fork(self, name: str, pick: int, edit: Any) -> str:
        saved = self.settled(name)
        self.count += 1
        child = f"run{self.count}"
        if not saved:
            with pytest.raises(NotFound):
                self.store.fork(name, child)
            self.models[child] = Model({})
            self.store.run(child).__enter__().__exit__(None, None, None)
            return child
        number = pick % len(saved) + 1
        self.store.fork(f"{name}@{number}", child, edit)
        state = copy.deepcopy(saved[number - 1])
        state.update(copy.deepcopy(edit or {}))
        self.models[child] = Model(state)
        self.models[child].saved.append(state)
        return child

    def settled(self, name: str) -> list[Any]:
        """The saved states of a run, once they are all there to be read."""
        if name in self.open:
            self.open[name].flush()
        return self.models[name].saved

    @rule(name=runs, pick=st.integers(0, 100))
    def load_any(self, name: str, pick: int) -> None:
        saved = self.settled(name)
        if saved:
            back = pick % len(saved)
            assert encode(self.store.load(f"{name}~{back}")) == encode(saved[-1 - back])
            assert list(self.store.view(f"{name}~{back}")) == list(saved[-1 - back])

    @rule(name=runs, other=runs, one=st.integers(0, 100), two=st.integers(0, 100))
    def diff(self, name: str, other: str, one: int, two: int) -> None:
        left, right = self.settled(name), self.settled(other)
        if left and right:
            a, b = one % len(left) + 1, two % len(right) + 1
            changes = self.store.diff(f"{name}@{a}", f"{other}@{b}")
            assert encode(patch(copy.deepcopy(left[a - 1]), changes)) == encode(right[b - 1])

    @rule(name=runs, pick=st.integers(0, 100))
    def diff_of_neighbours(self, name: str, pick: int) -> None:
        saved = self.settled(name)
        if len(saved) > 1:
            a = pick % (len(saved) - 1) + 1
            changes = self.store.diff(f"{name}@{a}", f"{name}@{a + 1}")
            assert encode(patch(copy.deepcopy(saved[a - 1]), changes)) == encode(saved[a])

    @rule(name=runs, pick=st.integers(0, 100), tag=st.sampled_from(["good", "bad"]))
    def tag(self, name: str, pick: int, tag: str) -> None:
        saved = self.settled(name)
        if saved:
            number = pick % len(saved) + 1
            self.store.tag(f"{name}@{number}", tag)
            tags = self.models[name].tags
            tags[tag] = max(number, tags.get(tag, 0))
            assert encode(self.store.load(f"{name}@{tag}")) == encode(saved[tags[tag] - 1])

    @rule(name=consumes(runs))
    def delete(self, name: str) -> None:
        if name in self.open:
            self.leave_one(name)
        self.store.delete(name)
        del self.models[name]
        with pytest.raises(NotFound):
            self.store.get(name)

    @rule()
    def list_runs(self) -> None:
        assert {info.id for info in self.store.runs()} == set(self.models)

    @rule()
    def verify(self) -> None:
        assert self.store.verify("records").ok


def edit_list(inner: Any, how: int, at: int, value: Any) -> None:
    if how < 3:
        inner.append(value)
    elif how == 3:
        inner.insert(at, value)
    elif how == 4 and inner:
        inner.pop(at % len(inner))
    elif how == 5:
        inner[at : at + 2] = [value]
    elif how == 6:
        inner.reverse()
    elif how == 7:
        del inner[::2]
    elif how == 8 and len(inner) < 50:
        inner += inner
    elif inner and isinstance(inner[0], list):
        inner[0].append(value)


def edit_dict(inner: Any, how: int, value: Any) -> None:
    if how < 5:
        inner["abcde"[how]] = value
    elif how == 5:
        inner.clear()
    elif how == 6:
        inner.setdefault("list", []).append(value) if isinstance(inner.get("list", []), list) else None
    elif how == 7 and inner:
        inner.popitem()
    elif how == 8 and "a" in inner:
        inner["a"] = inner.pop("a")


class MemoryHistories(Histories):
    kind = "memory"


class SqliteHistories(Histories):
    kind = "sqlite"


TestMemoryHistories = MemoryHistories.TestCase
TestMemoryHistories.settings = settings(max_examples=examples(80), stateful_step_count=40)
TestSqliteHistories = SqliteHistories.TestCase
TestSqliteHistories.settings = settings(max_examples=examples(40), stateful_step_count=35)
