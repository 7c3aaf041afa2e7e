"""The process that runs the agent and is killed: `python -m everstep.demo.worker STORE start|resume RUN [STEP]`.

It reports to the director, one JSON object in each line of its output. Inside the model call of STEP it reports that and waits for its end:
for kill -9, or for the end of the director, which closes its input.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import everstep
from everstep.demo import agent, model


class Worker:
    """One attempt at a run, reported to the director."""

    def __init__(self, run: str, doomed: str | None):
        self._run = run
        self._doomed = doomed
        self._step: str | None = None

    def begins(self, event: Any) -> None:
        self._step = event.data["step"]

    def saved(self, event: Any) -> None:
        made = event.data["checkpoint"]
        tell("saved", number=made.number, step=made.step, note=made.note, tags=made.tags, used=made.used)

    def wait(self, seconds: float) -> None:
        """Wait like a model. The doomed call ends only from outside, so that even a slow machine cannot miss the kill."""
        if self._step != self._doomed:
            time.sleep(seconds)
            return
        tell("inside", step=self._step)
        sys.stdin.read()
        raise SystemExit("the demo is over")

    def work(self, address: str, resume: bool) -> None:
        with everstep.open(address, create=False) as store:
            store.on("before_step", self.begins, timeout=None)
            store.on("after_checkpoint", self.saved, timeout=None)
            outcome = store.resume(self._run) if resume else store.start(agent.research, agent.QUESTION, agent.WISH, id=self._run)
        report = outcome.report
        saved = {"seconds": report.seconds_saved, "tokens": report.tokens_saved, "cost": report.cost_saved}
        tell("ended", status=outcome.status, answer=outcome.result, kept=report.kept, executed=report.executed, saved=saved)


def tell(what: str, **data: Any) -> None:
    sys.stdout.write(json.dumps({"what": what, **data}) + "\n")
    sys.stdout.flush()


def main(address: str, verb: str, run: str, doomed: str | None = None) -> None:
    worker = Worker(run, doomed)
    model.wait = worker.wait
    try:
        worker.work(address, verb == "resume")
    except everstep.EverstepError as error:
        sys.exit(f"{error.message} [{error.code}]")


if __name__ == "__main__":
    main(*sys.argv[1:])
