"""What the program sees through its own references is what gets saved: one test for each trap."""

# ruff: noqa: PT012 -- a loop that raises

import copy
import dataclasses
import gc
import heapq
import json
import pickle
import random
import threading
from collections import Counter, OrderedDict, deque
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pydantic
import pytest
from live_helpers import cost, opened, save

import everstep
from everstep.codec.values import encode
from everstep.errors import Unstorable
from everstep.runtime.run import attempt_of
from everstep.snapshot.tracked import TrackedDict, TrackedList


@dataclasses.dataclass
class Note:
    words: Any
    size: int = 0


class Pair(NamedTuple):
    left: Any


class Form(pydantic.BaseModel):
    fields: dict[str, Any] = {}
    items: Any = None


class Rec(msgspec.Struct):
    items: Any


def test_a_plain_list_held_outside_stays_the_very_object_and_its_later_changes_are_saved() -> None:
    run = opened()
    m: list[Any] = []
    run.state["m"] = m
    assert run.state["m"] is m
    for i in range(5):
        m.append({"i": i})
        assert run.state["m"] is m
        assert save(run)["m"] == [{"i": k} for k in range(i + 1)]
        assert run.state["m"] is m
    m[2]["i"] = "changed"
    m.pop(0)
    assert save(run)["m"] == [{"i": 1}, {"i": "changed"}, {"i": 3}, {"i": 4}]


def test_a_plain_dict_held_outside_stays_the_very_object_at_any_depth() -> None:
    run = opened({"a": [{"b": {}}]})
    d: dict[str, Any] = {}
    run.state["a"][0]["b"]["d"] = d
    save(run)
    d["x"] = [1]
    assert save(run)["a"][0]["b"]["d"] == {"x": [1]}
    d["x"].append(2)
    assert save(run)["a"][0]["b"]["d"] == {"x": [1, 2]}
    assert run.state["a"][0]["b"]["d"] is d


def test_an_inner_list_held_outside_is_noticed_when_only_the_outer_one_was_let_go() -> None:
    run = opened()
    inner: list[int] = []
    run.state["m"] = {"deep": [inner]}
    save(run)
    save(run)
    inner.append(1)
    assert save(run)["m"] == {"deep": [[1]]}
    assert run.state["m"]["deep"][0] is inner


def test_a_part_that_nobody_else_holds_is_adopted_and_costs_what_changes() -> None:
    run = opened()
    run.state["m"] = []
    save(run)
    assert type(run.state["m"]) is TrackedList
    for i in range(3000):
        run.state["m"].append({"i": i, "text": "some words that make it longer"})
    save(run)
    run.state["m"].append({"i": -1})
    assert cost(run) < 200
    run.state["m"][1500]["i"] = "x"
    assert cost(run) < 200
    save(run)


def test_a_part_that_was_held_is_adopted_once_it_is_let_go() -> None:
    run = opened()
    m = [{"i": i} for i in range(10)]
    run.state["m"] = m
    save(run)
    assert type(run.state["m"]) is list
    del m
    save(run)
    assert type(run.state["m"]) is TrackedList
    assert type(run.state["m"][3]) is TrackedDict
    save(run)


def test_a_part_that_is_held_through_an_inner_list_is_adopted_without_the_inner_one() -> None:
    run = opened()
    inner = [1]
    run.state["m"] = [inner, [2]]
    save(run)
    save(run)
    assert run.state["m"][0] is inner
    inner.append(3)
    assert save(run)["m"] == [[1, 3], [2]]


def test_a_part_that_an_iterator_or_a_closure_holds_is_not_taken_away() -> None:
    run = opened()
    m = [1, 2, 3]
    run.state["m"] = m
    walker = iter(m)
    push = m.append
    del m
    for _ in range(3):
        save(run)
    push(4)
    assert save(run)["m"] == [1, 2, 3, 4]
    assert list(walker) == [1, 2, 3, 4]


def test_the_initial_state_is_copied() -> None:
    mine: dict[str, Any] = {"l": [1], "d": {"x": 1}, "n": Note([1])}
    run = opened(mine)
    save(run)
    mine["l"].append(2)
    mine["d"]["x"] = 2
    mine["n"].words.append(2)
    assert save(run) == {"l": [1], "d": {"x": 1}, "n": Note([1])}


@pytest.mark.parametrize("items", [
    [5, 3, 8, 1], [1.5, -2.0, 7.0], ["b", "a", "c"], [(2, "b"), (1, "a"), (3, "c")], [(1, {"x": 1}), (0, {"y": 2}), (2, {})], [[2], [1], [3]], [[1, [2]], [0, [3]]],
], ids=["ints", "floats", "texts", "tuples", "tuples with dicts", "lists", "nested lists"])  # fmt: skip
def test_heapq_is_noticed_on_lists_of_anything_that_can_be_ordered(items: list[Any]) -> None:
    run = opened({"q": copy.deepcopy(items), "deep": [{"q": copy.deepcopy(items)}]})
    model = copy.deepcopy(items)
    extra = copy.deepcopy(items[-1])
    save(run)
    for q in (run.state["q"], run.state["deep"][0]["q"]):
        mine = copy.deepcopy(model)
        for act in (
            lambda h: heapq.heapify(h),
            lambda h: heapq.heappush(h, copy.deepcopy(extra)),
            lambda h: heapq.heappop(h),
            lambda h: heapq.heapreplace(h, copy.deepcopy(extra)),
            lambda h: heapq.heappushpop(h, copy.deepcopy(extra)),
            lambda h: (heapq.heappop(h), heapq.heappush(h, copy.deepcopy(extra))),
            lambda h: (h.append(copy.deepcopy(extra)), heapq.heapify(h)),
            lambda h: (heapq.heapify(h), h.sort()),
        ):
            act(q)
            act(mine)
            save(run)
            assert list(q) == mine


def test_heapq_on_dicts_that_cannot_be_ordered_is_noticed_although_it_failed() -> None:
    run = opened({"q": [{"a": 1}, {"b": 2}, {"c": 3}]})
    save(run)
    for act in (
        lambda q: heapq.heappush(q, {"d": 4}),
        lambda q: heapq.heappop(q),
        lambda q: heapq.heapreplace(q, {"e": 5}),
        lambda q: heapq.heapify(q),
    ):
        for _ in range(2):
            with pytest.raises(TypeError):
                act(run.state["q"])
            save(run)


def test_a_heap_held_across_many_checkpoints_is_never_forgotten() -> None:
    run = opened({"lists": [[] for _ in range(100)], "q": []})
    q, late = run.state["q"], run.state["lists"][70]
    for i in range(60):
        if i % 3 == 0:
            heapq.heappush(q, random.Random(i).random())
        if i == 55:
            heapq.heappush(late, 1)
        save(run)
        if i % 20 == 0:
            gc.collect()
    assert len(run.state["q"]) == 20
    assert run.state["lists"][70] == [1]


HANDS: dict[str, Any] = {
    "index": lambda s: s["l"][7],
    "get": lambda s: s.get("l")[7],
    "setdefault": lambda s: s.setdefault("l", None)[7],
    "iteration": lambda s: [x for x in s["l"] if x][7],
    "reversed": lambda s: list(reversed(s["l"]))[-8],
    "slice": lambda s: s["l"][5:9][2],
    "slice with a step": lambda s: s["l"][::-1][-8],
    "values": lambda s: next(v for v in s["d"].values() if v == [7]),
    "items": lambda s: dict(s["d"].items())["k7"],
    "dict()": lambda s: dict(s["d"])["k7"],
    "{**}": lambda s: {**s["d"]}["k7"],
    "|": lambda s: (s["d"] | {})["k7"],
    "reversed |": lambda s: ({} | s["d"])["k7"],
    "copy": lambda s: s["d"].copy()["k7"],
    "copy.copy": lambda s: copy.copy(s["l"])[7],
    "list()": lambda s: list(s["l"])[7],
    "tuple()": lambda s: tuple(s["l"])[7],
    "list +": lambda s: (s["l"] + [])[7],
    "reversed list +": lambda s: ([] + s["l"])[7],
    "list *": lambda s: (s["l"] * 1)[7],
    "[*]": lambda s: [*s["l"]][7],
    "unpacking": lambda s: (lambda a, *rest: rest)(*s["l"])[6],
    "star target": lambda s: star(s["l"]),
    "keywords": lambda s: (lambda **kw: kw)(**s["d"])["k7"],
    "sorted": lambda s: sorted(s["l"])[7],
    "max": lambda s: next(x for x in [max(s["l"][:8])]),
    "filter": lambda s: next(filter(lambda x: x == [7], s["l"])),
    "enumerate": lambda s: dict(enumerate(s["l"]))[7],
    "zip": lambda s: list(zip(s["l"], s["l"], strict=True))[7][0],
    "deque": lambda s: deque(s["l"])[7],
    "match mapping": lambda s: matched_mapping(s["d"]),
    "match sequence": lambda s: matched_sequence(s["l"]),
    "pop and put back": lambda s: put_back(s),
    "del and put back": lambda s: put_back_by_slice(s),
    "popitem": lambda s: popped_item(s),
    "pydantic": lambda s: Form(fields=s["d"]).fields["k7"],
    "pydantic from the whole": lambda s: Form.model_validate({"fields": s["d"], "items": s["l"]}).items[7],
    "msgspec": lambda s: Rec(s["l"]).items[7],
    "update": lambda s: updated(s),
    "random.choice": lambda s: random.Random(1).choice([s["l"][7]]),
    "format": lambda s: s["l"].__getitem__(7),
}


def star(items: Any) -> Any:
    _, *rest = items
    return rest[6]


def matched_mapping(d: Any) -> Any:
    match d:
        case {"k7": found}:
            return found


def matched_sequence(items: Any) -> Any:
    match items:
        case [_, _, _, _, _, _, _, found, *_]:
            return found


def put_back(s: Any) -> Any:
    taken = s["d"].pop("k7")
    s["d"]["k7"] = taken
    return taken


def put_back_by_slice(s: Any) -> Any:
    taken = s["l"][7:8]
    del s["l"][7:8]
    s["l"][7:7] = taken
    return taken[0]


def popped_item(s: Any) -> Any:
    key, taken = s["d"].popitem()
    s["d"][key] = taken
    return taken


def updated(s: Any) -> Any:
    mine: dict[str, Any] = {}
    mine.update(s["d"])
    return mine["k7"]


@pytest.mark.parametrize("way", HANDS)
def test_a_list_reached_in_any_way_may_be_written_by_c_code(way: str) -> None:
    run = opened({"l": [[i] for i in range(200)], "d": {f"k{i}": [i] for i in range(200)}})
    for _ in range(3):
        save(run)
    heap = HANDS[way](run.state)
    heapq.heappush(heap, -1)
    save(run)
    assert encode(run.state).count(encode([-1, 7])[1:]) == 1 or way == "popitem"
    save(run)
    heapq.heappush(heap, -2)
    del heap
    save(run)


@pytest.mark.parametrize("shuffle", [
    lambda items: random.Random(3).shuffle(items),
    lambda items: np.random.default_rng(3).shuffle(items),
    lambda items: np.random.RandomState(3).shuffle(items),
    lambda items: items.sort(key=lambda d: -d["i"]),
], ids=["random", "numpy generator", "numpy legacy", "sort"])  # fmt: skip
def test_libraries_that_move_items_are_noticed(shuffle: Any) -> None:
    run = opened({"dicts": [{"i": i} for i in range(20)], "ints": [{"i": i} for i in range(20)]})
    save(run)
    shuffle(run.state["dicts"])
    assert [d["i"] for d in run.state["dicts"]] != list(range(20))
    save(run)


UNTRACKED: dict[str, tuple[Any, Any]] = {
    "dataclass": (Note([1]), lambda v: v.words.append(2)),
    "dataclass field": (Note(1), lambda v: setattr(v, "size", 9)),
    "model": (Form(items=[1]), lambda v: v.items.append(2)),
    "model field": (Form(), lambda v: v.fields.update(a=1)),
    "struct": (Rec([1]), lambda v: v.items.append(2)),
    "array": (np.zeros(4), lambda v: v.__setitem__(2, 5)),
    "array shape": (np.zeros(4), lambda v: v.resize((2, 2), refcheck=False)),
    "bytearray": (bytearray(b"abc"), lambda v: v.extend(b"d")),
    "set": ({1}, lambda v: v.add(2)),
    "deque": (deque([1]), lambda v: v.append(2)),
    "ordered dict": (OrderedDict(a=1, b=2), lambda v: v.move_to_end("a")),
    "counter": (Counter("a"), lambda v: v.update("ab")),
    "tuple of list": (([1],), lambda v: v[0].append(2)),
    "named tuple of list": (Pair([1]), lambda v: v.left.append(2)),
    "tuple of dataclass": ((Note(1),), lambda v: setattr(v[0], "words", 2)),
    "unknown": (everstep.Unknown("x:Y", 1, {"a": [1]}), lambda v: v.fields["a"].append(2)),
}


@pytest.mark.parametrize("name", UNTRACKED)
@pytest.mark.parametrize("place", ["top", "in a list", "deep"])
@pytest.mark.parametrize("held", [True, False])
def test_a_change_inside_what_cannot_be_tracked_is_found_by_its_digest(name: str, place: str, held: bool) -> None:
    value, change = copy.deepcopy(UNTRACKED[name][0]), UNTRACKED[name][1]
    run = opened({"list": [], "deep": [{"x": {}}]})
    if place == "top":
        run.state["v"] = value
    elif place == "in a list":
        run.state["list"].append(value)
    else:
        run.state["deep"][0]["x"]["v"] = value
    if not held:
        del value
    before = encode(save(run))
    save(run)
    found = run.state["v"] if place == "top" else run.state["list"][0] if place == "in a list" else run.state["deep"][0]["x"]["v"]
    change(found)
    assert encode(save(run)) != before
    save(run)


def test_a_dataclass_after_a_load_is_compared_too() -> None:
    store = everstep.open("memory://", checking=True)
    with store.run("r", state={"n": Note([1]), "l": [Note([2])]}) as run:
        run.checkpoint()
    with store.run("r") as run:
        run.state["n"].words.append(5)
        run.state["l"][0].size = 7
        run.checkpoint()
    assert store.load("r") == {"n": Note([1, 5]), "l": [Note([2], 7)]}


def test_a_tracked_list_inside_a_dataclass_or_tuple_is_saved_when_it_changes() -> None:
    run = opened({"l": [1]})
    run.state["note"] = Note(run.state["l"])
    run.state["tuple"] = (run.state["l"], 1)
    save(run)
    run.state["l"].append(2)
    stored = save(run)
    assert stored["note"] == Note([1, 2])
    assert stored["tuple"] == ([1, 2], 1)
    run.state["note"].words.append(3)
    assert save(run)["l"] == [1, 2, 3]


def test_the_same_list_in_two_places_is_saved_in_both() -> None:
    run = opened({"a": [1], "b": None, "c": [0, None]})
    run.state["b"] = run.state["a"]
    run.state["c"][1] = run.state["a"]
    assert run.state["b"] is run.state["a"]
    save(run)
    run.state["b"].append(2)
    assert save(run) == {"a": [1, 2], "b": [1, 2], "c": [0, [1, 2]]}
    run.state["c"][1].insert(0, {"x": []})
    run.state["a"][0]["x"].append(5)
    save(run)
    del run.state["a"]
    run.state["b"][0]["x"].append(6)
    assert save(run) == {"b": [{"x": [5, 6]}, 1, 2], "c": [0, [{"x": [5, 6]}, 1, 2]]}


def test_a_plain_list_in_two_places_is_saved_in_both() -> None:
    run = opened()
    m = [1]
    run.state.update(a=m, b=[m, m], c={"m": m})
    save(run)
    m.append(2)
    assert save(run) == {"a": [1, 2], "b": [[1, 2], [1, 2]], "c": {"m": [1, 2]}}
    del m
    save(run)
    run.state["c"]["m"].append(3)
    assert run.state["a"] == [1, 2, 3]
    assert save(run) == {"a": [1, 2, 3], "b": [[1, 2, 3], [1, 2, 3]], "c": {"m": [1, 2, 3]}}


def test_identity_is_not_kept_across_a_load() -> None:
    run = opened({"a": [1]})
    run.state["b"] = run.state["a"]
    stored = save(run)
    stored["a"].append(2)
    assert stored["b"] == [1]


def test_a_subtree_may_move() -> None:
    run = opened({"a": {"x": {"deep": [1]}}, "b": []})
    save(run)
    moved = run.state["a"].pop("x")
    run.state["b"].append(moved)
    save(run)
    moved["deep"].append(2)
    assert save(run) == {"a": {}, "b": [{"deep": [1, 2]}]}
    run.state["a"]["back"] = run.state["b"].pop()
    moved["deep"].append(3)
    assert save(run) == {"a": {"back": {"deep": [1, 2, 3]}}, "b": []}


def test_a_subtree_removed_and_still_held_may_change_and_come_back() -> None:
    run = opened({"a": {"l": [1]}, "other": []})
    save(run)
    held = run.state.pop("a")
    held["l"].append(2)
    assert save(run) == {"other": []}
    held["l"].append(3)
    heapq.heappush(held["l"], 0)
    run.state["a"] = held
    assert run.state["a"] is held
    assert save(run)["a"] == {"l": list(held["l"])}
    held["l"].append(4)
    held["new"] = {}
    save(run)
    run.state["other"].append(held)
    held["new"]["x"] = 1
    save(run)


def test_a_replaced_state_is_the_very_object() -> None:
    run = opened({"a": 1})
    save(run)
    mine = {"b": [1]}
    run.state = mine
    assert run.state is mine
    save(run)
    mine["b"].append(2)
    assert save(run) == {"b": [1, 2]}
    run.state = [1, 2]
    save(run)
    run.state = "just text"
    assert save(run) == "just text"


def test_a_state_that_contains_itself_is_refused_with_its_path_and_stays_usable() -> None:
    run = opened({"a": {"l": []}})
    save(run)
    head = attempt_of(run).store.load("r")
    records = attempt_of(run).store.stats()["records"]
    run.state["a"]["l"].append(run.state["a"])
    with pytest.raises(Unstorable, match="contains itself") as caught:
        run.checkpoint()
    assert caught.value.path.startswith("state['a']")
    assert attempt_of(run).store.load("r") == head
    assert attempt_of(run).store.stats()["records"] == records
    run.state["a"]["l"].pop()
    run.state["a"]["l"].append("fine")
    assert save(run) == {"a": {"l": ["fine"]}}
    run.state["me"] = run.state
    with pytest.raises(Unstorable, match="contains itself"):
        run.checkpoint()
    del run.state["me"]
    run.state["n"] = 1
    assert save(run) == {"a": {"l": ["fine"]}, "n": 1}
    run.state["a"]["l"].append(2)
    save(run)


def test_an_unstorable_value_is_refused_with_its_path_and_nothing_is_lost() -> None:
    run = opened({"tools": [1, 2], "log": []})
    save(run)
    run.state["log"].append("before")
    run.state["tools"].append(Note(lambda: 0))
    for _ in range(2):
        with pytest.raises(Unstorable) as caught:
            run.checkpoint()
        assert caught.value.path == "state['tools'][2].words"
    assert attempt_of(run).store.get("r").checkpoints == 1
    run.state["log"].append("between")
    run.state["tools"].pop()
    assert run.checkpoint().number == 2
    assert attempt_of(run).store.load("r") == {"tools": [1, 2], "log": ["before", "between"]}


@pytest.mark.parametrize("place", ["tools", "plain", "key", "splice"])
def test_the_path_of_an_unstorable_value_is_that_in_the_state(place: str) -> None:
    run = opened({"tools": [{"a": 1}, {"b": {}}], "plain": None})
    held: dict[str, Any] = {"x": [1]}
    run.state["plain"] = held
    save(run)
    if place == "tools":
        run.state["tools"][1]["b"]["f"] = print
        expected = "state['tools'][1]['b']['f']"
    elif place == "plain":
        held["x"].append(print)
        expected = "state['plain']['x'][1]"
    elif place == "key":
        run.state["tools"][0][(print,)] = 1
        expected = "state['tools'][0] (key (<built-in function print>,))[0]"
    else:
        run.state["tools"][1:1] = [1, [print]]
        expected = "state['tools'][2][0]"
    with pytest.raises(Unstorable) as caught:
        run.checkpoint()
    assert caught.value.path == expected


def test_json_pickle_pydantic_and_dataclasses_accept_live_containers() -> None:
    run = opened({"a": [1, {"b": None}], "d": {"x": [True, 1.5, "t"]}})
    plain = {"a": [1, {"b": None}], "d": {"x": [True, 1.5, "t"]}}
    state = run.state
    assert isinstance(state, dict)
    assert isinstance(state["a"], list)
    assert state == plain
    assert plain == state
    assert repr(state) == repr(plain)
    assert str(state["a"]) == str(plain["a"])
    for indent in (None, 2):
        assert json.dumps(state, indent=indent) == json.dumps(plain, indent=indent)
    assert json.dumps(state, sort_keys=True) == json.dumps(plain, sort_keys=True)
    assert Form(fields=state).model_dump() == {"fields": plain, "items": None}
    assert pydantic.TypeAdapter(dict[str, Any]).validate_python(state, strict=True) == plain
    assert pydantic.TypeAdapter(list[Any]).validate_python(state["a"], strict=True) == plain["a"]
    assert dataclasses.asdict(Note(state)) == {"words": plain, "size": 0}
    assert msgspec.json.encode(state) == msgspec.json.encode(plain)
    assert msgspec.convert(state, dict[str, Any]) == plain
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        back = pickle.loads(pickle.dumps(state, protocol))
        assert plain_all_through(back)
        assert back == plain
    for made in (copy.deepcopy(state), json.loads(json.dumps(state))):
        assert plain_all_through(made)
        assert made == plain
    shallow = copy.copy(state)
    assert type(shallow) is dict
    assert shallow["a"] is state["a"]
    assert type(state.copy()) is dict
    assert type(copy.copy(state["a"])) is list
    save(run)


def plain_all_through(value: Any) -> bool:
    if isinstance(value, dict):
        return type(value) is dict and all(map(plain_all_through, value.values()))
    return not isinstance(value, list) or (type(value) is list and all(map(plain_all_through, value)))


def test_a_deep_copy_is_on_its_own() -> None:
    run = opened({"a": [[1]]})
    twin = copy.deepcopy(run.state)
    twin["a"][0].append(2)
    assert run.state == {"a": [[1]]}
    run.state["twin"] = twin
    save(run)
    twin["a"].append(3)
    assert save(run)["twin"] == {"a": [[1, 2], 3]}


def test_a_shared_list_stays_shared_in_a_deep_copy_and_a_pickle() -> None:
    run = opened({"a": [1]})
    run.state["b"] = run.state["a"]
    for twin in (copy.deepcopy(run.state), pickle.loads(pickle.dumps(run.state))):
        assert twin["a"] is twin["b"]


def test_mutation_during_iteration_is_as_with_dict_and_list() -> None:
    run = opened({"d": {"a": 1, "b": 2}, "l": [1, 2, 3, 4]})
    d, items = run.state["d"], run.state["l"]
    for view in (d, d.keys(), d.values(), d.items()):
        with pytest.raises(RuntimeError, match="changed size"):
            for _ in view:
                d["new"] = 3
        del d["new"]
    for item in items:
        if item == 2:
            items.remove(2)
    assert items == [1, 3, 4]
    seen = []
    for item in items:
        seen.append(item)
        if len(items) < 6:
            items.append(item * 10)
    assert seen == [1, 3, 4, 10, 30, 40]
    save(run)


def test_one_run_may_be_filled_by_many_threads_that_take_turns() -> None:
    run = opened({f"t{i}": [] for i in range(8)})
    lock = threading.Lock()

    def work(name: str) -> None:
        for i in range(50):
            with lock:
                run.state[name].append({"i": i})
                if i % 10 == 0:
                    run.checkpoint()

    threads = [threading.Thread(target=work, args=(f"t{i}",)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name: len(items) for name, items in save(run).items()} == {f"t{i}": 50 for i in range(8)}


def test_objects_handed_in_are_compared_with_the_one_before_though_they_are_others() -> None:
    run = opened()
    for i in range(6):  # each time a new object that nobody else holds, as programs in a functional style make them
        run.checkpoint(state={"log": [{"i": k, "text": "words " * 20} for k in range(200 + i)], "turn": i})
        if i:
            assert cost_of_last(run) < 300
    assert attempt_of(run).store.load("r")["turn"] == 5
    mine = Note([1])
    run.checkpoint(state=mine)
    run.checkpoint(state=Note([1, 2]))
    assert [c.after for c in attempt_of(run).store.diff("r~1", "r")] == [2]
    assert run.state == Note([1, 2])
    mine.words.append("no longer the state")
    assert save(run) == Note([1, 2])
    run.state = {"l": []}
    save(run)
    save(run)
    assert type(run.state) is TrackedDict


def cost_of_last(run: everstep.Run) -> int:
    record = attempt_of(run).store.backend.records("r", 0, 10**6, ("checkpoint",), newest=1)[0]
    return len(record.body or b"")


def test_an_object_handed_in_after_a_refusal_is_saved_as_a_whole() -> None:
    run = opened()
    run.checkpoint(state={"a": [1]})
    with pytest.raises(Unstorable):
        run.checkpoint(state={"a": [1, print]})
    run.checkpoint(state={"a": [1, 2], "b": 3})
    assert attempt_of(run).store.load("r") == {"a": [1, 2], "b": 3}
    run.checkpoint(state={"a": [1, 2, 3], "b": 3})
    assert attempt_of(run).store.load("r") == {"a": [1, 2, 3], "b": 3}
    run.checkpoint()
    assert attempt_of(run).store.load("r") == run.state == {"a": [1, 2, 3], "b": 3}


def test_a_bytearray_in_a_tracked_list_inside_a_plain_one_stays_a_bytearray() -> None:
    run = opened({"l": [bytearray(b"x"), 1], "d": {"b": bytearray(b"y")}})
    save(run)
    held = [run.state["l"], {"d": run.state["d"]}]
    del run.state["l"], run.state["d"]
    run.state["plain"] = held
    for turn in range(3):
        held[0].append(turn)
        held[1]["d"]["turn"] = turn
        stored = save(run)
        assert type(stored["plain"][0][0]) is bytearray
        assert type(stored["plain"][1]["d"]["b"]) is bytearray
    run.state["note"] = Note(run.state["plain"].pop(0))
    for turn in range(3):
        run.state["note"].words.append(turn)
        assert type(save(run)["note"].words[0]) is bytearray
