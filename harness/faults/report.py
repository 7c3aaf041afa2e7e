"""All harnesses together: runs them one after the other, tells the counts as they grow, and writes them down.

`HARNESSES` is the list. A harness that breaks down is a count with a note, which is not ok. The document has counts of the run that wrote it
and the words of the harnesses themselves; nothing in it is written by hand but what peers did, which is in `peers`.
"""

from __future__ import annotations

import json
import platform
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import everstep
from harness.faults.count import Count, Progress
from harness.faults.peers import peers_of
from harness.faults.searches import table

HARNESSES = {
    "kills": "kills.kills",
    "errors": "disk.errors",
    "full": "disk.full",
    "power": "disk.power",
    "flips": "damage.flips",
    "files": "damage.files",
    "stale": "damage.stale",
    "keys": "keys.keys",
    "writers": "kills.writers",
    "takeovers": "kills.takeovers",
    "beside": "machine.upkeep_race",
    "clocks": "machine.clocks",
    "memory": "memory.memory",
    "hostile": "hostile.hostile",
    "machine": "machine.machine",
}
"""The module of each harness, by the name that `--only` takes."""
COLUMNS = ("tried", "held", "detected", "lost", "wrong", "missing", "leftovers")
_WIDTH = 60
SHORT, LIMITED, DEEP = range(3)
_FORMS = ("some points", "as many as there was time for", "every point")
_Told = Callable[[str], None]


@dataclass(slots=True)
class Ran:
    """One harness, and its count."""

    name: str
    about: str
    form: int
    count: Count


@dataclass(slots=True)
class Asked:
    """How to run harnesses: some points or all, the seed, and a time limit for those that can be cut short."""

    deep: bool = False
    seed: int = 0
    minutes: float | None = None
    counts: Path | None = None
    """Where counts are kept: a harness whose count is there is not run again, so that a long run can be done in parts."""


def run_all(names: Iterable[str], asked: Asked, tell: _Told, progress: Progress = None) -> list[Ran]:
    """Run harnesses; `tell` gets a line of the table for each."""
    tell(head())
    ran = []
    for name in names:
        ran.append(_kept(name, asked) or run_one(name, asked, progress))
        _keep(ran[-1], asked)
        tell(line(ran[-1].count))
    return ran


def _kept(name: str, asked: Asked) -> Ran | None:
    """Return a count of an earlier run with the same seed and at least the same depth."""
    found = _counts(asked).get(name)
    if found is None or found.pop("seed") != asked.seed or found["form"] < _form(asked):
        return None
    return Ran(name, found.pop("about"), found.pop("form"), Count(**found))


def _form(asked: Asked) -> int:
    return SHORT if not asked.deep else LIMITED if asked.minutes is not None else DEEP


def _keep(ran: Ran, asked: Asked) -> None:
    if asked.counts is not None:
        said = {**asdict(ran.count), "about": ran.about, "form": ran.form, "seed": asked.seed}
        asked.counts.write_text(json.dumps({**_counts(asked), ran.name: said}, indent=1), encoding="utf-8")


def _counts(asked: Asked) -> dict[str, Any]:
    there = asked.counts is not None and asked.counts.exists()
    return dict(json.loads(asked.counts.read_text(encoding="utf-8"))) if asked.counts is not None and there else {}


def run_one(name: str, asked: Asked, progress: Progress = None) -> Ran:
    try:
        module: Any = import_module(f"harness.faults.{HARNESSES[name]}")
        limit = {"minutes": asked.minutes} if "minutes" in signature(module.run).parameters else {}
        with _folder() as folder:
            count: Count = module.run(folder, deep=asked.deep, seed=asked.seed, progress=progress, **limit)
        form = DEEP if asked.deep and not limit else _form(asked)
        return Ran(name, module.__doc__ or "", form, count)
    except Exception:  # noqa: BLE001 -- the other harnesses still run, and this one is not ok
        count = Count(name)
        count.note(traceback.format_exc())
        return Ran(name, "", _form(asked), count)


@contextmanager
def _folder() -> Iterator[Path]:
    """Return a folder in memory if possible: the harness decides which data survives, not a disk."""
    shared = Path("/dev/shm")  # noqa: S108 -- a folder of its own is made in it
    folder = Path(tempfile.mkdtemp(prefix="everstep-faults-", dir=shared if shared.is_dir() else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def head() -> str:
    return f"{'':{_WIDTH}}" + "".join(f"{name:>10}" for name in COLUMNS) + f"{'seconds':>10}  canaries"


def line(count: Count) -> str:
    """Format a row of the table, with the failures below it."""
    numbers = "".join(f"{getattr(count, name):>10,}" for name in COLUMNS)
    row = f"{count.harness[: _WIDTH - 1]:{_WIDTH}}{numbers}{count.seconds:>10.1f}  {count.canary or 'none'}"
    return "\n    ".join([row if count.ok else f"{row}  <- NOT OK", *count.notes])


def document(ran: list[Ran], seed: int) -> str:
    """Write the text of docs/trust.md."""
    import apsw

    rows = [
        f"| {each.count.harness} | {_FORMS[each.form]} | "
        + " | ".join(f"{getattr(each.count, name):,}" for name in COLUMNS)
        + f" | {each.count.canary} |"
        for each in ran
    ]
    parts = [
        "# Trust: fault injection results",
        "Every promise of [guarantees.md](guarantees.md) has a harness that tries to break it. One command writes this page, and you can run it yourself:",
        f"```sh\npip install 'everstep[dev]'\npython -m harness.faults --deep --seed {seed}\n```",
        f"The counts are those of everstep {everstep.__version__} on SQLite {apsw.sqlite_lib_version()}, Python {platform.python_version()}, {platform.system()}.",
        "## Counts",
        "| harness | form | " + " | ".join(COLUMNS) + " | canaries |\n" + "|---" * (len(COLUMNS) + 3) + "|\n" + "\n".join(rows),
        _WORDS,
        "## Other libraries",
        "Results of other libraries in the same tests, each measured once, with its release of autumn 2026.",
        "| test | others | everstep |\n|---|---|---|\n" + "\n".join(_beside(ran)),
        "## Searches of the test suite",
        "Each search has a canary, too, and a longer form with `EVERSTEP_DEEP=1`.",
        table(),
        "## What each harness does",
        *(f"### {each.name}\n\n{_paragraphs(each.about)}" for each in ran),
    ]
    return "\n\n".join(parts) + "\n"


_WORDS = """*form*: how much of a harness was run for this page. *tried*: faults that really fired. *held*: every promise was kept. *detected*: an error named the
damage, or said that nothing was written. *lost*: an acknowledged save was gone. *wrong*: a read returned data that was never saved there, or a write
was accepted that should have been refused. *missing*: a run was missing, and no error said so. *leftovers*: files remained after the next open. A
*canary* is a store that is broken on purpose: if a harness does not catch it, the harness has proved nothing, and its run does not count."""


def _beside(ran: list[Ran]) -> Iterator[str]:
    for each in ran:
        said = [f"{peer.name}: {peer.did}" for peer in peers_of(each.name)]
        if said:
            count = each.count
            ours = f"{count.tried:,} tried: {count.wrong:,} wrong, {count.lost:,} lost, {count.missing:,} missing"
            yield f"| {each.count.harness} | {'; '.join(said)} | {ours} |"


def _paragraphs(text: str) -> str:
    """Return the description of a harness, with its lists unchanged."""
    blocks = [block.strip("\n") for block in text.strip().split("\n\n")]
    return "\n\n".join(f"```text\n{block}\n```" if block.startswith("    ") else block for block in blocks)
