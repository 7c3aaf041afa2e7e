"""Random programs that swallow, wrap and retry errors, and an outage of the server at each message: no run fails by it.

Whatever the program does with the error, the run is given back; when the server is back and the run is resumed, it ends as if nothing had
happened, and no step that was recorded runs again. In full: EVERSTEP_DEEP=1.
"""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import outage_programs as programs
import pytest
from outage_wire import Outage

import everstep
from everstep.errors import EverstepError, StoreUnreachable
from everstep.runtime.engine.attempt import Attempt

DEEP = bool(os.environ.get("EVERSTEP_DEEP"))
CASES = 3000 if DEEP else 40
MOST_ATTEMPTS = 12


class Search:
    """Plays programs with outages, and counts. `found` are sentences about what went wrong."""

    def __init__(self, outage: Outage, store: everstep.Store, watch: everstep.Store):
        self.outage, self.store, self.watch = outage, store, watch
        self.cases = self.broken = self.attempts = 0
        self.found: list[str] = []
        self._whole: dict[tuple[str, int], tuple[Any, int]] = {}

    def play(self, flow: Any, seed: int, rng: random.Random) -> None:
        expected, requests = self._undisturbed(flow, seed)
        at, where, length = rng.randint(1, requests), rng.choice(["request", "reply", "after", "after"]), rng.choice([1, 1, 2, 2, 3, 4, 6])
        programs.LOG[:] = [programs.Log(self.watch)]
        name = f"c{self.cases}"
        self.cases += 1
        programs.NOTICE[:] = [lambda: self.outage.away] if rng.random() < 0.7 else []
        self.outage.arm(at, where, length)
        outcome = self._driven(flow, seed, name)
        about = f"seed {seed} ({flow.name}: {programs.plan(seed)}), {where} {at} of {requests}, {length} refused"
        faults = list(programs.LOG[0].faults)
        if outcome is None:
            faults.append("it did not end")
        elif outcome.status != "succeeded" or outcome.result != expected:
            faults.append(f"it is {outcome.status} with {outcome.result!r} or {outcome.error!r}, and not {expected!r}")
        faults += [f"{run.id} is {run.status}" for run in self.watch.runs(prefix=name) if run.status not in ("succeeded", "queued")]
        self.found += [f"{about}: {fault}" for fault in faults]

    def _undisturbed(self, flow: Any, seed: int) -> tuple[Any, int]:
        key = flow.name, seed
        if key not in self._whole:
            programs.LOG[:] = [programs.Log(self.watch)]
            self.outage.arm(0, "request", 0)
            result = self.store.start(flow, seed, id=f"whole-{flow.name.split()[1]}-{seed}").result
            self._whole[key] = result, max(1, self.outage.seen)
        return self._whole[key]

    def _driven(self, flow: Any, seed: int, name: str) -> Any:
        """Start the run, again and again while the store fails, as a program does that wants it done."""
        broken = 0
        for _ in range(MOST_ATTEMPTS):
            self.attempts += 1
            try:
                outcome = self.store.start(flow, seed, id=name)
            except EverstepError as error:
                broken = 1
                if not isinstance(error, StoreUnreachable):
                    self.found.append(f"{name}: {type(error).__name__} {error.message}")
                continue
            self.broken += broken
            return outcome
        return None


@contextmanager
def searching(outage: Outage, place: str) -> Iterator[Search]:
    with everstep.open(outage.url, patience=0.0) as store, everstep.open(place) as watch:
        programs.STORE[:] = [store]
        yield Search(outage, store, watch)
        outage.arm(0, "request", 0)


@pytest.mark.parametrize("flow", [programs.program, programs.aprogram], ids=["sync", "async"])
def test_no_outage_at_any_message_makes_a_run_fail(flow: Any, outage: Outage, place: str) -> None:
    rng = random.Random(13)
    with searching(outage, place) as search:
        for _ in range(CASES):
            search.play(flow, rng.randrange(60 if not DEEP else 2000), rng)
        assert not search.found, "\n".join(search.found[:10])
        assert search.broken > CASES / 4, f"only {search.broken} of {search.cases} programs met the outage"
        print(f"{search.cases} outages, {search.broken} attempts given back, {search.attempts} attempts")
        assert search.watch.verify("full").ok


def test_the_search_finds_a_runtime_that_takes_the_trouble_of_the_store_for_a_failure(
    outage: Outage, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Attempt, "met", lambda *_, **__: None)
    rng = random.Random(5)
    with searching(outage, place) as search:
        for _ in range(400):
            search.play(programs.program, rng.randrange(60), rng)
            if search.found:
                return
    pytest.fail("the canary was not caught")
