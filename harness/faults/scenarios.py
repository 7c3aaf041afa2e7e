"""Scenarios under kills and disk errors: the whole workload, and each rare action of a store on its own.

    work         all sessions of the workload, from no file at all to the end; with a fork, a prune and a gc
    recovery     the next open after a kill in the middle of work
    compact      the whole store rewritten
    repair       a new store written from a damaged one
    migration    the first open of a store of an older format, one that is made for it (`format_0`)

`broken_by_kills` and `broken_by_errors` are stores that break a promise on purpose, for the canaries.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import everstep
from harness.faults import format_0
from harness.faults.broken_programs import Hasty, Liar, Optimist, Twofold
from harness.faults.damage import repairs
from harness.faults.damage.repairs import contents
from harness.faults.disk.retrying_program import Patient, patiently
from harness.faults.kills.crashes import Scenario
from harness.faults.kills.shim import Fault, Shim
from harness.faults.verdict import Verdict, judge, leftovers
from harness.faults.workload import Workload

OPTIONS: dict[str, Any] = {"wal_bytes": 300_000}  # grows in two slices, not in sixteen


def play(folder: Path, seed: int, program: type[Workload] = Workload, **options: Any) -> list[str]:
    """Play a program in this process; return the errors after which it continued."""
    playing = program(folder, seed, **options, **OPTIONS)
    playing.play()
    return playing.errors if isinstance(playing, Patient) else []


def all_scenarios(seed: int, patient: bool = False) -> list[Scenario]:
    """List every scenario; patient ones continue after an error, the others end at the first one."""
    judged = partial(judge, seed=seed, play=play)
    found = [Scenario("work", partial(play, seed=seed), judged)]
    for call in (150, 420):
        found.append(Scenario(f"recovery after call {call}", _reopen, judged, partial(_die_at, seed=seed, call=call)))
    found.append(Scenario("compact", _compact, judged, partial(play, seed=seed)))
    found.append(Scenario("repair", repairs.act, repairs.judge, partial(_damage, seed=seed)))
    format_0.register()
    found.append(Scenario("migration", _reopen, _judge_migrated, _make_old))
    if not patient:
        return found
    return [_patient(scenario, seed, stops) for scenario in found for stops in (False, True)]


def _patient(scenario: Scenario, seed: int, stops: bool) -> Scenario:
    act = partial(patiently, scenario.act, stops=stops)
    if scenario.name == "work":
        act = partial(play, seed=seed, program=Patient, stops=stops, busy_ms=5_000)
    return replace(scenario, name=scenario.name + (", ending at the first error" if stops else ""), act=act)


def _die_at(folder: Path, seed: int, call: int) -> None:
    """Leave the files of a process that was killed in the middle of work."""
    child = os.fork()
    if child == 0:
        try:
            Shim().arm(folder / "store", Fault(call, "kill", "half"))
            play(folder, seed)
        finally:
            os._exit(1)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != -signal.SIGKILL:
        raise RuntimeError(f"the workload has no call {call}")


def _reopen(folder: Path) -> None:
    """Open, read a little, close: recovers the WAL and merges it; migrates an older store."""
    with everstep.open(folder / "store" / "store.db", **OPTIONS) as store:
        store.runs()


def _damage(folder: Path, seed: int) -> None:
    play(folder, seed)
    repairs.prepare(folder)


def _compact(folder: Path) -> None:
    with everstep.open(folder / "store" / "store.db", **OPTIONS) as store:
        store.gc(compact=True)


def _make_old(folder: Path) -> None:
    for part in ("store", "whole"):
        (folder / part).mkdir()
    format_0.make(folder / "store" / "store.db")
    shutil.copyfile(folder / "store" / "store.db", folder / "whole" / "store.db")
    with everstep.open(folder / "whole" / "store.db") as migrated:
        (folder / "expected").write_text(json.dumps(contents(migrated)))
    shutil.rmtree(folder / "whole")


def _judge_migrated(folder: Path) -> Verdict:
    """Check that everything of the old store is in the new one, and that it can be written."""
    verdict, path = Verdict(), folder / "store" / "store.db"
    expected = json.loads((folder / "expected").read_text())
    with everstep.open(path, create=False) as store:
        found = contents(store)
        verdict.detected.extend(map(str, store.verify("full").problems))
        verdict.missing.extend(f"run {run!r}" for run in expected if run not in found)
        verdict.wrong.extend(f"run {run!r} differs" for run in found if found[run] != expected.get(run))
        with store.run("one-more", state={"n": 1}) as run:
            run.checkpoint()
    verdict.leftovers.extend(leftovers(path))
    return verdict


def broken_by_kills(seed: int) -> list[Scenario]:
    judged = partial(judge, seed=seed, play=play)
    return [
        Scenario("a store that acknowledges before COMMIT", partial(play, seed=seed, program=Hasty), judged),
        Scenario("a manifest in a second transaction", partial(play, seed=seed, program=Twofold), judged, aim="-wal"),
    ]


def broken_by_errors(seed: int) -> list[Scenario]:
    judged = partial(judge, seed=seed, play=play)
    return [
        Scenario("a store that swallows ENOSPC", partial(play, seed=seed, program=Optimist), judged, aim="pwrite /store.db-wal"),
        Scenario("a store that always says not written", partial(play, seed=seed, program=Liar, stops=True), judged, aim="fdatasync"),
    ]
