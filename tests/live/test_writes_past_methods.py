"""Writes that go past the methods of a tracked list or dict. A base never disagrees with its deltas, whatever was written how."""

import copy
import heapq
import os
import random
from collections.abc import Callable
from typing import Any

import pytest

import everstep
from everstep.codec.values import Decoder, encode
from everstep.snapshot import delta_builder, saver, tree
from everstep.snapshot.delta import apply
from everstep.snapshot.delta_builder import state_of
from everstep.snapshot.loader import Loader
from everstep.snapshot.saver import NO_DELTA, Saver


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few deltas for each base, and everything cut into tiny parts."""
    monkeypatch.setattr(saver, "BASE_EVERY", 4)
    for name, value in {"INLINE": 64, "TARGET": 128, "MOST": 512, "PIECE_LEAST": 32, "PIECE_MOST": 128, "FANOUT": 4}.items():
        monkeypatch.setattr(tree, name, value)


def messages(count: int) -> list[dict[str, Any]]:
    return [{"n": n, "text": f"message {n} " * 3} for n in range(count)]


def raw(value: Any, *path: Any) -> Any:
    """A part of the state, taken without calling any method of ours."""
    for step in path:
        value = dict.get(value, step) if isinstance(value, dict) else list.__getitem__(value, step)
    return value


def reorder(target: Any) -> None:
    key = next(dict.__iter__(target))
    dict.__setitem__(target, key, dict.pop(target, key))


WRITES: dict[str, Callable[[Any], Any]] = {
    "list.__setitem__": lambda s: list.__setitem__(s["l"], 3, {"new": 1}),
    "list.sort": lambda s: list.sort(s["l"], key=lambda m: str(m.get("n"))[::-1]),
    "list.insert": lambda s: list.insert(s["l"], 2, {"new": 2}),
    "list.pop": lambda s: list.pop(s["l"], 5),
    "list.reverse, unseen": lambda s: list.reverse(raw(s, "l")),
    "heapify, unseen": lambda s: heapq.heapify(raw(s, "heap")),
    "heappush": lambda s: heapq.heappush(s["heap"], -1),
    "dict.__setitem__": lambda s: dict.__setitem__(s["d"], "k3", "other"),
    "dict.__setitem__, new": lambda s: dict.__setitem__(s["d"], "new", [1, {"x": 2}]),
    "dict.__setitem__, deep": lambda s: dict.__setitem__(raw(s, "l", 7), "text", "hidden"),
    "dict.pop": lambda s: dict.pop(s["d"], "k2"),
    "dict.clear": lambda s: dict.clear(s["d"]),
    "dict, the order alone": lambda s: reorder(s["d"]),
    "exec": lambda s: exec("x = 1", {"__builtins__": {}}, s),
    "the root": lambda s: dict.__setitem__(s, "root", {"a": [1]}),
    "an exchange": lambda s: (list.__setitem__(s["l"], 1, raw(s, "l", 30)), list.__setitem__(s["l"], 30, {"n": "gone"})),
}


def begin() -> dict[str, Any]:
    return {"l": messages(40), "heap": [5, 3, 9, 1, 2], "d": {f"k{i}": i for i in range(40)}, "n": 0}


@pytest.mark.parametrize("name", WRITES)
def test_a_base_agrees_with_its_deltas_and_has_the_hidden_write(store: everstep.Store, small: None, name: str) -> None:
    with store.run("r", state=begin()) as run:
        run.checkpoint()
        for n in range(20):
            run.state["n"] = n
            run.checkpoint()
            if n == 6:
                WRITES[name](run.state)
        seen = encode(run.state)
        assert encode(store.load("r")) == seen
    report = store.verify("full")
    assert report.ok, report
    assert encode(store.load("r")) == seen


@pytest.mark.parametrize("name", WRITES)
def test_leaving_the_run_saves_what_was_written_past_the_methods(store: everstep.Store, name: str) -> None:
    with store.run("r", state=begin()) as run:
        run.checkpoint()
        WRITES[name](run.state)
        seen = encode(run.state)
    assert encode(store.load("r")) == seen
    assert store.verify("full").ok


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("after", ["append", "pop", "del", "set", "clear", "update"])
def test_methods_after_a_hidden_write_neither_fail_nor_lie(store: everstep.Store, small: None, name: str, after: str) -> None:
    with store.run("r", state=begin()) as run:
        run.checkpoint()
        WRITES[name](run.state)
        state = run.state
        if after == "append":
            state["l"].append({"n": 99})
            state["heap"].append(7)
        elif after == "pop":
            state["l"].pop(0)
            state["d"].pop("k1", None)
        elif after == "del":
            del state["l"][3:6]
            state["d"].pop("k2", None)
            state["d"].pop("new", None)
        elif after == "set":
            state["l"][3]["text"] = "set"
            state["d"]["k2"] = state["d"]["k3"] = state["d"]["new"] = {"x": 1}
        elif after == "clear":
            state["d"].clear()
            state["l"].clear()
        else:
            state["d"].update({"k3": "other", "k2": 2})
            state["l"][2]["n"] = "two"
        for n in range(9):
            run.state["n"] = n
            run.checkpoint()
            store.load("r")
        assert encode(store.load("r")) == encode(run.state)
    assert store.verify("full").ok, store.verify("full")


def test_a_key_that_was_set_and_then_removed_behind_our_back_is_no_error(store: everstep.Store) -> None:
    with store.run("r", state=begin()) as run:
        run.checkpoint()
        run.state["d"]["k3"] = "set"
        dict.pop(run.state["d"], "k3")
        run.checkpoint()
    assert "k3" not in store.load("r")["d"]
    assert store.verify("full").ok


class Life:
    """A live state; what its deltas say, and what its bases say, each followed alone."""

    def __init__(self, state: Any, prompt: bool):
        self.prompt = prompt  # whether every base is preceded by a look at everything
        self.saver = Saver(lambda content: content)
        self.saver.begin(copy.deepcopy(state))
        self.by_deltas: Any = None
        self.chunks: dict[bytes, bytes] = {}
        self.bases = self.hidden = 0

    @property
    def state(self) -> Any:
        return state_of(self.saver._tracker)

    def save(self, thorough: bool = False) -> None:
        saved = self.saver.build(thorough=thorough)
        if saved.delta != NO_DELTA:
            self.by_deltas = apply(self.by_deltas, Decoder().decode(saved.delta))
        self.chunks.update(saved.chunks)
        if saved.base is not None:
            self.bases += 1
            loaded = Loader(lambda digests: {d: self.chunks[d] for d in digests}, lambda frame: frame).load(saved.base)
            if saved.delta == NO_DELTA:
                self.by_deltas = loaded
            assert encode(loaded) == encode(self.by_deltas), "a base disagrees with its deltas"
        if (saved.base is not None and self.prompt) or thorough:
            assert encode(self.by_deltas) == encode(self.state), "the program sees something else"


LIVES = 1000 if os.environ.get("EVERSTEP_DEEP") else 25  # in each block
KEYS = ["a", "b", "c", 1, (1, 2), "n"]


def some_value(rng: random.Random, depth: int = 0) -> Any:
    luck = rng.random()
    if depth > 2 or luck < 0.4:
        return rng.choice([1, True, 1.0, None, "s" * rng.randint(0, 40), "t" * 600, (1, [2]), b"x"])
    if luck < 0.7:
        return [some_value(rng, depth + 1) for _ in range(rng.randint(0, 4))]
    return {rng.choice(KEYS): some_value(rng, depth + 1) for _ in range(rng.randint(0, 4))}


def containers(value: Any) -> list[Any]:
    found = [value]
    for child in dict.values(value) if isinstance(value, dict) else list.__iter__(value):
        if isinstance(child, (dict, list)):
            found += containers(child)
    return found


def edit_dict(rng: random.Random, target: Any, value: Any, hidden: bool) -> None:
    cls: Any = dict if hidden else type(target)
    what, key = rng.randrange(6), rng.choice(KEYS)
    if what < 3:
        cls.__setitem__(target, key, value)
    elif what == 3:
        cls.pop(target, key, None)
    elif what == 4 and target:
        key, old = cls.popitem(target)
        if rng.random() < 0.5:
            cls.__setitem__(target, key, old)
    elif what == 5 and target:
        key = next(dict.__iter__(target))
        cls.__setitem__(target, key, cls.pop(target, key))


def edit_list(rng: random.Random, target: Any, value: Any, hidden: bool) -> None:
    cls: Any = list if hidden else type(target)
    what, at = rng.randrange(8), rng.randint(0, len(target))
    if what < 2:
        cls.append(target, value)
    elif what == 2:
        cls.insert(target, at, value)
    elif what == 3 and target:
        cls.pop(target, at % len(target))
    elif what == 4 and target:
        cls.__setitem__(target, at % len(target), value)
    elif what == 5:
        cls.sort(target, key=repr)
    elif what == 6:
        cls.reverse(target)
    elif what == 7:
        cls.__setitem__(target, slice(at, at + 2), [value, value])


def live(seed: int, prompt: bool = True) -> Life:
    """One random life: writes by methods and past them, aliases, held references, lost saves, bases."""
    rng = random.Random(seed)
    keys = {f"k{i}": some_value(rng) for i in range(rng.choice([0, 40]))}
    life = Life({"l": messages(rng.choice([0, 3, 60])), "d": keys, "q": [3, 1, 2]}, prompt)
    held: list[Any] = []
    for _ in range(50):
        found = containers(life.state)
        target, value = rng.choice(found), some_value(rng)
        if rng.random() < 0.15 and len(encode(life.state)) < 4_000:
            other = rng.choice(found)
            if not any(c is target for c in containers(other)):
                value = other
        if rng.random() < 0.2:
            held.append(value)
        if rng.random() < 0.1:
            held.clear()
        hidden = rng.random() < 0.3
        life.hidden += hidden
        (edit_dict if isinstance(target, dict) else edit_list)(rng, target, value, hidden)
        del found, target, value
        if rng.random() < 0.6:
            life.save(thorough=rng.random() < 0.05)
        if rng.random() < 0.02:
            life.saver.lost()
    life.save(thorough=True)
    return life


@pytest.mark.parametrize("block", range(4))
def test_random_lives_with_hidden_writes(small: None, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = block % 2 == 0  # or never enough credit for a look at everything: what a base encodes is looked at all the same
    monkeypatch.setattr(saver, "LOOKS", 1_000_000 if prompt else -1_000_000)
    bases = hidden = 0
    for seed in range(block * LIVES, block * LIVES + LIVES):
        life = live(seed, prompt)
        bases, hidden = bases + life.bases, hidden + life.hidden
    assert bases > 2 * LIVES
    assert hidden > 10 * LIVES


def test_canary_a_saver_that_never_looks_is_caught(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_builder, "overlooked", lambda tracker: (0, 0))
    monkeypatch.setattr(delta_builder, "met", lambda tracker: [])
    monkeypatch.setattr(tree.Builder, "_refuse_strayed", lambda self, value: None)
    caught = 0
    for seed in range(20):
        try:
            live(seed)
        except (AssertionError, everstep.EverstepError):
            caught += 1
    assert caught > 10
