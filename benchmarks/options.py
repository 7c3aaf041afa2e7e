"""How much is measured: the full run, or a quick one that shows the same rows on fewer operations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Options:
    """The sizes of a measurement. `folder` must be on the disk to be measured."""

    folder: Path
    peers: bool = True
    turns: tuple[int, ...] = (1_000, 20_000)
    steps: tuple[int, ...] = (1_000, 10_000)
    replayed: int = 10_000
    replays: int = 5
    peer_replayed: int = 2_000
    calls: int = 20_000
    parallel: int = 100
    large_edits: int = 400
    adapter_messages: int = 1_000
    adapter_checkpoints: int = 300
    handed_edits: int = 60
    window_turns: int = 1_000
    loads: int = 7
    tasks: int = 200
    task_turns: int = 40
    threads: int = 16
    thread_turns: int = 150
    rounds: int = 5
    listed_checkpoints: int = 10_000
    listed_runs: int = 100_000
    listings: int = 15
    starts: int = 25
    writers: int = 1_000
    writer_turns: int = 10
    processes: int = 20
    process_turns: int = 200
    pruned: int = 10_000
    decided: int = 100_000
    expired_runs: int = 100_000
    quiet_seconds: float = 5.0
    verified_turns: int = 10_000
    verified_states: int = 3
    peer_turns: int = 1_000
    peer_rounds: int = 3
    postgres_turns: int = 2_000
    rate_settings: tuple[str, ...] = ("threads:1", "threads:16", "tasks:100")
    rate_seconds: float = 1.0
    rate_rounds: int = 2
    finished_runs: int = 1_000_000
    claims: int = 500
    latencies: int = 100
    take_overs: int = 5


def full(folder: Path, peers: bool) -> Options:
    return Options(folder, peers)


def quick(folder: Path, peers: bool) -> Options:
    return Options(
        folder,
        peers,
        turns=(1_000, 3_000),
        steps=(1_000, 3_000),
        replayed=3_000,
        replays=3,
        peer_replayed=200,
        calls=5_000,
        large_edits=100,
        adapter_messages=200,
        adapter_checkpoints=60,
        handed_edits=20,
        window_turns=200,
        loads=3,
        task_turns=10,
        thread_turns=40,
        rounds=3,
        listed_checkpoints=3_000,
        listed_runs=20_000,
        listings=5,
        starts=9,
        writers=200,
        writer_turns=5,
        process_turns=50,
        pruned=2_000,
        decided=20_000,
        expired_runs=10_000,
        quiet_seconds=1.5,
        verified_turns=2_000,
        verified_states=1,
        peer_turns=200,
        peer_rounds=1,
        postgres_turns=500,
        rate_seconds=0.5,
        rate_rounds=1,
        finished_runs=100_000,
        claims=200,
        latencies=30,
        take_overs=2,
    )
