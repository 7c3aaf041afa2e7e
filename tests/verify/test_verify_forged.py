"""Full depth opens everything: what has the right digests and is wrong all the same, as a bug of a writer would leave it."""

from __future__ import annotations

import random
from hashlib import sha256
from typing import Any

import pytest
from ormsgpack import Ext, packb
from verify_helpers import forge

import everstep
from everstep.codec.values import REFERENCE, encode
from everstep.records import Kind
from everstep.snapshot.saver import NO_DELTA, Saved, Saver
from everstep.store.verify import chunks as family_chunks
from everstep.store.verify.report import Report

ROWS = [{"n": i, "text": random.Random(i).randbytes(200).hex()} for i in range(600)]


def state(**parts: Any) -> dict[str, Any]:
    """A state that is cut into many chunks."""
    pairs = {f"key {i}": random.Random(i).randbytes(150).hex() for i in range(300)}
    return {"list": [dict(row) for row in ROWS], "dict": pairs, "text": "äöü " * 9_000, "few": [1, 2], **parts}


def base_of(store: everstep.Store, value: Any, delta: list[Any] | None) -> Saved:
    """A checkpoint with a delta, or none, and a base of some value, whatever the delta says."""
    saver = Saver(store.framer.inner.wrap)
    saver.begin(value)
    saved = saver.build(whole=True)
    return Saved(NO_DELTA if delta is None else encode(delta), saved.base, saved.chunks)


def with_item(at: int, item: Any) -> dict[str, Any]:
    value = state()
    value["list"][at] = item
    return value


def with_key(key: str, item: Any) -> dict[str, Any]:
    value = state()
    value["dict"][key] = item
    return value


def other_order() -> dict[str, Any]:
    value = state()
    value["dict"] = dict([*list(value["dict"].items())[1:], *list(value["dict"].items())[:1]])
    return value


SET_STEP = [[0, ["step"], 1]]  # what the forged deltas say: a new key
WRONG: dict[str, dict[str, Any]] = {
    "an item in the middle": with_item(300, {"n": 300, "text": "another"}) | {"step": 1},
    "the last item": with_item(599, {"n": -1}) | {"step": 1},
    "an item that is equal but of another type": with_item(7, {**ROWS[7], "n": 7.0}) | {"step": 1},
    "an item less": state(list=ROWS[:-1]) | {"step": 1},
    "an item more": state(list=[*ROWS, 1]) | {"step": 1},
    "a value of a long dict": with_key("key 5", "another") | {"step": 1},
    "the order of a long dict": other_order() | {"step": 1},
    "a key less": {k: v for k, v in state().items() if k != "few"} | {"step": 1},
    "a long text": state(text="äöü " * 8_999 + "äöu ") | {"step": 1},
    "a short part": state(few=[1, True]) | {"step": 1},
    "what the delta sets": state() | {"step": 2},
    "what the delta sets, with a type that is equal": state() | {"step": True},
    "another type at the root": [state() | {"step": 1}],  # type: ignore[dict-item]
}


@pytest.mark.parametrize("name", WRONG)
def test_a_base_that_is_not_what_the_deltas_say_is_found(places: Any, name: str) -> None:
    store = places.open()
    forge(store, "r", base_of(store, state(), None))
    forge(store, "r", base_of(store, WRONG[name], SET_STEP))
    assert store.verify("records").ok
    report = store.verify("full")
    assert [problem.what for problem in report.problems] == ["the base for checkpoint 2 differs from the state that the deltas give"]


def test_a_base_that_is_what_the_deltas_say_is_not_reported(places: Any) -> None:
    """Also if it was cut in another way, as a state is that was loaded and changed at many places."""
    store = places.open()
    value = state()
    forge(store, "r", base_of(store, value, None))
    ops: list[Any] = [[2, ["list"], 100, 50, ["new"] * 3], [2, ["list"], 0, 1, []], [2, ["list"], 552, 0, [1, 2]], [1, ["few"]]]
    ops += [[0, ["dict", "key 9"], {"deep": [1]}], [3, ["text"], 2, 1, "ß"], [0, ["list", 4, "n"], "four"], [0, ["few"], []]]
    after = state()
    after["list"][100:150] = ["new"] * 3
    del after["list"][0]
    after["list"] += [1, 2]
    after["dict"]["key 9"] = {"deep": [1]}
    after["text"] = after["text"][:2] + "ß" + after["text"][3:]
    after["list"][4]["n"] = "four"
    del after["few"]
    after["few"] = []
    forge(store, "r", base_of(store, after, ops))
    assert store.load("r") == after
    assert store.verify("full").ok, str(store.verify("full"))


def faults(report: Report) -> list[str]:
    return [problem.what for problem in report.problems]


def test_a_first_delta_that_fits_nothing_is_found(places: Any) -> None:
    store = places.open()
    forge(store, "r", Saved(encode([[0, ["nowhere", "at all"], 1]])))
    assert store.verify("records").ok
    (found,) = faults(store.verify("full"))
    assert "a delta does not fit the snapshot below it" in found


def test_a_delta_that_fits_nothing_is_found(places: Any) -> None:
    store = places.open()
    forge(store, "r", base_of(store, state(), None))
    forge(store, "r", Saved(encode([[0, ["nowhere", "at all"], 1]])))
    forge(store, "r", Saved(encode({"no": "delta"})))
    forge(store, "r", Saved(b"\xc1"))
    assert store.verify("records").ok
    found = faults(store.verify("full"))
    assert len(found) == 3
    assert "a delta does not fit the snapshot below it" in found[0]
    assert found[1] == "its body is not a delta"
    assert "not a valid value" in found[2]


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (Kind.STEP, packb(["succeeded", 1])),
        (Kind.STEP, packb(["succeeded", 1, b"", b"", 1, b"\xc1", None, 0, 0, 0, 0.0, "w", {}])),
        (Kind.STEP, packb(["failed", 1, b"", b"", 0, None, {"type": "E", "fields": b"\xc1"}, 0, 0, 0, 0.0, "w", {}])),
        (Kind.GATE, packb(["ask"])),
        (Kind.GATE, packb(["ask", None, None, b"\xc1", {}])),
        (Kind.ANSWER, packb([b"\xc1", None, {}])),
        (Kind.TIMER, packb(["soon"])),
        (Kind.EVENT, packb(["name", b"\xc1"])),
        (Kind.STATUS, packb({"status": "running", "result": [1, b"\xc1"]})),
        (Kind.STATUS, packb([1])),
    ],
)
def test_a_journal_entry_that_is_none_is_found(places: Any, kind: str, content: bytes) -> None:
    store = places.open()
    forge(store, "r", entries=[(str(kind), content)])
    assert store.verify("records").ok
    assert len(store.verify("full").problems) == 1


def test_a_kind_of_record_that_this_program_does_not_know_is_no_problem(places: Any) -> None:
    store = places.open()
    forge(store, "r", entries=[("later", b"\xc1")])
    assert store.verify("full").ok


MISSING = b"m" * 32
REFERENCES: dict[str, bytes] = {
    "a chunk that is not there": packb(["l", 3, 0, MISSING]),
    "an index that is not there": packb(["d", 3, 2, MISSING]),
    "a kind that nobody knows": packb(["x", 3, 0, MISSING]),
    "no digest": packb(["l", 3, 0, b""]),
    "nothing that can be read": b"\xc1",
    "a negative level": packb(["l", 3, -1, MISSING]),
    "too few fields": packb(["l", 3]),
}


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("where", ["base", "result"])
def test_a_reference_that_leads_nowhere_is_found(places: Any, where: str, name: str) -> None:
    store = places.open()
    root = packb({"part": Ext(REFERENCE, REFERENCES[name])})
    if where == "base":
        forge(store, "r", Saved(NO_DELTA, root))
    else:
        forge(store, "r", entries=[("step", packb(["succeeded", 1, b"", b"", 2, root, None, 0, 0, 0, 0.0, "w", {}]))])
    assert store.verify("records").ok
    assert len(store.verify("full").problems) == 1


def chunked(kind: str, count: int, level: int, *contents: bytes) -> Saved:
    """A base that refers to the last of these contents; the others are chunks as well."""
    named = [(name(content), b"\x01\x00" + content) for content in contents]
    return Saved(NO_DELTA, packb({"part": Ext(REFERENCE, packb([kind, count, level, named[-1][0]]))}), named)


def name(content: bytes) -> bytes:
    return sha256(content).digest()


LEAF = packb([1, 2, 3])
TREES: dict[str, tuple[Saved, str]] = {
    "a list with fewer items than promised": (chunked("l", 4, 0, LEAF), "its content has another number"),
    "an index with another sum": (chunked("l", 4, 1, LEAF, packb([[name(LEAF), 3]])), "its content has another number"),
    "an entry with another count": (chunked("l", 4, 1, LEAF, packb([[name(LEAF), 4]])), "its content has another number"),
    "a segment that is no list": (chunked("l", 1, 0, packb({"a": 1})), "not a segment"),
    "a key without a value": (chunked("d", 1, 0, packb(["a", 1, "b"])), "not a segment"),
    "a key that cannot be one": (chunked("d", 1, 0, packb([[], 1])), "not a segment"),
    "an index that is none": (chunked("l", 3, 1, LEAF), "not an index"),
    "an index of something else": (chunked("l", 3, 1, packb([["a", 3]])), "not an index"),
    "a text that is none": (chunked("s", 2, 0, b"\xff\xfe"), "not UTF-8"),
    "a value that is none": (chunked("v", 1, 0, b"\xc1"), "not a valid value"),
    "bytes that are too short": (chunked("b", 3, 0, b"ab"), "its content has another number"),
}


@pytest.mark.parametrize("case", TREES)
def test_a_tree_that_does_not_add_up_is_found(places: Any, case: str) -> None:
    store = places.open()
    saved, what = TREES[case]
    forge(store, "r", saved)
    assert store.verify("records").ok
    (problem,) = store.verify("full").problems
    assert what in problem.what
    assert problem.where == "run r, record 3"


def test_every_base_that_reaches_a_damaged_chunk_is_named(places: Any) -> None:
    store = places.open()
    good, bad = packb([1, 2]), packb([3, 4])
    named = {name(content): b"\x01\x00" + content for content in (good, bad)}
    index = packb([[name(good), 2], [name(bad), 2]])
    named[name(index)] = b"\x01\x00" + index
    named[name(bad)] = b"\x01\x00" + packb([3, 5])
    root = packb({"part": Ext(REFERENCE, packb(["l", 4, 1, name(index)]))})
    other = packb({"part": Ext(REFERENCE, packb(["l", 2, 0, name(good)]))})
    forge(store, "r", Saved(NO_DELTA, root, list(named.items())), Saved(NO_DELTA, other), Saved(NO_DELTA, root))
    assert [(p.code, p.where) for p in store.verify("full").problems] == [("E502", "run r, record 3"), ("E502", "run r, record 7")]


def test_a_small_store_is_always_compared_whatever_it_costs(places: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """And without any allowance nothing is compared that would have to be read again, but damage is found all the same."""
    store = places.open()
    forge(store, "r", base_of(store, state(), None))
    forge(store, "r", base_of(store, WRONG["an item in the middle"], SET_STEP))
    assert not store.verify("full").ok
    monkeypatch.setattr(family_chunks, "_FREE_BYTES", -(10**9))
    monkeypatch.setattr(family_chunks, "_RECENT_BYTES", 0)
    assert store.verify("full").ok


def folded(levels: int) -> tuple[Saved, list[tuple[bytes, bytes]]]:
    """A list of 100 ** levels items in a handful of chunks: an index names one chunk a hundred times, and so on."""
    content, count, named = packb(list(range(100))), 100, {}
    for _ in range(levels):
        named[name(content)] = b"\x01\x00" + content
        content, count = packb([[name(content), count]] * 100), count * 100
    named[name(content)] = b"\x01\x00" + content
    root = packb({"part": Ext(REFERENCE, packb(["l", count, levels, name(content)]))})
    return Saved(NO_DELTA, root, list(named.items())), list(named.items())


def nested(levels: int) -> Saved:
    """A list of a hundred lists of a hundred lists, and so on, all of them one chunk for each level."""
    content, named = packb([["deep"]] * 100), {}
    for _ in range(levels):
        named[name(content)] = b"\x01\x00" + content
        content = packb([Ext(REFERENCE, packb(["l", 100, 0, name(content)]))] * 100)
    named[name(content)] = b"\x01\x00" + content
    return Saved(NO_DELTA, packb({"part": Ext(REFERENCE, packb(["l", 100, 0, name(content)]))}), list(named.items()))


@pytest.mark.parametrize("saved", [folded(5)[0], nested(6)], ids=["folded", "nested"])
def test_what_unfolds_to_more_than_any_memory_is_verified_without_unfolding_it(places: Any, saved: Saved) -> None:
    """Both have deltas that reach into them and a base that says something else: comparing them to the end would never end."""
    store = places.open()
    forge(store, "r", saved)
    forge(store, "r", Saved(encode([[2, ["part"], 0, 0, [1]], [0, ["other"], 1]])))
    forge(store, "r", Saved(encode([[0, ["other"], 2]]), saved.base, []))
    report = store.verify("full")
    assert report.chunks == store.stats()["chunks"]
    assert {problem.code for problem in report.problems} <= {"E500"}
    store.doctor()
