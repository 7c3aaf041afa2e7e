"""Asking whether a newer record exists must not take a commit that comes between two reads for damage."""

import threading
from pathlib import Path
from typing import Any

import everstep
from harness.faults.broken_backends import Wrapper


class _SavesMeanwhile(Wrapper):
    """Another program saves each time after the row of the run was read."""

    def __init__(self, backend: Any, save: Any):
        super().__init__(backend)
        self._save = save

    def run(self, run: str) -> Any:
        row = self._backend.run(run)
        self._save()
        return row


def test_a_save_between_the_row_and_the_listing_is_no_damage(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db") as store, store.run("a", state={"n": 0}) as run:
        run.checkpoint()
        reader = everstep.Store(_SavesMeanwhile(store.backend, run.checkpoint))
        for oldest_first in (True, False):
            for limit in (None, 1, 2, 50):
                newest = store.get("a").checkpoints
                numbers = [one.number for one in reader.checkpoints("a", oldest_first=oldest_first, limit=limit)]
                everything = list(range(1, newest + 1))[:: 1 if oldest_first else -1]
                assert numbers == everything[:limit]
        assert reader.load("a") == {"n": 0}


def test_readers_beside_a_writer_see_what_is_newest_and_no_damage(tmp_path: Path) -> None:
    """In two handles, as two processes have them."""
    path = tmp_path / "s.db"
    ended = threading.Event()

    def write() -> None:
        with everstep.open(path) as store, store.run("a", state={"n": 0}) as run:
            for _ in range(150):
                run.state["n"] += 1
                run.checkpoint(tags="t")
        ended.set()

    with everstep.open(path) as store:
        with store.run("a", state={"n": 0}) as run:
            run.checkpoint()
        writer = threading.Thread(target=write)
        writer.start()
        seen = 0
        while not ended.is_set():
            now = store.load("a")["n"]
            assert now >= seen
            seen = now
            assert store.get("a").checkpoints >= seen
            assert len(store.checkpoints("a", limit=5)) <= 5
            assert store.runs()[0].id == "a"
            store.steps("a")
        writer.join()
        assert store.load("a") == {"n": 150}
