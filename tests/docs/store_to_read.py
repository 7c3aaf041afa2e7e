"""Makes the store that `test_format_reader` reads, and says what each of its checkpoints holds."""

from __future__ import annotations

import random
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy

import everstep
from everstep.clock import clock


@dataclass
class Plan:
    goal: str
    text: str
    steps: list[Any]


everstep.register(Plan, name="demo.Plan", version=3)


def make(path: Path, thing: Callable[..., Any], array: Callable[..., Any]) -> dict[str, list[Any]]:
    """Write the store and return for each run the states of its checkpoints, as `store.load` gives them, with objects made by `thing`."""
    chance = random.Random(8)
    with everstep.open(path, plain_secrets=True) as store:
        with store.run("main", state=first_state(chance), tags=["prod", "ü"], meta={"owner": "é", "n": 1}, note="first") as run:
            run.checkpoint("begin", tags=["a"], meta={"cost": 0.5, "ok": True})
            for turn in range(70):
                change(run.state, turn, chance)
                run.checkpoint(f"turn {turn} ✓")
        store.tag("main@2", "later")
    with everstep.open(path, compression="gzip", plain_secrets=True) as store, store.run("main") as run:
        fill(run.state, chance)
        run.checkpoint("a big change")
        for turn in range(70, 75):
            change(run.state, turn, chance)
            run.checkpoint()
    with everstep.open(path, compression="none", plain_secrets=True) as store:
        with store.run("main") as run:
            state = store.load("main")
            state["handed in"] = [state["log"][-1], 2**70]
            run.checkpoint(state=state)
        store.fork("main@3", id="child", edit={"note": "another way"})
        try:
            with store.run("child") as run:
                change(run.state, 99, chance)
                run.checkpoint()
                raise RuntimeError("out of money")
        except RuntimeError:
            pass
        with store.run("plain", state=7) as run:
            run.checkpoint()
            run.state = "x" * 600
            run.checkpoint()
            run.state = "x" * 300 + "é😀" + "x" * 299
            run.checkpoint()
        with store.run("pruned", state={"log": []}) as run:
            for turn in range(140):
                run.state["log"].append(words(chance, 300))
                run.checkpoint(tags="milestone" if turn in (40, 90, 91) else ())
        for name in ("forgotten", "gone"):
            with store.run(name, state=1) as run:
                run.checkpoint()
            store.delete(name)
            if name == "forgotten":
                assert store.backend.forget(0, clock.now_us() + 1) == 1
    with everstep.open(path) as store:
        store.prune(everstep.Retention(keep_last=5), run="pruned")
        store.gc()
        assert store.verify("full").ok
        return {
            name: [None if c.pruned else neutral(store.load(c.ref), thing, array) for c in store.checkpoints(name, oldest_first=True)]
            for name in ("main", "child", "plain", "pruned")
        }


def first_state(chance: random.Random) -> dict[str, Any]:
    return {
        "log": [{"role": "user", "content": words(chance, 12), "n": i} for i in range(400)],
        "note": None,
        "types": every_type(),
        "plan": Plan("Lisbon", words(chance, 4000), [1, (2, 3)]),
        "text": words(chance, 30_000),
        "keys": {i if i % 3 else f"key {i}": words(chance, 8) for i in range(2000)},
        "empty": [{}, [], (), set(), "", b""],
    }


def every_type() -> dict[str, Any]:
    return {
        "numbers": [
            0,
            -1,
            127,
            128,
            255,
            256,
            -33,
            2**31,
            2**63,
            2**64 - 1,
            -(2**63),
            2**64,
            -(2**200),
            1.5,
            -0.0,
            float("inf"),
            True,
            None,
        ],
        "tuple": (1, ("a", b"b"), [2]),
        "sets": [{1, "a", (2, 3)}, frozenset({1.5, None})],
        "dict": {1: "a", None: "b", (1, 2): "c", b"x": "d", date(2024, 2, 29): "e"},
        "times": [
            datetime(2024, 5, 6, 7, 8, 9, 10),  # noqa: DTZ001 -- a naive one is meant
            datetime(2024, 5, 6, tzinfo=UTC),
            datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
            datetime(2024, 5, 6, tzinfo=timezone(timedelta(hours=-3), "here")),
            date(1, 1, 1),
            time(1, 2, 3, 4),
            time(1, 2, tzinfo=UTC),
            timedelta(-1, 2, 3),
        ],
        "secrets": [everstep.Secret("hunter2 ✓"), everstep.Secret(b"\x00\xff")],
        "names": [UUID(int=5), Decimal("-1.50"), Fraction(10**30, 7), 1 + 2j, range(5, 2**70, 3)],
        "paths": [PurePosixPath("a/b"), PureWindowsPath("c:\\d")],
        "others": [bytearray(b"ab"), OrderedDict(b=1, a=2), deque([1, (2,)], 5), deque([1]), Counter("aab")],
        "arrays": [numpy.arange(6, dtype="<i4").reshape(2, 3), numpy.float64(2.5), numpy.asfortranarray(numpy.ones((2, 2)))],
    }


def fill(state: dict[str, Any], chance: random.Random) -> None:
    """Long values of every kind that a base cuts."""
    state["bytes"] = chance.randbytes(300_000)
    state["bytearray"] = bytearray(chance.randbytes(100_000))
    state["tuple"] = tuple(words(chance, 20) for _ in range(200))
    state["many"] = [[i, chance.randbytes(600).hex()] for i in range(2500)]
    state["plan"].steps = [words(chance, 30) for _ in range(500)]


def change(state: dict[str, Any], turn: int, chance: random.Random) -> None:
    state["log"].append({"role": "assistant", "content": words(chance, 60), "n": turn})
    state["log"].pop(0)
    if turn % 3 == 0:
        state["log"].insert(chance.randrange(300), {"role": "tool", "content": words(chance, 5), "at": (turn, None)})
        state["keys"].pop(f"key {turn}", None)
        state["keys"][turn, "again"] = turn
    if turn % 4 == 0:
        at = chance.randrange(len(state["text"]))
        state["text"] = state["text"][:at] + f" [ünï {turn} 😀] " + state["text"][at + 20 :]
    if turn % 5 == 0:
        state["log"][7]["content"] = "edited"
        state["plan"].goal = f"Lisbon {turn}"
        state["plan"].steps.append(turn)
    state["note"] = {"turn": turn, "by": Decimal(turn) / 8}


_WORDS = [
    "naïve",
    "the",
    "agent",
    "plan",
    "ask",
    "answer",
    "tool",
    "日本",
    "result",
    "because",
    "deadline",
    "of",
    "and",
    "with",
    "😀",
    "step",
]


def words(chance: random.Random, n: int) -> str:
    return " ".join(chance.choices(_WORDS, k=n))


def neutral(value: Any, thing: Callable[..., Any], array: Callable[..., Any]) -> Any:
    """The value as a reader without the program's types and without numpy sees it."""

    def inner(v: Any) -> Any:
        return neutral(v, thing, array)

    if isinstance(value, Plan):
        return thing("demo.Plan", 3, {name: inner(v) for name, v in vars(value).items()})
    if isinstance(value, numpy.ndarray):
        order = "F" if value.flags.fnc else "C"
        return array(value.dtype.str, list(value.shape), order, value.tobytes(order))
    if isinstance(value, everstep.Secret):
        return thing("Secret", 0, {"value": value.reveal()})
    if isinstance(value, numpy.generic):
        return array(value.dtype.str, [], "C", value.tobytes())
    if type(value) is dict:
        return {k: inner(v) for k, v in value.items()}
    if type(value) is list:
        return [inner(v) for v in value]
    return value
