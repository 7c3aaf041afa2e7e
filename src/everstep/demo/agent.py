"""The research agent of the demo: a workflow that asks a model, reads notes, decides and writes, with a checkpoint after each step.

An ordinary program that uses only public names of Everstep. It does nothing special to survive a kill.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import everstep
from everstep.demo import corpus, model

QUESTION = "What should an island of 300 homes build in place of its diesel engine?"
WISH = "a steady supply"
DECISION = "before-decision"
HOMES, KILOWATT_HOURS = 300, 3_200
TOOL_SECONDS = 0.12


@everstep.step(kind="llm")
def plan(messages: model.Messages) -> str:
    return think(messages)


@everstep.step(kind="llm")
def judge(messages: model.Messages) -> str:
    return think(messages)


@everstep.step(kind="llm")
def decide(messages: model.Messages) -> str:
    return think(messages)


@everstep.step(kind="llm")
def write(messages: model.Messages) -> str:
    return think(messages)


@everstep.step(kind="tool")
def search(words: str) -> str:
    time.sleep(TOOL_SECONDS)
    return corpus.find(words)


@everstep.step(kind="tool")
def bill(finding: str) -> str:
    time.sleep(TOOL_SECONDS)
    found = model.FINDING.fullmatch(finding)
    cents = int(found["cents"]) if found else 0
    return f"${HOMES * KILOWATT_HOURS * cents // 100:,} a year"


@everstep.workflow
def research(question: str, wish: str) -> str:
    """Look into each option, decide by the wish, and write the answer."""
    everstep.current().state.update(question=question, wish=wish, messages=[], findings={})
    say("system", corpus.INSTRUCTIONS)
    say("user", question)
    options = ask(plan, f"Compare: {', '.join(corpus.NOTES)}")
    save(options)
    for option in options.split(", "):
        look_into(option)
    save("everything needed for the decision is known", tags=[DECISION])
    return conclude()


def look_into(option: str) -> None:
    note = search(option)
    say("tool", note)
    save(f"a note of {len(note.split())} words on the {option}")
    finding = ask(judge, f"Judge: {option}")
    everstep.current().state["findings"][option] = finding
    save(finding)


def conclude() -> str:
    """Decide and write the answer. The state may be that of a fork, with another wish."""
    state = everstep.current().state
    decision = ask(decide, f"Decide: {state['wish']}")
    state["choice"] = decision.partition(",")[0]
    save(decision)
    state["bill"] = bill(state["findings"][state["choice"]])
    say("tool", state["bill"])
    save(state["bill"])
    state["answer"] = ask(write, f"Write: {state['choice']}")
    save(state["answer"])
    return str(state["answer"])


def think(messages: model.Messages) -> str:
    """Call the model inside a step; the cost is recorded with the step."""
    reply = model.complete(messages)
    everstep.current().usage(tokens=reply.tokens, cost=reply.cost)
    return reply.text


def ask(step: Callable[[model.Messages], str], prompt: str) -> str:
    """Make one turn of the conversation. A recorded reply is not paid for again."""
    say("user", prompt)
    reply = step(everstep.current().state["messages"])
    say("model", reply)
    return reply


def say(role: str, text: str) -> None:
    everstep.current().state["messages"].append({"role": role, "text": text})


def save(note: str, tags: Sequence[str] = ()) -> None:
    everstep.current().checkpoint(note=note, tags=tags)
