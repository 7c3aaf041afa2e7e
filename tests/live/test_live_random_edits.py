"""Random lives of a state: edits, aliases, references held outside, C code, lost saves; after each checkpoint the deltas add up to it."""

# ruff: noqa: C901 -- one long choice

import copy
import heapq
import random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from pace import examples

from everstep.codec.values import Decoder, encode
from everstep.snapshot.delta import apply
from everstep.snapshot.delta_builder import state_of
from everstep.snapshot.loader import Loader
from everstep.snapshot.saver import NO_DELTA, Saver

KEYS = ["a", "b", "c", "d", 1, (1, 2), "l"]


class Life:
    """A live state, and what a reader would rebuild from what was stored."""

    def __init__(self, state: Any):
        self.saver = Saver(lambda content: content)
        self.saver.begin(copy.deepcopy(state))
        self.stored: Any = None
        self.chunks: dict[bytes, bytes] = {}
        self.bases = 0

    @property
    def state(self) -> Any:
        return state_of(self.saver._tracker)

    def save(self, whole: bool = False) -> None:
        saved = self.saver.build(whole)
        if saved.delta != NO_DELTA:
            self.stored = apply(self.stored, Decoder().decode(saved.delta))
        self.chunks.update(saved.chunks)
        if saved.base is not None:
            self.bases += 1
            loaded = Loader(lambda digests: {d: self.chunks[d] for d in digests}, lambda frame: frame).load(saved.base)
            if saved.delta != NO_DELTA:
                assert encode(loaded) == encode(self.stored)
            self.stored = loaded
        assert order(self.stored) == order(self.state)
        assert encode(self.stored) == encode(self.state)


def order(value: Any) -> Any:
    """The order of all keys, which == does not compare."""
    if isinstance(value, dict):
        return [(repr(k), order(v)) for k, v in value.items()]
    return [order(v) for v in value] if isinstance(value, (list, tuple)) else None


def containers(value: Any) -> list[Any]:
    found = [value]
    for child in dict.values(value) if isinstance(value, dict) else list.__iter__(value):
        if isinstance(child, (dict, list)):
            found += containers(child)
    return found


def some_value(rng: random.Random, depth: int = 0) -> Any:
    luck = rng.random()
    if depth > 3 or luck < 0.4:
        scalars = [1, True, 1.0, None, "s" * rng.randint(0, 5), "t" * 600, (1, [2]), b"x", bytearray(b"x"), float("nan"), -0.0]
        return rng.choice(scalars)
    if luck < 0.7:
        return [some_value(rng, depth + 1) for _ in range(rng.randint(0, 4))]
    return {rng.choice(KEYS): some_value(rng, depth + 1) for _ in range(rng.randint(0, 4))}


def edit_dict(rng: random.Random, target: Any, value: Any, whole: Any) -> None:
    key = rng.choice(KEYS)
    what = rng.randrange(10)
    if what < 4:
        target[key] = value
    elif what == 4:
        target.pop(key, None)
    elif what == 5:
        target.setdefault(key, value)
    elif what == 6:
        target.update({key: value, "z": 1})
    elif what == 7 and target and target is not whole:
        target.popitem()
    elif what == 8 and isinstance(target.get(key), str):
        target[key] = target[key][:300] + "Q" + target[key][300:]
    elif what == 9 and target is not whole:
        target.clear()


def edit_list(rng: random.Random, target: Any, value: Any, small: bool) -> None:
    at = rng.randint(0, len(target))
    what = rng.randrange(18)
    if what < 4:
        target.append(value)
    elif what == 4:
        target.insert(at, value)
    elif what == 5 and target:
        target.pop(at % len(target))
    elif what == 6 and target:
        target[at % len(target)] = value
    elif what == 7:
        target[at : at + 2] = [value, value]
    elif what == 8:
        del target[at : at + 2]
    elif what == 9:
        target.reverse()
    elif what == 10:
        target += [value]
    elif what == 11 and target:
        target.pop(0)
    elif what == 12:
        target[::2] = [0] * len(target[::2])
    elif what == 13 and small:
        target *= 2
    elif what == 14 and target and isinstance(target[at % len(target)], str):
        target[at % len(target)] += "tail"
    elif what == 15:
        list.append(target, 9)  # as C code would
    elif what == 16 and all(type(v) is int for v in list.__iter__(target)):
        heapq.heapify(target)
        heapq.heappush(target, rng.randint(0, 5))
    elif what == 17:
        target.sort(key=repr)


@pytest.mark.parametrize("block", range(20))
def test_random_lives_are_saved_as_they_are_seen(block: int) -> None:
    for seed in range(block * 30, block * 30 + 30):
        rng = random.Random(seed)
        life = Life({"l": [1, 2, 3], "d": {}, "q": [[3, 1], [2]]})
        held: list[Any] = []
        for _ in range(30):
            step(rng, life, held)
        life.save()
        held.clear()
        life.save()
        life.save(whole=True)


def step(rng: random.Random, life: Life, held: list[Any]) -> None:
    state = life.state
    found = containers(state) + [h for h in held if isinstance(h, (dict, list))]
    target = rng.choice(found)
    value = some_value(rng)
    small = len(encode(state)) < 4000
    if rng.random() < 0.2 and small:
        other = rng.choice(found)
        if not any(c is target for c in containers(other)):
            value = other  # an alias, or a subtree on its way to another place
    if rng.random() < 0.2:
        held.append(value)
    if rng.random() < 0.1 and held:
        held.pop(rng.randrange(len(held)))
    if isinstance(target, dict):
        edit_dict(rng, target, value, state)
    else:
        edit_list(rng, target, value, small)
    del state, found, target, value
    if rng.random() < 0.4:
        life.save(whole=rng.random() < 0.15)
    if rng.random() < 0.03:
        life.saver.lost()


class BigLives(RuleBasedStateMachine):
    """Long lists, dicts and texts, so that bases with segments and their images are in play."""

    lists = Bundle("lists")

    @initialize(target=lists)
    def begin(self) -> Any:
        self.life = Life({"log": [], "keys": {}, "text": "word " * 5000, "nested": []})
        self.life.save()
        self.saved = True
        return multiple("log", "nested")

    def _list(self, name: str) -> Any:
        return self.life.state[name]

    @rule(name=lists, n=st.integers(1, 400), size=st.integers(1, 300))
    def grow(self, name: str, n: int, size: int) -> None:
        if len(encode(self.life.state)) < 600_000:
            self._list(name).extend({"i": i, "t": chr(97 + i % 26) * size} for i in range(n))

    @rule(name=lists, at=st.floats(0, 1), n=st.integers(1, 60))
    def insert(self, name: str, at: float, n: int) -> None:
        items = self._list(name)
        place = int(at * len(items))
        items[place:place] = [{"new": k} for k in range(n)]

    @rule(name=lists, at=st.floats(0, 1), n=st.integers(1, 500))
    def cut(self, name: str, at: float, n: int) -> None:
        items = self._list(name)
        place = int(at * len(items))
        del items[place : place + n]

    @rule(
        name=lists,
        at=st.floats(0, 0.999),
        value=st.one_of(st.integers(), st.text(max_size=20), st.just("long" * 5000), st.lists(st.integers(), max_size=4)),
    )
    def replace(self, name: str, at: float, value: Any) -> None:
        items = self._list(name)
        if items:
            items[int(at * len(items))] = value

    @rule(name=lists, at=st.floats(0, 0.999))
    def inside(self, name: str, at: float) -> None:
        items = self._list(name)
        if items and isinstance(item := items[int(at * len(items))], dict):
            item.setdefault("more", []).append("x" * 50)

    @rule(name=lists)
    def rotate(self, name: str) -> None:
        items = self._list(name)
        if items:
            items.append(items.pop(0))

    @rule(name=consumes(lists))
    def clear(self, name: str) -> None:
        self._list(name).clear()

    @rule(start=st.integers(0, 3000), n=st.integers(1, 1500))
    def add_keys(self, start: int, n: int) -> None:
        if len(self.life.state["keys"]) < 6000:
            self.life.state["keys"].update({f"k{i}": ["v" * (i % 90)] for i in range(start, start + n)})

    @rule(start=st.integers(0, 3000), n=st.integers(1, 300))
    def drop_keys(self, start: int, n: int) -> None:
        for i in range(start, start + n):
            self.life.state["keys"].pop(f"k{i}", None)

    @rule(i=st.integers(0, 3000))
    def touch_key(self, i: int) -> None:
        self.life.state["keys"].setdefault(f"k{i}", []).append(i)

    @rule(at=st.floats(0, 1), word=st.text("abc ü", max_size=30))
    def write(self, at: float, word: str) -> None:
        text = self.life.state["text"]
        place = int(at * len(text))
        self.life.state["text"] = text[:place] + word + text[place:]

    @rule()
    def save(self) -> None:
        self.life.save()

    @rule()
    def save_with_base(self) -> None:
        self.life.save(whole=True)

    @rule()
    def lose(self) -> None:
        self.life.saver.lost()

    @invariant()
    def is_a_dict(self) -> None:
        if hasattr(self, "life"):
            assert isinstance(self.life.state, dict)

    def teardown(self) -> None:
        if hasattr(self, "life"):
            self.life.save()
            self.life.save(whole=True)


TestBigLives = BigLives.TestCase
TestBigLives.settings = settings(max_examples=examples(40), stateful_step_count=25)
