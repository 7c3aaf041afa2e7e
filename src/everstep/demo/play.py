"""The demo, in five acts: an agent works and is killed, a new process resumes, the answers are compared, a fork decides differently, the
sizes.

Every printed figure was measured: it comes from the store or from a worker's report. `talk` prints it.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

import everstep
from everstep.cli.draw.text import duration, plural, safe, size
from everstep.demo import agent
from everstep.demo.child import Child
from everstep.demo.figures import Compared, Figures, Forked, Killed, Resumed, Sizes
from everstep.demo.folder import Stage, stage
from everstep.demo.invitation import commands
from everstep.demo.talk import Say, Style, Voice, money

RUN, UNDISTURBED, FORK = "research", "undisturbed", "low-price"
DOOMED = "judge#4"
EDIT = {"wish": "a low price"}
SUSPENSE = 0.7  # seconds in which a reader sees that a call is in progress
PAUSE = 0.5  # seconds between two acts


def play(folder: Path, say: Say, style: Style) -> Figures:
    """Run the demo in this folder. Raises EverstepError and OSError; leaves no process behind in any case."""
    with stage(folder) as ours:
        return _Play(ours, Voice(say, style)).all()


class _Play:
    """One run of the demo."""

    def __init__(self, stage: Stage, voice: Voice):
        self._stage, self._voice = stage, voice
        self._children = ExitStack()

    def all(self) -> Figures:
        began = time.monotonic()
        with everstep.open(self._stage.store) as self._store, self._children:
            undisturbed = self._child("start", UNDISTURBED)
            killed = self._work_and_die()
            resumed, answer = self._resume()
            compared = self._compare(undisturbed, answer)
            forked = self._decide_otherwise()
            sizes, whole = self._weigh()
        return Figures(
            store=str(self._stage.store), question=agent.QUESTION, killed=killed, resumed=resumed, compared=compared, forked=forked, sizes=sizes,
            whole=whole, commands=self._invite(), seconds=round(time.monotonic() - began, 3),
        )  # fmt: skip

    def _child(self, verb: str, run: str, doomed: str | None = None) -> Child:
        return self._children.enter_context(Child(self._stage, verb, run, doomed))

    def _head(self, number: int, title: str) -> None:
        if number > 1:
            time.sleep(PAUSE)
            self._voice.say("")
        self._voice.head(f"{number}  {title}")

    def _work_and_die(self) -> Killed:
        self._head(1, "An agent at work: each step is on disk when it returns")
        self._voice.dim(f"Asked: {agent.QUESTION}")
        child = self._child("start", RUN, DOOMED)
        self._voice.dim(f"Process {child.pid}. The model is a script, but it takes time and has a price.")
        self._voice.follow(child.news())
        self._voice.thinking(DOOMED)
        time.sleep(SUSPENSE)
        signal = child.kill()
        self._voice.killing(child.pid)
        steps, saved = len(self._store.steps(RUN)), self._store.get(RUN).checkpoints
        self._voice.say(f"  Killed in the middle of {DOOMED}. On disk: {plural(steps, 'step')}, {plural(saved, 'checkpoint')}.")
        return Killed(RUN, child.pid, signal, DOOMED, steps, saved)

    def _resume(self) -> tuple[Resumed, str]:
        self._head(2, "A new process resumes the run")
        names = Counter(step.name for step in self._store.steps(RUN))
        child = self._child("resume", RUN)
        self._voice.dim(f"Process {child.pid} runs the same function from its first line.")
        news = child.news()
        first = next(news)  # after its first new step: by now it has read everything that was on disk
        kept = ", ".join(f"{name} ×{count}" if count > 1 else name for name, count in names.items())
        self._voice.say(f"  {self._voice.style('✓' * names.total(), 'green')} not called again: {kept}")
        last = child.succeeded(self._voice.follow(chain([first], news)))
        saved = last["saved"]
        self._voice.figures(
            ("kept", plural(last["kept"], "step")),
            ("run", plural(last["executed"], "step")),
            ("saved", f"{duration(saved['seconds'])}, {saved['tokens']:,} tokens, {money(saved['cost'])}"),
        )
        return Resumed(child.pid, last["kept"], last["executed"], saved["seconds"], saved["tokens"], saved["cost"]), last["answer"]

    def _compare(self, undisturbed: Child, answer: str) -> Compared:
        self._head(3, "Is the answer the same?")
        self._voice.dim(f"Process {undisturbed.pid} did the same work in the same file and was not killed.")
        other = undisturbed.end()["answer"]
        same, equal = answer == other, self._store.load(RUN) == self._store.load(UNDISTURBED)
        self._voice.figures(
            ("killed once", safe(answer)),
            ("undisturbed", safe(other)),
            ("same answer", self._voice.yes(same)),
            ("same state", self._voice.yes(equal)),
        )
        return Compared(UNDISTURBED, undisturbed.pid, answer, other, same, equal)

    def _decide_otherwise(self) -> Forked:
        self._head(4, "Fork before the decision, and decide differently")
        fork = self._store.fork(f"{RUN}@{agent.DECISION}", id=FORK, edit=EDIT)
        ref = f"{fork.parent}@{fork.parent_number}"
        self._voice.dim(f"{FORK} is a fork of {ref} (tag {agent.DECISION}), with another wish.")
        self._voice.spent(self._store.checkpoint(ref).used["cost"])
        child = self._child("resume", FORK)
        last = child.succeeded(self._voice.follow(child.news()))
        self._voice.figures(("kept", plural(last["kept"], "step")), ("run", plural(last["executed"], "step")))
        changes = self._store.diff(RUN, FORK)
        self._voice.differ(changes, RUN, FORK)
        told = [{"path": list(c.path), "kind": c.kind, "before": c.before, "after": c.after} for c in changes]
        return Forked(FORK, ref, EDIT, last["kept"], last["executed"], last["answer"], told)

    def _weigh(self) -> tuple[Sizes, bool]:
        self._head(5, "How much space it takes")
        runs = [self._store.get(run) for run in (RUN, UNDISTURBED, FORK)]
        refs = [one.ref for run in runs for one in self._store.checkpoints(run.id, limit=None)]
        copies = sum(len(json.dumps(self._store.load(ref), ensure_ascii=False).encode()) for ref in refs)
        sizes = Sizes(len(refs), copies, sum(run.stored_bytes for run in runs))
        whole = self._store.verify("full").ok
        self._voice.figures(
            ("plain JSON", f"{size(copies):>8}  the states of {plural(len(refs), 'checkpoint')}, each in full"),
            ("stored", f"{size(sizes.stored):>8}  these and all step results: {sizes.stored / copies:.0%} of that size"),
            ("verified", self._voice.yes(whole)),
        )
        return sizes, whole

    def _invite(self) -> list[str]:
        invited = commands(self._stage.store, RUN, FORK, agent.DECISION)
        self._voice.say("")
        self._voice.head("Everything is still there. Try:")
        for command in invited:
            self._voice.say(f"  {command}")
        return invited
