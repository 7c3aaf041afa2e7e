"""The newcomer's walk: how many functions of ours lie between a call and SQLite, and how many methods a backend must have.

Counts the frames of `everstep` modules at each `execute` of apsw; the first and the last function are included. The numbers are there to be answered
for: a change that adds a layer says here why.
"""

import sys
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import apsw
import pytest

import everstep
from everstep.backends.contract.core import Core

Walk = list[str]


@contextmanager
def walks(first: str) -> Iterator[list[Walk]]:
    """Note, at each statement that SQLite gets, which functions of ours led there from the function called `first`."""
    found: list[Walk] = []

    def look(frame: FrameType | None, event: str, called: Any) -> None:
        if event != "c_call" or not isinstance(getattr(called, "__self__", None), (apsw.Cursor, apsw.Connection)):
            return
        if called.__name__ not in ("execute", "executemany"):
            return
        names: Walk = []
        while frame is not None:
            if frame.f_globals.get("__name__", "").startswith("everstep."):
                names.append(frame.f_code.co_qualname)
            frame = frame.f_back
        names.reverse()
        if first in names:
            found.append(names[names.index(first) :])

    sys.setprofile(look)
    try:
        yield found
    finally:
        sys.setprofile(None)


RARE = {"Transaction._read_manifest", "Transaction._find", "Transaction._count_messages"}
"""After another connection wrote, or kept the writer out, the next batch reads again what was remembered: one function more, once."""


def longest(found: list[Walk]) -> Walk:
    assert found, "no statement was seen"
    return max((walk for walk in found if RARE.isdisjoint(walk)), key=len)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[everstep.Store]:
    with everstep.open(tmp_path / "s.db") as made:
        yield made


def test_a_walk_has_every_function_from_the_call_to_the_statement(store: everstep.Store) -> None:
    with store.run("r", state={"n": 0}) as run:
        run.checkpoint()
        with walks("Run.checkpoint") as found:
            run.state["n"] = 1
            run.checkpoint()
    assert {walk[0] for walk in found} == {"Run.checkpoint"}
    behind = ["SqliteBackend.commit", "GroupCommit.perform", "Writer._write"]
    assert [walk[-1] for walk in found if walk[-4:-1] == behind] == [
        f"Transaction.{name}" for name in ("begin", "apply", "flush", "flush", "commit")
    ]


def test_a_checkpoint_is_at_most_seven_functions_away_from_sqlite(store: everstep.Store) -> None:
    with store.run("r", state={"n": 0, "text": "long " * 100_000}) as run:
        run.checkpoint()
        with walks("Run.checkpoint") as found:
            for n in range(120):
                run.state["n"] = n
                run.checkpoint()
    assert len(longest(found)) <= 7, " -> ".join(longest(found))


def test_behind_the_backend_a_commit_is_three_functions_away_from_sqlite(store: everstep.Store) -> None:
    with store.run("r", state={"n": 0}) as run:
        run.checkpoint()
        with walks("SqliteBackend.commit") as found:
            run.state["n"] = 1
            run.checkpoint()
    assert len(longest(found)) - 1 <= 3, " -> ".join(longest(found))


def test_a_step_is_at_most_nine_functions_away_from_sqlite(store: everstep.Store) -> None:
    with store.run("r") as run:
        run.step("warm", lambda: 0)
        with walks("Run.step") as found:
            for n in range(20):
                run.step("add", lambda n=n: n)  # type: ignore[misc]
    assert len(longest(found)) <= 9, " -> ".join(longest(found))


@pytest.mark.parametrize("ref", ["r", "r@40"], ids=["the head", "an older one"])
def test_a_load_is_at_most_seven_functions_away_from_sqlite(store: everstep.Store, ref: str) -> None:
    with store.run("r", state={"n": 0, "text": "long " * 100_000, "items": list(range(5_000))}) as run:
        for n in range(80):
            run.state["n"] = n
            run.checkpoint()
    store.load(ref)
    with walks("BaseStore.load") as found:
        store.load(ref)
    assert len(longest(found)) <= 7, " -> ".join(longest(found))


def test_the_core_of_the_contract_has_at_most_twelve_methods() -> None:
    protocols = [cls for cls in Core.__mro__ if getattr(cls, "_is_protocol", False) and cls is not typing.Protocol]
    methods = {name for cls in protocols for name, made in vars(cls).items() if callable(made) and not name.startswith("_")}
    assert methods
    assert len(methods) <= 12, sorted(methods)
