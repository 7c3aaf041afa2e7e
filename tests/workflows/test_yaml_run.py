"""Runs of YAML workflows: order, values, parallel groups, for_each, when, retry, timeout."""

from __future__ import annotations

import inspect
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml_actions as actions

import everstep
from everstep import yaml
from everstep.errors import InvalidArgument, InvalidWorkflow, PlainSecret, StepFailed, StepTimeout, Unstorable


@pytest.fixture(autouse=True)
def _fresh() -> None:
    actions.reset()


def flow(steps: str, head: str = "") -> Any:
    return yaml.load("flow.yaml", f"name: flow\n{head}\nsteps:\n{steps}")


def recorded(store: everstep.Store, run: str = "r") -> dict[str, str]:
    return {step.address: "skipped" if step.skipped else step.status for step in store.steps(run)}


def test_steps_run_in_order_and_hand_on_their_results(store: everstep.Store) -> None:
    found = flow(
        """
- {id: plan, run: 'yaml_actions:plan', with: {topic: "${inputs.topic}", n: 2}, save: plan}
- {id: first, run: 'yaml_actions:search', with: {query: "${steps.plan.result[0]}"}}
- {id: text, run: 'yaml_actions:same', with: {value: {found: "${steps.first.result}", all: "${state.plan}", words: "n=${len(state.plan)}, ${inputs.flag}"}}}
""",
        "state: {plan: null, topic: 'about ${inputs.topic}'}\nresult: ${steps.text.result}",
    )
    out = store.start(found, topic="logs", flag=True, id="r")
    assert out.unwrap() == {"found": "LOGS-0", "all": ["logs-0", "logs-1"], "words": "n=2, true"}
    assert recorded(store) == {"plan#0": "succeeded", "first#0": "succeeded", "text#0": "succeeded"}
    assert store.load("r") == {"plan": ["logs-0", "logs-1"], "topic": "about logs"}
    assert store.get("r").workflow == "flow"


def test_without_a_result_the_run_says_how_each_step_ended(store: everstep.Store) -> None:
    found = flow("- {id: a, run: 'true'}\n- {id: b, run: 'true', when: 'false'}\n- {id: g, gate: {condition: 'true'}}")
    assert store.start(found).result == {"a": "succeeded", "b": "skipped", "g": "succeeded"}


def test_a_finished_run_is_not_run_again(store: everstep.Store) -> None:
    found = flow("- {id: a, run: 'yaml_actions:same', with: {value: 1}}")
    store.start(found, id="r")
    assert store.start(found, id="r").status == "succeeded"
    assert store.resume("r").status == "succeeded"
    assert actions.calls == [1]


def test_any_name_of_an_argument_will_do(store: everstep.Store) -> None:
    found = flow(
        "- {id: a, run: 'yaml_actions:takes', with: {key: k, retry: 1, timeout: 2.5, name: n, function: f}}", "result: ${steps.a.result}"
    )
    assert store.start(found).unwrap() == ["k", 1, 2.5, "n", "f"]


def test_methods_async_functions_decorated_steps_and_workflows_can_be_run(store: everstep.Store) -> None:
    found = flow(
        """
- {id: once, run: 'yaml_actions:decorated', with: {question: why, client: c}}
- {id: ask, run: 'yaml_actions:Agent.ask', with: {question: how}}
- {id: think, run: 'yaml_actions:think', with: {about: it}}
- {id: limited, run: 'yaml_actions:think', with: {about: that}, timeout: 60}
- {id: child, run: 'yaml_actions:child', with: {n: 4}}
""",
        "policy: on llm\nresult: ['${steps.once.result}', '${steps.ask.result}', '${steps.think.result}', '${steps.limited.result}', '${steps.child.result}']",
    )
    out = store.start(found, id="r")
    assert out.unwrap() == ["why", "how!", "thought about it", "thought about that", 5]
    assert actions.calls[:2] == [("decorated", "why"), ("decorated", "why")]  # its own retry
    assert [c.trigger for c in store.checkpoints("r")].count("on llm") == 1  # its own kind
    assert [s.tokens for s in store.steps("r") if s.address == "once#0"][-1] == 7
    assert [run.workflow for run in store.runs(workflow="child-of-yaml")] == ["child-of-yaml"]


def test_a_document_can_be_the_child_of_a_workflow(store: everstep.Store) -> None:
    inner = yaml.load(
        "inner.yaml", "name: inner\nsteps: [{id: a, run: 'yaml_actions:same', with: {value: '${inputs.x}'}}]\nresult: ${steps.a.result}"
    )

    @everstep.workflow(name="outer")
    def outer() -> Any:
        return inner(x=3)

    assert store.start(outer, id="r").unwrap() == 3
    assert {run.workflow for run in store.runs()} == {"outer", "inner"}


def test_outside_of_a_run_and_in_a_store_that_is_switched_off_it_is_simply_called() -> None:
    found = flow(
        """
- {id: a, run: 'yaml_actions:think', with: {about: it}, save: a}
- {id: b, run: 'echo "$EVERSTEP_STEP $EVERSTEP_WITH_X"', with: {x: "${state.a}"}}
- {id: c, run: 'yaml_actions:same', with: {value: "${item}"}, for_each: [1, 2], concurrency: 2}
- {id: d, run: 'false', when: 'false'}
- {id: g, gate: {condition: len(steps.c.result) == 2}}
""",
        "result: ['${steps.b.result.stdout}', '${steps.c.result}', '${steps.d.status}']",
    )
    expected = ["b thought about it", [1, 2], "skipped"]
    assert found() == expected
    with everstep.open(enabled=False) as off:
        assert off.start(found).result == expected


@pytest.mark.parametrize("pause", ["", "- {id: ask, gate: 'Go on?'}"])
def test_a_step_that_changes_what_it_was_given_changes_nothing_else(pause: str, store: everstep.Store) -> None:
    found = flow(
        f"""
- {{id: plan, run: 'yaml_actions:plan', with: {{topic: x}}, save: kept}}
- {{id: one, run: 'yaml_actions:spoil', with: {{things: "${{steps.plan.result}}"}}}}
- {{id: two, run: 'yaml_actions:spoil', with: {{things: "${{state.kept}}"}}}}
{pause}
- {{id: end, run: 'yaml_actions:same', with: {{value: ["${{steps.plan.result}}", "${{state.kept}}"]}}}}
""",
        "result: ${steps.end.result}",
    )
    out = store.start(found, id="r")
    if pause:
        store.answer("r", "ask", True)
        out = store.resume("r")
    assert out.unwrap() == [["x-0", "x-1", "x-2"]] * 2
    assert store.load("r") == {"kept": ["x-0", "x-1", "x-2"]}


def test_what_happens_to_the_state_does_not_happen_to_a_result(store: everstep.Store) -> None:
    steps = "- {id: plan, run: 'yaml_actions:plan', with: {topic: x, n: 1}, save: kept}\n- {id: m, run: 'yaml_actions:meddle'}"
    assert store.start(flow(steps, "result: ['${steps.plan.result}', '${state.kept}']")).unwrap() == [["x-0"], ["x-0", "meddled"]]


def test_a_result_that_cannot_be_stored_fails_the_step_once(store: everstep.Store) -> None:
    out = store.start(flow("- {id: a, run: 'yaml_actions:useless', retry: 3, save: a}"), id="r")
    assert isinstance(out.error, Unstorable)
    assert "a#0" in out.error.message
    assert actions.calls == ["useless"]
    assert store.load("r") == {}


# inputs


def test_inputs_that_do_not_fit_fail_the_run_with_a_reason(store: everstep.Store) -> None:
    found = flow("- {id: a, run: 'true'}", "inputs: {topic: , depth: {type: integer, default: 3}}")
    for given, message in [
        ({}, "requires the input 'topic'"),
        ({"topic": 1, "depth": "x"}, "does not match its schema"),
        ({"topik": 1}, "did you mean 'topic'?"),
    ]:
        with pytest.raises(InvalidArgument, match="input") as caught:
            store.start(found, **given).unwrap()
        assert message in caught.value.message


# for_each


def test_for_each_gives_the_results_in_order(store: everstep.Store) -> None:
    found = flow(
        "- {id: plan, run: 'yaml_actions:plan', with: {topic: t}}\n"
        "- {id: search, run: 'yaml_actions:search', for_each: steps.plan.result, concurrency: 3, with: {query: '${item}'}}\n"
        "- {id: number, run: 'yaml_actions:same', for_each: steps.search.result, with: {value: '${index}: ${item}'}}",
        "result: ${steps.number.result}",
    )
    assert store.start(found, id="r").unwrap() == ["0: T-0", "1: T-1", "2: T-2"]
    assert sorted(recorded(store)) == ["number#0", "number#1", "number#2", "plan#0", "search#0", "search#1", "search#2"]


def test_for_each_runs_as_many_at_once_as_it_says(store: everstep.Store) -> None:
    actions.meeting = threading.Barrier(3)
    found = flow(
        "- {id: a, run: 'yaml_actions:meet', for_each: [x, y, z], concurrency: 3, with: {name: '${item}'}}", "result: ${steps.a.result}"
    )
    assert store.start(found).unwrap() == ["x", "y", "z"]


def test_for_each_over_nothing_is_done_at_once_and_over_no_list_fails(store: everstep.Store) -> None:
    found = flow("- {id: a, run: 'yaml_actions:same', for_each: inputs.items, with: {value: '${item}'}}", "result: ${steps.a.result}")
    assert store.start(found, items=[]).unwrap() == []
    with pytest.raises(InvalidWorkflow, match=r"flow.yaml:4: step 'a': for_each must give a list, got a value of type str"):
        store.start(found, items="abc").unwrap()


def test_items_that_were_done_are_kept_when_another_fails(store: everstep.Store) -> None:
    found = flow("- {id: a, run: 'yaml_actions:search', for_each: [w, x, y, z], with: {query: '${item}'}}", "result: ${steps.a.result}")
    actions.fail.add("y")
    out = store.start(found, id="r")
    assert out.status == "failed"
    assert isinstance(out.error, ConnectionError)
    assert recorded(store) == {"a#0": "succeeded", "a#1": "succeeded", "a#2": "failed"}
    actions.fail.clear()
    out = store.resume("r")
    assert out.unwrap() == ["W", "X", "Y", "Z"]
    assert (out.report.kept, out.report.executed) == (2, 2)


# parallel


def test_a_parallel_group_runs_at_the_same_time(store: everstep.Store) -> None:
    actions.meeting = threading.Barrier(2)
    found = flow(
        "- parallel:\n  - {id: a, run: 'yaml_actions:meet', with: {name: a}, save: a}\n  - {id: b, run: 'yaml_actions:meet', with: {name: b}, save: b}\n"
        "- {id: c, run: 'yaml_actions:same', with: {value: ['${state.a}', '${steps.b.result}']}}",
        "result: ${steps.c.result}",
    )
    assert store.start(found).unwrap() == ["a", "b"]


def test_members_of_a_group_begin_when_what_they_need_is_done(store: everstep.Store) -> None:
    found = flow(
        """
- parallel:
  - {id: d, run: 'yaml_actions:same', needs: [b, c], with: {value: "${steps.b.result}${steps.c.result}d"}}
  - {id: b, run: 'yaml_actions:same', needs: a, with: {value: "${steps.a.result}b"}}
  - {id: c, run: 'yaml_actions:same', needs: a, with: {value: "${steps.a.result}c"}}
  - {id: a, run: 'yaml_actions:same', with: {value: a}}
""",
        "result: ${steps.d.result}",
    )
    assert store.start(found).unwrap() == "abacd"
    assert actions.calls[0] == "a"
    assert actions.calls[-1] == "abacd"


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_group_may_be_narrower_than_it_is_long(concurrency: int, store: everstep.Store) -> None:
    members = "".join(
        f"  - {{id: s{i}, run: 'yaml_actions:same', with: {{value: {i}}}, needs: [{f's{i - 2}' if i > 1 else ''}]}}\n" for i in range(8)
    )
    assert store.start(flow(f"- concurrency: {concurrency}\n  parallel:\n{members}")).status == "succeeded"
    assert sorted(actions.calls) == list(range(8))


def test_all_that_failed_at_the_same_time_run_again_on_resume(store: everstep.Store) -> None:
    actions.meeting = threading.Barrier(3)
    actions.fail.update("bc")
    members = "".join(f"  - {{id: {n}, run: 'yaml_actions:meet_and_fail', with: {{name: {n}}}}}\n" for n in "abc")
    found = flow(f"- parallel:\n{members}\n- {{id: after, run: 'true'}}")
    out = store.start(found, id="r")
    assert out.status == "failed"
    assert str(out.error) == "b"
    assert out.error is not None
    assert out.error.__notes__ == ["Another step failed at the same time: ConnectionError: c"]
    assert recorded(store) == {"a#0": "succeeded", "b#0": "failed", "c#0": "failed"}
    actions.fail.clear()
    actions.meeting = threading.Barrier(2)
    out = store.resume("r")
    assert out.unwrap() == {"a": "succeeded", "b": "succeeded", "c": "succeeded", "after": "succeeded"}
    assert (out.report.kept, sorted(actions.calls)) == (1, ["a", "b", "b", "c", "c"])


def test_after_a_failure_no_further_member_begins(store: everstep.Store) -> None:
    actions.fail.add("x")
    found = flow(
        "- parallel:\n  - {id: a, run: 'yaml_actions:search', with: {query: x}}\n  - {id: b, run: 'yaml_actions:same', with: {value: b}, needs: a}\n"
        "  - {id: c, run: 'yaml_actions:same', with: {value: c}}\n  concurrency: 1"
    )
    assert store.start(found, id="r").status == "failed"
    assert recorded(store) == {"a#0": "failed"}


# when and needs


def test_a_skipped_step_is_recorded_and_others_see_null(store: everstep.Store) -> None:
    found = flow(
        """
- {id: a, run: 'yaml_actions:same', with: {value: 1}, when: inputs.go, save: a}
- {id: b, run: 'yaml_actions:same', with: {value: ["${steps.a.result}", "${steps.a.status}", "${default(state.a, 'unset')}"]}}
""",
        "result: ${steps.b.result}",
    )
    assert store.start(found, go=True, id="yes").unwrap() == [1, "succeeded", 1]
    assert store.start(found, go=False, id="no").unwrap() == [None, "skipped", "unset"]
    assert recorded(store, "no") == {"a#0": "skipped", "b#0": "succeeded"}
    assert [e.name for e in store.events(run="no") if e.name.startswith("step")] == ["step_skipped", "step_succeeded"]


def test_what_needs_a_skipped_step_is_skipped_unless_it_has_its_own_when(store: everstep.Store) -> None:
    found = flow(
        """
- {id: a, run: 'true', when: 'false'}
- {id: b, run: 'true', needs: a}
- {id: c, run: 'true', needs: b}
- {id: d, run: 'true', needs: [a], when: steps.a.status == 'skipped'}
- {id: e, run: 'true', needs: [d]}
- parallel:
  - {id: f, run: 'true', needs: [c]}
  - {id: g, run: 'true', needs: [f]}
  - {id: h, run: 'true'}
"""
    )
    ends = store.start(found, id="r").unwrap()
    assert {id for id, status in ends.items() if status == "skipped"} == set("abcfg")
    assert {address[0] for address, status in recorded(store).items() if status == "skipped"} == set("abcfg")


def test_skipped_steps_count_neither_for_policies_nor_for_budgets(store: everstep.Store) -> None:
    skipped = "\n".join(f"- {{id: s{i}, run: 'true', when: 'false'}}" for i in range(5))
    found = flow(f"{skipped}\n- {{id: a, run: 'true'}}\n- {{id: b, run: 'true'}}", "policy: every 2 steps\nbudget: {steps: 3}")
    assert store.start(found, id="r").status == "succeeded"
    assert [c.trigger for c in store.checkpoints("r") if c.trigger] == ["every 2 steps"]


# commands


def test_a_command_gets_its_values_and_its_place(store: everstep.Store, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "flow.yaml").write_text(
        """
name: flow
steps:
  - id: here
    run: pwd -P
  - id: there
    run: {shell: 'pwd -P; echo "$A $EVERSTEP_WITH_LIST $EVERSTEP_RUN $EVERSTEP_STEP $EVERSTEP_STEP_ATTEMPT ${#EVERSTEP_STEP_KEY}"', cwd: "${inputs.where}", env: {A: "x ${inputs.where}"}}
    with: {list: [1, "${inputs.where}"]}
result: ["${steps.here.result.stdout}", "${lines(steps.there.result.stdout)}"]
"""
    )
    found = yaml.load(tmp_path / "flow.yaml")
    here, there = store.start(found, where="sub", id="r").unwrap()
    folder = str(tmp_path.resolve())
    assert here == folder
    assert there == [f"{folder}/sub", 'x sub [1, "sub"] r there#0 1 32']
    assert store.start(found, where="/").unwrap()[1][0] == "/"


def test_a_command_that_fails_fails_the_run_and_runs_again_on_resume(store: everstep.Store, tmp_path: Path) -> None:
    found = flow(f"- {{id: a, run: {{shell: 'cat wanted', cwd: '{tmp_path}'}}}}", "result: ${steps.a.result.stdout}")
    out = store.start(found, id="r")
    assert isinstance(out.error, StepFailed)
    assert out.error.message.startswith("a#0 failed with exit code 1: cat: wanted:")
    (tmp_path / "wanted").write_text("there\n")
    assert store.resume("r").unwrap() == "there"


def test_output_of_a_command_can_be_read_as_json_and_as_lines(store: everstep.Store) -> None:
    found = flow(
        """
- {id: list, run: 'printf "a\\nb\\n"'}
- {id: each, run: 'yaml_actions:same', for_each: lines(steps.list.result.stdout), with: {value: "${item}"}}
- {id: data, run: "echo '{\\"n\\": [1, 2]}'"}
- {id: n, run: 'yaml_actions:same', with: {value: "${json(steps.data.result.stdout).n[1]}"}}
""",
        "result: ['${steps.each.result}', '${steps.n.result}']",
    )
    assert store.start(found).unwrap() == [["a", "b"], 2]


# retry and timeout


def test_a_step_is_tried_again(store: everstep.Store) -> None:
    found = flow(
        "- {id: a, run: 'yaml_actions:attempts', retry: {attempts: 3, delay: 0, only: [TimeoutError]}}", "result: ${steps.a.result}"
    )
    assert store.start(found).unwrap() == 3
    actions.reset()
    never = flow("- {id: a, run: 'yaml_actions:attempts', retry: {attempts: 3, delay: 0, never: [TimeoutError]}}")
    assert store.start(never).status == "failed"
    assert actions.calls == [("attempt", 1)]


def test_a_command_is_tried_again(store: everstep.Store, tmp_path: Path) -> None:
    command = 'echo $EVERSTEP_STEP_ATTEMPT >> tries; test "$(wc -l < tries)" -ge 3'
    found = flow(f"- {{id: a, run: {{shell: '{command}', cwd: '{tmp_path}'}}, retry: {{attempts: 5, delay: 0}}}}")
    assert store.start(found).status == "succeeded"
    assert (tmp_path / "tries").read_text().split() == ["1", "2", "3"]


@pytest.mark.parametrize("run", ["'yaml_actions:hang'", "sleep 60"])
def test_a_step_that_takes_too_long_fails(run: str, store: everstep.Store) -> None:
    out = store.start(flow(f"- {{id: a, run: {run}, timeout: 0.2}}"), id="r")
    assert isinstance(out.error, StepTimeout)
    assert recorded(store) == {"a#0": "failed"}


# checkpoints


def test_checkpoints_know_the_state_and_the_progress_of_their_moment(store: everstep.Store) -> None:
    found = flow(
        "\n".join(f"- {{id: s{i}, run: 'yaml_actions:same', with: {{value: {i}}}, save: s{i}}}" for i in range(4))
        + "\n- {id: last, run: 'true', when: 'false'}",
        "policy: every 2 steps",
    )
    store.start(found, id="r")
    seen = [(c.kind, c.progress, store.load(c.ref)) for c in reversed(list(store.checkpoints("r")))]
    assert seen == [
        ("automatic", (2, 5), {"s0": 0, "s1": 1}),
        ("automatic", (4, 5), {"s0": 0, "s1": 1, "s2": 2, "s3": 3}),
        ("final", (5, 5), {"s0": 0, "s1": 1, "s2": 2, "s3": 3}),
    ]


def test_a_policy_of_a_document_is_that_of_its_runs(store: everstep.Store) -> None:
    steps = "- {id: a, run: 'true'}\n- {id: g, gate: {condition: 'true'}}\n- {id: b, run: 'true', kind: llm}\n- {id: c, run: 'true', kind: tool}"
    found = flow(steps, "policy: on gate, llm")
    store.start(found, id="r")
    assert [c.trigger for c in reversed(list(store.checkpoints("r")))] == ["on gate", "on llm", None]


def test_budget_and_timeout_of_a_document_stop_its_runs(store: everstep.Store) -> None:
    found = flow("\n".join(f"- {{id: s{i}, run: 'true'}}" for i in range(4)), "budget: {steps: 2}")
    out = store.start(found, id="r")
    assert (out.status, out.reason) == ("waiting", "budget: 2 steps of 2")
    assert store.resume("r", budget=everstep.Budget(steps=10)).status == "succeeded"


# from outside


def test_an_operator_can_skip_a_step(store: everstep.Store) -> None:
    found = flow(
        "- {id: ask, gate: x}\n- {id: a, run: 'false'}\n- {id: b, run: 'yaml_actions:same', with: {value: '${steps.a.result}'}}",
        "result: ${steps.b.result}",
    )
    store.start(found, id="r")
    store.skip("r", "a", result="given")
    store.answer("r", "ask", 1)
    assert store.resume("r").unwrap() == "given"


@pytest.mark.parametrize("group", [False, True])
def test_an_operator_can_pause_a_run_and_cancel_it(group: bool, store: everstep.Store) -> None:
    steps = ["- {id: a, run: 'yaml_actions:call_back'}", "- {id: b, run: 'yaml_actions:say', with: {word: b}}"]
    found = flow("\n".join(steps) if not group else "- concurrency: 1\n  parallel:\n  " + "\n  ".join(steps))
    actions.callback = lambda: store.pause("p", "lunch")
    out = store.start(found, id="p")
    assert (out.status, out.reason, actions.calls) == ("waiting", "pause: lunch", ["call_back"])
    assert store.resume("p").status == "succeeded"
    actions.callback = lambda: store.cancel("c", "wrong")
    assert store.start(found, id="c").status == "cancelled"
    assert actions.calls == ["call_back", ("say", "b"), "call_back"]


def test_a_step_can_be_run_again_on_a_fork(store: everstep.Store) -> None:
    found = flow("- {id: a, run: 'yaml_actions:same', with: {value: a}}\n- {id: b, run: 'yaml_actions:same', with: {value: b}}")
    store.start(found, id="r")
    out = store.resume("r", from_step="b#0")
    assert out.run != "r"
    assert actions.calls == ["a", "b", "b"]


def test_validation_runs_everything_again_and_finds_what_differs(store: everstep.Store, tmp_path: Path) -> None:
    (tmp_path / "value").write_text("one")
    found = flow(
        f"- {{id: a, run: {{shell: 'cat value', cwd: '{tmp_path}'}}}}\n- {{id: s, run: 'true', when: 'false'}}\n- {{id: b, run: 'true'}}"
    )
    store.start(found, id="r")
    assert store.resume("r", replay="validate").report.differences == []
    (tmp_path / "value").write_text("two")
    assert [d.address for d in store.resume("r", replay="validate").report.differences] == ["a#0"]


# loading


@pytest.mark.parametrize(
    ("step", "line", "message"),
    [
        ("{id: a, run: 'no_such_module:fn'}", 4, "no_such_module:fn: no_such_module cannot be imported: ModuleNotFoundError"),
        ("{id: a, run: 'yaml_actions:serch'}", 4, "there is no 'serch' in yaml_actions (did you mean 'search'?)"),
        ("{id: a, run: 'yaml_actions:TEXT'}", 4, "yaml_actions:TEXT must be callable, got a value of type str"),
        (
            "{id: a, run: 'yaml_actions:search'}",
            4,
            "invalid arguments (with) for yaml_actions:search: missing a required argument: 'query'; it takes query",
        ),
        ("{id: a, run: 'yaml_actions:search', with: {query: x, n: 1}}", 4, "got an unexpected keyword argument 'n'; it takes query"),
        ("{id: a, run: 'true', with: {a: 1, A: 2}}", 4, "'a' and 'A' would become the same environment variable"),
    ],
)
def test_what_cannot_run_is_refused_when_it_is_loaded(step: str, line: int, message: str) -> None:
    with pytest.raises(InvalidWorkflow) as caught:
        flow(f"- {step}")
    assert message in caught.value.message
    assert caught.value.line == line


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidWorkflow, match=r"nowhere\.yaml: cannot be read"):
        yaml.load(tmp_path / "nowhere.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9")
    with pytest.raises(InvalidWorkflow, match=r"latin\.yaml: cannot be read"):
        yaml.load(tmp_path / "latin.yaml")


def test_an_expression_that_fails_in_a_run_names_its_line(store: everstep.Store) -> None:
    found = flow("- id: a\n  run: 'true'\n  when: state.nothing > 1")
    with pytest.raises(InvalidWorkflow, match=r"flow.yaml:6: step 'a': when: there is no 'nothing' in a value of type"):
        store.start(found).unwrap()


def test_a_workflow_has_the_signature_of_its_inputs() -> None:
    found = flow("- {id: a, run: 'yaml_actions:same', with: {value: 1}}", "inputs: {topic: {type: string}, n: {type: integer, default: 3}}")
    assert str(inspect.signature(found)) == "(*, topic, n=3)"


def test_a_secret_is_no_input_where_it_would_be_stored_readable(store: everstep.Store) -> None:
    found = flow("- {id: a, run: 'true'}", "inputs: {topic: null}")
    with pytest.raises(PlainSecret, match="argument topic of the workflow flow"):
        store.start(found, topic=everstep.Secret("hunter2"))


def test_a_secret_that_may_be_stored_is_the_environment_of_a_command_and_never_a_part_of_a_text() -> None:
    with everstep.open("memory://", plain_secrets=True) as store:
        found = flow(
            "- {id: a, run: {shell: 'echo ${#TOKEN}', env: {TOKEN: '${inputs.topic}'}}}",
            "inputs: {topic: null}\nresult: ${steps.a.result.stdout}",
        )
        assert store.start(found, topic=everstep.Secret("hunter2"), id="r").unwrap() == "7"
        assert "hunter2" not in repr(store.step("r", "a"))
        found = flow("- {id: a, run: {shell: 'true', env: {TOKEN: 'Bearer ${inputs.topic}'}}}", "version: 2\ninputs: {topic: null}")
        outcome = store.start(found, topic=everstep.Secret("hunter2"), id="q")
        assert "cannot be put into a text" in str(outcome.error)
        assert "hunter2" not in str(outcome.error)
