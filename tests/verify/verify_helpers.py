"""What the tests of verify and doctor share: a store that has one of everything, and ways to damage it behind its back."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
from upkeep_helpers import grow, many_bases

import everstep
from everstep.backends.contract.core import Commit
from everstep.records import RunRow
from everstep.snapshot.saver import Saved
from everstep.store.chain import Chain
from everstep.store.verify.report import Depth, Report

DEPTHS: tuple[Depth, ...] = ("quick", "records", "full")


def make(path: Path) -> None:
    """A loop with tags, notes, meta and long results; a pruned run with added bases; a fork; gates and messages; a run that was deleted."""
    with everstep.open(path) as store, many_bases():
        grow(store, "loop", 40, tags={3: "early", 20: "middle"}, note="a loop", meta={"team": "t", "size": 3.0})
        grow(store, "pruned", 60, tags={9: "one", 21: "two", 33: "three"})
        grow(store, "gone", 5)
        wide(store, "wide")
        store.fork("loop@middle", "fork", edit={"facts": {"edited": True}})
        store.start(asking, "question", id="asking")
        store.answer("asking", "sure", "yes", by="somebody")
        store.delete("gone")
        store.prune(everstep.Retention(keep_last=3, keep_tagged=True), run="pruned")
        store.set_retention(everstep.Retention(keep_last=50), run="loop")
        assert store.backend.bases("pruned"), "the tests want an added base"


@everstep.workflow
def asking(question: str) -> str:
    """Stops at a gate, with a message in its box once that is answered."""
    return str(everstep.gate("sure", ask=question))


def wide(store: everstep.Store, id: str) -> None:
    """A state with everything that is cut into chunks: long lists, dicts, text, bytes, and values of other kinds."""
    chance = random.Random(id)
    state: dict[str, Any] = {
        "list": [{"n": i, "text": chance.randbytes(300).hex()} for i in range(400)],
        "dict": {f"key {i}": chance.randbytes(200).hex() for i in range(300)},
        "text": "Grüße " * 12_000,
        "bytes": chance.randbytes(150_000),
        "tuple": tuple(chance.randbytes(100) for _ in range(900)),
        "buffer": bytearray(chance.randbytes(90_000)),
    }
    with store.run(id, state=state) as run:
        for i in range(24):
            run.state["list"][chance.randrange(300)]["n"] = -i
            run.state["list"].append({"n": i, "text": chance.randbytes(300).hex()})
            run.state["dict"][f"key {chance.randrange(300)}"] = i
            run.state["text"] = run.state["text"][:500] + "ä" + run.state["text"][500:]
            if i % 6 == 5:
                run.state["list"].pop(0)
                run.state["bytes"] += b"more"
            run.checkpoint()


def tamper(path: Path, statement: str, *bindings: Any) -> int:
    """Change a closed store; gives how many rows were changed."""
    connection = apsw.Connection(str(path))
    connection.execute(statement, bindings)
    changed = connection.changes()
    connection.close()
    return changed


def query(path: Path, statement: str, *bindings: Any) -> list[Any]:
    connection = apsw.Connection(str(path))
    rows = connection.execute(statement, bindings).fetchall()
    connection.close()
    return rows


def verified(path: Path, depth: Depth = "full", **options: Any) -> Report:
    with everstep.open(path, accept_older=True) as store:
        return store.verify(depth, **options)


def flipped(data: bytes, bit: int) -> bytes:
    bad = bytearray(data)
    bad[bit // 8 % len(bad)] ^= 1 << bit % 8
    return bytes(bad)


def forge(store: everstep.Store, run: str, *saved: Saved, entries: Sequence[tuple[str, bytes]] = ()) -> RunRow:
    """Commit what no program would write, with digests that are right all the same."""
    row = store.backend.run(run)
    chain = Chain(store.framer, row or _new(run), row)
    if row is None:
        chain.start()
    for kind, content in entries:
        chain.add(kind, content, "forged#0")
    for one in saved:
        chain.checkpoint(one)
    commit: Commit = chain.commit()
    store.backend.commit(commit)
    return commit.run


def _new(run: str) -> RunRow:
    from everstep.store.chain import new_row

    return new_row(run)
