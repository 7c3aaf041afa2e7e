"""Relations between the entries of a YAML workflow: the order in which they run, and their references to each other.

Entries run one after the other: those without `needs` in the order of the document, one with `needs` as soon as all of them have run and no
entry before it is ready. So the order is the same in every run and every replay. A step may only refer to steps that ran before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from everstep.expressions.values import suggestion
from everstep.fields import replace
from everstep.yaml.action import NEXT, Gate
from everstep.yaml.nodes import Reader
from everstep.yaml.step import Entry, Group, Step
from everstep.yaml.value import Value

OF_A_STEP = ("result", "status", "passed")
Needs = Mapping[str, Mapping[str, int]]  # a name, the names that it needs, and the line of each


def steps_of(entry: Entry) -> tuple[Step, ...]:
    return entry.steps if isinstance(entry, Group) else (entry,)


def ordered(reader: Reader, entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return the entries in the order in which they run; members of a group are sorted so that each comes after the members that it needs."""
    _check_ids(reader, entries)
    names = {step.id: _name(entry) for entry in entries for step in steps_of(entry)}
    for step in (s for entry in entries for s in steps_of(entry)):
        for needed, line in step.needs.items():
            if needed not in names:
                reader.fail(line, f"step '{step.id}' needs '{needed}', but there is no such step{suggestion(needed, names)}")
    entries = [_with_sorted_members(reader, entry) if isinstance(entry, Group) else entry for entry in entries]
    by_name = {_name(entry): entry for entry in entries}
    needs = {
        name: {names[n]: line for s in steps_of(entry) for n, line in s.needs.items() if names[n] != name or isinstance(entry, Step)}
        for name, entry in by_name.items()
    }
    return tuple(by_name[name] for name in _sorted(reader, needs))


def _check_ids(reader: Reader, entries: Sequence[Entry]) -> None:
    lines: dict[str, int] = {}
    for step in (s for e in entries for s in steps_of(e)):
        if step.id in lines:
            reader.fail(step.line, f"duplicate id '{step.id}'; the step in line {lines[step.id]} has the same id")
        lines[step.id] = step.line


def _name(entry: Entry) -> str:
    return entry.id if isinstance(entry, Step) else f"the group of {', '.join(sorted(step.id for step in entry.steps))}"


def _with_sorted_members(reader: Reader, group: Group) -> Group:
    members = {step.id: step for step in group.steps}
    needs = {step.id: {n: line for n, line in step.needs.items() if n in members} for step in group.steps}
    return replace(group, steps=tuple(members[name] for name in _sorted(reader, needs)))


def _sorted(reader: Reader, needs: Needs) -> list[str]:
    """Sort names: repeatedly take the first one whose needs are met."""
    left = dict(needs)
    done: list[str] = []
    while left:
        ready = next((name for name, wanted in left.items() if not any(w in left for w in wanted)), None)
        if ready is None:
            _refuse_cycle(reader, left)
        else:
            done.append(ready)
            del left[ready]
    return done


def _refuse_cycle(reader: Reader, left: Needs) -> None:
    walk = [next(iter(left))]
    while (following := next(name for name in left[walk[-1]] if name in left)) not in walk:
        walk.append(following)
    cycle = [*walk[walk.index(following) :], following]
    words = ", ".join(f"{one} needs {other}" for one, other in pairwise(cycle))
    reader.fail(left[walk[-1]][following], f"needs form a cycle: {words}")


class References:
    """Checks the names that expressions refer to, and collects the inputs among them."""

    def __init__(self, reader: Reader, order: Sequence[Entry], inputs: Collection[str] | None):
        self._reader = reader
        self._steps = {step.id: step for entry in order for step in steps_of(entry)}
        self._order = order
        self._inputs = inputs
        self.inputs: dict[str, None] = {}  # in the order of their first use

    def check_steps(self) -> None:
        before: set[str] = set()
        for entry in self._order:
            inside: dict[str, set[str]] = {}
            for step in steps_of(entry):
                inside[step.id] = {m for n in step.needs if n in inside for m in (n, *inside[n])}
                self._check_step(step, before | inside[step.id])
            before.update(inside)

    def check_values(self, what: str, values: Iterable[Value], roots: Collection[str]) -> None:
        """Check values outside of the steps."""
        for value in values:
            self._check(what, value, roots, self._steps.keys())

    def _check_step(self, step: Step, before: Collection[str]) -> None:
        for key, value in step.values():
            roots = ["inputs", "state", "steps"]
            if step.for_each is not None and key not in ("when", "for_each"):
                roots += ["item", "index"]
            if key == "condition" and isinstance(step.action, Gate) and step.action.ask is not None:
                roots += ["answer"]
            self._check(f"step '{step.id}': {key}", value, roots, before)

    def _check(self, what: str, value: Value, roots: Collection[str], before: Collection[str]) -> None:
        for expression, line in value.expressions():
            for path in expression.paths():
                fault = self._fault(path, roots, before)
                if fault:
                    self._reader.fail(line, f"{what}: {fault}")

    def _fault(self, path: tuple[Any, ...], roots: Collection[str], before: Collection[str]) -> str | None:
        root, *members = path
        if root not in roots:
            return f"'{root}' is unknown here{suggestion(root, roots)}; allowed: {', '.join(roots)}"
        if root == "steps":
            return self._step_fault(members, before)
        if root == "inputs":
            return self._input_fault(members)
        return None

    def _step_fault(self, members: list[Any], before: Collection[str]) -> str | None:
        if not members or members[0] not in self._steps:
            known = suggestion(str(members[0]), self._steps) if members else "; write steps.<id>.result"
            return f"there is no step '{members[0]}'{known}" if members else f"'steps' must be followed by the id of a step{known}"
        step = self._steps[members[0]]
        allowed = OF_A_STEP if isinstance(step.action, Gate) else OF_A_STEP[:2]
        if len(members) < 2 or members[1] not in allowed:
            return f"steps.{step.id} must be followed by {', '.join('.' + name for name in allowed)}"
        if step.id not in before:
            return f"steps.{step.id} has not run at that point; add needs: [{step.id}]"
        return None

    def _input_fault(self, members: list[Any]) -> str | None:
        if not members or not isinstance(members[0], str):
            return "'inputs' must be followed by the name of an input, such as inputs.topic"
        self.inputs[members[0]] = None
        if self._inputs is not None and members[0] not in self._inputs:
            return f"there is no input '{members[0]}'{suggestion(members[0], self._inputs)}; declared: {', '.join(self._inputs) or 'none'}"
        return None


def check_jumps(reader: Reader, order: Sequence[Entry]) -> None:
    """Check the targets of gates: a keyword, or a step outside of parallel groups."""
    targets = {entry.id for entry in order if isinstance(entry, Step)}
    for entry in order:
        for step in steps_of(entry):
            if isinstance(step.action, Gate):
                _check_jump(reader, step, step.action, targets if isinstance(entry, Step) else set())


def _check_jump(reader: Reader, step: Step, gate: Gate, targets: set[str]) -> None:
    for key, where in (("on_pass", gate.on_pass), ("on_fail", gate.on_fail)):
        if where in NEXT or where in targets:
            continue
        allowed = (
            f"{', '.join(NEXT)}, or the id of a step outside of parallel groups"
            if targets
            else f"{', '.join(NEXT)} (inside a parallel group)"
        )
        reader.fail(gate.line, f"step '{step.id}': {key} is '{where}'{suggestion(where, [*NEXT, *targets])}; allowed: {allowed}")
