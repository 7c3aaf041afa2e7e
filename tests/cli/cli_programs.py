"""Workflows that the tests of the command line run, resume and interrupt, in processes of their own."""

from __future__ import annotations

import time
from pathlib import Path

import everstep


@everstep.step(retry=everstep.Retry(attempts=3, delay=0.001, jitter=0))
def price(item: str) -> int:
    """Fails once for milk."""
    if item == "milk" and everstep.current().step_attempt == 1:
        raise OSError("the shop is busy")
    everstep.current().usage(tokens=10, cost=0.25)
    return 10 * len(item)


@everstep.workflow
def order(*items: str, limit: int = 100) -> dict[str, object]:
    run = everstep.current()
    run.state["items"] = list(items)
    run.checkpoint("asked for")
    run.state["total"] = sum(price(item) for item in items)
    run.checkpoint("priced", tags=["priced"], meta={"shop": "corner"})
    answer = everstep.gate("boss", ask=f"Spend {run.state['total']}?", choices=["yes", "no"])
    run.state["answer"] = answer
    run.checkpoint("decided")
    return {"total": run.state["total"], "answer": answer, "limit": limit}


@everstep.step
def look(shelf: str) -> str:
    raise ValueError(f"no milk on {shelf}")


@everstep.workflow
def broken(shelf: str = "the shelf") -> str:
    everstep.current().state["shelf"] = shelf
    everstep.current().checkpoint("went there")
    return look(shelf)


@everstep.workflow
def hello(name: str = "world") -> str:
    return f"hello {name}"


@everstep.step
def nap(file: str) -> None:
    """Says that it began, and takes its time."""
    Path(file).write_text("begun")
    time.sleep(1.0)


@everstep.workflow
def slow(file: str) -> str:
    for _ in range(30):
        nap(file)
    return "rested"


@everstep.workflow
def secretive() -> dict[str, str]:
    everstep.current().state["api_key"] = "hunter2-hunter2"
    everstep.current().checkpoint("with sk-abcdefghijklmnopqrstuvwx inside")
    return {"password": "hunter2-hunter2", "text": "the key is sk-abcdefghijklmnopqrstuvwx"}


@everstep.workflow
def leaking() -> str:
    raise ValueError("could not log in with sk-abcdefghijklmnopqrstuvwx")
