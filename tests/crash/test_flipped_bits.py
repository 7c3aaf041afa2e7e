"""Flipped bits: every read is what it was, or says what is damaged."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import apsw
import pace
import pytest

import everstep
from everstep.errors import Damaged, NotFound
from harness.faults.count import Count
from harness.faults.damage import flips, pool, sample
from harness.faults.damage.reads import DETECTED, MISSING, SAME, WRONG, compare, reads_of
from harness.faults.damage.trial import Bench, put


@pytest.fixture(scope="module")
def bench(module_folder: Path) -> Iterator[Bench]:
    made = Bench(sample.build(module_folder / "sample"), module_folder / "bench")
    yield made
    made.close()


def test_the_sample_has_something_of_everything(bench: Bench) -> None:
    assert len(bench.closed[""]) >= 64 << 10
    assert bench.frames.kinds() == {"record", "chunk", "message", "base"}
    put(bench.killed, bench.path)
    with everstep.open(bench.path) as store:
        reads = reads_of(store)
        assert {name: compare(read, store, bench.recall.good[name]) for name, read in reads.items()} == dict.fromkeys(reads, (SAME, ""))


def test_reads_tell_what_is_missing_from_what_is_wrong() -> None:
    good = ["a", "b", "c"]
    kinds = {lines: compare(lambda _, lines=lines: list(lines), None, good)[0] for lines in ("abc", "ac", "cab", "", "abx", "abcc")}  # type: ignore[misc,arg-type]
    assert kinds == {"abc": SAME, "ac": MISSING, "cab": MISSING, "": MISSING, "abx": WRONG, "abcc": WRONG}

    def failing(error: Exception) -> str:
        def read(_: object) -> list[str]:
            raise error

        return compare(read, None, good)[0]  # type: ignore[arg-type]

    assert failing(NotFound("gone")) == MISSING
    assert failing(Damaged("damaged")) == DETECTED
    assert failing(KeyError("what")) == WRONG


def test_the_reads_that_a_flip_can_touch_are_all_that_it_touches(bench: Bench) -> None:
    """What makes it quick must not make it blind: reading everything comes to the same."""
    random = Random(7)
    for _ in range(120):
        number = random.randrange(sum(flips.sizes(bench)[:2]))
        number -= number % flips.SAMPLE_EVERY  # those are read in full
        kind, said = flips.flip(bench, number)
        assert kind in (SAME, DETECTED), (number, said)


def test_a_store_whose_rollback_guard_is_torn_opens_as_ever(bench: Bench) -> None:
    in_file, in_wal, in_guard, _ = flips.sizes(bench)
    first = in_file + in_wal
    assert {flips.flip(bench, number) for number in range(first, first + in_guard)} == {(SAME, "")}


def test_a_run_never_takes_an_answer_that_nobody_gave(bench: Bench) -> None:
    """A message is read by the run that it is for; that is a write, which the harness does not try."""
    random = Random(5)
    for _ in range(40):
        put(bench.closed, bench.path)
        with closing(apsw.Connection(str(bench.path))) as connection:
            ((body, run),) = connection.execute("SELECT body, run FROM messages JOIN runs ON pk = run WHERE id = 'waits'").fetchall()
            bad = flips.flipped(body, random.randrange(len(body) * 8))
            connection.execute("UPDATE messages SET body = ? WHERE run = ?", (bad, run))
            assert connection.changes() == 1
        with everstep.open(bench.path) as store:
            with pytest.raises(Damaged):
                store.resume("waits")
            assert store.get("waits").status == "waiting"


def test_no_flipped_bit_is_read_as_what_was_saved(memory_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flips, "SHORT", pace.share(flips.SHORT, 6))
    count = flips.run(memory_folder, deep=False, seed=pace.rotation())
    assert count.ok, str(count)
    assert count.tried >= pace.share(19_500, 6)
    assert count.detected > pace.share(5_000, 6)
    assert count.held > pace.share(1_000, 6)


def test_a_reader_that_does_not_look_at_digests_is_caught(memory_folder: Path) -> None:
    assert flips.canary(memory_folder, seed=2)


def test_on_all_cores_it_comes_to_the_same(memory_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is how every bit is tried."""
    monkeypatch.setattr(pool, "SLICE", 40)
    made = sample.build(memory_folder / "sample")
    bench = Bench(made, memory_folder / "bench")
    numbers = [Random(3).randrange(sum(flips.sizes(bench))) for _ in range(80)]
    here, there = Count("here"), Count("there")
    seen: list[int] = []
    pool.tried(here, flips.flip, numbers, bench, None, memory_folder, None)
    pool.tried(there, flips.flip, numbers, bench, made, memory_folder, lambda count: seen.append(count.tried))
    bench.close()
    assert (here.tried, here.held, here.detected) == (there.tried, there.held, there.detected)
    assert seen == [40, 80]
