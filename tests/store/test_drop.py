"""Dropping single checkpoints: nothing of them is left, and everything else stays as it was."""

import random
from typing import Any

import pytest

import everstep
from everstep.errors import InvalidArgument, LeaseHeld, NotFound, PrunedCheckpoint


def secret(n: int) -> str:
    return "secret" + random.Random(n).randbytes(8).hex()


def filled(store: everstep.Store, count: int = 60) -> list[Any]:
    """A run whose checkpoints each have a text that no other one has."""
    line = store.line("r", state={"kept": []})
    for n in range(1, count + 1):
        line.state["kept"].append(n)
        line.state["own"] = {"text": secret(n)}
        line.checkpoint(f"note {secret(n)}", tags=f"t{secret(n)}", meta={"m": secret(n)})
        line.attach(n, f"name {secret(n)}", secret(n))
    return [store.load(f"r@{n}") for n in range(1, count + 1)]


@pytest.mark.parametrize("numbers", [[1], [30], [1, 2, 3], [47, 48, 49, 50], list(range(1, 60)), [5, 7, 9, 59]], ids=str)
def test_nothing_of_a_dropped_checkpoint_is_left(places: Any, numbers: list[int]) -> None:
    store: everstep.Store = places.open(compression="none")
    states = filled(store)
    assert store.drop("r", numbers) == len(numbers)
    store.gc(compact=True)
    for n in range(1, 61):
        if n in numbers:
            with pytest.raises(PrunedCheckpoint):
                store.load(f"r@{n}")
            gone = store.checkpoint(f"r@{n}")
            assert (gone.note, gone.tags, gone.meta, gone.pruned) == (None, (), {}, True)
            assert store.find(meta={"m": secret(n)}) == [] == store.attached("r", n)
            with pytest.raises(NotFound):
                store.checkpoint(f"r@t{secret(n)}")
        else:
            assert store.load(f"r@{n}") == states[n - 1]
            assert [one.value for one in store.attached("r", n)] == [secret(n)]
            assert store.checkpoint(f"r@t{secret(n)}").meta == {"m": secret(n)}
    assert [made.number for made, _ in store.states("r")] == [n for n in range(60, 0, -1) if n not in numbers]
    assert store.verify("full").ok, str(store.verify("full"))
    if places.kind == "sqlite":
        store.close()
        left = places.path.read_bytes()
        assert [n for n in range(1, 61) if secret(n).encode() in left] == [n for n in range(1, 61) if n not in numbers]


def test_a_line_that_is_open_meanwhile_goes_on(places: Any) -> None:
    store: everstep.Store = places.open()
    filled(store)
    line = store.line("r")
    assert len(line.state["kept"]) == 60
    places.open().drop("r", range(1, 60))
    places.open().gc()
    for n in range(61, 130):
        line.state["kept"].append(n)
        line.checkpoint()
    assert store.load("r")["kept"] == list(range(1, 130))
    assert store.drop("r", [60, 61]) == 2
    assert store.drop("r", [60, 61]) == 2, "it may be repeated"
    store.prune(everstep.Retention(keep_last=3), run="r")
    store.gc()
    assert store.load("r")["kept"] == list(range(1, 130))
    copy = store.copy("r", "copy")
    assert store.load(copy.id) == store.load("r")
    assert store.verify("full").ok
    assert [event.data["numbers"] for event in store.events(run="r") if event.name == "dropped"][-1] == [60, 61]


def test_checkpoints_that_cannot_be_dropped(places: Any) -> None:
    store: everstep.Store = places.open()
    filled(store, 3)
    for wrong in ([3], [0], [4], ["1"], "1", 1, [True]):
        with pytest.raises(InvalidArgument):
            store.drop("r", wrong)  # type: ignore[arg-type]
    assert store.drop("r", []) == 0
    with pytest.raises(NotFound):
        store.drop("nobody", [1])
    with places.open().run("r"), pytest.raises(LeaseHeld):
        store.drop("r", [1])
    assert store.get("r").checkpoints == 3
    fork = store.fork("r@1", "fork")
    store.drop("r", [1])
    assert store.load(fork.id)["kept"] == [1]
    assert store.verify("full").ok


def test_repair_keeps_what_was_dropped_dropped(tmp_path: Any) -> None:
    with everstep.open(tmp_path / "s.db") as store:
        filled(store, 20)
        store.drop("r", [3, 4, 10])
        states = {made.number: state for made, state in store.states("r")}
    everstep.repair(tmp_path / "s.db", tmp_path / "new.db")
    with everstep.open(tmp_path / "new.db") as store:
        assert {made.number: state for made, state in store.states("r")} == states
        assert [one.number for one in store.attached("r")] == sorted(states)
        assert store.find(meta={"m": secret(5)})[0].number == 5
        assert store.verify("full").ok
