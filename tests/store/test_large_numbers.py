"""An integer that no store can hold is refused in words by every public argument, on every backend."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep.errors import EverstepError, InvalidArgument

NUMBERS = (2**63 - 1, 2**63, -(2**63) - 1, 1 << 70, -(1 << 70), 10**400)
Call = Callable[[everstep.Store, int], Any]
CALLS: dict[str, Call] = {
    "runs(after)": lambda store, n: store.runs(after=n),
    "runs(after, oldest_first)": lambda store, n: store.runs(after=n, oldest_first=True),
    "runs(limit)": lambda store, n: store.runs(limit=n),
    "runs(since)": lambda store, n: store.runs(since=n),
    "runs(until)": lambda store, n: store.runs(until=n),
    "runs(meta)": lambda store, n: store.runs(meta={"n": n}),
    "checkpoints(after)": lambda store, n: store.checkpoints("r", after=n),
    "checkpoints(after, oldest_first)": lambda store, n: store.checkpoints("r", after=n, oldest_first=True),
    "checkpoints(limit)": lambda store, n: store.checkpoints("r", limit=n),
    "checkpoints(meta)": lambda store, n: store.checkpoints("r", meta={"n": n}),
    "events(after)": lambda store, n: store.events(after=n),
    "events(limit)": lambda store, n: store.events(limit=n),
    "events(run, after)": lambda store, n: store.events(run="r", after=n),
    "events(run, limit)": lambda store, n: store.events(run="r", limit=n),
    "load(at)": lambda store, n: store.load("r", at=n),
    "load(ref)": lambda store, n: store.load(f"r@{n}"),
    "load(back)": lambda store, n: store.load(f"r~{n}"),
    "view(at)": lambda store, n: store.view("r", at=n),
    "tag": lambda store, n: store.tag(f"r@{n}", "t"),
    "wake": lambda store, n: store.wake(n),
    "queues": lambda store, n: store.queues(minutes=n),
    "limit(concurrency)": lambda store, n: store.limit("q", concurrency=n),
    "limit(rate)": lambda store, n: store.limit("q", rate=(n, 1)),
    "limit(rate seconds)": lambda store, n: store.limit("q", rate=(1, n)),
    "enqueue(priority)": lambda store, n: store.enqueue(job, n % 7, priority=n),
    "enqueue(delay)": lambda store, n: store.enqueue(job, n % 7, delay=n),
    "retention": lambda store, n: store.prune(everstep.Retention(keep_last=n), dry_run=True),
    "verify": lambda store, n: store.verify(seconds=n),
    "cleanup": lambda store, n: store.cleanup(seconds=n, dry_run=True),
    "gate timeout": lambda store, n: store.start(gated, n),
    "sleep": lambda store, n: store.start(sleeps, n),
    "usage": lambda store, n: store.start(uses, n).unwrap(),
}


@everstep.workflow(name="large-job")
def job(n: int) -> int:
    return n


@everstep.workflow(name="large-gate")
def gated(n: int) -> Any:
    return everstep.gate("g", timeout=n)


@everstep.workflow(name="large-sleep")
def sleeps(n: int) -> Any:
    return everstep.sleep(n)


@everstep.workflow(name="large-usage")
def uses(n: int) -> None:
    run = everstep.current()
    run.step("use", lambda: run.usage(tokens=n))


@pytest.fixture
def store(places: Any) -> Any:
    store = places.open()
    with store.run("r", state={"n": 1}, meta={"n": 1}) as run:
        run.checkpoint(meta={"n": 1})
    return store


@pytest.mark.parametrize("call", CALLS)
def test_a_number_is_taken_or_refused_in_words(store: everstep.Store, call: str) -> None:
    wrong = []
    for number in NUMBERS:
        try:
            outcome = CALLS[call](store, number)
            error = getattr(outcome, "error", None)
        except EverstepError:
            continue
        except Exception as raised:
            error = raised
        if error is not None and not isinstance(error, EverstepError):
            wrong.append((str(number)[:25], repr(error)[:120]))
    assert not wrong


@pytest.mark.parametrize(
    "value",
    [*NUMBERS, 10**5000, -1, 1.5, "x", None, True, float("nan")],
    ids=lambda v: f"{str(v)[:12] if not isinstance(v, int) or abs(v) < 10**99 else 'huge'}",
)
@pytest.mark.parametrize("option", ["busy_ms", "wal_bytes"])
def test_an_option_of_sqlite_that_is_no_possible_number_is_refused(tmp_path: Path, option: str, value: Any) -> None:
    with pytest.raises(InvalidArgument, match=rf"{option} must be an integer from 0 to [\d,]+, got"):
        everstep.open(tmp_path / "s.db", **{option: value})
    assert list(tmp_path.iterdir()) == []


def test_a_patience_that_is_too_large_for_a_float_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="patience must be a number of seconds"):
        everstep.open("postgresql:///none", patience=10**400)
