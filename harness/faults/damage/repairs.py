"""A repair under faults: the source stays unchanged to the byte, and the new store is there complete or not at all.

If reads of the source fail, a repair may find less, and reports it. Everything that it finds was saved.
"""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw

import everstep
from everstep.errors import EverstepError, NotFound
from harness.faults.log import digest_of
from harness.faults.verdict import Verdict, leftovers


def contents(store: everstep.Store) -> dict[str, Any]:
    """Return all readable content of every run, as digests."""
    found = {}
    for info in store.runs():
        states = {str(c.number): [c.note, c.tags, _state(store, c.ref)] for c in store.checkpoints(info.id)}
        steps = [[s.address, s.status, digest_of(s.result)] for s in store.steps(info.id)]
        gates = [[g.address, g.answered, digest_of(g.answer)] for g in store.gates(info.id)]
        found[info.id] = json.loads(json.dumps([info.tags, states, steps, gates]))
    return found


def _state(store: everstep.Store, ref: str) -> str:
    try:
        return digest_of(store.load(ref))
    except NotFound:
        return "pruned"


def prepare(played: Path) -> None:
    """Damage a store, and note the result of an undisturbed repair."""
    source = played / "store" / "store.db"
    shutil.rmtree(source.with_name("store.db-locks"), ignore_errors=True)
    connection = apsw.Connection(str(source))
    connection.execute(
        "UPDATE records SET body = zeroblob(9) WHERE kind = 'step' AND id = (SELECT max(id) FROM records WHERE kind = 'step')"
    )
    connection.execute("UPDATE chunks SET frame = zeroblob(9) WHERE rowid = (SELECT min(rowid) FROM chunks)")
    connection.close()
    (played / "whole").mkdir()
    done = everstep.repair(source, played / "whole" / "new.db")
    with everstep.open(played / "whole" / "new.db", create=False) as store:
        expected = {"source": _hash(source), "losses": len(done.lost), "contents": contents(store)}
    shutil.rmtree(played / "whole")
    (played / "expected").write_text(json.dumps(expected))


def _hash(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def act(folder: Path) -> None:
    """Repair, unless an earlier attempt has done it and then met an error."""
    target = folder / "store" / "new.db"
    if not target.exists():
        done = everstep.repair(folder / "store" / "store.db", target)
        (folder / "losses").write_text(str(len(done.lost)))


def judge(folder: Path) -> Verdict:
    verdict, target = Verdict(), folder / "store" / "new.db"
    expected = json.loads((folder / "expected").read_text())
    told = (folder / "losses").exists() and int((folder / "losses").read_text()) > expected["losses"]
    try:
        if not target.exists():
            everstep.repair(folder / "store" / "store.db", target)
        with everstep.open(target, create=False) as store:
            found = contents(store)
            verdict.detected.extend(map(str, store.verify("full").problems))
    except EverstepError as error:
        verdict.lost.append(f"the repaired store: {type(error).__name__}: {error.message}")
        return verdict
    if _hash(folder / "store" / "store.db") != expected["source"]:
        verdict.wrong.append("the source was changed")
    _compare(expected["contents"], found, told, verdict)
    verdict.leftovers.extend(left for left in leftovers(target) if left not in ("store.db", "store.db-seen"))
    return verdict


def _compare(expected: dict[str, Any], found: dict[str, Any], told: bool, verdict: Verdict) -> None:
    if not told:
        verdict.missing.extend(f"run {run!r}" for run in expected if run not in found)
        verdict.lost.extend(f"a part of run {run!r}" for run in found if run in expected and found[run] != expected[run])
    for run, (_, states, _, _) in found.items():
        for number, state in states.items():
            if state[2] != "pruned" and state != expected.get(run, [[], {}])[1].get(number):
                verdict.wrong.append(f"{run}@{number} holds another state")
