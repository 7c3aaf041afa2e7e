"""The common work: an agent's state that grows by one message of about 1 KB a turn.

Words follow the law of Zipf and Mandelbrot over an invented vocabulary; 1 KB compresses with zstd about 1.7 times, like prose. The same
seed gives the same messages in every process; creating them is never timed.
"""

from __future__ import annotations

import json
from itertools import accumulate
from random import Random
from typing import Any

Message = dict[str, Any]
State = dict[str, Any]

CONTENT = 880
ROLES = ("user", "assistant", "tool")


def _vocabulary(size: int = 5000) -> list[str]:
    rng = Random(1)
    syllables = [c + v for c in "bcdfghklmnprstvwz" for v in ("a", "e", "i", "o", "u", "an", "er", "in", "on")]
    return ["".join(rng.choices(syllables, k=rng.choice((1, 1, 2, 2, 2, 3, 4)))) for _ in range(size)]


VOCABULARY = _vocabulary()
WEIGHTS = list(accumulate(1 / (rank + 8) for rank in range(len(VOCABULARY))))


def text(rng: Random, length: int) -> str:
    """Return words up to exactly `length` characters."""
    words = rng.choices(VOCABULARY, cum_weights=WEIGHTS, k=length // 3 + 1)
    return " ".join(words)[:length]


def message(i: int, rng: Random) -> Message:
    role = ROLES[i % len(ROLES)]
    calls = [{"id": f"call-{i:06}", "name": "lookup", "args": {"query": text(rng, 24), "top": i % 7}}] if role == "assistant" else []
    return {"role": role, "content": text(rng, CONTENT), "id": f"m-{rng.getrandbits(64):016x}", "ts": 1.7e9 + 2.5 * i, "tool_calls": calls}


def messages(count: int, seed: int = 11) -> list[Message]:
    rng = Random(seed)
    return [message(i, rng) for i in range(count)]


def results(count: int, seed: int = 13) -> list[Message]:
    """Return small results of about 100 bytes each."""
    rng = Random(seed)
    return [{"id": f"r-{i:06}", "ok": True, "text": text(rng, 64)} for i in range(count)]


def state(held: list[Message] | None = None) -> State:
    return {
        "messages": held or [],
        "step": 0,
        "tokens": {"in": 0, "out": 0},
        "cost": 0.0,
        "plan": {"goal": "answer the question with sources", "todo": ["search", "read", "write"]},
        "config": {"model": "m-1", "temperature": 0.2},
    }


def turn(live: State, new: Message) -> None:
    """Apply one turn of an agent to its state."""
    live["messages"].append(new)
    live["step"] += 1
    live["tokens"]["in"] += 350
    live["tokens"]["out"] += 120
    live["cost"] += 0.0021


def stack(bodies: list[bytes]) -> list[Message]:
    """Return new messages to pop, the first on top.

    A program that keeps a reference to a message in a state could still change it, and a store must compare it again at every checkpoint.
    Programs do not keep them, so the harness must not either.
    """
    return [json.loads(body) for body in reversed(bodies)]


def encoded(item: Message) -> bytes:
    """Return the bytes that the floors write for a turn."""
    return json.dumps(item, separators=(",", ":")).encode()
