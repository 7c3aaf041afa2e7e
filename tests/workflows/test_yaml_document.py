"""What a YAML workflow may say; whatever else it says is refused with the file, the line and what would be allowed."""

from __future__ import annotations

import sys
from contextlib import suppress
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.errors import EverstepError, InvalidArgument, InvalidWorkflow
from everstep.yaml.action import Call, Command, Gate
from everstep.yaml.document import Document, parse
from everstep.yaml.step import Group, Step


def document(text: str) -> Document:
    return parse(dedent(text).lstrip("\n"), "flow.yaml")


def steps(text: str) -> Document:
    return document("name: flow\nsteps:\n" + dedent(text).lstrip("\n"))


def step(text: str) -> Step:
    return steps(text).steps[0]


def refused(text: str) -> InvalidWorkflow:
    with pytest.raises(InvalidWorkflow) as caught:
        document(text)
    assert caught.value.file == "flow.yaml"
    assert caught.value.message.startswith(f"flow.yaml:{caught.value.line}: ")
    return caught.value


FULL = """
    name: report
    version: 1.10
    description: Writes a report.
    inputs: {topic: , depth: 3, mode: {enum: [quick, full], default: quick}}
    state: {tries: 0, title: "On ${inputs.topic}"}
    policy: every 5 steps | on gate
    retry: {attempts: 4, delay: 2s, max_delay: 1m, only: [TimeoutError]}
    budget: {steps: 100, seconds: 1h}
    timeout: 1h30m
    steps:
      - id: plan
        description: Thinks.
        run: package.module:plan
        with: {topic: "${inputs.topic}", options: {depth: "${inputs.depth}", text: "about ${inputs.topic}"}}
        retry: 5
        timeout: 30
        kind: llm
        save: plan
      - parallel:
          - {id: late, run: echo late, needs: early}
          - {id: early, run: {shell: "ls -l", cwd: sub, env: {TOPIC: "${inputs.topic}"}, ok: [0, 1]}}
        concurrency: 1
      - id: search
        for_each: steps.plan.result
        concurrency: 4
        run: {python: package.module:Search.one}
        with: {query: "${item}", number: "${index}"}
        when: len(steps.plan.result) > 0
      - id: editor
        gate:
          ask: Publish ${state.title}?
          choices: [yes, no]
          timeout: 2d
          default: no
          condition: answer == 'yes'
          on_fail: plan
          max_rounds: 2
    result: ${steps.search.result}
"""


def test_all_keys_of_a_workflow() -> None:
    found = document(FULL)
    assert (found.name, found.version, found.timeout) == ("report", "1.10", 5400.0)
    assert {name: one.default for name, one in found.inputs.items()} == {"topic": (), "depth": (3,), "mode": ("quick",)}
    assert str(found.policy) == "every 5 steps | on gate"
    assert found.retry is not None
    assert (found.retry.attempts, found.retry.delay, found.retry.max_delay, found.retry.only) == (4, 2.0, 60.0, ("TimeoutError",))
    assert found.budget is not None
    assert (found.budget.steps, found.budget.seconds) == (100, 3600.0)
    assert found.state["title"].evaluate({"inputs": {"topic": "logs"}}) == "On logs"
    assert found.result is not None
    assert [one.id for one in found.steps] == ["plan", "early", "late", "search", "editor"]


def test_all_keys_of_a_step() -> None:
    plan, group, search, editor = document(FULL).order
    assert isinstance(plan, Step)
    assert plan.action == Call("package.module:plan", 13)
    names = {"inputs": {"topic": "logs", "depth": 2}}
    assert {k: v.evaluate(names) for k, v in plan.arguments.items()} == {"topic": "logs", "options": {"depth": 2, "text": "about logs"}}
    assert plan.retry is not None
    assert (plan.retry.attempts, plan.timeout, plan.kind, plan.save) == (5, 30.0, "llm", "plan")
    assert isinstance(group, Group)
    assert group.concurrency == 1
    early, late = group.steps
    assert isinstance(early.action, Command)
    assert (early.action.text, early.action.ok, list(early.action.env or {})) == ("ls -l", (0, 1), ["TOPIC"])
    assert isinstance(late.action, Command)
    assert late.action.text == "echo late"
    assert isinstance(search, Step)
    assert search.concurrency == 4
    assert search.action == Call("package.module:Search.one", 26)
    assert isinstance(editor, Step)
    assert isinstance(editor.action, Gate)
    assert editor.action.schema == {"enum": ["yes", "no"]}
    assert (editor.action.default, editor.action.timeout) == (("no",), 172_800.0)
    assert (editor.action.on_pass, editor.action.on_fail, editor.action.max_rounds) == ("continue", "plan", 2)


def test_reading_a_document_imports_nothing() -> None:
    before = set(sys.modules)
    document(FULL)
    assert "package" not in sys.modules
    assert {name for name in set(sys.modules) - before if not name.startswith(("everstep", "yaml"))} == set()


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("off", "off"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("2024-01-31", "2024-01-31"),
        ("12:30:45", "12:30:45"),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("1_000", "1_000"),
        ("1e3", 1000.0),
        ("-.5", -0.5),
        (".inf", float("inf")),
        ("'1'", "1"),
        ("=", "="),
        ("<<", "<<"),
    ],
)
def test_scalars_are_those_of_yaml_1_2(scalar: str, value: Any) -> None:
    found = step(f"- {{id: a, run: 'x', with: {{v: {scalar}}}}}").arguments["v"].evaluate({})
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("run", "kind"),
    [
        ("pkg.mod:fn", Call),
        ("mod:fn", Call),
        ("a.b.c:D.e", Call),
        ("{python: 'mod:fn'}", Call),
        ("echo hello", Command),
        ("make", Command),
        ("./script.sh:x", Command),
        ("pkg.mod:fn arg", Command),
        ("'http://x'", Command),
        ("{shell: 'mod:fn'}", Command),
        ('"echo ${HOME}"', Command),
    ],
)
def test_a_dotted_name_with_a_colon_is_a_callable_and_all_else_a_command(run: str, kind: type) -> None:
    assert type(step(f"- {{id: a, run: {run}}}").action) is kind


def ids(text: str) -> list[str]:
    return [one.id for one in steps(text).steps]


def test_steps_run_in_the_order_of_the_document() -> None:
    assert ids("- {id: c, run: x}\n- {id: a, run: x}\n- {id: b, run: x}") == ["c", "a", "b"]


def test_a_step_waits_for_what_it_needs_and_the_others_keep_their_order() -> None:
    assert ids(
        "- {id: a, run: x}\n- {id: b, run: x, needs: [e]}\n- {id: c, run: x}\n- {id: d, run: x}\n- {id: e, run: x}\n- {id: f, run: x}"
    ) == list("acdebf")


def test_a_group_waits_for_what_its_members_need() -> None:
    assert ids("- parallel: [{id: a, run: x, needs: c}, {id: b, run: x}]\n- {id: c, run: x}") == ["c", "a", "b"]
    assert ids("- parallel: [{id: a, run: x, needs: b}, {id: b, run: x, needs: [c]}, {id: c, run: x}]") == ["c", "b", "a"]


def test_inputs_that_are_not_declared_are_those_that_are_mentioned() -> None:
    found = steps("- {id: a, run: x, with: {p: '${inputs.one}'}, when: inputs.two > 1}")
    assert list(found.inputs) == ["one", "two"]
    assert found.given({"one": 1, "two": 2}) == {"one": 1, "two": 2}


def test_inputs_are_checked() -> None:
    found = document("name: f\ninputs: {n: {type: integer}, mode: {enum: [a, b], default: a}, any: , tags: [x]}\nsteps: [{id: s, run: x}]")
    assert found.given({"n": 1, "any": None}) == {"n": 1, "mode": "a", "any": None, "tags": ["x"]}
    for inputs, message in [
        ({"n": 1}, "requires the input 'any'"),
        ({"n": "1", "any": 2}, "the input 'n' of workflow 'f' does not match its schema"),
        ({"n": 1, "any": 2, "moed": "b"}, "has no input 'moed' (did you mean 'mode'?); it takes n, mode, any, tags"),
    ]:
        with pytest.raises(InvalidArgument) as caught:
            found.given(inputs)
        assert message in caught.value.message


def test_a_gate_may_be_just_its_question() -> None:
    gate = step("- {id: ok, gate: 'Go on?'}").action
    assert isinstance(gate, Gate)
    assert gate.ask is not None
    assert (gate.ask.evaluate({}), gate.schema, gate.default, gate.on_fail) == ("Go on?", None, (), "fail")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30), ("0.5", 0.5), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("2d", 172_800), ("1w", 604_800), ("1.5h", 5400)],
)
def test_times_are_seconds_or_text(text: str, seconds: float) -> None:
    assert step(f"- {{id: a, run: x, timeout: {text}}}").timeout == seconds


REFUSED = [
    # the text itself
    ("", 1, "the document is empty"),
    ("- a", 1, "a workflow must be a mapping, got a list"),
    ("name: x\nsteps: [", 2, "invalid YAML"),
    ("name: x\nsteps:\n\t- a", 3, "invalid YAML"),
    ("name: x\n---\nname: y", 2, "invalid YAML"),
    ("name: x\nname: y", 2, "duplicate key 'name'; the first one is in line 1"),
    ("name: x\nsteps:\n- id: a\n  run: x\n  with:\n    p: 1\n    p: 2", 7, "duplicate key 'p'; the first one is in line 6"),
    ("name: x\n1: y", 2, "the key 1 is not text; put it in quotes"),
    ("name: x\n? [a]\n: y", 2, "the key here is not text"),
    ("name: !!python/object/apply:os.system ['true']", 1, "the tag !!python/object/apply:os.system is not allowed"),
    ("name: !own x", 1, "the tag !own is not allowed"),
    ("name: !!int x", 1, "the tag !!int is not allowed"),
    ("name: x\nstate: &a {b: *a}", 2, "an anchor contains itself"),
    ("name: x\nstate: {a: *nowhere}", 2, "undefined alias"),
    ("name: x\nstate: {a: " + "9" * 5000 + "}", 2, "too many digits for a number"),
    ('name: x\nstate: {a: "\\uD800"}', 2, "lone surrogate"),
    # the workflow
    ("name: x", 1, "a workflow has no 'steps'"),
    ("steps: [{id: a, run: x}]", 1, "a workflow has no 'name'"),
    ("name: x\nstep: []", 2, "a workflow has no key 'step' (did you mean 'steps'?); allowed: budget, description, inputs,"),
    ("name: x\nsteps: {}", 2, "steps must be a list, got a mapping"),
    ("name: x\nsteps: []", 2, "steps is empty"),
    ("name: a b\nsteps: [{id: a, run: x}]", 1, "name must be made of letters, digits, _ and -, beginning with a letter, got 'a b'"),
    ("name: 7\nsteps: [{id: a, run: x}]", 1, "got 7"),
    ("name: x\nversion: true\nsteps: [{id: a, run: x}]", 2, "version must be text or a number, got true"),
    ("name: x\nversion: [1]\nsteps: [{id: a, run: x}]", 2, "version must be text or a number, got a list"),
    ("name: x\ninputs: {a b: 1}\nsteps: [{id: a, run: x}]", 2, "the name of an input must consist of letters, digits and _, got 'a b'"),
    ("name: x\ninputs: [1]\nsteps: [{id: a, run: x}]", 2, "an input must be a name"),
    ("name: x\ninputs: {n: {type: integr}}\nsteps: [{id: a, run: x}]", 2, "input 'n'"),
    ("name: x\ninputs: {n: {type: integer, default: a}}\nsteps: [{id: a, run: x}]", 2, "input 'n': the default does not match the schema"),
    ("name: x\ninputs: [id]\nsteps: [{id: a, run: x}]", 2, "an input cannot be called 'id'"),
    ("name: x\nstate: [1]\nsteps: [{id: a, run: x}]", 2, "state must be a mapping, got a list"),
    ("name: x\nstate: {a: '${steps.a.result}'}\nsteps: [{id: a, run: x}]", 2, "state: 'steps' is unknown here; allowed: inputs"),
    ("name: x\npolicy: sometimes\nsteps: [{id: a, run: x}]", 2, "policy: "),
    ("name: x\nretry: often\nsteps: [{id: a, run: x}]", 2, "retry: "),
    ("name: x\nretry: {atempts: 3}\nsteps: [{id: a, run: x}]", 2, "retry: "),
    ("name: x\nbudget: {money: 3}\nsteps: [{id: a, run: x}]", 2, "budget: "),
    (
        "name: x\ntimeout: soon\nsteps: [{id: a, run: x}]",
        2,
        "timeout must be a number of seconds greater than 0, or text such as 90s, 5m, 1h30m, 2d, got 'soon'",
    ),
    ("name: x\ntimeout: 0\nsteps: [{id: a, run: x}]", 2, "greater than 0"),
    ("name: x\nresult: ${steps.b.result}\nsteps: [{id: a, run: x}]", 2, "result: there is no step 'b'"),
    # a step
    ("name: x\nsteps:\n- run: x", 3, "a step has no 'id'"),
    ("name: x\nsteps:\n- just text", 3, "a step must be a mapping, got 'just text'"),
    ("name: x\nsteps:\n- id: a\n  run: x\n  need: b", 5, "a step has no key 'need' (did you mean 'needs'?); allowed: "),
    ("name: x\nsteps:\n- id: 1a\n  run: x", 3, "id must be made of letters, digits, _ and -, beginning with a letter, got '1a'"),
    ("name: x\nsteps:\n- id: stop\n  run: x", 3, "the id 'stop' is reserved for gates"),
    ("name: x\nsteps:\n- id: a", 3, "step 'a' has neither run nor gate; it needs one of them"),
    ("name: x\nsteps:\n- id: a\n  run: x\n  gate: y", 3, "step 'a' has both run and gate; it needs one of them"),
    ("name: x\nsteps:\n- id: a\n  run: x\n  cwd: y", 5, "'cwd' is not a key of a step; write run: {shell: …, cwd: …}"),
    ("name: x\nsteps:\n- id: a\n  shell: x", 4, "'shell' is not a key of a step; write run: {shell: …}"),
    ("name: x\nsteps:\n- id: a\n  run: {shell: x, pwd: y}", 4, "step 'a': run has no key 'pwd'"),
    ("name: x\nsteps:\n- id: a\n  run: {shell: x, python: 'a:b'}", 4, "step 'a': run has both python and shell"),
    ("name: x\nsteps:\n- id: a\n  run: {cwd: x}", 4, "step 'a': run has neither python nor shell"),
    ("name: x\nsteps:\n- id: a\n  run: {python: 'a:b', cwd: x}", 4, "step 'a': run of a Python callable has no key 'cwd'; allowed: python"),
    ("name: x\nsteps:\n- id: a\n  run: {python: a.b}", 4, "must be of the form package.module:function, got 'a.b'"),
    ("name: x\nsteps:\n- id: a\n  run: 3", 4, "step 'a': run must be a mapping, got 3"),
    ("name: x\nsteps:\n- id: a\n  run: ''", 4, "step 'a': run must be text"),
    (
        "name: x\nsteps:\n- id: a\n  run: echo ${inputs.x}",
        4,
        "${inputs…} is not substituted in commands; pass it under with: and use the variable $EVERSTEP_WITH_",
    ),
    ("name: x\nsteps:\n- id: a\n  run: {shell: x, ok: [256]}", 4, "step 'a': run.ok must be an integer from 0 to 255, got 256"),
    ("name: x\nsteps:\n- id: a\n  run: {shell: x, env: {A-B: 1}}", 4, "'A-B' is not a valid name of an environment variable"),
    ("name: x\nsteps:\n- id: a\n  run: x\n  with: [1]", 5, "step 'a': with must be a mapping, got a list"),
    ("name: x\nsteps:\n- id: a\n  run: x\n  with: {a-b: 1}", 5, "the name of an argument must consist of letters, digits and _, got 'a-b'"),
    ("name: x\nsteps:\n- id: a\n  run: x\n  with:\n    p:\n    - '${1 +}'", 7, "step 'a': with.p: unexpected '+'"),
    ("name: x\nsteps:\n- id: a\n  run: x\n  when: a b", 5, "step 'a': when: unexpected 'b'"),
    ("name: x\nsteps:\n- id: a\n  run: x\n  retry: {delay: soon}", 5, "step 'a': retry.delay must be a number of seconds"),
    ("name: x\nsteps:\n- id: a\n  run: x\n  concurrency: 0", 5, "concurrency must be an integer from 1 to 256, got 0"),
    ("name: x\nsteps:\n- id: a\n  run: x\n  save: a.b", 5, "step 'a': save must be a name of letters, digits and _, got 'a.b'"),
    # needs, order and references
    ("name: x\nsteps:\n- {id: a, run: x}\n- {id: a, run: x}", 4, "duplicate id 'a'; the step in line 3 has the same id"),
    ("name: x\nsteps:\n- {id: a, run: x}\n- parallel:\n  - {id: a, run: x}", 5, "duplicate id 'a'; the step in line 3 has the same id"),
    (
        "name: x\nsteps:\n- {id: fetch, run: x}\n- id: b\n  run: x\n  needs: [fetsh]",
        6,
        "step 'b' needs 'fetsh', but there is no such step (did you mean 'fetch'?)",
    ),
    ("name: x\nsteps:\n- {id: a, run: x, needs: b}\n- {id: b, run: x, needs: a}", 4, "needs form a cycle: a needs b, b needs a"),
    ("name: x\nsteps:\n- {id: a, run: x, needs: a}", 3, "needs form a cycle: a needs a"),
    (
        "name: x\nsteps:\n- {id: z, run: x, needs: a}\n- {id: a, run: x, needs: b}\n- {id: b, run: x, needs: c}\n- {id: c, run: x, needs: a}",
        6,
        "a needs b, b needs c, c needs a",
    ),
    ("name: x\nsteps:\n- parallel: [{id: a, run: x, needs: b}, {id: b, run: x, needs: a}]", 3, "a needs b, b needs a"),
    (
        "name: x\nsteps:\n- parallel: [{id: a, run: x, needs: c}, {id: b, run: x}]\n- {id: c, run: x, needs: b}",
        4,
        "the group of a, b needs c, c needs the group of a, b",
    ),
    (
        "name: x\nsteps:\n- {id: a, run: x, when: steps.b.result}\n- {id: b, run: x}",
        3,
        "step 'a': when: steps.b has not run at that point; add needs: [b]",
    ),
    ("name: x\nsteps:\n- {id: a, run: x, when: steps.a.result}", 3, "steps.a has not run at that point"),
    ("name: x\nsteps:\n- parallel: [{id: a, run: x}, {id: b, run: x, when: steps.a.result}]", 3, "steps.a has not run at that point"),
    (
        "name: x\nsteps:\n- {id: fetch, run: x}\n- {id: b, run: x, when: steps.fetsh.result}",
        4,
        "there is no step 'fetsh' (did you mean 'fetch'?)",
    ),
    ("name: x\nsteps:\n- {id: a, run: x}\n- {id: b, run: x, when: steps.a}", 4, "steps.a must be followed by .result, .status"),
    ("name: x\nsteps:\n- {id: a, run: x}\n- {id: b, run: x, when: steps.a.passed}", 4, "steps.a must be followed by .result, .status"),
    ("name: x\nsteps:\n- {id: a, run: x}\n- {id: b, run: x, when: len(steps)}", 4, "'steps' must be followed by the id of a step"),
    (
        "name: x\nsteps:\n- {id: a, run: x, when: stat.x}",
        3,
        "step 'a': when: 'stat' is unknown here (did you mean 'state'?); allowed: inputs, state, steps",
    ),
    ("name: x\nsteps:\n- {id: a, run: x, with: {p: '${item}'}}", 3, "with.p: 'item' is unknown here"),
    ("name: x\nsteps:\n- {id: a, run: x, for_each: '[1]', when: item}", 3, "when: 'item' is unknown here"),
    ("name: x\nsteps:\n- {id: a, run: x, when: inputs}", 3, "'inputs' must be followed by the name of an input"),
    (
        "name: x\ninputs: [topic]\nsteps:\n- {id: a, run: x, when: inputs.topik}",
        4,
        "there is no input 'topik' (did you mean 'topic'?); declared: topic",
    ),
    # gates and groups
    ("name: x\nsteps:\n- id: g\n  gate: {}", 4, "step 'g': gate has neither ask nor condition"),
    ("name: x\nsteps:\n- id: g\n  gate: {ask: a, choise: [b]}", 4, "step 'g': gate has no key 'choise' (did you mean 'choices'?)"),
    (
        "name: x\nsteps:\n- id: g\n  gate: a\n  retry: 3",
        5,
        "step 'g' is a gate, and a gate has no 'retry'; allowed: description, gate, id, needs, save, when",
    ),
    ("name: x\nsteps:\n- id: g\n  gate: {condition: 'true', choices: [a]}", 4, "step 'g': gate has 'choices' but no ask"),
    ("name: x\nsteps:\n- id: g\n  gate: {ask: a, on_fail: stop}", 4, "step 'g': gate has 'on_fail' but no condition"),
    (
        "name: x\nsteps:\n- id: g\n  gate: {ask: a, choices: [b, c], default: d}",
        4,
        "step 'g': gate: the default 'd' is not a valid answer",
    ),
    ("name: x\nsteps:\n- id: g\n  gate: {ask: a, schema: {typ: string}}", 4, "step 'g': gate: "),
    ("name: x\nsteps:\n- id: g\n  gate: {condition: answer == 1}", 4, "condition: 'answer' is unknown here"),
    (
        "name: x\nsteps:\n- id: g\n  gate: {condition: 'true', on_fail: stopp}",
        4,
        "on_fail is 'stopp' (did you mean 'stop'?); allowed: continue, stop, fail, or the id of a step outside of parallel groups",
    ),
    ("name: x\nsteps:\n- parallel: [{id: a, run: x}]\n- id: g\n  gate: {condition: 'true', on_pass: a}", 5, "on_pass is 'a'"),
    (
        "name: x\nsteps:\n- {id: a, run: x}\n- parallel:\n  - id: g\n    gate: {condition: 'true', on_fail: a}",
        6,
        "allowed: continue, stop, fail (inside a parallel group)",
    ),
    ("name: x\nsteps:\n- parallel: []", 3, "parallel is empty"),
    (
        "name: x\nsteps:\n- parallel: [{id: a, run: x}]\n  id: b",
        4,
        "a parallel group has no key 'id'; allowed: concurrency, description, parallel",
    ),
    ("name: x\nsteps:\n- parallel:\n  - parallel: [{id: a, run: x}]", 4, "a step has no 'id'"),
]


@pytest.mark.parametrize(("text", "line", "message"), REFUSED, ids=[message[:50] for _, _, message in REFUSED])
def test_what_is_wrong_is_refused_with_its_line(text: str, line: int, message: str) -> None:
    error = refused(text)
    assert message in error.message
    assert error.line == line, error.message


def test_allowed_values_of_other_parts_are_named_too() -> None:
    assert "every 5 steps" in str(refused("name: x\npolicy: sometimes\nsteps: [{id: a, run: x}]"))
    assert "attempts" in str(refused("name: x\nretry: {atempts: 3}\nsteps: [{id: a, run: x}]"))
    assert "tokens" in str(refused("name: x\nbudget: {money: 3}\nsteps: [{id: a, run: x}]"))


def test_aliases_work_but_cannot_make_a_small_text_huge() -> None:
    shared = "name: x\nstate: {a: &shared [1, 2], b: *shared}\nsteps: [{id: a, run: x}]"
    assert {k: v.evaluate({}) for k, v in document(shared).state.items()} == {"a": [1, 2], "b": [1, 2]}
    bomb = "name: x\nstate:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    for i in range(1, 10):
        bomb += f"  a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n"
    assert "at most 50,000 values" in refused(bomb).message


def test_depth_and_size_have_a_cap() -> None:
    assert "nested too deeply" in refused("name: x\nstate: " + "[" * 5000 + "]" * 5000).message
    assert "at most 100,000 characters" in refused("name: x\n" + "#" * 100_000).message


def test_without_a_file_the_message_says_what_it_is_about() -> None:
    with pytest.raises(InvalidWorkflow) as caught:
        parse("name: x\nsteps: []")
    assert (caught.value.file, caught.value.line) == (None, 2)
    assert caught.value.message.startswith("workflow:2: ")


@given(st.text(alphabet="abid:run-steps[]{}&*!?|>'\"\n \t#,%@0${}.", max_size=120))
def test_any_text_is_read_or_refused(text: str) -> None:
    for source in (text, f"name: x\nsteps:\n- id: a\n  run: {text}", f"name: x\nsteps:\n- {{id: a, run: x, with: {{p: {text}}}}}"):
        with suppress(EverstepError):
            parse(source)
