"""The program that wrote `format-2.db`. Its workflows wait in that store, and go on with these functions after the migration."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import everstep

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


@dataclass
class Plan:
    goal: str
    steps: list[Any]


everstep.register(Plan, name="migration.Plan", version=2)


@everstep.step
def look_up(topic: str, n: int) -> dict[str, Any]:
    return {"topic": topic, "n": n, "text": words(random.Random(n), 20)}


@everstep.step
def read_all(topic: str) -> list[list[Any]]:
    """More than what a record holds by itself."""
    chance = random.Random(7)
    return [[i, topic, chance.randbytes(100).hex()] for i in range(90)]


@everstep.step
def break_down(what: str) -> None:
    raise OSError(f"{what} is down")


@everstep.workflow
def chapter(number: int) -> str:
    return f"chapter {number}: {look_up('chapter', number)['text']}"


@everstep.workflow(version="7")
def report(topic: str) -> dict[str, Any]:
    run = everstep.current()
    pages = read_all(topic)
    run.state["pages"] = len(pages)
    run.state["topic"] = topic
    run.checkpoint("read", tags=["milestone"])
    run.state["hits"] = [look_up(topic, n)["text"] for n in range(3)]
    run.checkpoint("looked up")
    run.emit("found", hits=3, at=run.now())
    parts = [chapter(n) for n in range(2)]
    answer = everstep.gate("editor", ask=f"Publish {len(pages)} pages?", choices=["yes", "no"])
    run.state["answer"] = answer
    run.checkpoint("answered")
    return {"topic": run.state["topic"], "answer": answer, "parts": parts, "last": pages[-1]}


@everstep.workflow
def nap(seconds: float) -> str:
    everstep.sleep(seconds)
    return f"slept {seconds}"


@everstep.workflow(retry=everstep.Retry(attempts=3, delay=3600, max_delay=3600))
def fragile(what: str) -> None:
    look_up(what, 1)
    break_down(what)
