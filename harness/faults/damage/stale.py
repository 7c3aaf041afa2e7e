"""Puts single pages of older copies back into a store: a disk that lost a write, or an incomplete restore.

Every page of the file, from every copy in which it was different, one at a time. The store has no rollback guard, so only the content of the
file can show the damage. Then everything is read, runs are resumed and saved, gates are answered and ids used again, each in a newly opened store.
Each result is the newest one or an error. A listing may lack a row if `verify` reports it; a row that it shows is the newest.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from unittest.mock import patch

import everstep
from everstep.codec.values import encode
from everstep.errors import AlreadyAnswered, EverstepError
from harness.faults.count import Count, Progress
from harness.faults.damage import ages
from harness.faults.damage.pool import tried
from harness.faults.damage.reads import DETECTED, MISSING, SAME, WRONG, Lines, Read, compare
from harness.faults.damage.recall import PAGE
from harness.faults.damage.trial import Bench, Files, Outcome, put

SHORT = 60
"""The number of pages that a short run puts back."""
_LISTINGS = ("runs", "events", "due", "queue entries")
_SIZE = 512


def old_pages(bench: Bench) -> list[tuple[int, int]]:
    """List every (age, page) at which an older copy differs from the newest file."""
    if "pages" not in bench.kept:
        newest = bench.closed[""]
        bench.kept["ages"] = ages.ages(bench.sample)
        bench.kept["pages"] = [
            (age, at // _SIZE)
            for age, older in enumerate(bench.kept["ages"])
            for at in range(0, min(len(older), len(newest)), _SIZE)
            if older[at : at + _SIZE] != newest[at : at + _SIZE]
        ]
    found: list[tuple[int, int]] = bench.kept["pages"]
    return found


def attempt(bench: Bench, number: int) -> Outcome:
    """Put one page back, read and act."""
    age, page = old_pages(bench)[number]
    changed = files(bench, number)
    kind, said = _worst([_reads(bench, changed, page * _SIZE // PAGE), *(_act(bench, changed, name) for name in acts(bench))])
    return kind, f"page {page} of age {age}: {said}"


def files(bench: Bench, number: int) -> Files:
    """Return the newest file with one page of an older copy in it."""
    age, page = old_pages(bench)[number]
    older, newest, at = bench.kept["ages"][age], bench.closed[""], page * _SIZE
    return {"": newest[:at] + older[at : at + _SIZE] + newest[at + _SIZE :]}


def _worst(outcomes: list[Outcome]) -> Outcome:
    return max(outcomes, key=lambda outcome: (SAME, DETECTED, MISSING, WRONG).index(outcome[0]))


def _reads(bench: Bench, changed_files: Files, part: int) -> Outcome:
    """Read everything that the page can affect."""
    put(changed_files, bench.path)
    try:
        store = everstep.open(bench.path)
    except EverstepError as error:
        return DETECTED, f"open: {error.message}"
    with store:
        changed = [call for call in bench.calls_of([part]) if call.changed(store.backend)]
        names = bench.recall.touched(changed)
        return _worst([(SAME, ""), *(_judge(store, name, bench.recall.reads[name], bench.recall.good[name]) for name in names)])


def _judge(store: everstep.Store, name: str, read: Read, good: Lines) -> Outcome:
    kind, said = compare(read, store, good)
    if kind == MISSING and name.split(" with ")[0] in _LISTINGS:
        kind = DETECTED if not _verified(store) else MISSING
    elif kind == MISSING:
        kind = WRONG  # less than there is, without a report of damage
    return kind, f"{name}: {said}"


def _verified(store: everstep.Store) -> bool:
    try:
        return store.verify("full").ok
    except EverstepError:
        return False


def acts(bench: Bench) -> dict[str, tuple[Read, Lines]]:
    """List actions of programs that depend on the newest rows, each with its result in the good store."""
    if "acts" not in bench.kept:
        made: dict[str, Read] = {f"save {run}": partial(_save, run=run) for run in ages.LOOPS}
        made |= {f"resume {run}": partial(_resume, run=run) for run in ages.WORKFLOWS}
        made |= {f"start {run}": partial(_start, run=run) for run in ages.WORKFLOWS[:1]}
        made |= {"answer": _answer, "create": _create, "last run": lambda store: [str(store.backend.manifest().last)]}
        bench.kept["acts"] = {name: (act, _in_good(bench, act)) for name, act in made.items()}
    found: dict[str, tuple[Read, Lines]] = bench.kept["acts"]
    return found


def _in_good(bench: Bench, act: Read) -> Lines:
    put(bench.closed, bench.path)
    with everstep.open(bench.path) as store:
        return act(store)


def _act(bench: Bench, changed: Files, name: str) -> Outcome:
    act, good = acts(bench)[name]
    put(changed, bench.path)
    try:
        with everstep.open(bench.path) as store:
            kind, said = compare(act, store, good)
    except EverstepError as error:
        return DETECTED, f"{name}: {error.message}"
    return (WRONG if kind == MISSING else kind), f"{name}: {said}"


def _save(store: everstep.Store, run: str) -> Lines:
    """Return the state that a loop continues from, and its state after one more save."""
    with store.run(run) as opened:
        began = encode(opened.state).hex()
        opened.state["lines"].append("one more")
        opened.checkpoint()
    return [began, encode(store.load(run)).hex(), str(store.get(run).checkpoints)]


def _resume(store: everstep.Store, run: str) -> Lines:
    outcome = store.resume(run)
    return [outcome.status, repr(outcome.result), repr(outcome.error)]


def _start(store: everstep.Store, run: str) -> Lines:
    outcome = store.start(ages.report, ages.WORKFLOWS.index(run), id=run)
    return [outcome.status, repr(outcome.result)]


def _answer(store: everstep.Store) -> Lines:
    """Check that an answered gate takes no other answer."""
    with suppress(AlreadyAnswered):
        store.answer("open", "first", "another")
        return ["a second answer was taken"]
    return ["refused"]


def _create(store: everstep.Store) -> Lines:
    """Check that a new id makes a new run."""
    with store.run("brand-new", state={"n": 1}) as run:
        run.checkpoint()
    return [encode(store.load("brand-new")).hex(), repr(sorted(info.id for info in store.runs(prefix="brand")))]


def run(folder: Path, *, deep: bool, seed: int = 0, progress: Progress = None) -> Count:
    count = Count("single pages of older copies put back")
    with count.timed():
        sample = ages.build(folder / "sample")
        bench = Bench(sample, folder / "bench")
        numbers = list(range(len(old_pages(bench))))
        if not deep:
            numbers = sorted(Random(seed).sample(numbers, min(SHORT, len(numbers))))  # noqa: S311 -- has to be the same each time
        tried(count, attempt, numbers, bench, sample if deep else None, folder, progress)
        bench.close()
        count.tell_canary("heads not compared with their records", canary(folder / "canary"))
    return count


def canary(folder: Path) -> bool:
    """Whether a reader that accepts every run row as the newest one is caught."""
    bench = Bench(ages.build(folder / "sample"), folder / "bench")
    numbers = list(range(len(old_pages(bench))))
    Random(0).shuffle(numbers)  # noqa: S311 -- has to be the same each time
    with patch("everstep.backends.sqlite.rows.refuse_stale", lambda *_: None):
        caught = any(attempt(bench, number)[0] == WRONG for number in numbers)
    bench.close()
    return caught
