"""A base relies only on what it writes and on what the base before it reaches: everything else may be freed at any time."""

from __future__ import annotations

import random
from typing import Any

import pytest

from everstep.codec.frame import Framer
from everstep.codec.values import encode
from everstep.errors import DamagedChunk
from everstep.snapshot import saver, tree
from everstep.snapshot.loader import Loader
from everstep.snapshot.saver import Saver


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saver, "BASE_EVERY", 1)
    for name, value in {"INLINE": 64, "TARGET": 128, "MOST": 512, "PIECE_LEAST": 32, "PIECE_MOST": 128, "FANOUT": 4}.items():
        monkeypatch.setattr(tree, name, value)


class Sparing:
    """A store that keeps only what the newest base reaches."""

    def __init__(self) -> None:
        self.chunks: dict[bytes, bytes] = {}
        self.written = 0
        wrap = Framer("none").wrap
        self.saver = Saver(wrap, checking=True)
        self.saver.begin({})

    def save(self) -> None:
        saved = self.saver.build(whole=True)
        assert saved.base is not None
        self.written = len(saved.chunks)
        self.chunks.update(saved.chunks)
        reached: set[bytes] = set()

        def fetch(digests: Any) -> dict[bytes, bytes]:
            reached.update(digests)
            return {digest: self.chunks[digest] for digest in digests if digest in self.chunks}

        value = Loader(fetch, Framer().unwrap).load(saved.base)
        assert encode(value) == encode(self.saver.state)
        self.chunks = {digest: self.chunks[digest] for digest in reached}


def items(count: int, seed: int = 0) -> list[Any]:
    return [{"n": n + seed, "text": f"item {n + seed} " * 4} for n in range(count)]


def test_what_was_away_for_a_base_is_written_again() -> None:
    store = Sparing()
    state = store.saver.state
    state["a"] = items(60)
    state["b"] = "x"
    store.save()
    first = store.written
    part = state.pop("a")
    store.save()
    state["a"] = part
    store.save()
    assert store.written >= first
    state["b"] = "y"
    store.save()
    assert store.written <= 3  # what was there all the time is not


def test_a_part_inside_a_part_that_comes_back() -> None:
    store = Sparing()
    state = store.saver.state
    state["outer"] = [{"inner": items(30, 100 * n), "text": "long text " * 50} for n in range(20)]
    store.save()
    kept = state["outer"][7]
    del state["outer"][7]
    store.save()
    state["outer"].insert(3, kept)
    store.save()
    kept["inner"].append("more")
    store.save()


def test_equal_content_elsewhere_is_shared_only_while_it_is_there() -> None:
    store = Sparing()
    state = store.saver.state
    state["a"] = items(40)
    store.save()
    state["b"] = items(40)
    store.save()
    assert store.written <= 4  # of about twenty
    del state["a"], state["b"]
    store.save()
    state["c"] = items(40)
    store.save()


@pytest.mark.parametrize("seed", range(40))
def test_any_walk(seed: int) -> None:
    luck = random.Random(seed)
    store = Sparing()
    state = store.saver.state
    state["root"] = {}
    away: list[Any] = []
    for turn in range(60):
        for _ in range(luck.randrange(1, 4)):
            _change(luck, state, away, turn)
        if luck.random() < 0.05:
            store.saver.lost()
        store.save()


def _change(luck: random.Random, state: Any, away: list[Any], turn: int) -> None:
    root = state["root"]
    name = f"k{luck.randrange(8)}"
    choice = luck.randrange(9)
    if choice == 0 and name in root:
        away.append(root.pop(name))
    elif choice == 1 and away:
        root[name] = away.pop(luck.randrange(len(away)))
    elif choice == 2 and isinstance(root.get(name), list):
        root[name].append({"turn": turn, "deep": items(luck.randrange(12), turn)})
    elif choice == 3 and isinstance(root.get(name), list) and root[name]:
        del root[name][luck.randrange(len(root[name]))]
    elif choice == 4 and isinstance(root.get(name), list):
        root[f"k{luck.randrange(8)}"] = root[name]
    elif choice == 5:
        root[name] = "words and words " * luck.randrange(40)
    elif choice == 6:
        root[name] = {f"d{n}": items(luck.randrange(4), n) for n in range(luck.randrange(30))}
    elif choice == 7 and isinstance(root.get(name), list) and root[name]:
        away.append(root[name].pop(luck.randrange(len(root[name]))))
    else:
        root[name] = items(luck.randrange(60), luck.randrange(3))


def test_the_harness_notices_a_base_that_relies_on_more(monkeypatch: pytest.MonkeyPatch) -> None:
    node = tree.Node((), 0, 0)
    monkeypatch.setattr(tree.Builder, "reuse", lambda self, digest: digest is not None and self._used.setdefault(digest, node) is not None)
    monkeypatch.setattr(tree.Builder, "reached", lambda self: {**self.known, **dict.fromkeys(self.chunks, node)})
    monkeypatch.setattr(tree.Builder, "unfolded", lambda self, reached: 0)
    with pytest.raises(DamagedChunk):
        _walk_all()


def _walk_all() -> None:
    for seed in range(40):
        test_any_walk(seed)
