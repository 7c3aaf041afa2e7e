"""One worker in a separate process, and its workflow: steps that write into the effects log and take a moment each.

`work` is the function of an `Actor`. A worker that gets SIGTERM finishes its runs and ends.
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
from harness.workers.effects import EffectsLog

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


def make_flow(effects: EffectsLog, nap: float) -> Callable[..., Any]:
    """Make a workflow whose result is the tokens of its steps, in order; and the same, async. Both handle errors as badly as real programs."""

    def work(step: int) -> str:
        token = effects.add(everstep.current().id, str(step))
        time.sleep(random.random() * nap)  # noqa: S311
        return token

    def chain(steps: int) -> list[str]:
        run = everstep.current()
        ways: list[Callable[[Callable[[], Any]], Any]] = [_swallowed, _wrapped, lambda call: call()]
        retry = everstep.Retry(3, delay=0.01)
        return [ways[n % 3](lambda n=n: run.step("work", work, n, retry=retry if n % 2 else None)) for n in range(steps)]  # type: ignore[misc]

    async def achain(steps: int) -> list[str]:
        run, found = everstep.current(everstep.AsyncRun), []
        for step in range(steps):
            try:
                found.append(await run.step("work", work, step))
            except Exception as error:
                if step % 2:
                    raise RuntimeError("wrapped") from error
                found.append("swallowed")
        return found

    everstep.workflow(achain, name=ACHAIN)
    return everstep.workflow(chain, name=CHAIN)


def _opened(url: str, options: dict[str, Any]) -> Store:
    """Open the store as soon as its server is reachable, as a supervisor that restarts workers would."""
    while True:
        try:
            return everstep.open(url, **options)
        except StoreUnreachable:
            time.sleep(0.1)


def work(pipe: Connection, url: str, effects: Path, log: Path, concurrency: int, nap: float, options: dict[str, Any]) -> None:
    """Run workflows until killed or told to stop. Sends "ready" when it begins."""
    make_flow(EffectsLog(effects), nap)
    with log.open("a") as out, _opened(url, options) as store:
        sys.stderr = out

        def tell(said: dict[str, Any]) -> None:
            if said["event"] in ("trouble", "left", "lost", "dead-letter"):
                out.write(f"{said}\n")
                out.flush()

        pipe.send("ready")
        store.worker(concurrency=concurrency, tell=tell).run()
