"""A dry run of gc or clean-up says what the real one gives back."""

from pathlib import Path
from random import Random

import everstep


def filled(path: Path) -> everstep.Store:
    store = everstep.open(path)
    for number in range(3):
        with store.run(f"r{number}", state={}) as run:
            run.state["data"] = [Random(number * 1_000 + i).randbytes(20_000) for i in range(60)]
            run.checkpoint()
    return store


def near(foreseen: int, given: int) -> bool:
    return given > 500_000 and abs(foreseen - given) < given // 4


def test_gc_says_what_it_will_give_back(tmp_path: Path) -> None:
    with filled(tmp_path / "s.db") as store:
        store.delete("r0")
        foreseen = store.gc(dry_run=True)
        assert "would be returned to the system" in str(foreseen)
        assert near(foreseen.given_back, store.gc().given_back), foreseen
        assert store.gc(dry_run=True).given_back < 10_000


def test_clean_up_says_what_it_will_give_back(tmp_path: Path) -> None:
    with filled(tmp_path / "s.db") as store:
        keep = everstep.Retention(keep_within=0, completed="delete")
        foreseen = store.cleanup(keep, dry_run=True)
        done = store.cleanup(keep)
        assert near(foreseen.given_back, done.given_back), (foreseen, done)


def test_memory_has_nothing_to_give_back() -> None:
    with everstep.open("memory://") as store:
        assert store.gc(dry_run=True).given_back == store.gc().given_back == 0
