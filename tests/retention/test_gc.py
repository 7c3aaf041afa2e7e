"""gc: frees what nothing refers to, and never anything else, whoever writes, forks, prunes or deletes at the same time."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import warm
from hypothesis import given, settings
from hypothesis import strategies as st
from upkeep_helpers import everything, fingerprint, good, grow, many_bases, states, stored

import everstep
from everstep import Retention
from everstep.errors import Damaged, EverstepError, PrunedCheckpoint
from everstep.store.progress import Pace
from everstep.store.retention.gc import Collector

pytestmark = pytest.mark.usefixtures("small_bases")


@pytest.fixture
def small_bases() -> Iterator[None]:
    with many_bases():
        yield


def long_text(seed: object, size: int = 30_000) -> str:
    return random.Random(str(seed)).randbytes(size // 2).hex()


def test_a_store_without_waste_loses_nothing(store: everstep.Store) -> None:
    grow(store, "r", 20)
    before = fingerprint(store)
    done = store.gc()
    assert (done.chunks, done.freed, done.problems, done.complete) == (0, 0, [], True)
    assert done.kept == sum(map(len, before[1].values())) > 0
    assert fingerprint(store) == before


def test_what_only_pruned_states_needed_is_freed_and_the_rest_stays(store: everstep.Store) -> None:
    grow(store, "r", 60, size=1500)
    grow(store, "s", 20)
    store.prune(Retention(keep_last=2), run="r")
    before, size = everything(store), stored(store)
    foreseen = store.gc(dry_run=True)
    assert stored(store) == size
    assert foreseen.freed > 10_000
    done = store.gc()
    assert (done.chunks, done.freed, done.kept) == (foreseen.chunks, foreseen.freed, foreseen.kept)
    assert stored(store) == size - done.freed
    assert everything(store) == before
    assert good(store)
    assert store.gc().chunks == 0


@settings(max_examples=15)
@given(
    runs=st.lists(st.tuples(st.integers(1, 25), st.none() | st.integers(0, 3), st.integers(0, 10)), min_size=1, max_size=5),
    kept=st.integers(1, 4),
    deleted=st.sets(st.integers(0, 4), max_size=2),
)
def test_any_family_keeps_all_that_it_can_load(runs: list[tuple[int, int | None, int]], kept: int, deleted: set[int]) -> None:
    with many_bases(3), everstep.open("memory://") as store:
        for place, (turns, parent, at) in enumerate(runs):
            if parent is not None and parent < place:
                number = at % store.get(f"r{parent}").checkpoints + 1
                store.fork(f"r{parent}@{number}", f"r{place}", edit={"text": long_text(place, 12_000)})
            grow(store, f"r{place}", turns)
        for place in deleted:
            if place < len(runs):
                store.delete(f"r{place}")
        store.prune(Retention(keep_last=kept))
        before, size = everything(store), stored(store)
        foreseen = store.gc(dry_run=True)
        done = store.gc()
        assert everything(store) == before
        assert (done.freed, done.chunks) == (foreseen.freed, foreseen.chunks)
        assert stored(store) == size - done.freed
        assert good(store)
        assert store.verify("full").unreachable == 0


def test_results_inputs_and_edited_states_stay(places: Any) -> None:
    @everstep.workflow(name="big-flow")
    def flow(text: str) -> str:
        run = everstep.current()
        run.state["n"] = len(text)
        run.checkpoint()
        run.state["big"] = run.step("big", long_text, "step")
        run.checkpoint()
        return long_text("result") + str(everstep.gate("ok", ask="ok?"))

    store = places.open()
    store.start(flow, long_text("input"), id="w")
    store.fork("w@1", "f", edit={"edited": long_text("edit")})
    store.resume("f")
    store.fork("f", "g")
    for name in ("w", "f", "g"):
        if store.get(name).status == "waiting":
            store.answer(name, "ok", "yes")
            assert store.resume(name).unwrap() == long_text("result") + "yes"
        grow_on = store.prune(Retention(keep_last=1, completed="final"))
        assert grow_on.problems == []
        store.gc()
    for name in ("w", "f", "g"):
        assert store.steps(name)[0].result == long_text("step")
        assert store.resume(name).unwrap() == long_text("result") + "yes"
    assert good(store)


def test_a_family_with_damage_is_left_alone_and_the_others_are_not(store: everstep.Store) -> None:
    for name in ("r", "s"):
        grow(store, name, 40, size=1500)
        store.prune(Retention(keep_last=2), run=name)
    row = store.backend.run("r")
    assert row is not None
    reachable = Collector(store.backend, Pace(None, None))._mark(row.family, store.backend.chunk_sizes(row.family))
    store.backend.sweep(row.family, [min(reachable)], store.backend.manifest().writes)
    before = fingerprint(store)[1][row.family]
    done = store.gc()
    assert fingerprint(store)[1][row.family] == before
    assert done.freed > 0
    assert len(done.problems) == 1
    assert row.family.hex()[:16] in done.problems[0]
    assert store.gc(dry_run=True).problems == done.problems


@pytest.mark.parametrize("what", ["row", "gone", "record", "kind"])
def test_where_a_run_cannot_be_trusted_nothing_is_freed(tmp_path: Path, what: str) -> None:
    import apsw

    path = tmp_path / "s.db"
    with everstep.open(str(path)) as store:
        with store.run("r", state={}) as run:
            for n in range(40):
                run.state["text"] = long_text(n)
                run.checkpoint()
        store.fork("r@20", "f")
        store.prune(Retention(keep_last=2))
        assert store.gc(dry_run=True).freed > 50_000
    connection = apsw.Connection(str(path))
    statement = {
        "row": "UPDATE runs SET note = 'x' WHERE id = 'f'",
        "gone": "DELETE FROM runs WHERE id = 'f'",
        "record": "DELETE FROM records WHERE kind = 'base' AND body IS NOT NULL",
        "kind": "UPDATE records SET kind = 'other' WHERE kind = 'base' AND body IS NOT NULL",
    }
    connection.execute(statement[what])
    connection.close()
    with everstep.open(str(path)) as store:
        before = {family: store.backend.chunk_sizes(family) for family in store.backend.families()}
        done = store.gc()
        assert done.freed == 0
        assert len(done.problems) == 1
        assert {family: store.backend.chunk_sizes(family) for family in store.backend.families()} == before


def once(
    monkeypatch: pytest.MonkeyPatch, backend: Any, name: str, action: Callable[[], object], turn: int = 1, after: bool = False
) -> None:
    """Have something happen at the turn-th call of a backend's method."""
    real = getattr(backend, name)
    calls = 0

    def wrapped(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls != turn:
            return real(*args, **options)
        monkeypatch.setattr(backend, name, real)
        if after:
            found = real(*args, **options)
            action()
            return found
        action()
        return real(*args, **options)

    monkeypatch.setattr(backend, name, wrapped)


MOMENTS = [("manifest", False), ("manifest", True), ("runs", False), ("runs", True), ("records", False), ("records", True), ("bases", False), ("bases", True), ("pruned", True), ("chunk_sizes", False), ("chunk_sizes", True), ("sweep", False), ("sweep", True)]  # fmt: skip


@pytest.mark.parametrize(("method", "after"), MOMENTS)
@pytest.mark.parametrize("turn", [1, 2])
def test_a_writer_goes_on_at_any_moment_of_it(places: Any, monkeypatch: pytest.MonkeyPatch, method: str, after: bool, turn: int) -> None:
    """States come and go and come again, so that a base needs what only a pruned one had."""
    store, other = places.open(), places.open()
    texts = [long_text(n) for n in range(4)]
    with other.run("r", state={"text": ""}) as run:

        def write(count: int) -> None:
            for _ in range(count):
                run.state["text"] = texts[run.number % len(texts)]
                run.state["n"] = run.number + 1
                run.checkpoint()

        write(14)
        other.prune(Retention(keep_last=1))
        once(monkeypatch, store.backend, method, lambda: write(9), turn, after)
        store.gc()
        write(3)
        last = run.number
    for number, state in states(other, "r").items():
        assert state == {"text": texts[(number - 1) % len(texts)], "n": number}
    assert last in states(other, "r")
    assert good(other)


@pytest.mark.parametrize(("method", "after"), MOMENTS)
def test_a_fork_of_a_run_that_is_deleted_then_keeps_its_results(
    places: Any, monkeypatch: pytest.MonkeyPatch, method: str, after: bool
) -> None:
    store, other = places.open(), places.open()
    with other.run("r") as run:
        for n in range(3):
            run.step("load", long_text, n, key=n)
            run.checkpoint()
    other.fork("r", "keeps-the-family", edit={"other": True})

    def replace() -> None:
        other.fork("r", "f")
        other.fork("f", "g")
        other.delete("r")
        other.delete("f")

    once(monkeypatch, store.backend, method, replace, 1, after)
    store.gc()
    if store.backend.run("g") is None:
        replace()  # the moment never came
    store.gc()
    assert [step.result for step in other.steps("g")] == [long_text(n) for n in range(3)]
    assert good(other)


@pytest.mark.parametrize(("method", "after"), MOMENTS)
def test_a_prune_that_comes_in_between_does_no_harm(places: Any, monkeypatch: pytest.MonkeyPatch, method: str, after: bool) -> None:
    store, other = places.open(), places.open()
    grow(other, "r", 40, size=1500, tags={13: "milestone", 29: "milestone"})
    other.prune(Retention(keep_last=20))
    before = states(other, "r")
    once(monkeypatch, store.backend, method, lambda: other.prune(Retention(keep_last=3)), 1, after)
    done = store.gc()
    assert done.problems == []
    other.prune(Retention(keep_last=3))
    left = states(other, "r")
    assert left == {number: before[number] for number in left}
    assert {13, 29, max(before)} <= set(left)
    assert good(other)


def test_a_gc_that_ignores_what_was_written_meanwhile_is_caught(places: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The canary: without the stamp, what a writer brings along between looking and sweeping is lost."""
    store, other = places.open(), places.open()
    sweep = store.backend.sweep

    def careless(family: bytes, digests: Any, _: int) -> int:
        revert()
        return sweep(family, digests, store.backend.manifest().writes)

    with other.run("r", state={"text": ""}) as run:
        for n in (0, 1, 2, 3, 4, 5, 6, 7, *[9] * 40):
            run.state["text"] = long_text(n % 9)
            run.checkpoint()
        run.state["text"] = long_text(10)
        run.checkpoint()
        other.prune(Retention(keep_last=1))

        def revert() -> None:
            for n in range(12):
                run.state["text"] = long_text(n % 8)
                run.checkpoint()

        monkeypatch.setattr(store.backend, "sweep", careless)
        store.gc()
    assert not other.verify("full").ok


def test_writers_forks_and_prunes_in_threads(places: Any) -> None:
    """Whatever comes to pass, each state that is there is the one that was saved there."""
    store = places.open()
    saved: dict[str, dict[int, Any]] = {}
    problems: list[BaseException] = []
    stop = threading.Event()

    def write(name: str) -> None:
        chance = random.Random(name)
        try:
            with store.run(name, state={"parts": {}}) as run:
                saved[name] = {}
                while not stop.is_set() and run.number < 400:
                    run.state["parts"][chance.randrange(3)] = long_text(chance.randrange(40), 12_000)
                    made = run.checkpoint()
                    saved[name][made.number] = dict(run.state["parts"])
                    if made.number % 40 == 0:
                        fork = store.fork(f"{name}@{made.number}", f"{name}-{made.number}")
                        saved[fork.id] = {1: dict(run.state["parts"])}
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=write, args=(f"t{n}",)) for n in range(3)]
    for thread in threads:
        thread.start()
    freed = rounds = 0
    while rounds < 8 or (not freed and any(thread.is_alive() for thread in threads)):
        assert store.prune(Retention(keep_last=5)).problems == []
        done = store.gc()
        assert done.problems == []
        freed, rounds = freed + done.freed, rounds + 1
    stop.set()
    for thread in threads:
        thread.join()
    assert problems == []
    assert freed > 0
    for name, expected in saved.items():
        found = states(store, name)
        assert max(expected) in found
        assert {n: s["parts"] for n, s in found.items() if n in expected} == {n: s for n, s in expected.items() if n in found}
    assert good(store)


WRITER = """
import random, sys
sys.path.insert(0, {tests!r})
import everstep
from upkeep_helpers import many_bases

def text(seed):
    return random.Random(str(seed)).randbytes(6_000).hex()

chance = random.Random({name!r})
with many_bases(), everstep.open({path!r}) as store, store.run({name!r}, state={{"parts": {{}}}}) as run:
    print("begun", flush=True)
    for n in range({turns}):
        run.state["parts"][str(chance.randrange(3))] = text(chance.randrange(40))
        run.state["n"] = n + 1
        run.checkpoint()
"""


def test_writers_in_other_processes(tmp_path: Path) -> None:
    path = str(tmp_path / "s.db")
    store = everstep.open(path)
    programs = [WRITER.format(tests=str(Path(__file__).parents[1]), name=f"p{n}", path=path, turns=150) for n in range(2)]
    writers = [warm.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for program in programs]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "begun\n"
    freed, rounds = 0, 0
    while any(writer.poll() is None for writer in writers) or rounds < 2:
        store.prune(Retention(keep_last=4))
        done = store.gc()
        assert done.problems == []
        freed, rounds = freed + done.freed, rounds + 1
    assert [writer.wait(60) for writer in writers] == [0, 0]
    assert freed > 0
    assert good(store)
    for n in range(2):
        found = states(store, f"p{n}")
        chance, parts = random.Random(f"p{n}"), {}
        for number in range(1, 151):
            parts[str(chance.randrange(3))] = random.Random(str(chance.randrange(40))).randbytes(6_000).hex()
            if number in found:
                assert found[number] == {"parts": parts, "n": number}
        assert 150 in found
    store.close()


def test_a_reader_beside_it_gets_the_state_or_hears_that_it_was_pruned(places: Any) -> None:
    store = places.open()
    grow(store, "r", 80, size=1500)
    before = states(store, "r")
    wrong: list[object] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            for number in range(1, 81, 7):
                try:
                    if store.load("r", at=number) != before[number]:
                        wrong.append(number)
                except PrunedCheckpoint:
                    pass
                except EverstepError as error:
                    wrong.append(error)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for kept in (60, 40, 20, 10, 3):
        store.prune(Retention(keep_last=kept))
        store.gc()
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_space_is_given_back_bit_by_bit_and_by_a_rebuild(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = everstep.open(str(path))
    for name in ("r", "s"):
        with store.run(name, state={"text": ""}, durability="exit") as run:
            for n in range(40):
                run.state["text"] = long_text((name, n))
                run.checkpoint()
    store.close()
    sizes = [path.stat().st_size]
    for run, options in (("r", {}), ("s", {"compact": True})):
        with everstep.open(str(path)) as store:
            store.prune(Retention(keep_last=1), run=run)
            assert store.gc(**options).given_back > 100_000
        sizes.append(path.stat().st_size)
    with everstep.open(str(path)) as store:
        assert good(store)
    assert sizes[0] - sizes[1] > 300_000
    assert sizes[1] - sizes[2] > 300_000


def test_damage_says_what_to_do(store: everstep.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    grow(store, "r", 5)

    def damaged(*_: object) -> None:
        raise Damaged("the rows cannot be read")

    monkeypatch.setattr(store.backend, "runs", damaged)
    assert store.gc().problems == ["nothing was freed: the rows cannot be read"]
