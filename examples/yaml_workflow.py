"""A workflow in YAML that is killed, resumes, asks a person and detects that its document was changed: python examples/yaml_workflow.py

The document is examples/report.yaml; the functions that it names are in this file. A child process runs it and is killed with SIGKILL in
the middle of a search. A second process resumes the run and reaches a question; after the answer it runs to its end. Then a document with
another command is refused for a run that began under the old one. Nothing leaves this machine. Needs pip install '.[yaml]' in a checkout.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import everstep
from everstep import yaml
from everstep.errors import DefinitionChanged

DOCUMENT = Path(__file__).with_name("report.yaml")
SLOW = "storage engines, part 3"  # the search that hangs in the first process, which is killed during it


def plan(topic: str) -> list[str]:
    return [f"{topic}, part {n}" for n in range(1, 6)]


def search(query: str) -> str:
    with Path("searches.txt").open("a") as bill:  # paid for when it is sent
        bill.write(f"{query}\n")
    if query == SLOW and "FIRST" in os.environ:
        time.sleep(60)
    return f"found {query}"


def write(hits: list[str]) -> str:
    return f"A report on {len(hits)} things, from '{hits[0]}' to '{hits[-1]}'."


def work(how: str) -> None:
    """Run in a child process."""
    flow = yaml.load(DOCUMENT)
    with everstep.open("store.db") as store:
        out = store.start(flow, topic="storage engines", folder=str(Path.cwd()), id="r1") if how == "start" else store.resume("r1")
        print(f"   {out.report}\n   The run is {out.status}: {out.reason or out.result}", flush=True)


def process(how: str, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, how], env={**os.environ, **environment})


def finished() -> int:
    with everstep.open("store.db") as store:
        return len(store.steps("r1")) if store.runs() else 0


def kill_in_the_middle() -> None:
    child = process("start", FIRST="yes")
    while not Path("store.db").exists() or finished() < 5:  # the plan, and all searches but one
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait()
    print(f"1. Process {child.pid} was killed (SIGKILL) in the middle of a search.", flush=True)


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="everstep-yaml-"))
    os.chdir(folder)
    print(f"Everything happens in {folder}\n")
    kill_in_the_middle()
    print("2. Another process resumes the run:", flush=True)
    process("resume").wait()
    searches = Path("searches.txt").read_text().splitlines()
    print(f"   Searches paid: {len(searches)}, for {len(set(searches))} queries.")

    flow = yaml.load(DOCUMENT)
    with everstep.open("store.db") as store:
        (gate,) = (g for g in store.gates("r1") if not g.answered)
        print(f"3. It asks: {gate.ask} {gate.choices}")
        store.answer("r1", "editor", "yes", by="the reader of this")
        (out,) = store.wake()
        print(f"   Answered with yes, it is {out.status}, and was published: {out.unwrap()['published']}.")

        store.start(flow, topic="queues", folder=str(folder), id="r2")
        changed = DOCUMENT.read_text().replace("wc -l", "wc -w")
        yaml.load(DOCUMENT, changed)
        try:
            store.resume("r2")
        except DefinitionChanged as refused:
            print(f"4. {refused.message}\n")
            print(refused.difference)


if __name__ == "__main__":
    work(sys.argv[1]) if sys.argv[1:] else main()
