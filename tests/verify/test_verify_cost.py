"""Full depth costs as much as there are bytes: every chunk is read once, and what is read again is paid for. Counted, not timed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from upkeep_helpers import many_bases

import everstep
from everstep.store.verify import chunks as family_chunks


class Reads:
    """Counts what a store's backend is asked for."""

    def __init__(self, store: everstep.Store, monkeypatch: pytest.MonkeyPatch):
        self.chunks: Counter[bytes] = Counter()
        self.bytes = self.calls = self.records = 0
        backend = store.backend
        chunks, records = backend.chunks, backend.records

        def read_chunks(family: bytes, digests: Sequence[bytes]) -> dict[bytes, bytes]:
            found = chunks(family, digests)
            self.calls += 1
            self.chunks.update(digests)
            self.bytes += sum(map(len, found.values()))
            return found

        def read_records(*asked: Any) -> Any:
            found = records(*asked)
            self.records += len(found)
            return found

        monkeypatch.setattr(backend, "chunks", read_chunks)
        monkeypatch.setattr(backend, "records", read_records)


def rows(count: int, seed: int = 0) -> list[Any]:
    chance = random.Random(seed)
    return [{"n": i, "text": chance.randbytes(250).hex()} for i in range(count)]


def test_every_chunk_of_a_long_chat_is_read_once_however_many_bases_share_it(places: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = places.open()
    with many_bases(every=8), store.run("r", state={"messages": [], "seen": {}}) as run:
        for row in rows(400):
            run.state["messages"].append(row)
            run.state["seen"][f"k{row['n'] % 7}"] = row["n"]
            run.checkpoint()
    stats = store.stats()
    assert len(store.backend.records("r", 1, 10**6, ("base",))) > 10
    reads = Reads(store, monkeypatch)
    report = store.verify("full")
    assert report.ok
    assert report.chunks == stats["chunks"] == len(reads.chunks)
    assert set(reads.chunks.values()) == {1}
    assert report.records == stats["records"] == reads.records
    assert reads.calls < stats["chunks"]


def test_edits_anywhere_in_a_long_list_open_its_segments_and_no_others(places: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = places.open()
    chance = random.Random(3)
    with many_bases(every=20), store.run("r", state={"messages": rows(2_000)}) as run:
        run.checkpoint()
        for _ in range(100):
            run.state["messages"][chance.randrange(2_000)]["text"] = chance.randbytes(250).hex()
            run.checkpoint()
    monkeypatch.setattr(family_chunks, "_RECENT_BYTES", 0)
    reads = Reads(store, monkeypatch)
    assert store.verify("full").ok
    stats = store.stats()
    assert reads.bytes <= 3 * stats["chunk_bytes"]


def test_many_forks_of_a_large_state_cost_no_more_than_what_they_wrote(places: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = places.open()
    with store.run("r", state={"messages": rows(500), "facts": {f"k{i}": i for i in range(1_500)}}) as run:
        run.checkpoint()
    for i in range(15):
        store.fork("r", f"fork-{i}")
        with store.run(f"fork-{i}") as run:
            run.state["messages"].append(i)
            run.state["facts"][f"k{i}"] = -1
            run.checkpoint()
    stats = store.stats()
    monkeypatch.setattr(family_chunks, "_FREE_BYTES", 0)
    monkeypatch.setattr(family_chunks, "_RECENT_BYTES", 0)
    reads = Reads(store, monkeypatch)
    assert store.verify("full").ok
    proved = stats["chunk_bytes"] + stats["record_bytes"]
    assert reads.bytes <= stats["chunk_bytes"] + proved  # each once, and as much again


def test_texts_and_values_that_are_cut_are_joined_only_as_long_as_there_is_an_allowance(
    places: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = places.open()
    chance = random.Random(5)
    text, data = chance.randbytes(60_000).hex(), (chance.randbytes(90_000),)
    with many_bases(every=1), store.run("r", state={"text": text, "data": data}) as run:
        for i in range(8):
            run.state["text"] = f"{i}{text}"
            run.state["data"] = (i, *data)
            run.checkpoint()
    stats = store.stats()
    monkeypatch.setattr(family_chunks, "_FREE_BYTES", 0)
    monkeypatch.setattr(family_chunks, "_RECENT_BYTES", 0)
    reads = Reads(store, monkeypatch)
    report = store.verify("full")
    assert report.ok
    assert (report.chunks, report.unreachable) == (stats["chunks"], 0)
    assert reads.bytes <= 2 * stats["chunk_bytes"] + stats["record_bytes"]
