"""Tests whether a text matches a regular expression, in a number of steps that is bounded by the lengths of both.

`re` tries one path after the other, so a pattern such as (a+)+$ can take exponential time. This module follows all paths at once: a pattern
becomes a program of states, and for each character it computes the set of states that the paths have reached. The parser of `re` reads the
patterns, and `re` itself tests single characters and positions, so the two agree. A pattern with at most one variable repeat and no
alternatives is left to `re`, which is faster and needs quadratic time at most.

Back references, conditions, atomic groups and possessive repeats can't be followed in this way, and are refused. No I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

MOST_STATES = 10_000
_parser: Any = import_module("re._parser")
_compiler: Any = import_module("re._compiler")
_ops: Any = import_module("re._constants")

_CHARACTER = (_ops.LITERAL, _ops.NOT_LITERAL, _ops.ANY, _ops.IN)
_REPEAT = (_ops.MAX_REPEAT, _ops.MIN_REPEAT)
_LOOK = (_ops.ASSERT, _ops.ASSERT_NOT)
_UNKNOWN = {
    _ops.GROUPREF: "a back reference",
    _ops.GROUPREF_EXISTS: "a condition",
    _ops.ATOMIC_GROUP: "an atomic group",
    _ops.POSSESSIVE_REPEAT: "a possessive repeat",
}


class Unbounded(ValueError):
    """A pattern that can't be tested in bounded time, or a test that took too many steps."""


class Steps:
    """How many steps are left."""

    def __init__(self, most: int):
        self.left = most

    def take(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise Unbounded("testing it takes too many steps")


class _State(NamedTuple):
    """A state reads one character, tests a position between two characters, forks, or is the end; `after` lists the next states."""

    reads: Callable[[str], bool] | None
    holds: Callable[[str, int, Steps], bool] | None
    after: list[int]


@lru_cache(64)
def compiled(pattern: str) -> Callable[[str, Steps], bool]:
    """Return the test for a pattern: whether it is found anywhere in a text. Raises `re.error`, or `Unbounded` for a refused pattern."""
    tree = _parser.parse(pattern)
    if _is_simple(tree):
        search = re.compile(pattern).search
        return lambda text, steps: steps.take(len(text)) or search(text) is not None  # type: ignore[func-returns-value]
    program = _Program()
    start = program.sequence(tree, program.end(), tree.state.flags)
    return lambda text, steps: program.run(start, text, 0, steps, anywhere=True)


def _is_simple(tree: Any) -> bool:
    """Whether `re` has at most one choice to backtrack to: one variable repeat, not inside of another repeat, and no alternatives."""
    variable = 0
    waiting = [(one, False) for one in tree]
    while waiting:
        (op, given), inside = waiting.pop()
        if op in _REPEAT:
            low, high, body = given
            variable += low != high
            if inside or len(body) != 1 or body[0][0] not in _CHARACTER:
                return False
        elif op is _ops.SUBPATTERN:
            waiting += [(one, inside) for one in given[3]]
        elif op not in _CHARACTER and op is not _ops.AT:
            return False
    return variable <= 1


class _Program:
    """The states of a pattern. Built from its end, because each state names the next ones."""

    def __init__(self) -> None:
        self._states: list[_State] = []
        self._readers: dict[Any, Callable[[str], bool]] = {}  # one for all copies of a repeated item
        self._cost = 0

    def end(self) -> int:
        return self._add(_State(None, None, []))

    def _add(self, state: _State) -> int:
        self._spend()
        self._states.append(state)
        return len(self._states) - 1

    def _spend(self) -> None:
        """Count everything that is built, also copies of an empty repeat: (){4000000000} has no states and would be built forever."""
        self._cost += 1
        if self._cost > MOST_STATES:
            raise Unbounded(f"it has more than {MOST_STATES:,} states")

    def sequence(self, items: Any, after: int, flags: int) -> int:
        """Build items in sequence; return the first state."""
        for op, given in reversed(list(items)):
            after = self._item(op, given, after, flags)
        return after

    def _item(self, op: Any, given: Any, after: int, flags: int) -> int:
        if op in _CHARACTER:
            key = (op, str(given), flags)
            reader = self._readers.get(key) or self._readers.setdefault(key, _reader(op, given, flags))
            return self._add(_State(reader, None, [after]))
        if op is _ops.AT:
            test = _alone(op, given, flags).match
            return self._add(_State(None, lambda text, at, steps: test(text, at) is not None, [after]))
        if op is _ops.SUBPATTERN:
            _, added, removed, body = given
            return self.sequence(body, after, (flags | added) & ~removed)
        if op is _ops.BRANCH:
            return self._add(_State(None, None, [self.sequence(body, after, flags) for body in given[1]]))
        if op in _REPEAT:
            return self._repeat(given, after, flags)
        if op in _LOOK:
            return self._add(_State(None, self._look(op is _ops.ASSERT, given, flags), [after]))
        if op is _ops.FAILURE:
            return self._add(_State(None, lambda text, at, steps: False, [after]))
        raise Unbounded(f"it has {_UNKNOWN.get(op, str(op).lower())}")

    def _repeat(self, given: Any, after: int, flags: int) -> int:
        low, high, body = given
        if high is _ops.MAXREPEAT:
            loop = self._add(_State(None, None, [after]))
            again = self.sequence(body, loop, flags)
            self._states[loop].after.append(again)
            first, low = (again, low - 1) if low else (loop, 0)  # a copy for + would double what is nested in it
        else:
            first = after
            for _ in range(high - low):
                self._spend()
                first = self._add(_State(None, None, [after, self.sequence(body, first, flags)]))
        for _ in range(low):
            self._spend()
            first = self.sequence(body, first, flags)
        return first

    def _look(self, wanted: bool, given: Any, flags: int) -> Callable[[str, int, Steps], bool]:
        """Build a lookahead, or a lookbehind, whose width `re` guarantees to be fixed."""
        direction, body = given
        start = self.sequence(body, self.end(), flags)
        back = body.getwidth()[0] if direction < 0 else 0
        return lambda text, at, steps: wanted == (at >= back and self.run(start, text, at - back, steps, anywhere=False))

    def run(self, start: int, text: str, at: int, steps: Steps, *, anywhere: bool) -> bool:
        """Whether some path from the start reaches an end; with `anywhere`, paths begin at each later position, too."""
        reached: list[int] = [start]
        while True:
            here = self._spread(reached, text, at, steps)
            if here is None:
                return True
            if at == len(text) or not (here or anywhere):
                return False
            character = text[at]
            at += 1
            reached = [self._states[state].after[0] for state in here if self._states[state].reads(character)]  # type: ignore[misc]
            if anywhere:
                reached.append(start)

    def _spread(self, reached: list[int], text: str, at: int, steps: Steps) -> list[int] | None:
        """Return the states that read the next character, of all that can be reached without one; None if an end is reached."""
        seen, reading = set(reached), []
        waiting = list(seen)
        while waiting:
            steps.take(1)
            number = waiting.pop()
            state = self._states[number]
            if state.reads is not None:
                reading.append(number)
                continue
            if not state.after:
                return None
            if state.holds is None or state.holds(text, at, steps):
                for one in state.after:
                    if one not in seen:
                        seen.add(one)
                        waiting.append(one)
        return reading


def _alone(op: Any, given: Any, flags: int) -> re.Pattern[str]:
    """Return one item of a pattern as a pattern of its own."""
    state = _parser.State()
    state.flags = flags
    made: re.Pattern[str] = _compiler.compile(_parser.SubPattern(state, [(op, given)]), flags)
    return made


def _reader(op: Any, given: Any, flags: int) -> Callable[[str], bool]:
    test = _alone(op, given, flags).match
    known: dict[str, bool] = {}

    def reads(character: str) -> bool:
        found = known.get(character)
        if found is None:
            found = known[character] = test(character) is not None
        return found

    return reads
