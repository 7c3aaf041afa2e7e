"""What views hand out: shapes, cursors, and what becomes of an empty store, a damaged run and a deleted parent."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import apsw
import pytest

import everstep
from everstep.errors import Damaged, InvalidArgument, NotFound, Waiting
from everstep.fields import Shape
from everstep.views import graph, health, journal, queues, run, runs, states, stats
from everstep.views.json import Beside, Stored, to_json
from everstep.views.masking import Masking


def quiet(done: int, of: int) -> None:
    pass


def fill(store: everstep.Store, id: str, checkpoints: int = 3) -> None:
    with store.run(id) as opened:
        for n in range(checkpoints):
            opened.state["n"] = n
            opened.step("count", int, n)
            opened.checkpoint(f"note {n}")


class Sample(Shape, frozen=True):
    at: datetime
    own: Stored
    aside: Beside[int] = 7


def test_the_type_of_a_field_says_how_it_becomes_json() -> None:
    moment = datetime(2026, 11, 15, 8, 30, tzinfo=UTC)
    assert to_json(Sample(moment, moment)) == {"at": "2026-11-15T08:30:00.000Z", "own": "2026-11-15T08:30:00+00:00"}
    assert to_json([Sample(moment, {"day": date(2026, 1, 2), "raw": b"x"})])[0]["own"] == {"day": "2026-01-02", "raw": {"$bytes": "eA=="}}
    assert to_json({"a": (moment, None)}) == {"a": ["2026-11-15T08:30:00.000Z", None]}


def test_an_empty_store_has_views(store: everstep.Store, mask: Masking) -> None:
    page = runs.list_runs(store, mask)
    assert to_json(page) == {"runs": [], "next": None}
    assert runs.forest(store, mask, page.runs) == runs.Forest((), False)
    assert queues.queues(store) == queues.workers(store) == queues.schedules(store, mask) == queues.stranded(store) == []
    found = stats.stats(store, None, 10, quiet)
    assert found.statuses == {}
    assert found.steps.count == 0
    assert found.full_copies_bytes is None
    assert health.verify(store, mask, "full").ok
    for ask in (run.detail, journal.timeline, states.state):
        with pytest.raises(NotFound):
            ask(store, mask, "nobody")


def test_pages_of_runs_follow_each_other_without_gap_or_double(store: everstep.Store, mask: Masking) -> None:
    for n in range(7):
        fill(store, f"r{n}", 1)
    seen: list[str] = []
    after = None
    for _ in range(4):
        page = runs.list_runs(store, mask, limit=2, after=after)
        seen += [one.id for one in page.runs]
        after = page.next
        if after is None:
            break
    assert seen == [f"r{n}" for n in reversed(range(7))]
    with pytest.raises(InvalidArgument):
        runs.list_runs(store, mask, limit=0)


def test_pages_of_a_timeline_follow_each_other_and_can_be_followed(store: everstep.Store, mask: Masking) -> None:
    fill(store, "r", 5)
    whole = journal.timeline(store, mask, "r")
    assert not whole.more
    seen: list[int | None] = []
    after, more = 0, True
    while more:
        page = journal.timeline(store, mask, "r", after, limit=3)
        assert len(page.events) <= 3
        seen += [event.position for event in page.events]
        after, more = page.next, page.more
    assert seen == [event.position for event in whole.events]
    assert [event.position for event in journal.whole_timeline(store, mask, "r")] == seen
    assert journal.timeline(store, mask, "r", after).events == ()
    assert journal.timeline(store, mask, "r", journal.newest(store, "r", 2)).events == whole.events[-2:]
    assert to_json(whole).keys() == {"run", "events"}
    with store.run("r") as opened:
        opened.emit("later")
    assert "custom:later" in [event.name for event in journal.timeline(store, mask, "r", after).events]


def test_a_run_with_its_checkpoints_gates_forks_and_queue_entry(store: everstep.Store, mask: Masking) -> None:
    fill(store, "r", 4)
    store.fork("r@2", "f")
    found = run.detail(store, mask, "r", checkpoints=2)
    assert [one.number for one in found.checkpoints] == [4, 3]
    assert [(one.id, one.parent_checkpoint, one.origin) for one in found.forks] == [("f", 2, "from r@2")]
    assert (found.gates, found.queue_entry, found.task) == ((), None, None)
    assert list(to_json(found)) == ["run", "checkpoints", "gates", "forks", "queue_entry", "input", "result"]
    with pytest.raises(Waiting), store.run("g") as opened:
        opened.gate("ok", choices=["yes", "no"])
    [gate] = run.detail(store, mask, "g").gates
    assert (gate.gate, gate.choices, gate.open) == ("ok", ["yes", "no"], True)


@everstep.workflow(name="views-queued")
def queued() -> int:
    return 1


def test_the_task_of_a_queued_run_is_known_after_its_end(store: everstep.Store, mask: Masking) -> None:
    store.enqueue(queued, id="q", priority=3, key="k")
    before = run.detail(store, mask, "q")
    assert before.queue_entry is not None
    assert (before.queue_entry.queue, before.queue_entry.priority, before.queue_entry.key, before.queue_entry.worker) == (
        "default",
        3,
        "k",
        None,
    )
    assert queues.queue_entry(store, mask, "q") == before.queue_entry
    store.resume("q")
    after = run.detail(store, mask, "q")
    assert after.run.status == "succeeded"
    assert after.queue_entry is None
    assert after.task == before.task == queues.TaskView("default", 3, "k", None)


def test_a_forest_has_its_roots_even_if_a_parent_was_deleted(store: everstep.Store, mask: Masking) -> None:
    fill(store, "top")
    store.fork("top", "a")
    store.fork("top", "b")
    store.fork("a", "deep")

    def drawn() -> list[tuple[str, tuple[bool, ...]]]:
        found = runs.forest(store, mask, runs.list_runs(store, mask).runs)
        assert not found.cut
        return [(branch.run.id, branch.lasts) for branch in found.branches]

    assert drawn() == [("top", ()), ("a", (False,)), ("deep", (False, True)), ("b", (True,))]
    store.delete("top")
    assert sorted(drawn()) == [("a", ()), ("b", ()), ("deep", (True,))]
    assert run.detail(store, mask, "a").run.parent == "top"


def test_a_forest_says_that_it_is_cut(store: everstep.Store, mask: Masking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_MOST", 2)
    fill(store, "top")
    for n in range(3):
        store.fork("top", f"f{n}")
    found = runs.forest(store, mask, runs.list_runs(store, mask).runs)
    assert len(found.branches) == 2
    assert found.cut


def test_states_are_compared_searched_and_blamed(store: everstep.Store, mask: Masking) -> None:
    fill(store, "r", 8)
    found = states.diff(store, mask, "r@2", "r@5")
    assert to_json(found) == {"a": "r@2", "b": "r@5", "changes": [{"path": ["n"], "kind": "changed", "before": 1, "after": 4}]}
    assert (states.ref_before(store, "r"), states.ref_before(store, "r@1")) == ("r@7", None)
    blamed = states.blame(store, mask, "r@6", ["n"], "n")
    assert (str(blamed), blamed.exact) == ("r@6", True)
    for is_sorted, most in ((False, 6), (True, 4)):
        bisected = states.bisect(store, mask, "r", "n >= 5", lambda state: state["n"] >= 5, is_sorted, quiet)
        assert bisected.checkpoint is not None
        assert bisected.checkpoint.ref == "r@6"
        assert bisected.states_read <= most
    none = states.bisect(store, mask, "r", "never", lambda state: False, False, quiet)
    assert (none.checkpoint, none.states_read, none.among) == (None, 8, 8)


def test_a_graph_leads_from_step_to_step(store: everstep.Store) -> None:
    with store.run("r") as opened:
        opened.step("outer", lambda: opened.step("inner", int))
        opened.step("next", int)
    found = graph.graph(store, "r")
    assert [(node.address, node.kind) for node in found.nodes] == [("outer#0", "step"), ("outer#0/inner#0", "step"), ("next#0", "step")]
    assert [(edge.start, edge.end, edge.inner) for edge in found.edges] == [(0, 1, True), (0, 2, False)]
    assert found.first() == [0]


def test_statistics_count_steps_and_resumes(store: everstep.Store) -> None:
    fill(store, "a", 2)
    fill(store, "a", 3)
    fill(store, "b", 1)
    found = stats.stats(store, None, 10, quiet)
    assert found.statuses == {"succeeded": 2}
    assert (found.steps.runs, found.steps.failed) == (2, 0)
    assert found.resumes.runs == 1
    assert list(to_json(found)) == ["store", "statuses", "steps", "checkpoints", "full_copies_bytes", "resumes", "queues"]


def test_a_damaged_run_is_named_and_hides_no_other(tmp_path: Path, mask: Masking) -> None:
    path = tmp_path / "store.db"
    with everstep.open(path) as store:
        fill(store, "good")
        fill(store, "bad")
    connection = apsw.Connection(str(path))
    [(newest,)] = connection.execute("SELECT max(id) FROM records WHERE kind = 'checkpoint'").fetchall()
    connection.execute("UPDATE records SET body = ? WHERE id = ?", (b"\x00garbage", newest))
    connection.close()
    with everstep.open(path) as store:
        assert {one.id for one in runs.list_runs(store, mask).runs} == {"good", "bad"}
        assert states.state(store, mask, "good").state == {"n": 2}
        with pytest.raises(Damaged):
            states.state(store, mask, "bad")
        with pytest.raises(Damaged):
            journal.timeline(store, mask, "bad")
        salvaged = states.state(store, mask, "bad", newest_good=True)
        assert (salvaged.ref, salvaged.state) == ("bad@2", {"n": 1})
        assert salvaged.passed_over is not None
        assert "bad@3" in salvaged.passed_over
        report = health.verify(store, mask, "full")
        assert not report.ok
        assert all("bad" in problem.where for problem in report.problems)
        assert to_json(report)["problems"][0].keys() == {"code", "where", "what"}
