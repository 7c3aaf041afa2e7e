"""A view reads what it must and nothing else, equals the loaded state, and cannot be written."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

import everstep
from everstep.codec.values import encode


@dataclass
class Note:
    words: Any


def big_state() -> dict[str, Any]:
    rng = random.Random(1)
    return {
        "messages": [{"i": i, "text": rng.randbytes(150).hex()} for i in range(6000)],
        "table": {f"key{i}": [i, rng.randbytes(20).hex()] for i in range(6000)},
        "text": " ".join(rng.choices([f"w{i}" for i in range(999)], k=60_000)),
        "raw": rng.randbytes(200_000),
        "note": Note([1, 2, {"deep": "x" * 20_000}]),
        "small": [1, (2, 3), {4}],
    }


def plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes, tuple)):
        return [plain(v) for v in value]
    return value


@pytest.fixture
def fetched(store: everstep.Store, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many chunks each read fetched."""
    counts: list[int] = []
    original = type(store.backend).chunks

    def counting(self: Any, family: bytes, digests: Any) -> Any:
        counts.append(len(digests))
        return original(self, family, digests)

    monkeypatch.setattr(type(store.backend), "chunks", counting)
    return counts


def test_a_view_equals_the_loaded_state(store: everstep.Store) -> None:
    with store.run("r", state=big_state()) as run:
        run.checkpoint()
        run.state["messages"].append({"i": "last"})
        run.state["messages"].pop(0)
        run.state["messages"][3000]["text"] = "changed"
        run.state["messages"][100:105] = ["a", "b"]
        run.state["table"]["key17"].append("more")
        del run.state["table"]["key18"]
        run.state["text"] = run.state["text"][:1000] + "EDIT" + run.state["text"][1000:]
        run.state["note"].words.append("x")
        run.state["small"].insert(1, [])
        run.checkpoint()
    for ref in ("r", "r@1"):
        loaded, view = store.load(ref), store.view(ref)
        assert encode(plain(view)) == encode(loaded)
        assert len(view["messages"]) == len(loaded["messages"])
        assert view["messages"] == loaded["messages"]
        assert view["messages"][-1] == loaded["messages"][-1]
        assert plain(view["messages"][10:20]) == loaded["messages"][10:20]
        assert plain(view["messages"][::-1000]) == loaded["messages"][::-1000]
        assert list(view) == list(loaded)
        assert view["note"] == loaded["note"]
        assert view.get("nothing", 5) == 5
        assert "table" in view
        assert list(iter(view["small"]))[-1] == {4}


def test_a_view_fetches_only_what_is_touched(store: everstep.Store, fetched: list[int]) -> None:
    with store.run("r", state=big_state()) as run:
        run.checkpoint()
    total = store.stats()["chunks"]
    assert total > 60
    fetched.clear()
    view = store.view("r")
    assert list(view) == list(big_state())
    assert len(view["small"]) == 3
    small = sum(fetched)
    assert small <= 3
    assert view["messages"][3000]["i"] == 3000
    assert sum(fetched) - small <= 5
    assert len(view["messages"]) == 6000
    assert sum(fetched) - small <= 5
    fetched.clear()
    store.load("r")
    assert sum(fetched) >= total * 0.9


def test_a_load_fetches_its_chunks_in_few_reads(store: everstep.Store, fetched: list[int]) -> None:
    with store.run("r", state={"messages": big_state()["messages"]}) as run:
        run.checkpoint()
    fetched.clear()
    store.load("r")
    assert len(fetched) <= 5


def test_a_view_cannot_be_written(store: everstep.Store) -> None:
    with store.run("r", state={"l": [1, [2]], "d": {"a": {}}}) as run:
        run.checkpoint()
    view = store.view("r")
    for write in (
        lambda: view.__setitem__("x", 1), lambda: view.update(a=1), lambda: view.pop("l"), lambda: view.__delitem__("l"), lambda: view["l"].append(1),
        lambda: view["l"].__setitem__(0, 1), lambda: view["d"]["a"].update(b=1), lambda: view["l"][1].clear(), lambda: view.clear(), lambda: setattr(view, "x", 1),
    ):  # fmt: skip
        with pytest.raises((AttributeError, TypeError)):
            write()
    assert isinstance(view, Mapping)
    assert isinstance(view["l"], Sequence)
    assert not isinstance(view, dict)
    assert store.load("r") == {"l": [1, [2]], "d": {"a": {}}}


def test_what_a_view_hands_out_is_not_the_view_itself(store: everstep.Store) -> None:
    with store.run("r", state={"n": Note([1]), "t": ([1],), "s": {1}, "b": bytearray(b"x")}) as run:
        run.checkpoint()
    view = store.view("r")
    view["n"].words.append(2)
    view["t"][0].append(2)
    view["s"].add(2)
    view["b"].extend(b"y")
    assert store.load("r") == {"n": Note([1]), "t": ([1],), "s": {1}, "b": bytearray(b"x")}
    assert view["n"] == Note([1])
    assert view["t"] == ([1],)
    assert view["s"] == {1}
    assert view["b"] == bytearray(b"x")


@pytest.mark.parametrize("state", [[1, [2]], "text", 5, Note([1]), {"a": 1}])
def test_a_state_of_any_type_may_be_viewed(store: everstep.Store, state: Any) -> None:
    with store.run("r", state=state) as run:
        run.checkpoint()
    assert plain(store.view("r")) == state
