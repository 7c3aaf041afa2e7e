"""The audit of a run: who did what when, complete, from every kind of store; and an error where a record is not what it was."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from upkeep_helpers import grow, many_bases

import everstep
from everstep.errors import Damaged, Interrupted, NotFound
from everstep.store.events.audit import Deletions, Entry, Proof, deletions
from everstep.store.progress import Pace
from everstep.store.retention.delete_runs import drop_tombstones
from everstep.testing.clock import FakeClock


@everstep.workflow
def audited_order(item: str) -> str:
    run = everstep.current()
    run.step("price", lambda: 7)
    run.checkpoint("priced", tags="priced")
    answer = everstep.gate("boss", ask="Buy it?", choices=["yes", "no"])
    run.step("buy", lambda: answer)
    return str(answer)


@pytest.fixture
def ann(places: Any) -> everstep.Store:
    """A store that Ann has opened."""
    store: everstep.Store = places.open(user="ann@desk")
    return store


def read(store: everstep.Store, run: str) -> tuple[list[Entry], Proof]:
    *entries, proof = store.audit(run)
    assert isinstance(proof, Proof)
    found = [entry for entry in entries if isinstance(entry, Entry)]
    assert proof.entries == len(found) == len(entries)
    return found, proof


def who(store: everstep.Store, run: str, what: str) -> list[str | None]:
    return [entry.who for entry in read(store, run)[0] if entry.what == what]


def test_every_record_is_an_entry_and_the_head_proves_them(ann: everstep.Store) -> None:
    ann.start(audited_order, "tea", id="o")
    ann.answer("o", "boss", "yes", by="Bo")
    ann.resume("o")
    entries, proof = read(ann, "o")
    row = ann.backend.run("o")
    assert row is not None
    assert [entry.seq for entry in entries] == list(range(1, row.head_seq + 1))
    assert (proof.records, proof.head_digest, proof.whole) == (row.head_seq, row.head_digest.hex(), True)
    assert [entry.what for entry in entries] == [
        "run_created", "step_succeeded", "checkpoint_created", "gate_opened", "checkpoint_created", "run_waiting", "run_running",
        "gate_answered", "step_succeeded", "checkpoint_created", "run_succeeded",
    ]  # fmt: skip
    assert entries[0].who == "ann@desk"
    worker = entries[1].who
    assert worker is not None
    assert worker.partition(":")[2].isdigit(), "host:pid"
    assert {entry.who for entry in entries[1:]} == {worker, "Bo (ann@desk)"}
    assert [entry.attempt for entry in entries] == sorted(entry.attempt or 0 for entry in entries)


def test_each_order_of_a_person_has_a_name(places: Any, ann: everstep.Store) -> None:
    bo: everstep.Store = places.open(user="bo@phone")
    ann.start(audited_order, "tea", id="o")
    bo.pause("o", "lunch")
    assert who(ann, "o", "pause_requested") == ["bo@phone"]
    fork = bo.fork("o@1", "copy")
    assert (who(ann, "copy", "run_forked"), who(ann, "o", "fork_created")) == (["bo@phone"], ["bo@phone"])
    ann.cancel("copy", "no money")
    assert who(ann, "copy", "run_cancelled") == ["ann@desk"]
    assert fork.id == "copy"


def test_a_retried_and_a_skipped_step_name_who_asked(places: Any, ann: everstep.Store) -> None:
    bo: everstep.Store = places.open(user="bo@phone")
    broken = [True, True]

    @everstep.workflow
    def fragile() -> list[str]:
        run = everstep.current()
        return [run.step(name, lambda i=i: "good" if not broken[i] else 1 / 0) for i, name in enumerate(("first", "second"))]

    ann.start(fragile, id="f")
    broken[0] = False
    bo.retry("f", "first")
    ann.resume("f")
    bo.skip("f", "second", "given")
    assert ann.resume("f").result == ["good", "given"]
    assert who(ann, "f", "retried") == ["bo@phone"]
    assert who(ann, "f", "step_skipped") == ["bo@phone"]


def test_an_operator_who_stops_a_running_run_is_named(places: Any, ann: everstep.Store) -> None:
    bo: everstep.Store = places.open(user="bo@phone")
    running = threading.Event()

    def loop() -> None:
        with ann.run("loop", state={"n": 0}) as run:
            while True:
                run.step("work", lambda: time.sleep(0.01))
                run.checkpoint()
                running.set()

    def work() -> None:
        with pytest.raises(Interrupted):
            loop()

    thread = threading.Thread(target=work)
    thread.start()
    assert running.wait(20)
    bo.cancel("loop", "enough")
    thread.join(20)
    (entry,) = [entry for entry in read(ann, "loop")[0] if entry.what == "run_cancelled"]
    assert (entry.who, entry.data["reason"]) == ("bo@phone", "cancel: enough")


def test_orders_that_the_run_has_not_obeyed_yet_are_listed(ann: everstep.Store) -> None:
    ann.start(audited_order, "tea", id="o")
    ann.answer("o", "boss", "yes", by="Bo")
    entry = read(ann, "o")[0][-1]
    assert (entry.what, entry.who, entry.seq, entry.data) == ("answer_sent", "Bo (ann@desk)", None, {"gate": "boss#0", "value": "yes"})
    ann.resume("o")
    assert "answer_sent" not in [entry.what for entry in read(ann, "o")[0]]


def test_later_tags_forks_and_prunings_are_placed_by_time_and_not_counted_twice(ann: everstep.Store) -> None:
    ann.start(audited_order, "tea", id="o")
    ann.tag("o@1", "later")
    ann.fork("o@1", "edited", edit={"n": 1})
    ann.fork("o@1", "same")
    ann.answer("o", "boss", "no")
    ann.resume("o")
    ann.prune(everstep.Retention(keep_last=1), run="o")
    entries, proof = read(ann, "o")
    beside = [(entry.what, entry.data) for entry in entries if entry.seq is None]
    assert [what for what, _ in beside] == ["checkpoint_tagged", "fork_created", "fork_created", "states_pruned"]
    assert beside[0][1] == {"number": 1, "tag": "later"}
    assert [(data["run"], data["edited"]) for what, data in beside if what == "fork_created"] == [("edited", True), ("same", False)]
    assert [entry.at for entry in entries] == sorted(entry.at for entry in entries)
    assert proof.pruned_checkpoints
    assert proof.whole


def test_a_fork_says_what_it_copied_and_whether_its_parent_still_fits(ann: everstep.Store) -> None:
    ann.start(audited_order, "tea", id="o")
    ann.fork("o@1", "f")
    entries, proof = read(ann, "f")
    assert entries[0].data["origin"] == proof.origin == "confirmed"
    assert [entry.what for entry in entries if entry.data.get("copied")] == ["step_succeeded"]
    ann.delete("o")
    assert read(ann, "f")[1].origin == "deleted"
    ann.start(audited_order, "milk", id="o")
    assert read(ann, "f")[1].origin == "deleted", "another run has that id now"
    assert "fork_created" not in [entry.what for entry in read(ann, "o")[0]]


def test_a_loop_with_an_edited_fork_and_dropped_checkpoints(ann: everstep.Store) -> None:
    with ann.run("loop", state={"n": 0}) as run:
        for n in range(6):
            run.state["n"] = n
            run.checkpoint(f"n is {n}")
    ann.drop("loop", [2, 3])
    ann.fork("loop@4", "edited", edit={"n": 99})
    entries, proof = read(ann, "loop")
    (dropped,) = [entry for entry in entries if entry.what == "dropped"]
    assert (dropped.who, dropped.data["numbers"]) == ("ann@desk", [2, 3])
    assert (proof.dropped, proof.whole) == (2, True)
    assert read(ann, "edited")[0][0].data["edited"] is True
    assert ann.verify("full").ok


def test_a_pause_of_a_run_that_waits_is_in_its_history_after_it_goes_on(places: Any, ann: everstep.Store) -> None:
    ann.start(audited_order, "tea", id="o")
    places.open(user="bo@phone").pause("o", "lunch")
    ann.answer("o", "boss", "yes")
    ann.resume("o")
    entries, _ = read(ann, "o")
    assert "pause_requested" not in [entry.what for entry in entries]
    (running,) = [entry for entry in entries if entry.what == "run_running"]
    assert (running.data["pause"]["user"], running.data["pause"]["reason"]) == ("bo@phone", "pause: lunch")


def test_a_child_run_is_named_in_the_audit_of_its_caller(ann: everstep.Store) -> None:
    @everstep.workflow
    def child() -> int:
        return 1

    @everstep.workflow
    def caller() -> int:
        return child()

    assert ann.start(caller, id="c").result == 1
    (made,) = ann.runs(parent="c")
    assert [entry.data["run"] for entry in read(ann, "c")[0] if entry.what == "child_run_created"] == [made.id]


def test_of_a_deleted_run_the_tombstone_is_what_remains(ann: everstep.Store) -> None:
    ann.start(audited_order, "tea", id="o")
    digest = ann.checkpoint("o").digest
    ann.delete("o")
    entries, proof = read(ann, "o")
    assert [(entry.what, entry.seq) for entry in entries] == [("run_created", None), ("run_deleted", None)]
    assert (proof.deleted, proof.whole) == (True, False)
    assert proof.records
    assert proof.head_digest != digest
    ann.start(audited_order, "milk", id="o")
    entries, proof = read(ann, "o")
    assert [entry.what for entry in entries][:3] == ["run_created", "run_deleted", "run_created"], (
        "the earlier run of that id, then this one"
    )
    assert not proof.deleted


def test_a_run_that_never_was_is_not_found(ann: everstep.Store) -> None:
    with pytest.raises(NotFound, match="there is no run 'o'"):
        list(ann.audit("o"))


def test_all_deletions_add_up_with_the_runs_that_are_there(ann: everstep.Store) -> None:
    for name in ("a", "b", "c", "d"):
        with ann.run(name, state={}) as run:
            run.checkpoint()
    ann.delete("b")
    with FakeClock(time.time() + 30 * 86_400):
        assert drop_tombstones(ann.backend, Pace(None, None)) == 1
    ann.delete("c")
    *found, last = deletions(ann)
    assert [entry.data["run"] for entry in found if isinstance(entry, Entry)] == ["c"]
    assert last == Deletions(True, 4, 2, 2, 1)


def test_long_runs_are_read_page_by_page_with_the_same_result(ann: everstep.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from everstep.store.events import audit
    from everstep.store.retention import run_survey

    with many_bases():
        grow(ann, "long", 60)
        ann.prune(everstep.Retention(keep_last=3), run="long")
    whole = read(ann, "long")
    monkeypatch.setattr(run_survey, "_AT_ONCE", 7)
    monkeypatch.setattr(audit, "_AT_ONCE", 3)
    monkeypatch.setattr(audit, "_CHECKED_AT_ONCE", 5)
    assert read(ann, "long") == whole
    assert whole[1].pruned > 20


def test_a_changed_record_is_an_error_and_not_an_entry(places: Any, ann: everstep.Store) -> None:
    ann.start(audited_order, "tea", id="o")
    real = ann.backend.records

    def forged(run: str, first: int, last: int, *more: Any) -> Any:
        found = real(run, first, last, *more)
        return [record if record.seq != 2 else _changed(record) for record in found]

    ann.backend.records = forged  # type: ignore[method-assign]
    got = []
    with pytest.raises(Damaged, match="record 2 of run 'o' is damaged"):
        got += list(_into(got, ann.audit("o")))
    assert all(not isinstance(one, Proof) for one in got)


def _into(got: list[Any], entries: Iterator[Any]) -> Iterator[Any]:
    for one in entries:
        got.append(one)
        yield one


def _changed(record: Any) -> Any:
    from everstep.fields import replace

    return replace(record, at=record.at + 1)


def test_a_body_that_vanished_without_a_prune_mark_is_an_error(ann: everstep.Store) -> None:
    with ann.run("loop", state={"n": 0}) as run:
        for n in range(3):
            run.state["n"] = n
            run.checkpoint()
    real = ann.backend.records
    ann.backend.records = lambda *args: [r if r.kind != "checkpoint" else r.without_body() for r in real(*args)]  # type: ignore[method-assign]
    with pytest.raises(Damaged, match="its body is missing although it was not pruned"):
        list(ann.audit("loop"))


@pytest.mark.parametrize("user", ["", "  ", "a\nb", "x" * 201, 7, b"ann"])
def test_a_user_that_cannot_be_shown_is_refused(places: Any, user: Any) -> None:
    with pytest.raises(everstep.errors.InvalidArgument, match="user must"):
        places.open(user=user)


def test_the_user_is_by_default_the_login_and_the_host(store: everstep.Store) -> None:
    assert store.user.count("@") == 1
    store.start(audited_order, "tea", id="o")
    assert read(store, "o")[0][0].who == store.user
