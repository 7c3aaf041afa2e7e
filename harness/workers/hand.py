"""One worker in a process of its own, and the workflow that it drives: steps that write into the ledger and take a moment each.

`work` is what an `Actor` plays. A worker that is told to stop by SIGTERM drains and ends.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import everstep
from everstep.api import Store
from everstep.errors import StoreUnreachable
from harness.workers.ledger import Ledger

STEPS = 10
CHAIN = "chain of steps"
ACHAIN = "chain of steps, async"


def _swallowed(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception:  # noqa: BLE001 - programs do that
        return "swallowed"


def _wrapped(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        raise RuntimeError("wrapped") from error


def make_flow(ledger: Ledger, nap: float) -> Callable[..., Any]:
    """A workflow whose result is the tokens of its steps, in their order; and the same, async. Both treat errors as badly as programs do."""

    def work(step: int) -> str:
        token = ledger.add(everstep.current().id, str(step))
        time.sleep(random.random() * nap)  # noqa: S311
        return token

    def chain(steps: int) -> list[str]:
        run = everstep.current()
        ways: list[Callable[[Callable[[], Any]], Any]] = [_swallowed, _wrapped, lambda call: call()]
        retry = everstep.Retry(3, delay=0.01)
        return [ways[n % 3](lambda n=n: run.step("work", work, n, retry=retry if n % 2 else None)) for n in range(steps)]  # type: ignore[misc]

    async def achain(steps: int) -> list[str]:
        run, found = everstep.current(), []
        for step in range(steps):
            try:
                found.append(await run.step("work", work, step))
            except Exception as error:
                if step % 2:
                    raise RuntimeError("wrapped") from error
                found.append("swallowed")
        return found

    everstep.workflow(achain, name=ACHAIN)
    return everstep.workflow(chain, name=CHAIN)  # type: ignore[no-any-return]


def _opened(url: str, options: dict[str, Any]) -> Store:
    """The store, as soon as its server is there: whoever starts workers would start one again that found none."""
    while True:
        try:
            return everstep.open(url, **options)
        except StoreUnreachable:
            time.sleep(0.1)


def work(pipe: Connection, url: str, ledger: Path, log: Path, concurrency: int, nap: float, options: dict[str, Any]) -> None:
    """Drive runs until killed or told to stop. Says "ready" when it begins."""
    make_flow(Ledger(ledger), nap)
    with log.open("a") as out, _opened(url, options) as store:
        sys.stderr = out

        def tell(said: dict[str, Any]) -> None:
            if said["event"] in ("trouble", "left", "lost", "dead-letter"):
                out.write(f"{said}\n")
                out.flush()

        pipe.send("ready")
        store.worker(concurrency=concurrency, tell=tell).run()
