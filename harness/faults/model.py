"""The expected states of the workload: pure functions of a seed, a run and a turn, made without Everstep. No I/O.

A state has a list of lines (content that is cut into chunks and mostly stays), messages that come and go, and a plan that is overwritten.
Everything is random text, so that all states and results differ and compression hides nothing.
"""

from __future__ import annotations

from functools import lru_cache
from random import Random
from typing import Any

from everstep.backends.contract.queues import Task
from harness.faults.log import digest_of

TURNS = (5, 8, 10)
"""The turn that the loop reaches in each session."""
ORIGIN = 4
"""The turn at which the fork begins; it has the tag `origin`."""
KEPT = 2
"""The turn whose checkpoint gets the tag `kept` later. The draft is removed at it, so that an added base is shorter than the deltas before
it.
"""
FORK_TURNS = 7
GONE_TURNS = 2
LINES = 150
BIG = 20_000
EDIT = {"edited": True}
ANSWER = "continue"
JOBS = ({"job-1": Task("jobs", 0, None, "once"), "job-2": Task("jobs", 5, "key")}, {"job-3": Task("jobs", -1, "key", "again")})
"""The runs that are enqueued in each session."""
ENDING: tuple[tuple[str, ...], ...] = ((), ("job-2",), ("job-1", "job-3"))
"""The runs that are taken from the queue and ended in each session."""


@lru_cache(maxsize=4096)
def text(seed: int, *what: Any, size: int = 100) -> str:
    return Random(f"{seed} {what}").randbytes(size // 2).hex()  # noqa: S311 -- has to be the same each time


def first_state(seed: int, run: str) -> dict[str, Any]:
    return {
        "n": 0,
        "messages": [],
        "plan": {},
        "draft": text(seed, run, "draft", size=BIG),
        "lines": [text(seed, run, i, size=120) for i in range(LINES)],
    }


def thought(seed: int, run: str, n: int) -> dict[str, Any]:
    """Return the result of a turn's step."""
    return {"n": n, "says": text(seed, run, "thought", n)}


def turn(state: dict[str, Any], n: int, thought: dict[str, Any]) -> None:
    """Apply one turn to a state."""
    says = thought["says"]
    state["messages"].append({"n": n, "says": says, "seen": (n, None, float(n))})
    state["plan"][f"part {n % 3}"] = says[:20]
    state["lines"][(n * 37) % LINES] = says
    if n % 3 == 0:
        del state["messages"][0]
        state["lines"].insert(n, says[::-1])
    if n == KEPT:
        del state["draft"]
    state["n"] = n


@lru_cache(maxsize=256)
def digest(seed: int, run: str, n: int) -> str:
    """Return the digest of a run's state after a turn; a fork begins with the edited state of the loop."""
    return digest_of(state_after(seed, run, n))


def state_after(seed: int, run: str, n: int) -> dict[str, Any]:
    if run == "fork":
        state, begin = state_after(seed, "loop", ORIGIN) | EDIT, ORIGIN
    else:
        state, begin = first_state(seed, run), 0
    for i in range(begin + 1, n + 1):
        turn(state, i, thought(seed, run, i))
    return state


def big_result(seed: int) -> dict[str, Any]:
    """Return a result that is stored in chunks."""
    return {"rows": [text(seed, "row", i, size=BIG // 20) for i in range(20)]}


def flow_states(seed: int) -> tuple[dict[str, Any], ...]:
    """Return the successive states of the workflow."""
    half = {"fetched": text(seed, "flow", "fetch"), "rows": 20}
    return {}, half, {**half, "answer": ANSWER}


def flow_result(seed: int) -> dict[str, Any]:
    return {"answer": ANSWER, "end": text(seed, "flow", "end")}
