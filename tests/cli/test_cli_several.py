"""Commands on several runs, and the commands that change single steps: what is asked, what is done, and what stays."""

from __future__ import annotations

import pytest
from cli_helpers import PROGRAMS, Shop

import everstep

IMPORT = ("--import", str(PROGRAMS))


@pytest.fixture
def many(shop: Shop) -> Shop:
    """Runs with metadata: three wait, one has ended."""
    from cli_programs import order

    with shop.open() as store:
        for n in range(3):
            store.start(order, "tea", id=f"w{n}")
        with store.run("ended", meta={"who": "bob"}):
            pass
    return shop


def statuses(shop: Shop) -> dict[str, str]:
    with shop.open() as store:
        return {run.id: run.status for run in store.runs()}


def test_one_named_run_needs_no_question(many: Shop) -> None:
    assert many.call("cancel", "w0").ok().err == "w0: cancelled\n"


def test_several_need_a_confirmation_that_counts_and_names_them(many: Shop) -> None:
    before = statuses(many)
    for words in (
        ("cancel", "w0", "w1"),
        ("cancel", "--workflow", "order"),
        ("delete", "w0"),
        ("delete", "--where", "who=bob"),
        ("pause", "w0", "w1"),
    ):
        called = many.call(*words)
        assert called.code == 2, called.err
        assert "Confirm with --yes" in called.err
    assert "Cancel 2 runs (w0, w1)?" in many.call("cancel", "w0", "w1").err
    assert statuses(many) == before


def test_a_person_is_asked_and_no_changes_nothing(many: Shop) -> None:
    child = many.spawn("cancel", "w0", "w1")
    child.expect_exact("Cancel 2 runs (w0, w1)? [y/N]: ")
    child.send("n\r")
    child.expect_exact("Nothing was changed.")
    assert child.ended() == 1
    assert statuses(many)["w0"] == "waiting"
    child = many.spawn("rm", "w0")
    child.expect_exact("Delete 1 run (w0)? [y/N]: ")
    child.send("y\r")
    child.expect_exact("Deleted 1 run.")
    assert child.ended() == 0
    assert "w0" not in statuses(many)


def test_filters_leave_out_runs_that_the_command_cannot_change(many: Shop) -> None:
    found = many.json("cancel", "--workflow", "order", "--yes")
    assert {run["id"] for run in found["runs"]} == {"w0", "w1", "w2", "waits"}  # not "done", which has succeeded
    assert found["run"] == found["runs"][0]
    assert found["failed"] == []
    assert statuses(many)["done"] == "succeeded"


def test_filters_of_delete_select_ended_runs_only(many: Shop) -> None:
    found = many.json("delete", "--workflow", "order", "--yes")
    assert found["runs"] == ["done"]
    assert many.json("delete", "--where", "who=bob", "--yes")["runs"] == ["ended"]
    assert many.json("delete", "--status", "waiting", "--workflow", "order", "--yes")["runs"] == ["w2", "w1", "w0", "waits"]


def test_nothing_that_matches_and_nothing_that_is_named(many: Shop) -> None:
    assert many.call("cancel", "--workflow", "none", "--yes").code == 3
    assert many.call("cancel").code == 2
    both = many.call("cancel", "w0", "--workflow", "order", "--yes")
    assert both.code == 2
    assert "not both" in both.err


def test_a_failure_at_one_run_does_not_keep_the_others_from_it(many: Shop) -> None:
    called = many.call("pause", "w0", "ended", "w1", "--yes", "--json")
    assert called.code == 4
    assert [run["id"] for run in called.data["runs"]] == ["w0", "w1"]
    assert [(one["run"], one["code"]) for one in called.data["failed"]] == [("ended", "E303")] or called.data["failed"][0]["run"] == "ended"
    assert many.call("pause", "ended").code == 4


def test_a_run_that_is_open_is_not_deleted(many: Shop) -> None:
    with many.open() as store, store.run("held"):
        called = many.call("delete", "held", "w0", "--yes")
        assert called.code == 4
        assert "held" in called.err
        assert "w0" not in statuses(many)
        assert "held" in statuses(many)


def test_inbox_lists_what_needs_an_answer(many: Shop) -> None:
    assert [gate["run"] for gate in many.json("inbox")["gates"]] == ["waits", "w0", "w1", "w2"]
    many.call("answer", "w1", "boss", "yes").ok()
    assert [gate["run"] for gate in many.json("inbox")["gates"]] == ["waits", "w0", "w2"]
    cut = many.json("inbox", "-n", "2")
    assert ([gate["run"] for gate in cut["gates"]], cut["more"]) == (["waits", "w0"], True)
    assert many.json("inbox", "--workflow", "none")["gates"] == []
    many.call("cancel", "w0", "w2", "waits", "--yes").ok()
    assert many.call("inbox").ok().err == "No run waits for an answer.\n"


def test_wake_resumes_what_is_due_and_says_what_is_left(many: Shop) -> None:
    for run in ("w0", "w1"):
        many.call("answer", run, "boss", "yes").ok()
    assert sorted(many.json("wake", "--dry-run")["left"]) == ["w0", "w1"]
    assert statuses(many)["w0"] == "waiting"
    with many.open() as store:
        store.enqueue("nobody", id="q")
    found = many.json("wake", *IMPORT)
    assert sorted((one["run"], one["status"]) for one in found["outcomes"]) == [("w0", "succeeded"), ("w1", "succeeded")]
    assert many.call("wake", *IMPORT).ok().err.startswith("No run is due.\n")


def test_a_step_is_skipped_or_retried(many: Shop) -> None:
    many.call("skip", "broken", "look", '{"found": 1}').ok()
    done = many.call("resume", "broken", *IMPORT).ok()
    assert '"found": 1' in done.out
    assert many.json("show", "broken", "look")["attempts"][-1]["skipped"] is True
    assert many.call("retry", "loop").code == 3
    assert many.call("retry", "done", "price#0").code == 2
    assert many.call("skip", "done", "price#0").code == 4


def test_show_prints_input_and_result_and_single_steps(many: Shop) -> None:
    text = many.call("show", "done").ok().out
    assert 'input     "tea", "milk"\n' in text
    assert 'result    {"total": 70, "answer": "yes", "limit": 100}\n' in text
    found = many.json("show", "done")
    assert found["input"] == {"args": ["tea", "milk"], "kwargs": {}}
    assert found["result"] == {"total": 70, "answer": "yes", "limit": 100}
    step = many.call("show", "done", "price#1").ok().out
    assert 'input   "milk"\n' in step
    assert "output  40\n" in step
    assert "OSError: the shop is busy" in step
    failed = many.call("show", "broken", "look").ok().out
    assert "error   ValueError: no milk on the shelf" in failed
    assert 'raise ValueError(f"no milk on {shelf}")' in failed
    assert many.call("show", "done", "nothing").code == 3
    assert many.call("show", "done@1", "price").code == 2
    assert many.json("show", "loop")["input"] is None


def test_a_long_result_is_cut_and_full_prints_it(empty: Shop) -> None:
    (empty.folder / "long.py").write_text("import everstep\n@everstep.workflow\ndef long():\n    return 'x' * 5000\n")
    empty.call("run", "long.py:long", "--id", "l").ok()
    assert "5,000 characters" in empty.call("show", "l").ok().out
    assert "x" * 5000 in empty.call("show", "l", "--full").ok().out


def test_a_damaged_result_does_not_hide_the_rest_of_a_run(many: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(self: everstep.Store, run: str) -> None:
        raise everstep.errors.DamagedRecord(run, 3, "its digest does not match")

    monkeypatch.setattr(everstep.Store, "outcome", damaged)
    text = many.call("show", "done").ok().out
    assert "its digest does not match" in text
    assert "done@4" in text


def test_events_of_all_runs_are_followed(many: Shop) -> None:
    page = many.json("events", "-n", "4")
    assert len(page["events"]) <= 4
    assert page["events"][-1]["run"] == "ended"
    many.call("cancel", "w0").ok()
    later = many.json("events", "--after", page["next"])
    assert {event["run"] for event in later["events"]} == {"w0"}
    assert [event["name"] for event in many.json("events", "--name", "run_cancelled")["events"]] == ["run_cancelled"]
    child = many.spawn("events", "--follow", "--name", "run_cancelled", columns=100)
    child.expect_exact("w0")
    many.call("cancel", "w1").ok()
    child.expect_exact("w1")
    child.sendintr()
    assert child.ended() == 130


def test_runs_that_do_not_exist_are_refused_before_the_question(many: Shop) -> None:
    called = many.call("delete", "nothing")
    assert called.code == 3, called.err
    assert "there is no run 'nothing'" in called.err
    assert "Confirm" not in called.err


def test_a_run_that_ended_can_no_longer_be_paused(many: Shop) -> None:
    called = many.call("pause", "ended")
    assert called.code != 0
    assert "run 'ended' has ended (succeeded): it can no longer be paused [E307]" in called.err


def test_prune_without_a_retention_says_that_it_keeps_everything(many: Shop) -> None:
    said = many.call("prune").ok()
    assert "No retention is set, so every state is kept." in said.out + said.err
    assert "0 states" not in said.out + said.err
