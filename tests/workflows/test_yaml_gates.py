"""Gates of YAML workflows: questions that wait, conditions that decide, and where they lead."""

from __future__ import annotations

from typing import Any

import pytest
import yaml_actions as actions

import everstep
from everstep import yaml
from everstep.errors import BadAnswer, GateTimeout, StepFailed
from everstep.testing.clock import FakeClock


@pytest.fixture(autouse=True)
def _fresh() -> None:
    actions.reset()


def flow(steps: str, head: str = "") -> Any:
    return yaml.load("flow.yaml", f"name: flow\n{head}\nsteps:\n{steps}")


ASK = """
- {id: plan, run: 'yaml_actions:plan', with: {topic: "${inputs.topic}", n: 1}, save: plan}
- {id: editor, gate: {ask: "Publish ${state.plan[0]}?", choices: [yes, no]}, save: verdict}
- {id: publish, run: 'yaml_actions:say', with: {word: "${steps.plan.result[0]}"}, when: steps.editor.result == 'yes'}
"""


@pytest.mark.parametrize(("answer", "published"), [("yes", "succeeded"), ("no", "skipped")])
def test_a_question_waits_and_the_answer_decides(answer: str, published: str, places: Any) -> None:
    found = flow(ASK)
    with places.open() as store:
        out = store.start(found, topic="logs", id="r")
        assert (out.status, [(g.name, g.ask, g.choices) for g in out.gates]) == ("waiting", [("editor", "Publish logs-0?", ["yes", "no"])])
        assert store.resume("r").status == "waiting"
    with places.open() as store:  # later, elsewhere
        with pytest.raises(BadAnswer):
            store.answer("r", "editor", "perhaps")
        store.answer("r", "editor", answer, by="ann")
        (out,) = store.wake()
        assert out.unwrap() == {"plan": "succeeded", "editor": "succeeded", "publish": published}
        assert store.load("r")["verdict"] == answer
    assert actions.calls.count(("plan", "logs")) == 1


def test_an_answer_must_have_the_shape_that_the_document_asks_for(store: everstep.Store) -> None:
    found = flow("- {id: g, gate: {ask: 'How many?', schema: {type: integer, minimum: 1}}}", "result: ${steps.g.result}")
    store.start(found, id="r")
    with pytest.raises(BadAnswer):
        store.answer("r", "g", 0)
    store.answer("r", "g", 2)
    assert store.resume("r").unwrap() == 2


def test_without_an_answer_in_time_the_default_counts(store: everstep.Store) -> None:
    found = flow("- {id: g, gate: {ask: 'Well?', timeout: 2d, default: no, choices: [yes, no]}}", "result: ${steps.g.result}")
    with FakeClock() as time:
        store.start(found, id="r")
        time.advance(47 * 3600)
        assert store.wake() == []
        time.advance(2 * 3600)
        (out,) = store.wake()
    assert out.unwrap() == "no"


def test_without_an_answer_in_time_and_without_a_default_the_run_fails(store: everstep.Store) -> None:
    with FakeClock() as time:
        store.start(flow("- {id: g, gate: {ask: 'Well?', timeout: 1h}}"), id="r")
        time.advance(3601)
        (out,) = store.wake()
    assert isinstance(out.error, GateTimeout)


def test_two_gates_of_a_group_ask_at_the_same_time(store: everstep.Store) -> None:
    found = flow(
        """
- parallel:
  - {id: law, gate: {ask: 'Legal?', choices: [yes, no]}}
  - {id: slow, run: 'yaml_actions:same', with: {value: 1}}
  - {id: tax, gate: {ask: 'Taxed?', choices: [yes, no]}}
  - {id: after, run: 'yaml_actions:same', with: {value: "${steps.law.result}"}, needs: law}
""",
        "result: ['${steps.law.result}', '${steps.tax.result}', '${steps.after.result}']",
    )
    out = store.start(found, id="r")
    assert (out.status, sorted(g.name for g in out.gates), actions.calls) == ("waiting", ["law", "tax"], [1])
    store.answer("r", "law", "yes")
    out = store.resume("r")
    assert (out.status, [g.name for g in out.gates], actions.calls) == ("waiting", ["tax"], [1, "yes"])
    store.answer("r", "tax", "no")
    assert store.resume("r").unwrap() == ["yes", "no", "yes"]
    assert actions.calls == [1, "yes"]


def decide(more: str = "") -> Any:
    return flow(
        f"""
- {{id: work, run: 'yaml_actions:same', with: {{value: '${{inputs.value}}'}}}}
- {{id: good, gate: {{condition: inputs.value > 3{more}}}}}
- {{id: next, run: 'yaml_actions:say'}}
- {{id: last, run: 'yaml_actions:say', with: {{word: last}}}}
"""
    )


def test_a_condition_that_holds_lets_the_run_go_on(store: everstep.Store) -> None:
    assert store.start(decide(), value=4).unwrap() == {"work": "succeeded", "good": "succeeded", "next": "succeeded", "last": "succeeded"}


def test_a_condition_that_does_not_hold_fails_the_run_unless_the_document_says_otherwise(store: everstep.Store) -> None:
    out = store.start(decide(), value=1, id="r")
    assert out.status == "failed"
    assert isinstance(out.error, StepFailed)
    assert out.error.message == "good failed with a gate: inputs.value > 3 is not true"
    assert "from_step='good#0'" in out.error.remedy
    assert store.resume("r").status == "failed"  # what was decided stays decided
    assert actions.calls == [1]


def test_what_a_gate_decided_can_be_decided_otherwise_in_a_fork(store: everstep.Store) -> None:
    found = flow(
        "- {id: a, run: 'yaml_actions:same', with: {value: a}}\n- {id: g, gate: {ask: 'Good?', choices: [yes, no], condition: answer == 'yes'}}"
    )
    store.start(found, id="r")
    store.answer("r", "g", "no")
    assert store.resume("r").status == "failed"
    fork = store.resume("r", from_step="g#0")
    assert (fork.status, actions.calls) == ("waiting", ["a"])
    store.answer(fork.run, "g", "yes")
    assert store.resume(fork.run).status == "succeeded"


def test_in_a_group_a_gate_that_fails_goes_before_one_that_stops(store: everstep.Store) -> None:
    found = flow(
        "- parallel:\n  - {id: a, gate: {condition: 'false', on_fail: stop}}\n  - {id: b, gate: {condition: 'false'}}\n- {id: c, run: 'yaml_actions:say'}"
    )
    out = store.start(found)
    assert isinstance(out.error, StepFailed)
    assert out.error.message == "b failed with a gate: false is not true"


@pytest.mark.parametrize(
    ("where", "ends"),
    [
        ("continue", ["work", "good", "next", "last"]),
        ("stop", ["work", "good"]),
        ("last", ["work", "good", "last"]),
    ],
)
@pytest.mark.parametrize("passes", [True, False])
def test_a_gate_picks_what_comes_next(where: str, ends: list[str], passes: bool, store: everstep.Store) -> None:
    found = decide(f", {'on_pass' if passes else 'on_fail'}: {where}")
    value = 4 if passes else 1
    out = store.start(found, value=value, id="r")
    assert [id for id, status in out.unwrap().items() if status == "succeeded"] == ends
    skipped = {s.name for s in store.steps("r") if s.skipped}
    assert skipped == {"next", "last"} - set(ends)


def test_a_passed_gate_can_fail_the_run_too(store: everstep.Store) -> None:
    assert store.start(decide(", on_pass: fail, on_fail: continue"), value=4).status == "failed"


LOOP = """
- {id: write, run: 'yaml_actions:same', with: {value: "${default(state.review, 'first')}"}}
- {id: review, run: 'yaml_actions:same', with: {value: "${steps.write.result}+"}, save: review}
- parallel:
  - {id: check, run: 'yaml_actions:same', with: {value: c}}
- {id: good, gate: {condition: len(steps.review.result) >= inputs.length, on_fail: write, max_rounds: 3}}
- {id: publish, run: 'yaml_actions:same', with: {value: "${steps.review.result}"}}
"""


def test_a_gate_can_lead_back_and_the_steps_run_again(store: everstep.Store) -> None:
    assert store.start(flow(LOOP, "result: ${steps.publish.result}"), length=8, id="r").unwrap() == "first+++"
    assert [s.address for s in store.steps("r") if s.name == "review"] == ["review#0", "review#1", "review#2"]
    assert actions.calls.count("c") == 3


def test_a_gate_leads_back_only_so_many_times(store: everstep.Store) -> None:
    out = store.start(flow(LOOP), length=100, id="r")
    assert isinstance(out.error, StepFailed)
    assert "good failed with too many rounds: it has already led back to 'write' 3 times" in out.error.message
    assert actions.calls.count("c") == 4


def test_rounds_are_counted_on_when_a_run_is_resumed(store: everstep.Store) -> None:
    found = flow(
        """
- {id: write, run: 'yaml_actions:same', with: {value: "${default(state.review, 'first')}"}}
- {id: review, run: 'yaml_actions:same', with: {value: "${steps.write.result}+"}, save: review}
- {id: ask, gate: {ask: "Is ${steps.review.result} good?", choices: [yes, no], condition: answer == 'yes', on_fail: write, max_rounds: 2}}
""",
        "result: ${steps.review.result}",
    )
    out = store.start(found, id="r")
    for question in ("Is first+ good?", "Is first++ good?", "Is first+++ good?"):
        assert [g.ask for g in out.gates] == [question]
        store.answer("r", "ask", "no")
        out = store.resume("r")
    assert isinstance(out.error, StepFailed)
    assert "too many rounds" in out.error.message
    assert actions.calls == ["first", "first+", "first+", "first++", "first++", "first+++"]


def test_progress_goes_back_with_the_gate(store: everstep.Store) -> None:
    found = flow(LOOP, "policy: on step")
    store.start(found, length=7, id="r")
    seen = [c.progress[0] for c in reversed(list(store.checkpoints("r"))) if c.progress]
    assert seen[:2] == [1, 2]
    assert seen[-1] == 5
    assert seen.count(1) == 2


def test_the_checkpoint_at_a_gate_knows_what_was_decided(store: everstep.Store) -> None:
    found = flow("- {id: a, run: 'true'}\n- {id: good, gate: {condition: 'true'}, save: good}\n- {id: b, run: 'true'}", "policy: on gate")
    store.start(found, id="r")
    (gate,) = [c for c in store.checkpoints("r") if c.trigger == "on gate"]
    assert (gate.kind, gate.progress, store.load(gate.ref)) == ("gate", (2, 3), {"good": True})
