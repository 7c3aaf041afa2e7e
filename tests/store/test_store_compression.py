"""Compression is a choice of each writer, recorded in each frame; all mix in one store."""

from typing import Any

import pytest

import everstep
from everstep.errors import InvalidArgument

TEXT = {"l": [f"line {i} says the same words again and again and again" for i in range(8000)]}


def test_all_kinds_of_frames_mix_in_one_run(places: Any) -> None:
    expected: list[dict[str, Any]] = []
    state: dict[str, Any] = dict(TEXT, n=0)
    for turn, compression in enumerate(["none", "zstd", "gzip", "zstd", "none", "gzip"]):
        store = places.open(compression=compression, checking=True, threshold=64)
        with store.run("r", state=state) as run:
            run.state["n"] = f"{turn} " * 100
            run.state["l"] = [f"{line} {turn}" for line in run.state["l"]]
            run.checkpoint()
            expected.append({"l": list(run.state["l"]), "n": run.state["n"]})
        store.close()
    store = places.open()
    for turn, value in enumerate(expected):
        assert store.load(f"r@{turn + 1}") == value
    flags = {record.body[1] for record in store.backend.records("r", 0, 10**6)}
    family = store.backend.run("r").family
    frames = store.backend.chunks(family, list(store.backend.chunk_sizes(family)))
    flags |= {frame[1] for frame in frames.values()}
    assert flags == {0, 1, 2}
    assert store.verify("full").ok


@pytest.mark.parametrize("compression", ["zstd", "gzip"])
def test_compression_makes_a_store_smaller(compression: Any) -> None:
    sizes = []
    for choice in ("none", compression):
        store = everstep.open("memory://", compression=choice)
        with store.run("r", state=TEXT) as run:
            run.checkpoint()
        stats = store.stats()
        sizes.append(stats["chunk_bytes"] + stats["record_bytes"])
        assert store.load("r") == TEXT
        store.close()
    assert sizes[1] < sizes[0] / 4


def test_the_threshold_and_the_level_are_options() -> None:
    store = everstep.open("memory://", compression="gzip", level=9, threshold=10**9)
    with store.run("r", state=TEXT) as run:
        run.checkpoint()
    assert {record.body[1] for record in store.backend.records("r", 0, 99)} == {0}
    store.close()
    with pytest.raises(InvalidArgument):
        everstep.open("memory://", compression="brotli")  # type: ignore[arg-type]
