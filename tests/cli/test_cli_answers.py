"""The answers that a gate takes are shown, and the command that is suggested for one of them can be typed."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import Shop

import everstep
from everstep.cli.args.workflow_target import value_of
from everstep.cli.draw.values import answers, example


def wait_for_an_approval(shop: Shop) -> str:
    loop = everstep.AgentLoop(
        lambda state: {"tool": "pay", "input": {}} if state.turn == 0 else "done", tools={"pay": lambda: 1}, approve=lambda action: True
    )
    with everstep.open(Path(shop.folder) / ".everstep" / "store.db") as store:
        return loop.run(store, "a", "Pay").gates[0].name


def test_the_answers_to_an_approval_are_listed(empty: Shop) -> None:
    gate = wait_for_an_approval(empty)
    for command in (["answer", "a"], ["inbox"], ["show", "a"]):
        said = empty.call(*command).ok().out
        assert all(word in said for word in ('"yes"', '"no"', "true", "false", '{"answer": …}')), said
    refused = empty.call("answer", "a", gate, "maybe")
    assert "See what the gate asks for: `everstep answer a`." in refused.err


@pytest.mark.parametrize("choice", ["yes", "not now", "3", "null", "@home", "-1", "it's", 3, True, 1.5])
def test_a_suggested_answer_can_be_typed(choice: Any) -> None:
    (typed,) = shlex.split(example({"enum": [choice, "other"]}))
    assert value_of(typed) == choice
    assert not typed.startswith("-")


@pytest.mark.parametrize(
    ("schema", "named", "first"),
    [
        (None, [], "VALUE"),
        (True, [], "VALUE"),
        ({"type": "string"}, [], "VALUE"),
        ({"type": "boolean"}, ["true", "false"], "true"),
        ({"type": "object", "required": ["a", "b"]}, ['{"a": …, "b": …}'], "VALUE"),
        ({"anyOf": [{"enum": [[1], "x"]}, True, {"type": "null"}]}, ["[1]", '"x"'], "x"),
    ],
)
def test_a_schema_names_its_answers(schema: Any, named: list[str], first: str) -> None:
    assert (answers(schema), example(schema)) == (named, first)


def test_a_gate_cannot_be_skipped(empty: Shop) -> None:
    gate = wait_for_an_approval(empty)
    refused = empty.call("skip", "a", gate, "yes")
    assert refused.code == 2
    assert f"{gate}#0 of run 'a' is a gate, not a step" in refused.err
    assert f"everstep answer a '{gate}#0' VALUE" in refused.err


async def ask_both() -> list[Any]:
    return list(await asyncio.gather(everstep.gate("send", ask="To ann?"), everstep.gate("send", ask="To bob?")))


def test_two_open_questions_of_one_name_are_named_by_their_addresses(empty: Shop) -> None:
    both = everstep.workflow(name="both")(ask_both)
    with everstep.open(Path(empty.folder) / ".everstep" / "store.db") as store:
        assert store.start(both, id="r").status == "waiting"
        refused = empty.call("answer", "r", "send", "yes")
        assert refused.code == 2
        assert "2 open gates 'send'" in refused.err
        assert "send#0, send#1" in refused.err
        assert not any(gate.answered for gate in store.gates("r"))
        for command in (["answer", "r"], ["inbox"], ["show", "r"]):
            said = empty.call(*command).ok().out
            assert said.index("send#0") < said.index("To ann?") < said.index("send#1") < said.index("To bob?"), said
        assert "everstep answer r 'send#1' VALUE" in empty.call("log", "r").ok().err

        empty.call("answer", "r", "send#1", "no").ok()
        empty.call("answer", "r", "send", "yes").ok()  # only one question of this name is left
        assert store.resume("r").result == ["yes", "no"]
