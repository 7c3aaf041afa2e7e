"""Every method of a store, on both backends."""

# ruff: noqa: PT012 -- a run that raises has a block

import random
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pydantic
import pytest

import everstep
from everstep.codec.values import encode
from everstep.errors import InvalidArgument, LeaseHeld, NotFound, RunClosed, RunExists, StoreClosed
from everstep.snapshot.diff import patch


def made(store: everstep.Store, id: str | None = "r", n: int = 5, **fields: Any) -> everstep.RunInfo:
    """A run with n checkpoints whose states are {"n": 1}, {"n": 2}…"""
    with store.run(id, **fields) as run:
        for i in range(1, n + 1):
            run.state["n"] = i
            run.checkpoint(note=f"step {i}")
    return store.get(run.id)


def test_a_new_run_counts_its_checkpoints_from_one(store: everstep.Store) -> None:
    with store.run("r", state={"a": 1}) as run:
        assert run.id == "r"
        assert run.number == 0
        assert run.state == {"a": 1}
        assert [run.checkpoint().number for _ in range(3)] == [1, 2, 3]
        assert run.number == 3
    with store.run("r") as run:
        assert run.checkpoint().number == 4


def test_a_run_without_a_state_begins_with_an_empty_dict(store: everstep.Store) -> None:
    with store.run() as run:
        assert run.state == {}
        assert len(run.id) == 12
        run.checkpoint()
    assert store.load(run.id) == {}


def test_a_run_goes_on_from_its_head_and_not_from_the_given_state(store: everstep.Store) -> None:
    made(store)
    with store.run("r", state={"n": "other"}) as run:
        assert run.state == {"n": 5}
        run.state["more"] = [1]
        run.checkpoint()
    assert store.load("r") == {"n": 5, "more": [1]}


def test_the_state_may_be_any_storable_value(store: everstep.Store) -> None:
    for i, state in enumerate([[1, 2], "text", 7, (1, [2]), {1, 2}, b"x", None]):
        with store.run(f"r{i}", state=state) as run:
            run.checkpoint()
        assert encode(store.load(f"r{i}")) == encode({} if state is None else state)
    with store.run("list", state=[1]) as run:
        run.state.append(2)
        run.checkpoint()
    assert store.load("list") == [1, 2]


def test_leaving_saves_what_is_unsaved_and_nothing_twice(store: everstep.Store) -> None:
    with store.run("r") as run:
        run.state["a"] = 1
        run.checkpoint()
        run.state["a"] = 2
    assert store.load("r") == {"a": 2}
    assert [c.kind for c in store.checkpoints("r")] == ["final", "manual"]
    with store.run("r") as run:
        run.state["a"] = 3
        run.checkpoint()
    assert [c.kind for c in store.checkpoints("r")] == ["manual", "final", "manual"]


def test_after_an_error_the_next_attempt_goes_on_from_what_the_program_saved(store: everstep.Store) -> None:
    with pytest.raises(KeyError), store.run("r") as run:
        run.state["a"] = 1
        run.checkpoint()
        run.state["a"] = 2
        raise KeyError("x")
    assert store.load("r") == {"a": 2}
    assert store.checkpoints("r")[0].kind == "error"
    with store.run("r") as run:
        assert run.state == {"a": 1}
        run.state["b"] = 1
    assert store.load("r") == {"a": 1, "b": 1}


def test_a_load_gives_plain_and_fresh_containers(store: everstep.Store) -> None:
    with store.run("r", state={"a": [{"b": {}}]}) as run:
        run.checkpoint()
    one, two = store.load("r"), store.load("r")
    assert type(one) is dict
    assert type(one["a"]) is list
    assert type(one["a"][0]["b"]) is dict
    one["a"].clear()
    assert two == {"a": [{"b": {}}]}


REFS = [
    ("r", 5),
    ("r@1", 1),
    ("r@5", 5),
    ("r~0", 5),
    ("r~2", 3),
    ("r~4", 1),
    ("r@best", 3),
    ("r@best~1", 2),
    ("r@4~3", 1),
]


@pytest.mark.parametrize(("ref", "number"), REFS)
def test_a_ref_names_a_checkpoint_everywhere(store: everstep.Store, ref: str, number: int) -> None:
    made(store)
    store.tag("r@3", "best")
    assert store.load(ref) == {"n": number}
    assert store.view(ref) == {"n": number}
    assert store.checkpoint(ref).number == number
    assert store.checkpoint(ref).ref == f"r@{number}"
    assert [c.after for c in store.diff("r@1", ref)] == ([number] if number != 1 else [])
    assert store.load(store.fork(ref).id) == {"n": number}


@pytest.mark.parametrize("ref", ["x", "r@6", "r@0", "r~5", "r@none", "r@best~3", "empty", "empty@1"])
def test_a_ref_that_names_nothing_is_not_found(store: everstep.Store, ref: str) -> None:
    with store.run("empty"):
        pass
    made(store)
    store.tag("r@3", "best")
    for ask in (store.load, store.view, store.checkpoint, store.fork, lambda r: store.diff(r, "r"), lambda r: store.tag(r, "t")):
        with pytest.raises(NotFound):
            ask(ref)


def test_the_store_knows_the_run_that_was_committed_to_last(store: everstep.Store) -> None:
    assert store.backend.manifest().last is None
    made(store, "one", 1)
    made(store, "two", 2)
    assert store.backend.manifest().last == "two"
    made(store, "one", 3)
    assert store.backend.manifest().last == "one"


def test_at_names_the_checkpoint_too(store: everstep.Store) -> None:
    made(store)
    store.tag("r@2", "t")
    assert store.load("r", at=4) == {"n": 4}
    assert store.load("r", at="t") == {"n": 2}
    assert store.view("r", at=4) == {"n": 4}


def test_a_beginning_of_an_id_is_not_enough_and_the_error_names_what_begins_so(store: everstep.Store) -> None:
    made(store, "alpha-one", 2)
    made(store, "alpha-two", 1)
    made(store, "beta", 1)
    for given, near in (("b", "beta"), ("alpha-o@1", "alpha-one"), ("alpha", "alpha-one, alpha-two")):
        with pytest.raises(NotFound) as caught:
            store.load(given)
        assert caught.value.message.endswith(f"Similar ids: {near}")


def test_a_whole_id_wins_over_being_a_beginning(store: everstep.Store) -> None:
    made(store, "run", 1)
    made(store, "run-2", 2)
    assert store.load("run") == {"n": 1}


def test_a_few_of_many_similar_ids_are_named_and_special_characters_are_no_patterns(store: everstep.Store) -> None:
    for i in range(12):
        made(store, f"many{i:02}", 1)
    with pytest.raises(NotFound) as caught:
        store.get("many")
    assert caught.value.message.count("many") == 5
    for odd in ("m%", "m_ny00", "m*", "M", "many0[0]"):
        with pytest.raises(NotFound):
            store.get(odd)


def test_a_new_run_never_takes_a_beginning_for_its_id(store: everstep.Store) -> None:
    made(store, "abcdef", 1)
    with store.run("abc") as run:
        assert run.state == {}


def test_get_tells_what_is_known_about_a_run(store: everstep.Store) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    info = made(store, "r", 2, workflow="triage", session="s1", tags=["prod", "eu"], note="a note", meta={"who": "me", "n": 1})
    assert (info.id, info.status, info.workflow, info.session, info.tags, info.note) == (
        "r",
        "succeeded",
        "triage",
        "s1",
        ("prod", "eu"),
        "a note",
    )
    assert info.meta == {"who": "me", "n": 1}
    assert (info.parent, info.parent_number, info.checkpoints, info.open) == (None, None, 2, False)
    assert before < info.created_at <= info.updated_at < datetime.now(UTC) + timedelta(seconds=1)
    assert info.stored_bytes > 0
    with store.run("r"):
        assert store.get("r").open
        assert store.get("r").status == "running"
    with pytest.raises(NotFound):
        store.get("nobody")


def test_a_run_that_raises_has_failed_and_may_go_on(store: everstep.Store) -> None:
    with pytest.raises(ZeroDivisionError), store.run("r") as run:
        run.state["a"] = 1
        run.checkpoint()
        run.state["a"] = 1 / 0
    assert store.get("r").status == "failed"
    assert store.load("r") == {"a": 1}
    with store.run("r") as run:
        assert run.state == {"a": 1}
        assert store.get("r").status == "running"
    assert store.get("r").status == "succeeded"


def test_an_interrupted_run_is_let_go_and_stays_running(store: everstep.Store) -> None:
    with pytest.raises(KeyboardInterrupt), store.run("r") as run:
        run.checkpoint()
        raise KeyboardInterrupt
    assert store.get("r").status == "running"
    assert not store.get("r").open
    with store.run("r"):
        pass


def test_a_failure_with_odd_text_is_recorded(store: everstep.Store) -> None:
    with pytest.raises(ValueError), store.run("r"):
        raise ValueError("\ud800 lone")
    assert store.get("r").status == "failed"
    assert store.verify("full").ok


def test_a_run_is_usable_only_inside_its_block(store: everstep.Store) -> None:
    run = store.run("r")
    for use in (lambda: run.state, lambda: run.checkpoint(), lambda: run.id, lambda: run.flush(), lambda: run.number):
        with pytest.raises(RunClosed):
            use()
    with run:
        run.checkpoint()
        with pytest.raises(InvalidArgument):
            run.__enter__()
    for use in (lambda: run.checkpoint(), lambda: run.flush(), lambda: run.step("s", int)):
        with pytest.raises(RunClosed):
            use()
    assert (run.id, run.state, run.number) == ("r", {}, 1)  # they can still be read


def test_a_run_open_in_this_store_cannot_be_opened_again(store: everstep.Store) -> None:
    with store.run("r") as run:
        run.checkpoint()
        with pytest.raises(LeaseHeld), store.run("r"):
            pass
        with pytest.raises(LeaseHeld):
            store.delete("r")
        run.state["a"] = 1
        run.checkpoint()
        assert store.load("r") == {"a": 1}
    with store.run("r"):
        pass


def test_notes_tags_and_metadata_of_a_checkpoint(store: everstep.Store) -> None:
    with store.run("r") as run:
        made_one = run.checkpoint("first", tags=["a", "b", "a"], meta={"cost": 1.5, "model": "x", "ok": True, "none": None})
        run.checkpoint(note=None, tags="c")
    one, two = store.checkpoint("r@1"), store.checkpoint("r@2")
    assert (one.note, one.tags, one.meta) == ("first", ("a", "b"), {"cost": 1.5, "model": "x", "ok": True, "none": None})
    assert (two.note, two.tags, two.meta) == (None, ("c",), {})
    assert one == made_one
    assert one.digest == made_one.digest
    assert abs((datetime.now(UTC) - one.at).total_seconds()) < 60
    assert store.load("r@a") == store.load("r@b") == {}
    assert store.checkpoint("r@c").number == 2


@pytest.mark.parametrize(("arguments", "words"), [
    ({"note": 5}, "note must be a string, got 5"), ({"note": "x" * 10_001}, "at most 10,000 characters"), ({"note": "a\x00b"}, "NUL"), ({"note": "\ud800"}, "surrogate"),
    ({"tags": ["1"]}, "invalid tag"), ({"tags": ["a b"]}, "invalid tag"), ({"tags": [5]}, "invalid tag"), ({"meta": {"a": [1]}}, "JSON scalars"), ({"meta": {1: "a"}}, "strings as keys"),
    ({"meta": {"a": float("nan")}}, "must be a finite number"), ({"meta": {"a": 2**64}}, "64 bits"), ({"meta": {"a": "\ud800"}}, "surrogate"), ({"meta": {"a": b"x"}}, "JSON scalars"),
])  # fmt: skip
def test_labels_that_make_no_sense_are_refused_and_nothing_is_written(store: everstep.Store, arguments: dict[str, Any], words: str) -> None:
    with store.run("r") as run:
        run.state["a"] = 1
        with pytest.raises(InvalidArgument, match=words):
            run.checkpoint(**arguments)
        assert store.get("r").checkpoints == 0
        run.checkpoint()
        with pytest.raises(InvalidArgument, match=words):
            store.run("other", **arguments)
    assert store.load("r") == {"a": 1}


def test_a_tag_may_be_given_later_and_moves_to_the_newest_that_has_it(store: everstep.Store) -> None:
    made(store)
    store.tag("r@2", "good")
    assert store.checkpoint("r@good").number == 2
    store.tag("r@2", "good")
    store.tag("r@4", "good")
    assert store.checkpoint("r@good").number == 4
    store.tag("r@1", "good")
    assert store.checkpoint("r@good").number == 4
    assert [c.number for c in store.checkpoints("r", tag="good")] == [4, 2, 1]
    with pytest.raises(InvalidArgument):
        store.tag("r", "7")
    with store.run("r"):
        store.tag("r@5", "while-open")
    assert store.checkpoint("r@while-open").number == 5
    assert store.verify("full").ok


def test_runs_are_listed_newest_first_and_by_every_filter(store: everstep.Store) -> None:
    made(store, "a1", 1, workflow="w1", session="s1", tags=["x"], note="Alpha run", meta={"n": 1, "team": "red"})
    made(store, "a2", 1, workflow="w2", session="s1", tags=["x", "y"], note="beta", meta={"n": 2, "team": "red"})
    middle = time.time()
    time.sleep(0.01)
    with pytest.raises(ZeroDivisionError), store.run("b1", workflow="w1", session="s2", tags=["y", "z", "x"], meta={"n": True}):
        1 / 0
    store.fork("a1", "b2")

    def ids(**filters: Any) -> list[str]:
        return [info.id for info in store.runs(**filters)]

    assert ids() == ["b2", "b1", "a2", "a1"]
    assert ids(oldest_first=True) == ["a1", "a2", "b1", "b2"]
    assert ids(status="failed") == ["b1"]
    assert ids(status="waiting") == ["b2"]
    assert ids(status="succeeded", workflow="w1") == ["a1"]
    assert ids(workflow="w1") == ["b2", "b1", "a1"]
    assert ids(session="s1") == ["b2", "a2", "a1"]
    assert ids(tag="x") == ["b2", "b1", "a2", "a1"]
    assert ids(tag=["x", "y"]) == ["b1", "a2"]
    assert ids(tag=["x", "y", "z"]) == ["b1"]
    assert ids(tag="nope") == []
    if not store.framer.encrypted:
        assert ids(note="alpha") == ["a1"]
        assert ids(note="RUN") == ["a1"]
        assert ids(note="%") == []
    assert ids(meta={"team": "red"}) == ["b2", "a2", "a1"]
    assert ids(meta={"team": "red", "n": 2}) == ["a2"]
    assert ids(meta={"n": 1.0}) == ["b2", "a1"]
    assert ids(meta={"n": True}) == ["b1"]
    assert ids(since=middle) == ["b2", "b1"]
    assert ids(until=middle) == ["a2", "a1"]
    assert ids(since=datetime.fromtimestamp(middle, UTC), workflow="w1", tag="z") == ["b1"]
    assert ids(prefix="a") == ["a2", "a1"]
    assert ids(parent="a1") == ["b2"]
    assert ids(limit=2) == ["b2", "b1"]


@pytest.mark.parametrize(
    "filters", [{"status": "odd"}, {"limit": 0}, {"limit": 10**6}, {"since": "yesterday"}, {"tag": "a b"}, {"meta": {"a": [1]}}]
)
def test_filters_that_make_no_sense_are_refused(store: everstep.Store, filters: dict[str, Any]) -> None:
    made(store)
    with pytest.raises(InvalidArgument):
        store.runs(**filters)
    with pytest.raises(InvalidArgument):
        store.checkpoints("r", **filters)


def test_an_unknown_filter_is_refused(store: everstep.Store) -> None:
    with pytest.raises((InvalidArgument, TypeError)):
        store.runs(colour="red")


def test_checkpoints_are_listed_newest_first_and_by_every_filter(store: everstep.Store) -> None:
    with store.run("r", workflow="w") as run:
        for i in range(1, 9):
            run.state["n"] = i
            run.checkpoint(
                note=f"Step {i} of eight" if i % 2 else None,
                tags=["even"] if i % 2 == 0 else ["odd", f"t{i}"],
                meta={"third": i % 3, "i": i},
            )
            if i == 4:
                time.sleep(0.005)
                middle = time.time()
                time.sleep(0.005)

    def numbers(**filters: Any) -> list[int]:
        return [c.number for c in store.checkpoints("r", **filters)]

    assert numbers() == [8, 7, 6, 5, 4, 3, 2, 1]
    assert numbers(oldest_first=True) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert numbers(tag="even") == [8, 6, 4, 2]
    assert numbers(tag=["odd", "t3"]) == [3]
    if not store.framer.encrypted:
        assert numbers(note="STEP 3") == [3]
        assert numbers(note="step") == [7, 5, 3, 1]
    assert numbers(meta={"third": 0}) == [6, 3]
    assert numbers(meta={"third": 0, "i": 6}) == [6]
    assert numbers(since=middle) == [8, 7, 6, 5]
    assert numbers(until=middle) == [4, 3, 2, 1]
    assert numbers(since=middle, tag="even", limit=1) == [8]
    assert numbers(limit=3, oldest_first=True) == [1, 2, 3]
    assert numbers(workflow="w", limit=1) == [8]
    assert numbers(workflow="other") == []
    assert numbers(status="succeeded", limit=1) == [8]
    assert numbers(status="failed") == []
    with pytest.raises(NotFound):
        store.checkpoints("nobody")


@pytest.mark.parametrize("oldest_first", [True, False])
def test_paging_gives_each_once(store: everstep.Store, oldest_first: bool) -> None:
    for i in range(23):
        made(store, f"run{i:02}", 1, tags=["odd"] if i % 2 else [])
    made(store, "long", 23)
    for page_size in (1, 5, 23, 24, 100):
        for filters, expected in [({}, 24), ({"tag": "odd"}, 11)]:
            seen: list[str] = []
            after = None
            while True:
                page = store.runs(limit=page_size, after=after, oldest_first=oldest_first, **filters)
                seen += [info.id for info in page]
                after = page.next
                if after is None:
                    break
                assert len(page) == page_size
            assert seen == [info.id for info in store.runs(oldest_first=oldest_first, **filters)]
            assert len(seen) == len(set(seen)) == expected
        numbers: list[int] = []
        after = None
        while True:
            listed = store.checkpoints("long", limit=page_size, after=after, oldest_first=oldest_first)
            numbers += [c.number for c in listed]
            after = listed.next
            if after is None:
                break
        assert numbers == sorted(range(1, 24), reverse=not oldest_first)


def test_paging_goes_on_while_runs_are_added(store: everstep.Store) -> None:
    for i in range(6):
        made(store, f"run{i}", 1)
    page = store.runs(limit=3)
    made(store, "newcomer", 1)
    rest = store.runs(limit=10, after=page.next)
    assert [info.id for info in [*page, *rest]] == [f"run{i}" for i in range(5, -1, -1)]


@dataclass
class Plan:
    goal: str
    steps: Any


class Form(pydantic.BaseModel):
    goal: str = ""
    steps: Any = None


class Rec(msgspec.Struct):
    goal: str
    steps: Any


@pytest.mark.parametrize(
    "make",
    [lambda g, s: Plan(g, s), lambda g, s: Form(goal=g, steps=s), lambda g, s: Rec(g, s), lambda g, s: {"goal": g, "steps": s}],
    ids=["dataclass", "pydantic", "msgspec", "dict"],
)
def test_an_object_of_ones_own_is_handed_in_and_compared(store: everstep.Store, make: Any) -> None:
    mine = make("win", [{"n": i, "text": "x" * 300} for i in range(50)])
    steps = mine["steps"] if isinstance(mine, dict) else mine.steps
    with store.run("r") as run:
        run.checkpoint(state=mine)
        assert run.state is mine
        for i in range(8):
            steps.append({"n": 100 + i})
            steps[i]["n"] = -i
            if i == 4:
                del steps[10:20]
            run.checkpoint(state=mine)
        before = store.get("r").stored_bytes
        steps[3]["n"] = "seen"
        run.checkpoint(state=mine)
        assert store.get("r").stored_bytes - before < 200
        same = make("win", [dict(step) for step in steps])
        run.checkpoint(state=same)
        assert store.diff("r~1", "r") == []
    back = store.load("r")
    assert type(back) is type(mine)
    assert back == mine
    changes = store.diff("r~2", "r~1")
    assert [(c.kind, c.after) for c in changes] == [("changed", "seen")]
    assert changes[0].path == ("steps", 3, "n")
    with store.run("r") as run:
        assert run.state == mine
        again = run.state["steps"] if isinstance(mine, dict) else run.state.steps
        again.append("more")
        run.checkpoint()
    assert store.diff("r~1", "r")[0].after == "more"


def test_diff_applied_to_the_older_gives_the_newer(store: everstep.Store) -> None:
    with store.run("r", state={"l": [1, 2, {"a": [1]}], "d": {"x": 1}, "t": "word " * 200, "p": Plan("g", [1])}) as run:
        run.checkpoint()
        edits = [
            lambda s: s["l"].append(5),
            lambda s: s["l"].pop(0),
            lambda s: s["l"][1]["a"].insert(0, "new"),
            lambda s: s["d"].update(y=[1], x=None),
            lambda s: s.update(t=s["t"][:500] + "EDIT" + s["t"][500:]),
            lambda s: s["p"].steps.append(2),
            lambda s: s["l"].__setitem__(slice(0, 2), ["a", "b", "c"]),
            lambda s: s["l"].reverse(),
            lambda s: s.pop("d"),
            lambda s: s.update(l="gone"),
        ]
        for edit in edits:
            edit(run.state)
            run.checkpoint()
    for i in range(1, len(edits) + 2):
        for j in range(1, len(edits) + 2):
            changes = store.diff(f"r@{i}", f"r@{j}")
            if all(not isinstance(step, str) or step not in ("steps", "goal") for c in changes for step in c.path):
                assert encode(patch(store.load(f"r@{i}"), changes)) == encode(store.load(f"r@{j}")), (i, j)
            assert bool(changes) == (i != j)
    assert [str(c) for c in store.diff("r@1", "r@2")] == ["+ ['l'][3] = 5"]
    assert [(c.path, c.kind, c.before) for c in store.diff("r@2", "r@3")] == [(("l", 0), "removed", 1)]


def test_diff_of_two_runs(store: everstep.Store) -> None:
    made(store, "a", 1)
    made(store, "b", 2)
    assert [(c.path, c.before, c.after) for c in store.diff("a", "b")] == [(("n",), 1, 2)]


def test_blame_names_the_checkpoint_that_last_changed_a_path(store: everstep.Store) -> None:
    with store.run("r", state={"plan": {"goal": "a", "why": "b"}, "log": ["one", "two"], "n": 0}) as run:
        run.checkpoint()
        run.state["plan"]["goal"] = "c"
        run.checkpoint()
        run.state["log"].append("three")
        run.checkpoint()
        run.state["log"].pop(0)
        run.checkpoint()
        run.state["n"] = 5
        run.checkpoint()
    for path, number in [
        (["plan", "goal"], 2), (["plan", "why"], 1), (["plan"], 2), (["log", 1], 3), (["log", 0], 1), (["log"], 4), ("n", 5), ([], 5),
    ]:  # fmt: skip
        assert store.blame("r", path).number == number, path
    for path in (["nope"], ["log", 9], ["n", "deeper"]):
        with pytest.raises(NotFound):
            store.blame("r", path)


def test_blame_over_many_checkpoints_and_bases(store: everstep.Store) -> None:
    with store.run("r", state={"old": ["never touched", 1], "log": []}) as run:
        for i in range(1, 301):
            run.state["log"].append("x" * 500)
            if i == 37:
                run.state["log"][3] = "edited"
            run.checkpoint()
    assert store.blame("r", ["old"]).number == 1
    assert store.blame("r", ["log", 3]).number == 37
    assert store.blame("r", ["log", 0]).number == 1
    assert store.blame("r", ["log", 150]).number == 151
    assert store.blame("r", ["log", 299]).number == 300


def test_blame_agrees_with_the_states_themselves(store: everstep.Store) -> None:
    rng = random.Random(3)
    with store.run("r", state=dict.fromkeys("abcde", 0)) as run:
        for i in range(40):
            run.state[rng.choice("abcde")] = i
            run.checkpoint()
    states = [store.load(f"r@{i}") for i in range(1, 41)]
    for key in "abcde":
        last = max(i for i in range(40) if i == 0 or states[i][key] != states[i - 1][key])
        assert store.blame("r", [key]).number == last + 1


def test_blame_passes_over_what_was_set_to_what_it_was(store: everstep.Store) -> None:
    rng = random.Random(5)
    with store.run("r", state={"a": {"b": [0, 0]}, "n": -1}) as run:
        for i in range(60):
            run.state["n"] = i
            if rng.random() < 0.5:
                run.state["a"] = {"b": [rng.randrange(3), rng.randrange(2)]}
            else:
                run.state["a"]["b"][rng.randrange(2)] = rng.randrange(2)
            run.checkpoint()
    states = [store.load(f"r@{i}")["a"]["b"] for i in range(1, 61)]
    for place in (0, 1):
        last = max(i for i in range(60) if i == 0 or states[i][place] != states[i - 1][place])
        assert store.blame("r", ["a", "b", place]).number == last + 1
    assert store.blame("r", ["a"]).number == max(i for i in range(1, 60) if states[i] != states[i - 1]) + 1


def test_blame_of_a_workflow_that_was_resumed_names_the_checkpoint_that_shows_the_change(store: everstep.Store) -> None:
    @everstep.workflow
    def blamed_order() -> None:
        run = everstep.current()
        run.state["total"] = 70
        run.checkpoint()
        run.state["answer"] = everstep.gate("boss", ask="?")
        run.checkpoint()

    store.start(blamed_order, id="o")
    store.answer("o", "boss", "yes")
    store.resume("o")
    for key in ("total", "answer"):
        first = next(n for n in range(1, store.get("o").checkpoints + 1) if key in store.load("o", at=n))
        assert store.blame("o", [key]).number == first


def test_a_fork_is_a_run_of_its_own(store: everstep.Store) -> None:
    made(store, "r", 5, workflow="w", session="s", tags=["t"], meta={"m": 1})
    fork = store.fork("r@3", "child")
    assert (fork.id, fork.parent, fork.parent_number, fork.status, fork.checkpoints) == ("child", "r", 3, "waiting", 1)
    assert (fork.workflow, fork.session, fork.tags, fork.meta) == ("w", "s", ("t",), {"m": 1})
    assert store.load("child") == {"n": 3}
    assert store.checkpoint("child").note == "fork of r@3"
    with store.run("child") as run:
        assert run.state == {"n": 3}
        run.state["n"] = "mine"
        run.checkpoint()
    assert store.load("r") == {"n": 5}
    assert store.load("child@1") == {"n": 3}
    assert store.load("child") == {"n": "mine"}
    assert store.fork("r").id.startswith("r-")
    with pytest.raises(RunExists):
        store.fork("r", "child")
    with pytest.raises(InvalidArgument):
        store.fork("r", "bad id")
    assert store.verify("full").ok


def test_a_fork_may_be_edited(store: everstep.Store) -> None:
    with store.run("r", state={"topic": "a", "log": [1]}) as run:
        run.checkpoint()
    assert store.load(store.fork("r", edit={"topic": "b", "new": [1]}).id) == {"topic": "b", "log": [1], "new": [1]}
    assert store.load(store.fork("r", edit=lambda s: s["log"].append(2)).id) == {"topic": "a", "log": [1, 2]}
    assert store.load(store.fork("r", edit=lambda s: {"only": s["topic"]}).id) == {"only": "a"}
    assert store.load("r") == {"topic": "a", "log": [1]}
    with pytest.raises(InvalidArgument):
        store.fork("r", edit=5)  # type: ignore[arg-type]
    with store.run("list", state=[1]) as run:
        run.checkpoint()
    with pytest.raises(InvalidArgument, match="list"):
        store.fork("list", edit={"a": 1})
    assert store.load(store.fork("list", edit=lambda s: s.append(2)).id) == [1, 2]


def test_a_fork_whose_edit_cannot_be_stored_is_not_made(store: everstep.Store) -> None:
    made(store)
    with pytest.raises(everstep.EverstepError, match=r"state\['f'\]"):
        store.fork("r", "child", edit={"f": print})
    with pytest.raises(NotFound):
        store.get("child")


def test_a_fork_of_a_fork_outlives_its_parents(store: everstep.Store) -> None:
    big = {"text": [f"{i} " * 100 for i in range(4000)]}
    with store.run("r", state=big) as run:
        run.checkpoint()
        run.state["text"].append("r")
        run.checkpoint()
    store.fork("r@1", "child")
    with store.run("child") as run:
        run.state["text"].append("child")
        run.checkpoint()
    store.fork("child", "grandchild", edit={"more": 1})
    expected = store.load("grandchild")
    assert store.stats()["chunks"] > 20
    store.delete("r")
    assert store.load("child")["text"][-1] == "child"
    store.delete("child")
    assert store.load("grandchild") == expected
    assert store.verify("full").ok
    store.delete("grandchild")
    assert store.stats()["chunks"] == 0
    assert store.stats()["runs"] == 0
    assert list(store.runs()) == []
    assert store.verify("full").ok


def test_a_deleted_run_is_gone_and_its_id_is_free(store: everstep.Store) -> None:
    made(store, "r")
    store.tag("r@2", "t")
    store.delete("r")
    for ask in (store.load, store.get, store.delete, store.checkpoints):
        with pytest.raises(NotFound):
            ask("r")
    made(store, "r", 2)
    assert store.load("r") == {"n": 2}
    with pytest.raises(NotFound):
        store.load("r@t")
    assert store.verify("full").ok


def test_stats_count(store: everstep.Store) -> None:
    assert store.stats()["runs"] == 0
    made(store, "r", 3)
    stats = store.stats()
    assert stats["runs"] == 1
    assert stats["records"] >= 5
    assert stats["record_bytes"] > 0
    assert set(stats) == {"runs", "records", "chunks", "messages", "record_bytes", "chunk_bytes", "file_bytes"}


def test_a_closed_store_says_so(store: everstep.Store) -> None:
    made(store)
    store.close()
    store.close()
    for ask in (
        lambda: store.load("r"),
        lambda: store.runs(),
        lambda: store.stats(),
        lambda: store.fork("r"),
        lambda: store.verify(),
        lambda: store.run("r").__enter__(),
    ):
        with pytest.raises(StoreClosed):
            ask()


def test_a_store_is_a_context_manager() -> None:
    with everstep.open("memory://") as store:
        made(store)
    with pytest.raises(StoreClosed):
        store.get("r")


def test_verify_of_a_good_store_is_ok_in_every_depth(store: everstep.Store) -> None:
    made(store)
    with store.run("big", state={"l": ["x" * 100] * 5000}) as run:
        run.checkpoint()
    for depth in ("quick", "records", "full"):
        report = store.verify(depth)  # type: ignore[arg-type]
        assert report.ok
        assert report.problems == []
        assert report.runs == 2
        assert "all good" in str(report)
    assert report.records > 8
    assert report.chunks > 1
    with pytest.raises(InvalidArgument):
        store.verify("deep")  # type: ignore[arg-type]


def test_an_unknown_durability_is_refused(store: everstep.Store) -> None:
    with pytest.raises(InvalidArgument):
        store.run("r", durability="later")  # type: ignore[arg-type]


def test_a_deleted_run_is_told_from_one_that_never_was(store: everstep.Store) -> None:
    with store.run("gone") as run:
        run.checkpoint()
    store.delete("gone")
    with pytest.raises(NotFound, match="'gone' was deleted at 20"):
        store.load("gone")
    with pytest.raises(NotFound, match="there is no run 'never'"):
        store.load("never")
