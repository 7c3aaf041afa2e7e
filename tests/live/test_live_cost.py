"""The cost of a checkpoint follows the change: bytes written on average over many checkpoints, bases included."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from live_helpers import written

import everstep
from everstep.codec.values import encode

WORDS = [f"w{i}" for i in range(5000)]


def message(rng: random.Random, size: int = 1000) -> dict[str, str]:
    """Text that hardly compresses, so that the bytes written are those of the change."""
    return {"role": "user", "text": rng.randbytes(size // 2).hex()}


def average(state: Any, change: Callable[[Any, int], None], checkpoints: int = 200) -> float:
    """Bytes written for each checkpoint after the first, through a store and proven by a load at the end."""
    store = everstep.open("memory://")
    with store.run("r", state=state) as run:
        run.checkpoint()
        before = written(run)
        for i in range(checkpoints):
            change(run.state, i)
            run.checkpoint()
        spent = written(run) - before
        assert encode(store.load("r")) == encode(run.state)
    store.close()
    return spent / checkpoints


def test_appending_a_message_costs_about_a_message() -> None:
    rng = random.Random(1)
    state = {"messages": [message(rng) for _ in range(1000)]}
    assert average(state, lambda s, i: s["messages"].append(message(rng))) < 3 * 1000


def test_appending_in_a_nested_list_costs_about_a_message() -> None:
    rng = random.Random(1)
    state = {"agents": [{"name": n, "threads": {"main": [message(rng) for _ in range(300)]}} for n in range(5)]}
    assert average(state, lambda s, i: s["agents"][i % 5]["threads"]["main"].append(message(rng))) < 4 * 1000


def test_a_window_of_messages_costs_about_a_message() -> None:
    rng = random.Random(2)
    state = {"messages": [message(rng) for _ in range(3000)]}

    def slide(s: Any, i: int) -> None:
        s["messages"].pop(0)
        s["messages"].append(message(rng))

    assert average(state, slide) < 4 * 1000


def test_popping_the_first_costs_nearly_nothing() -> None:
    rng = random.Random(3)
    state = {"queue": [message(rng) for _ in range(3000)]}
    assert average(state, lambda s, i: s["queue"].pop(0)) < 1500


def test_trimming_a_window_now_and_then_costs_what_came_in() -> None:
    rng = random.Random(4)
    state = {"messages": [message(rng) for _ in range(1000)]}

    def grow_and_trim(s: Any, i: int) -> None:
        s["messages"].append(message(rng))
        if i % 20 == 19:
            del s["messages"][:20]

    assert average(state, grow_and_trim) < 4 * 1000


def test_inserting_in_the_middle_costs_the_neighbourhood() -> None:
    rng = random.Random(5)
    state = {"items": [message(rng) for _ in range(3000)]}
    assert average(state, lambda s, i: s["items"].insert(rng.randrange(len(s["items"])), message(rng))) < 40 * 1000


def test_inserting_at_one_place_costs_about_the_item() -> None:
    rng = random.Random(5)
    state = {"items": [message(rng) for _ in range(3000)]}
    assert average(state, lambda s, i: s["items"].insert(1500, message(rng))) < 5 * 1000


@pytest.mark.parametrize("deep", [False, True], ids=["at the top", "deep"])
def test_keys_that_come_and_go_in_a_dict_of_100_000_cost_the_keys(deep: bool) -> None:
    rng = random.Random(6)
    table = {f"key-{i}": f"{rng.getrandbits(64):x}" for i in range(100_000)}
    state: Any = {"a": [{"table": table}]} if deep else {"table": table}

    def churn(s: Any, i: int) -> None:
        found = s["a"][0]["table"] if deep else s["table"]
        del found[f"key-{i * 7}"]
        found[f"new-{i}"] = "x"
        found[f"key-{50_000 + i}"] = "y"

    assert average(state, churn, 60 if deep else 200) < 8 * 1000


@pytest.mark.parametrize("where", ["in a dict", "in a list", "deep"])
def test_an_edit_inside_five_megabytes_of_text_costs_the_edit(where: str) -> None:
    rng = random.Random(7)
    text = " ".join(rng.choices(WORDS, k=900_000))
    assert len(text) > 5_000_000
    state: Any = {"in a dict": {"t": text}, "in a list": {"l": [1, text]}, "deep": {"a": [{"b": {"t": text}}]}}[where]

    def edit(s: Any, i: int) -> None:
        holder, key = {"in a dict": lambda: (s, "t"), "in a list": lambda: (s["l"], 1), "deep": lambda: (s["a"][0]["b"], "t")}[where]()
        at = (i * 7919) % len(holder[key])
        holder[key] = holder[key][:at] + f"<edit {i}>" + holder[key][at + 3 :]

    assert average(state, edit, 60) < 25 * 1000


def test_appending_to_a_long_text_costs_what_is_appended() -> None:
    rng = random.Random(8)

    def more(s: Any, i: int) -> None:
        s["log"] += " ".join(rng.choices(WORDS, k=200))

    assert average({"log": " ".join(rng.choices(WORDS, k=100_000))}, more) < 4 * 1000


def test_a_kilobyte_in_ten_megabytes_costs_about_a_kilobyte() -> None:
    rng = random.Random(9)
    state = {f"part{i}": {"items": [message(rng) for _ in range(1000)], "info": {}} for i in range(10)}

    def change(s: Any, i: int) -> None:
        s["part7"]["info"]["last"] = message(rng)
        s["part3"]["items"][500]["text"] = f"seen {i}"

    assert average(state, change) < 5 * 1000


def test_a_kilobyte_in_ten_megabytes_that_are_handed_in_costs_kilobytes() -> None:
    rng = random.Random(10)
    mine = {f"part{i}": {"items": [message(rng) for _ in range(1000)], "info": {}} for i in range(10)}
    store = everstep.open("memory://")
    with store.run("r") as run:
        run.checkpoint(state=mine)
        before = written(run)
        for i in range(20):
            mine["part7"]["info"]["last"] = message(rng)
            mine["part3"]["items"].append(message(rng))
            mine["part3"]["items"][i * 20]["text"] = f"seen {i}"
            run.checkpoint(state=mine)
        assert (written(run) - before) / 20 < 6 * 1000
        assert store.load("r") == mine
    store.close()


def test_nothing_changed_costs_nearly_nothing() -> None:
    rng = random.Random(11)
    state = {"messages": [message(rng) for _ in range(3000)]}
    assert average(state, lambda s, i: None) < 100


def test_a_small_state_is_not_burdened_by_bases() -> None:
    assert average({"n": 0}, lambda s, i: s.update(n=i), 1000) < 60


def test_the_cost_does_not_grow_with_the_history() -> None:
    rng = random.Random(12)
    store = everstep.open("memory://")
    with store.run("r", state={"m": []}) as run:
        spent = []
        for _ in range(4):
            before = written(run)
            for _ in range(500):
                run.state["m"].append(message(rng))
                run.checkpoint()
            spent.append(written(run) - before)
    assert spent[-1] < 1.5 * spent[1]
    store.close()


@pytest.mark.parametrize("edit", [None, {"topic": "other"}, lambda s: s["messages"].append("end")], ids=["as it is", "a key", "an item"])
def test_a_fork_shares_all_sealed_segments(edit: Any) -> None:
    rng = random.Random(13)
    store = everstep.open("memory://")
    with store.run("r", state={"messages": [message(rng) for _ in range(4000)], "topic": "one"}) as run:
        run.checkpoint()
        for _ in range(300):
            run.state["messages"].append(message(rng))
            run.checkpoint()
    before = store.stats()
    assert before["chunks"] > 60
    store.fork("r", "child", edit)
    after = store.stats()
    assert after["chunks"] - before["chunks"] <= 20
    assert after["chunk_bytes"] - before["chunk_bytes"] < 300 * 1000  # of 4 MB: what no base of the parent holds yet
    for i in range(4):
        store.fork("r", f"child{i}", edit)
    assert store.stats()["chunks"] == after["chunks"]
    store.close()


def test_a_run_that_goes_on_after_a_load_shares_its_segments() -> None:
    rng = random.Random(14)
    store = everstep.open("memory://")
    with store.run("r", state={"messages": [message(rng) for _ in range(4000)]}) as run:
        run.checkpoint()
    before = store.stats()["chunk_bytes"]
    for _ in range(8):
        with store.run("r") as run:
            for _ in range(70):
                run.state["messages"].append(message(rng))
                run.checkpoint()
    grown = store.stats()["chunk_bytes"] - before
    assert grown < 8 * 70 * 1000 * 1.5 + 0.3 * before
    store.close()
