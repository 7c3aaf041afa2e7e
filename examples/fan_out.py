"""A fan-out pipeline with workers: python examples/fan_out.py

One workflow enqueues a run for each document and waits for all of them. Two worker processes share the runs. While the pipeline waits it
occupies no worker, so even a single worker with one slot would finish it. One document fails twice and is retried. With a PostgreSQL URL
as an argument the workers could be on other machines; otherwise nothing leaves this one.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import everstep

DOCUMENTS = ["To be or not to be", "Call me Ishmael", "", "It was a dark and stormy night", "All happy families are alike"]


@functools.cache
def store() -> everstep.Store:
    """Open the store once in each process. All of them get its address from their environment."""
    return everstep.open(os.environ["PIPELINE_STORE"])


@everstep.step(kind="llm", retry=everstep.Retry(attempts=3, delay=0.05, only=(ConnectionError,)))
def count(text: str) -> int:
    """Replace a model."""
    if text.startswith("Call") and everstep.current().step_attempt < 3:
        raise ConnectionError("the model is busy")
    return len(text.split())


@everstep.workflow
def document(text: str) -> int:
    if not text:
        raise ValueError("the document is empty")
    return count(text)


@everstep.workflow
def pipeline(texts: list[str]) -> dict[str, int]:
    jobs = store().enqueue_many([{"args": [text]} for text in texts], workflow=document, queue="documents")
    outcomes = [job.wait() for job in jobs]  # durable: the pipeline waits without a process
    words = sum(out.unwrap() for out in outcomes if out.status == "succeeded")
    return {"words": words, "failed": len([out for out in outcomes if out.status == "failed"])}


def main(url: str) -> None:
    os.environ["PIPELINE_STORE"] = url or str(Path(tempfile.mkdtemp(prefix="everstep-fan-out-"), "store.db"))
    job = store().enqueue(pipeline, DOCUMENTS, queue="documents")
    # `everstep worker --import examples/fan_out.py --queue documents` is the same.
    workers = [subprocess.Popen([sys.executable, __file__, "work"]) for _ in range(2)]
    out = job.wait(60)
    for worker in workers:
        worker.terminate()  # SIGTERM: it finishes its steps and ends
        worker.wait()
    print(f"{out.status}: {out.result}")
    for run in store().runs(workflow="document", oldest_first=True):
        steps = store().steps(run.id)
        process = steps[-1].worker.rpartition(":")[2] if steps else "-"
        print(f"  {run.id:32} {run.status:10} attempts: {len(steps)}, last process: {process}")
    if out.result != {"words": 21, "failed": 1}:
        raise SystemExit(1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        store().worker("documents", concurrency=2).run()
    else:
        main(sys.argv[1] if len(sys.argv) > 1 else "")
