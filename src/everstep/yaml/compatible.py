"""Whether a run that began under one document can be resumed under another one.

Recorded results are kept, so the question is which changes give a recorded result another meaning. Settings of *how* a step runs (retry,
timeout, concurrency, policy, budget, descriptions) never do. The input of a step is compared when it is replayed. This module checks the
rest: which code produced a result, and what the result means. `docs/yaml.md` has the table. Reads documents, imports nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from everstep.errors import InvalidWorkflow
from everstep.yaml.action import Call, Command, Gate
from everstep.yaml.document import Document, parse
from everstep.yaml.step import Step


def reasons(new: Document, old_text: str, begun: Collection[str] | None = None) -> list[str]:
    """List why a run of the old text cannot be resumed under the new document; empty if it can.

    `begun` holds the ids of the steps that the run has reached, if known: changes to other steps are harmless.
    """
    try:
        old = parse(old_text, "the recorded definition")
    except InvalidWorkflow as error:
        return [f"the recorded definition can no longer be read: {error.message}"]
    return [*_of_workflow(old, new), *_of_steps(old, new, begun)]


def _of_workflow(old: Document, new: Document) -> Iterator[str]:
    if _major(old) != _major(new):
        yield f"the version changed from {old.version or 'none'} to {new.version or 'none'}"
    for name in old.inputs:
        if name not in new.inputs:
            yield f"the input '{name}' was removed"
    for name, one in new.inputs.items():
        if name not in old.inputs and not one.default:
            yield f"the new input '{name}' has no default"


def _major(document: Document) -> str | None:
    return None if document.version is None else document.version.partition(".")[0]


def _of_steps(old: Document, new: Document, begun: Collection[str] | None) -> Iterator[str]:
    now = {step.id: step for step in new.steps}
    used = _used(old)
    added = [step for step in new.steps if step.id not in {s.id for s in old.steps}]
    for step in old.steps:
        if begun is not None and step.id not in begun:
            continue
        if step.id in now:
            yield from _of_step(step, now[step.id])
            continue
        same = next((s.id for s in added if _work(s) == _work(step)), None)
        if same is not None:
            yield f"step '{step.id}' is now called '{same}', and would run again under that name"
        elif step.id in used:
            yield f"step '{step.id}' was removed, but '{used[step.id]}' used its result"


def _used(document: Document) -> dict[str, str]:
    """Map each step whose result is used to one step that uses it."""
    used: dict[str, str] = {}
    for step in document.steps:
        for name in step.needs:
            used.setdefault(name, step.id)
        for _, value in step.values():
            for expression, _ in value.expressions():
                for path in expression.paths():
                    if path[0] == "steps":
                        used.setdefault(path[1], step.id)
    for expression, _ in document.result.expressions() if document.result is not None else ():
        for path in expression.paths():
            if path[0] == "steps":
                used.setdefault(path[1], "result")
    return used


def _work(step: Step) -> tuple[Any, ...]:
    return step.plain.get("run"), step.plain.get("gate"), step.plain.get("with"), step.plain.get("for_each")


def _of_step(old: Step, new: Step) -> Iterator[str]:
    if type(old.action) is not type(new.action):
        yield f"step '{old.id}' was {_kind(old)} and is now {_kind(new)}"
    elif (old.for_each is None) != (new.for_each is None):
        yield f"step '{old.id}' {'no longer has a' if new.for_each is None else 'now has a'} for_each, so its result has another shape"
    elif isinstance(old.action, Call) and isinstance(new.action, Call):
        if old.action.target != new.action.target:
            yield f"step '{old.id}' ran {old.action.target} and would now run {new.action.target}"
    elif isinstance(old.action, Command) and isinstance(new.action, Command):
        if old.action.text.strip() != new.action.text.strip():
            yield f"the command of step '{old.id}' changed"
    elif isinstance(old.action, Gate) and isinstance(new.action, Gate):
        yield from _of_gate(old.id, old.plain["gate"], new.plain["gate"])


def _kind(step: Step) -> str:
    return {Call: "a Python callable", Command: "a command", Gate: "a gate"}[type(step.action)]


def _of_gate(id: str, old: Any, new: Any) -> Iterator[str]:
    before, after = _questions(old), _questions(new)
    for key in ("ask", "schema", "condition"):
        if before.get(key) != after.get(key):
            yield f"the {key} of gate '{id}' changed"
    allowed = after.get("choices")
    gone = [] if allowed is None else [one for one in before.get("choices") or [] if one not in allowed]
    if gone or (allowed is not None and before.get("choices") is None):
        yield f"gate '{id}' no longer allows {', '.join(map(str, gone)) or 'any answer'}"


def _questions(gate: Any) -> Mapping[str, Any]:
    return gate if isinstance(gate, Mapping) else {"ask": gate}
