"""A run whose document has changed: what was finished is kept where that makes sense; otherwise the resume is refused with a diff."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import yaml_actions as actions

import everstep
from everstep import yaml
from everstep.errors import DefinitionChanged, NonDeterminism, UnknownWorkflow
from everstep.runtime import workflow
from everstep.yaml.compatible import reasons
from everstep.yaml.document import parse


@pytest.fixture(autouse=True)
def _fresh() -> None:
    actions.reset()


BEFORE = """
name: flow
version: 1.4
inputs: {topic: logs}
state: {a: 1}
steps:
  - {id: plan, run: 'yaml_actions:plan', with: {topic: "${inputs.topic}"}, retry: 2, save: plan}
  - {id: search, run: 'yaml_actions:search', for_each: steps.plan.result, with: {query: "${item}"}}
  - {id: list, run: {shell: echo list, env: {A: "1"}}}
  - {id: notify, run: 'yaml_actions:say', with: {word: begun}}
  - {id: agreed, gate: {ask: 'Agreed?', choices: [yes, no]}}
  - {id: good, gate: {condition: steps.agreed.result == 'yes'}}
  - {id: hold, gate: 'Go on?'}
  - {id: publish, run: 'yaml_actions:say', needs: [list], with: {word: "${steps.search.result[0]}"}}
"""


def changed(*pairs: str) -> str:
    text = BEFORE
    for old, new in zip(pairs[::2], pairs[1::2], strict=True):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


LINES = {line.split("id: ")[1].split(",")[0]: line + "\n" for line in BEFORE.splitlines() if "id: " in line}

FINE = {
    "only spaces, comments or quoting": changed("name: flow", "# the same\nname: 'flow'"),
    "how steps run": changed(
        "retry: 2",
        "retry: {attempts: 5}, timeout: 10m, kind: llm, description: thinks",
        "name: flow",
        "name: flow\npolicy: on gate\ndescription: new",
    ),
    "a step added at the end": BEFORE + "  - {id: after, run: 'yaml_actions:say', with: {word: after}}\n",
    "a step added in the middle": changed(LINES["list"], LINES["list"] + "  - {id: more, run: 'yaml_actions:say', with: {word: more}}\n"),
    "a step removed whose result was not used": changed(LINES["notify"], ""),
    "the order of steps that do not need each other": changed(LINES["list"], "", LINES["plan"], LINES["list"] + LINES["plan"]),
    "a step put into a group": changed(LINES["list"], "  - parallel:\n    " + LINES["list"].lstrip()),
    "a step that the run has not reached": changed('word: "${steps.search.result[0]}"', "word: other"),
    "the minor version": changed("1.4", "1.5"),
    "a new input with a default": changed("{topic: logs}", "{topic: logs, depth: 3}"),
    "a choice added": changed("[yes, no]", "[yes, no, later]"),
    "where a gate leads": changed("steps.agreed.result == 'yes'}", "steps.agreed.result == 'yes', on_fail: stop}"),
    "what is saved where": changed("save: plan", "save: queries", "state: {a: 1}", "state: {a: 1, b: 2}"),
}

REFUSED = {
    "another callable": (
        changed("'yaml_actions:search'", "'yaml_actions:Agent.ask'", "{query:", "{question:"),
        "step 'search' ran yaml_actions:search and would now run yaml_actions:Agent.ask",
    ),
    "another command": (changed("echo list", "echo others"), "the command of step 'list' changed"),
    "another kind of step": (
        changed('run: {shell: echo list, env: {A: "1"}}', "run: 'yaml_actions:say'"),
        "step 'list' was a command and is now a Python callable",
    ),
    "a step that became a gate": (
        changed("run: 'yaml_actions:say', with: {word: begun}", "gate: 'Ready?'"),
        "step 'notify' was a Python callable and is now a gate",
    ),
    "one result instead of many": (
        changed('for_each: steps.plan.result, with: {query: "${item}"}', "with: {query: a}"),
        "step 'search' no longer has a for_each",
    ),
    "many results instead of one": (
        changed("with: {word: begun}", "for_each: [1], with: {word: begun}"),
        "step 'notify' now has a for_each",
    ),
    "a needed step removed": (changed(LINES["list"], "", "needs: [list], ", ""), "step 'list' was removed, but 'publish' used its result"),
    "a used step removed": (
        changed(LINES["search"], "", 'word: "${steps.search.result[0]}"', "word: x"),
        "step 'search' was removed, but 'publish' used its result",
    ),
    "a step renamed": (changed("id: notify", "id: tell"), "step 'notify' is now called 'tell', and would run again under that name"),
    "the major version": (changed("1.4", "2.0"), "the version changed from 1.4 to 2.0"),
    "a version dropped": (changed("version: 1.4\n", ""), "the version changed from 1.4 to none"),
    "an input removed": (changed("{topic: logs}", "{}", '"${inputs.topic}"', "logs"), "the input 'topic' was removed"),
    "a new input without a default": (changed("{topic: logs}", "{topic: logs, depth: }"), "the new input 'depth' has no default"),
    "another question": (changed("'Agreed?'", "'Refused?'"), "the ask of gate 'agreed' changed"),
    "an answer no longer allowed": (changed("[yes, no]", "[no]"), "gate 'agreed' no longer allows yes"),
    "another shape of answers": (changed("choices: [yes, no]", "schema: {type: string}"), "the schema of gate 'agreed' changed"),
    "another condition": (changed("== 'yes'", "!= 'no'"), "the condition of gate 'good' changed"),
}


def waiting(store: everstep.Store) -> None:
    """A run that has come to its last gate."""
    store.start(yaml.load("flow.yaml", BEFORE), topic="logs", id="r")
    store.answer("r", "agreed", "yes")
    assert [g.name for g in store.resume("r").gates] == ["hold"]
    actions.calls.clear()


@pytest.mark.parametrize("name", FINE)
def test_a_change_that_does_no_harm_is_shown_and_the_run_goes_on(name: str, store: everstep.Store) -> None:
    waiting(store)
    yaml.load("flow.yaml", FINE[name])
    store.answer("r", "hold", 1)
    out = store.resume("r")
    assert out.status == "succeeded", out.error
    assert out.report.changed.startswith("--- began with\n+++ now\n")
    assert "the definition has changed" in str(out.report)
    kept = {"plan", "search", "list", "notify"} - ({"notify"} if "removed" in name else set())
    assert out.report.kept == len(kept) + 2
    assert [c for c in actions.calls if c[0] != "say"] == []


def test_a_removed_step_is_named_in_the_report(store: everstep.Store) -> None:
    waiting(store)
    yaml.load("flow.yaml", FINE["a step removed whose result was not used"])
    store.answer("r", "hold", 1)
    assert store.resume("r").report.unused == ["notify#0"]


def test_an_added_step_runs_when_the_replay_comes_to_it(store: everstep.Store) -> None:
    waiting(store)
    yaml.load("flow.yaml", FINE["a step added in the middle"])
    store.answer("r", "hold", 1)
    store.resume("r").unwrap()
    assert actions.calls == [("say", "more"), ("say", "LOGS-0")]


@pytest.mark.parametrize("name", REFUSED)
def test_a_change_that_makes_results_meaningless_is_refused_with_a_diff(name: str, store: everstep.Store) -> None:
    waiting(store)
    text, reason = REFUSED[name]
    yaml.load("flow.yaml", text)
    with pytest.raises(DefinitionChanged) as caught:
        store.resume("r")
    assert reason in caught.value.message
    assert caught.value.difference.startswith("--- began with\n+++ now\n")
    assert "anyway=True" in caught.value.remedy
    assert actions.calls == []
    assert [g.name for g in store.gates("r") if not g.answered] == ["hold"]  # nothing happened to the run


@pytest.mark.parametrize(
    "name",
    [
        n
        for n in REFUSED
        if n not in ("another kind of step", "a step that became a gate", "one result instead of many", "a new input without a default")
    ],
)
def test_told_to_the_run_goes_on_with_what_it_has(name: str, store: everstep.Store) -> None:
    waiting(store)
    yaml.load("flow.yaml", REFUSED[name][0])
    store.answer("r", "hold", 1)
    out = store.resume("r", anyway=True, accept=["search#0", "search#1", "search#2"])
    assert out.status == "succeeded", out.error
    assert out.report.changed


def test_a_finished_step_that_is_given_something_else_is_noticed_at_replay(store: everstep.Store) -> None:
    waiting(store)
    yaml.load("flow.yaml", changed("with: {word: begun}", "with: {word: started}"))
    out = store.resume("r")
    assert isinstance(out.error, NonDeterminism)
    assert out.error.address == "notify#0"
    assert store.resume("r", accept=["notify#0"]).status == "waiting"


def test_a_step_whose_when_has_changed_is_noticed_at_replay(store: everstep.Store) -> None:
    before = (
        "name: flow\nsteps:\n- {id: a, run: 'yaml_actions:say', when: 'false'}\n- {id: b, run: 'yaml_actions:say'}\n- {id: hold, gate: x}"
    )
    store.start(yaml.load("flow.yaml", before), id="r")
    for old, new, address in (("when: 'false'", "when: 'true'", "a#0"), ("{id: b,", "{id: b, when: 'false',", "b#0")):
        yaml.load("flow.yaml", before.replace(old, new))
        out = store.resume("r")
        assert isinstance(out.error, NonDeterminism)
        assert out.error.address == address
    assert actions.calls == [("say", "nothing")]


def test_what_the_run_has_not_come_to_may_change_freely_where_that_is_known() -> None:
    before, after = parse(BEFORE), parse(changed("echo list", "echo others", "'Agreed?'", "'Refused?'"))
    assert len(reasons(after, before.text)) == 2
    assert reasons(after, before.text, begun={"plan", "list"}) == ["the command of step 'list' changed"]
    assert reasons(after, before.text, begun={"plan"}) == []


def test_a_definition_that_cannot_be_read_any_more_is_a_reason() -> None:
    assert reasons(parse(BEFORE), "name: flow\nsteps: []")[0].startswith(
        "the recorded definition can no longer be read: the recorded definition:2:"
    )


def test_nothing_that_a_recorded_definition_names_is_imported(
    store: everstep.Store, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil_module.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SystemExit):
        yaml.load("flow.yaml", "name: flow\nsteps: [{id: a, run: 'evil_module:fn'}]")
    good = "name: flow\nsteps: [{id: a, run: 'yaml_actions:say'}, {id: g, gate: x}]"
    found = yaml.load("flow.yaml", good)
    found.definition = good.replace("yaml_actions:say", "evil_module:fn")  # as somebody could have written it into a store
    store.start(found, id="r")
    yaml.load("flow.yaml", good)
    with pytest.raises(DefinitionChanged, match="ran evil_module:fn"):
        store.resume("r")
    assert store.resume("r", anyway=True).status == "waiting"
    assert "evil_module" not in sys.modules


def test_a_document_that_was_not_loaded_is_not_found(store: everstep.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting(store)
    monkeypatch.setattr(workflow, "_known", {})
    with pytest.raises(UnknownWorkflow, match="'flow'"):
        store.resume("r")
