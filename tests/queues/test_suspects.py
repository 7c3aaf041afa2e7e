"""A run close to its crash limit is executed alone until it makes progress: what `Suspects` decides."""

from __future__ import annotations

import everstep
from everstep.backends.contract.queues import Claimed
from everstep.queues.crash_loops import Suspects


def claimed(store: everstep.Store, run: str, deaths: int) -> Claimed:
    return Claimed(run, "q", store.backend.run(run), None, deaths)


def test_a_suspect_is_alone_until_it_makes_progress_or_ends(store: everstep.Store) -> None:
    for run in ("bad", "good"):
        store.line(run, state={"n": 0}).checkpoint()
    suspects, backend = Suspects(max_deaths=3), store.backend
    assert not suspects.one_is_alone(backend, {"good"}), "there is no suspect"
    declined: list[Claimed] = []
    both = [claimed(store, "good", 0), claimed(store, "bad", 1)]
    assert suspects.choose(backend, both, False, declined.append) == both[:1]
    assert declined == both[1:]
    assert not suspects.one_is_alone(backend, {"good"})

    assert suspects.choose(backend, both[1:], False, declined.append) == both[1:]
    assert suspects.one_is_alone(backend, {"bad"})
    assert suspects.one_is_alone(backend, {"bad"}), "asking changes nothing"
    store.line("bad").checkpoint()
    assert not suspects.one_is_alone(backend, {"bad"}), "it made progress"

    suspects.choose(backend, [claimed(store, "bad", 2)], False, declined.append)
    assert suspects.one_is_alone(backend, {"bad"})
    assert not suspects.one_is_alone(backend, set()), "it ended"
    assert not suspects.one_is_alone(backend, {"bad"})
