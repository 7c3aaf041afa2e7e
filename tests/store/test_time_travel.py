"""Random histories with prune, forks of forks, edits, deleted parents and moved tags, against a model that keeps every state."""

import copy
import os
import random
from typing import Any

import pytest

import everstep
from everstep.codec.values import encode
from everstep.errors import DamagedChunk, NotFound, PrunedCheckpoint, RunDeleted
from everstep.snapshot.diff import patch
from everstep.store.travel import blame as blaming

HISTORIES = 150 if os.environ.get("EVERSTEP_DEEP") else 6


class Model:
    """All states of all runs, whole. Answers by looking at them one by one."""

    def __init__(self) -> None:
        self.states: dict[str, list[Any]] = {}
        self.pruned: dict[str, set[int]] = {}
        self.origin: dict[str, tuple[str, int]] = {}
        self.key: dict[str, int] = {}  # which run of that id it is: an id may be used again
        self.origin_key: dict[str, int] = {}
        self.tags: dict[tuple[str, str], int] = {}

    def kept(self, run: str) -> list[int]:
        return [n for n in range(1, len(self.states[run]) + 1) if n not in self.pruned[run]]

    def line(self, run: str, number: int) -> tuple[list[tuple[str, int, bool]], bool]:
        """The checkpoints from one back to the beginning, each with whether its state is there; and whether the beginning is."""
        out = [(run, n, n not in self.pruned[run]) for n in range(number, 0, -1)]
        if run not in self.origin:
            return out, True
        parent, fork = self.origin[run]
        if parent not in self.states or self.key[parent] != self.origin_key[run]:
            return out, False
        more, whole = self.line(parent, fork)
        return out + more, whole

    def blame(self, run: str, number: int, path: list[Any]) -> tuple[str, bool, str | None]:
        line, whole = self.line(run, number)
        value = at(self.states[run][number - 1], path)
        seen, near = line[0], True
        for place in line[1:]:
            if not place[2]:
                near = False
                continue
            if at(self.states[place[0]][place[1] - 1], path) != value:
                return f"{seen[0]}@{seen[1]}", near, None if near else f"{place[0]}@{place[1]}"
            seen, near = place, True
        return f"{seen[0]}@{seen[1]}", near and whole, None


def at(state: Any, path: list[Any]) -> Any:
    """The bytes of what is at a path, or nothing."""
    try:
        for step in path:
            state = state[step]
    except (KeyError, TypeError, IndexError):
        return None
    return encode(state)


def edit(rng: random.Random, state: Any) -> None:
    """Change something by keys, or append: where a value is can be said without knowing how it came there."""
    what, key = rng.randrange(8), rng.choice("abcd")
    if what < 3:
        state["d"][key] = rng.choice([0, 1, 1.5, "x", {"y": rng.randrange(2)}, [rng.randrange(2)]])
    elif what == 3:
        state["d"].pop(key, None)
    elif what == 4 and key in state["d"]:
        state["d"][key] = state["d"].pop(key)  # moves it to the end
    elif what == 5:
        state["log"].append({"n": rng.randrange(3)})
    elif what == 6:
        state["n"] = rng.randrange(3)
    else:
        state["d"] = dict(state["d"])


class History:
    def __init__(self, store: everstep.Store, seed: int):
        self.store, self.rng, self.model, self.counted = store, random.Random(seed), Model(), 0
        self.live(self.name(), {"d": {"a": 1, "b": {"y": 0}}, "log": [], "n": 0})

    def name(self) -> str:
        self.counted += 1
        self.model.key[f"r{self.counted}"] = self.counted
        return f"r{self.counted}"

    def live(self, name: str, state: Any = None) -> None:
        """Open a run, change it and save it some times."""
        with self.store.run(name, state=copy.deepcopy(state)) as run:
            self.model.states.setdefault(name, [])
            self.model.pruned.setdefault(name, set())
            for _ in range(self.rng.randint(1, 5)):
                for _ in range(self.rng.randint(0, 3)):
                    edit(self.rng, run.state)
                run.checkpoint()
                self.model.states[name].append(copy.deepcopy(run.state))

    def step(self) -> None:
        name = self.rng.choice(list(self.model.states))
        number = self.rng.choice(self.model.kept(name))
        what = self.rng.randrange(10)
        if what < 3:
            self.live(name)
        elif what < 6:
            self.fork(name, number)
        elif what < 8:
            self.prune(name)
        elif what == 8:
            tag = self.rng.choice(["good", "best"])
            self.store.tag(f"{name}@{number}", tag)
            self.model.tags[name, tag] = max(number, self.model.tags.get((name, tag), 0))
        elif len(self.model.states) > 2:
            self.delete(name)

    def fork(self, name: str, number: int) -> None:
        child = self.name()
        changed = {"n": self.rng.randrange(3)} if self.rng.random() < 0.4 else None
        self.store.fork(f"{name}@{number}", child, edit=changed)
        state = copy.deepcopy(self.model.states[name][number - 1])
        state.update(changed or {})
        self.model.states[child], self.model.pruned[child] = [state], set()
        self.model.origin[child], self.model.origin_key[child] = (name, number), self.model.key[name]

    def prune(self, name: str) -> None:
        plan = self.store.prune(everstep.Retention(keep_last=self.rng.randint(1, 3)), run=name)
        self.model.pruned[name] |= {d.number for run in plan.runs for d in run.decisions if not d.kept}
        if self.rng.random() < 0.5:
            self.store.gc()

    def delete(self, name: str) -> None:
        self.store.delete(name)
        del self.model.states[name], self.model.pruned[name]
        self.model.tags = {(run, tag): n for (run, tag), n in self.model.tags.items() if run != name}
        self.model.origin.pop(name, None)
        if self.rng.random() < 0.5:  # another run takes the id
            self.counted += 1
            self.model.key[name] = self.counted
            self.live(name, {"d": {"a": 1}, "log": [], "n": 0})

    def check(self) -> int:
        """Hold what the store says against the model; how many answers were compared."""
        asked = 0
        places = [(run, n) for run in self.model.states for n in self.model.kept(run)]
        for run, n in places:
            assert encode(self.store.load(f"{run}@{n}")) == encode(self.model.states[run][n - 1])
        for run in self.model.states:
            for n in self.model.pruned[run]:
                with pytest.raises(PrunedCheckpoint):
                    self.store.load(f"{run}@{n}")
        for (run, tag), n in self.model.tags.items():
            if n in self.model.kept(run):
                assert encode(self.store.load(f"{run}@{tag}")) == encode(self.model.states[run][n - 1])
        for _ in range(12):
            self.diffs(*self.rng.choice(places), *self.rng.choice(places))
            asked += 1 + self.blames(*self.rng.choice(places))
        return asked + len(places)

    def diffs(self, run: str, n: int, other: str, m: int) -> None:
        old, new = self.model.states[run][n - 1], self.model.states[other][m - 1]
        found = self.store.diff(f"{run}@{n}", f"{other}@{m}")
        assert encode(patch(copy.deepcopy(old), found)) == encode(new)
        assert bool(found) == (encode(old) != encode(new))
        assert all(c.kind == "moved" or c.kind != "changed" or encode(c.before) != encode(c.after) for c in found)

    def blames(self, run: str, n: int) -> int:
        state = self.model.states[run][n - 1]
        paths = [["n"], ["d"], ["log"], *(["d", k] for k in state["d"]), *(["log", i] for i in range(len(state["log"])))]
        for path in paths:
            said = self.store.blame(f"{run}@{n}", path)
            assert (said.ref, said.exact, said.after) == self.model.blame(run, n, path), (run, n, path)
        return len(paths)


def test_random_histories_agree_with_the_model(store: everstep.Store) -> None:
    assert _search(store, HISTORIES) > 30 * HISTORIES
    assert store.verify("full").ok


def _search(store: everstep.Store, histories: int) -> int:
    """Let random histories happen; how many answers were compared."""
    asked = 0
    for seed in range(histories):
        for run in list(store.runs(limit=1000)):
            store.delete(run.id)
        history = History(store, seed)
        for _ in range(14):
            history.step()
        asked += history.check()
    return asked


@pytest.mark.parametrize("broken", ["near", "forks", "deleted"])
def test_canary_a_blame_that_guesses_is_caught(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    older, origin = blaming._Run.older, blaming._origin

    def guessing(run: Any, number: int) -> Any:
        found, known = older(run, number)
        return (found._replace(near=True) if found else None), known

    if broken == "near":
        monkeypatch.setattr(blaming._Run, "older", guessing)
    elif broken == "forks":
        monkeypatch.setattr(blaming, "_origin", lambda backend, row: None)
    else:
        monkeypatch.setattr(
            blaming, "_origin", lambda backend, row: None if (found := origin(backend, row)) and found[0] is None else found
        )
    with pytest.raises(AssertionError):
        _search(everstep.open("memory://"), 20)


def grown(store: everstep.Store) -> None:
    with store.run("q", state={"x": 0, "y": 0}) as run:
        for n in range(1, 8):
            run.state["y"] = n
            if n == 5:
                run.state["x"] = 1
            run.checkpoint(tags="keep" if n in (4, 6) else ())


def test_blame_says_what_it_cannot_know_after_prune(store: everstep.Store) -> None:
    grown(store)
    assert str(store.blame("q", "x")) == "q@5"
    store.prune(everstep.Retention(keep_last=1, keep_tagged=["keep"]), run="q")
    found = store.blame("q", "x")
    assert str(found) == "between q@4 and q@6"
    assert (found.ref, found.exact, found.after) == ("q@6", False, "q@4")
    store.prune(everstep.Retention(keep_last=1), run="q")
    assert str(store.blame("q", "x")) == "q@7 or earlier"


def test_blame_looks_behind_forks_of_forks(store: everstep.Store) -> None:
    grown(store)
    store.fork("q@6", "f")
    store.fork("f@1", "g", edit={"z": 1})
    assert str(store.blame("g", "x")) == "q@5"
    assert str(store.blame("g", "z")) == "g@1"
    store.delete("q")
    assert str(store.blame("g", "x")) == "f@1 or earlier"
    grown(store)  # another run with the same id is not the parent
    assert str(store.blame("g", "x")) == "f@1 or earlier"


def test_a_view_of_a_deleted_run_says_so(store: everstep.Store) -> None:
    with store.run("r", state={"long": [f"{n} " * 50 for n in range(4000)]}) as run:
        run.checkpoint()
    view = store.view("r@1")
    store.delete("r")
    store.gc()
    with pytest.raises(RunDeleted, match="run 'r' was deleted") as caught:
        list(view["long"])
    assert isinstance(caught.value, NotFound)
    assert "backup" not in str(caught.value)


def test_a_view_of_a_checkpoint_that_was_pruned_says_so(store: everstep.Store) -> None:
    with store.run("r", state={}) as run:
        for k in range(3):
            run.state["long"] = [f"{n * k} " * 50 for n in range(4000)]
            run.checkpoint()
    view = store.view("r@1")
    store.prune(everstep.Retention(keep_last=1), run="r")
    store.gc()
    with pytest.raises(PrunedCheckpoint):
        list(view["long"])


def test_a_run_that_is_deleted_while_it_is_read_is_not_called_damaged(store: everstep.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    grown(store)
    locate = store.backend.locate

    def deleting(*args: Any, **options: Any) -> Any:
        monkeypatch.setattr(store.backend, "locate", locate)
        store.delete("q")
        return locate(*args, **options)

    monkeypatch.setattr(store.backend, "locate", deleting)
    with pytest.raises(RunDeleted):
        store.load("q")


def test_a_chunk_that_is_really_gone_is_still_damage(store: everstep.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with store.run("r", state={"long": [f"{n} " * 50 for n in range(4000)]}) as run:
        run.checkpoint()
    view = store.view("r@1")
    monkeypatch.setattr(store.backend, "chunks", lambda family, digests: {})
    with pytest.raises(DamagedChunk):
        list(view["long"])
