"""The bytes of journal entries, as the first version of the format has them: a store that was written before must stay readable."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ormsgpack import packb

import everstep
from everstep.clock import clock
from everstep.codec.frame import Framer
from everstep.testing.clock import FakeClock

GOLDEN = Path(__file__).with_name("journal_bytes.txt")
KINDS = ("step", "gate", "answer", "timer", "event")


def boom() -> None:
    raise ValueError("no luck")


def once() -> int:
    return 1


def paid() -> str:
    run = everstep.current()
    run.usage(tokens=12, cost=0.5)
    clock.nap(1.5, 0.2)
    return "paid"


@everstep.workflow(name="golden")
def golden() -> list[Any]:
    run = everstep.current()
    found: list[Any] = [
        run.step("plain", int, "7"),
        run.step("named", dict, a=1),
        run.step("keyed", everstep.step(key="k")(str.upper), "x"),
    ]
    found.append(run.step("long", len, "x" * 300))
    run.step("big", lambda: [f"line {n}" for n in range(3000)])
    run.step("none", lambda: None)
    run.step("paid", paid)
    run.step("once", everstep.step(at_most_once=True)(once))
    try:
        run.step("fails", everstep.step(retry=everstep.Retry(attempts=2, delay=0.5, jitter=0.0))(boom))
    except ValueError:
        found.append("failed")
    found += [run.random(), str(run.now())]
    run.emit("seen", what="a thing", n=3)
    run.milestone("half", note="way")
    run.sleep(0.25)
    found.append(everstep.gate("approve", "Ship it?", choices=["yes", "no"], timeout=3600, default="no"))
    found.append(everstep.gate("free"))
    run.sleep(0)
    return found


def written(make: Callable[[], everstep.Store]) -> list[str]:
    """Every journal entry of a run that has one of each kind: kind, address and the bytes of the body."""
    with FakeClock(), make() as store:
        store.start(golden, id="r")
        store.answer("r", "approve", "yes", by="ada")
        store.answer("r", "free", {"any": 1})
        store.resume("r")
        assert store.get("r").status == "succeeded", store.get("r").error
        worker = packb(store.steps("r")[0].worker)
        records = store.backend.records("r", 1, 10**6)
        bodies = {r.seq: Framer().unwrap(r.body or b"").replace(worker, packb("host:1")) for r in records}
        return [f"{r.kind} {r.note} {bodies[r.seq].hex()}" for r in records if r.kind in KINDS]


def test_the_bytes_of_every_entry_are_those_of_the_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.random", lambda: 0.5)
    monkeypatch.setattr("traceback.format_exception", lambda error: ["a traceback"])
    found = written(lambda: everstep.open("memory://", user="bo@host"))
    assert {line.partition(" ")[0] for line in found} == set(KINDS)
    assert found == GOLDEN.read_text(encoding="utf-8").splitlines()
