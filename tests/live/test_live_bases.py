"""Bases are built from what is known of earlier ones. Nothing that moves, stands elsewhere or was interrupted may make them wrong."""

from __future__ import annotations

import copy
import random
import sys
from dataclasses import dataclass
from typing import Any

import pytest

import everstep
from everstep.codec.values import encode
from everstep.errors import StoreFull, Unstorable
from everstep.snapshot import saver, tree
from everstep.snapshot.view import DictView, ListView


@everstep.register
@dataclass
class Box:
    content: Any


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A base at every second checkpoint, and everything cut into tiny parts."""
    monkeypatch.setattr(saver, "BASE_EVERY", 2)
    for name, value in {"INLINE": 64, "TARGET": 128, "MOST": 512, "PIECE_LEAST": 32, "PIECE_MOST": 128, "FANOUT": 4}.items():
        monkeypatch.setattr(tree, name, value)


def messages(count: int) -> list[dict[str, Any]]:
    return [{"n": n, "text": f"message {n} " * 5} for n in range(count)]


def filled(store: everstep.Store, run: Any) -> None:
    run.state["inbox"] = messages(400)
    for _ in range(3):
        run.checkpoint()


def test_a_big_list_that_changed_and_moved_keeps_its_change(store: everstep.Store, small: None) -> None:
    with store.run("r") as run:
        filled(store, run)
        run.state["inbox"].append("last")
        run.state["archive"] = run.state.pop("inbox")
        for _ in range(4):
            run.checkpoint()
            assert store.load("r")["archive"][-1] == "last"


def test_a_big_list_that_went_into_an_object_is_followed(store: everstep.Store, small: None) -> None:
    with store.run("r") as run:
        filled(store, run)
        inbox = run.state.pop("inbox")
        run.state["box"] = Box(inbox)
        for n in range(20):
            inbox.append(n)
            run.checkpoint()
            assert store.load("r")["box"].content[-1] == n
            assert len(store.load("r")["box"].content) == 401 + n


def test_a_list_of_one_run_in_another_harms_neither(store: everstep.Store, small: None) -> None:
    with store.run("one") as one, store.run("two") as two:
        filled(store, one)
        two.state["x"] = one.state["inbox"]
        for n in range(6):
            one.state["inbox"].append(n)
            two.checkpoint()
            one.checkpoint()
            assert store.load("one")["inbox"][-1] == store.load("two")["x"][-1] == n


def test_a_failed_save_of_one_run_does_not_take_a_list_from_another(store: everstep.Store, small: None) -> None:
    with store.run("one") as one, store.run("two") as two:
        filled(store, one)
        two.state["x"] = one.state["inbox"]
        two.state["bad"] = object()
        with pytest.raises(Unstorable):
            two.checkpoint()
        del two.state["bad"]
        for n in range(4):
            one.state["inbox"].append(n)
            one.checkpoint()
            two.checkpoint()
            assert store.load("one")["inbox"][-1] == store.load("two")["x"][-1] == n


def test_a_list_that_was_held_over_a_reopening_is_saved_as_it_is(store: everstep.Store, small: None) -> None:
    with store.run("r") as run:
        filled(store, run)
        held = run.state["inbox"]
    held.append("later")
    with store.run("r") as run:
        run.state["inbox"] = held
        for _ in range(4):
            run.checkpoint()
            assert store.load("r")["inbox"][-1] == "later"


def test_a_list_that_was_held_over_a_failed_save_is_saved_as_it_is(
    store: everstep.Store, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.run("r") as run:
        filled(store, run)
        held = run.state.pop("inbox")
        held.append("later")
        with monkeypatch.context() as patch:

            def full(commit: Any) -> None:
                raise StoreFull

            patch.setattr(store.backend, "commit", full)
            with pytest.raises(StoreFull):
                run.checkpoint()
        run.state["back"] = held
        for _ in range(4):
            run.checkpoint()
            assert store.load("r")["back"][-1] == "later"


def test_an_edit_that_was_interrupted_anywhere_is_not_lost() -> None:
    """Ctrl-C at every line of an edit: whatever the program then sees is what the next checkpoint saves."""
    points = 0
    for at in range(1, 200):
        with everstep.open("memory://", checking=True) as store, store.run("r", state={"d": {"a": 1}, "l": [1, 2]}) as run:
            run.checkpoint()
            if not interrupted(run.state, at):
                break
            points += 1
            for k in range(3):
                run.state["d"][f"k{k}"] = k
                run.checkpoint()
                assert encode(store.load("r")) == encode(run.state), at
    assert points > 30


def interrupted(state: Any, at: int) -> bool:
    seen = 0

    def trace(frame: Any, event: str, arg: Any) -> Any:
        nonlocal seen
        if not frame.f_code.co_filename.endswith("tracked.py"):
            return None
        if event == "line":
            seen += 1
            if seen == at:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        state["d"]["b"] = [2]
        state["l"].append(3)
        state["l"].insert(0, {})
        del state["d"]["a"]
        state["l"].pop()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


@pytest.mark.parametrize("seed", range(25))
def test_any_walk_with_bases_everywhere_loads_and_views_as_it_was(seed: int, small: None) -> None:
    rng = random.Random(seed)
    with everstep.open("memory://") as store:
        saved: list[bytes] = []
        held: list[Any] = []
        while len(saved) < 40:
            with store.run("r", state={"l": messages(5), "d": {}}) as run:
                for _ in range(rng.randint(5, 20)):
                    for _ in range(rng.randint(1, 5)):
                        edit(rng, run.state, held)
                    saved.append(encode(run.state))
                    run.checkpoint()
            held = [copy.deepcopy(h) for h in held]
        for number, expected in enumerate(saved, 1):
            assert encode(store.load(f"r@{number}")) == expected, number
            assert encode(plain(store.view(f"r@{number}"))) == expected, number
        assert store.verify("full").ok


def plain(view: Any) -> Any:
    if isinstance(view, DictView):
        return {key: plain(value) for key, value in view.items()}
    if isinstance(view, ListView):
        return [plain(value) for value in view]
    return view


def edit(rng: random.Random, state: Any, held: list[Any]) -> None:
    places = containers(state)
    target = rng.choice(places)
    value = fresh(rng, places, target, held)
    if rng.random() < 0.15:
        held.append(value)
    if isinstance(target, list):
        at = rng.randint(0, len(target))
        what = rng.randrange(6)
        if what < 2:
            target.append(value)
        elif what == 2:
            target.insert(at, value)
        elif what == 3:
            target[at : at + 2] = [value]
        elif target and what == 4:
            target.pop(0)
        elif len(target) < 50:
            target.extend(messages(rng.randint(0, 6)))
        return
    key = rng.choice(["a", "b", "c", 1, ("t", 2), "l"])
    if rng.random() < 0.7 or target is state:
        target[key] = value
    else:
        target.pop(key, None)


def fresh(rng: random.Random, places: list[Any], target: Any, held: list[Any]) -> Any:
    choice = rng.random()
    if choice < 0.2 and len(places) < 60:
        other = rng.choice(places)
        return other if not any(c is target for c in containers(other)) else None
    if choice < 0.3 and held and not any(c is target for c in containers(held[-1])):
        return held.pop()
    makers = (
        lambda: "long text " * rng.randint(1, 80), lambda: {"k": list(range(rng.randint(0, 60)))}, lambda: messages(rng.randint(0, 12)),
        lambda: bytearray(rng.randbytes(100)), lambda: (1, [rng.random()]), lambda: Box([rng.randint(0, 9)] * 30), lambda: rng.randint(0, 9),
    )  # fmt: skip
    return rng.choice(makers)()


def containers(value: Any) -> list[Any]:
    if not isinstance(value, (dict, list)):
        return []
    inner = value.values() if isinstance(value, dict) else value
    return [value, *(c for child in inner for c in containers(child))]
