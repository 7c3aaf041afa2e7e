"""Policies: when a run makes checkpoints automatically, such as `every(steps=5) | on("gate", "llm")`.

As text, in one line, for configurations and for `str`:

    policy  = "manual" | "off" | part { "|" part }
    part    = "every" [number] ("step" | "steps" | "s" | "min" | "h" | their long forms)  |  "on" event { "," event }

A policy only decides; it counts nothing and saves nothing. No I/O, no clock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from everstep.codec.explain import shown
from everstep.durations import to_seconds
from everstep.errors import InvalidArgument
from everstep.fields import Shape
from everstep.runtime.limits.checks import check_keys, check_number

if TYPE_CHECKING:
    from everstep.durations import Duration

KINDS = ("llm", "tool")
EVENTS = ("step", "pre_step", "post_step", "gate", *KINDS, "error", "milestone")
_ALLOWED = f"{', '.join(EVENTS)}, or custom:name for your own event or kind of step"
_FORMS = "'every 5 steps', 'every 30 s', 'on gate, llm', several of them joined by |, 'manual' or 'off'"
_CUSTOM = re.compile(r"custom:[^\W\d][\w.:/-]{0,99}")
_EVERY = re.compile(r"every(?:\s+(?P<number>[0-9][0-9.e+-]*))?\s+(?P<unit>[a-z]+)")
_UNITS = {"s": 1, "sec": 1, "second": 1, "seconds": 1, "min": 60, "minute": 60, "minutes": 60, "h": 3600, "hour": 3600, "hours": 3600}


def is_custom(name: object) -> bool:
    """Whether this is the full name of a user's event: custom: and 1 to 100 letters, digits or _ . : / - that begin with a letter."""
    return isinstance(name, str) and _CUSTOM.fullmatch(name) is not None


class Policy(Shape, frozen=True):
    """A rule that says when checkpoints are made automatically. Make one with `every`, `on`, `manual` and `off`; join them with `|`.

    A joined policy makes a checkpoint when any part asks for one. Every checkpoint, also a manual one, resets all counts.
    With `manual`, only `run.checkpoint` saves. With `off`, nothing is recorded and steps are plain calls, so it cannot be combined
    with anything.
    """

    steps: int | None = None
    seconds: float | None = None
    events: frozenset[str] = frozenset()
    off: bool = False

    def __post_init__(self) -> None:
        if self.steps is not None:
            check_number(self.steps, "steps", least=1, whole=True)
        if self.seconds is not None:
            object.__setattr__(self, "seconds", float(check_number(to_seconds(self.seconds, "seconds"), "seconds", above=True)))
        object.__setattr__(self, "events", frozenset(_event(name) for name in self.events))
        if type(self.off) is not bool or (self.off and (self.steps or self.seconds or self.events)):
            raise InvalidArgument(f"off={shown(self.off)} cannot be combined with triggers", remedy="Use everstep.off by itself.")

    def __or__(self, other: Policy) -> Policy:
        if not isinstance(other, Policy):
            return NotImplemented
        if self.off or other.off:
            raise InvalidArgument(
                f"off cannot be combined with another policy, got {self} | {other}",
                remedy="Use off by itself, or manual for no automatic checkpoints.",
            )
        return Policy(_least(self.steps, other.steps), _least(self.seconds, other.seconds), self.events | other.events)

    def due(self, event: str, kind: str | None, steps_since: int, seconds_since: float) -> str | None:
        """Return what asks for a checkpoint now, as text ("on llm", "every 5 steps", "every 30 s"), or None.

        `event` is the event that just happened, `kind` the kind of the step if it was one; the counts are since the last checkpoint,
        or since the run began. The counts are checked for every event, so that a timer may ask in the middle of a step.
        """
        named = self._named("post_step" if event == "step" else event, kind) if self.events else None
        if named is not None:
            return f"on {named}"
        if self.steps is not None and steps_since >= self.steps:
            return _steps(self.steps)
        if self.seconds is not None and seconds_since >= self.seconds:
            return _seconds(self.seconds)
        return None

    def _named(self, event: str, kind: str | None) -> str | None:
        """Return the name under which the policy asks for this event; the kind of a step comes before post_step."""
        if event == "post_step" and kind is not None:
            for name in (kind if kind in KINDS else f"custom:{kind}", event):
                if name in self.events:
                    return name
            return None
        return event if event in self.events else None

    def __str__(self) -> str:
        if self.off:
            return "off"
        parts = [] if self.steps is None else [_steps(self.steps)]
        parts += [] if self.seconds is None else [_seconds(self.seconds)]
        parts += [f"on {', '.join(sorted(self.events))}"] if self.events else []
        return " | ".join(parts) or "manual"

    @classmethod
    def parse(cls, given: Policy | str | bool | Mapping[Any, Any]) -> Policy:
        """Make a policy from a configuration: text as `str` writes it, or `{"every": {"steps": 5, "seconds": 30}, "on": ["gate"]}`.

        Some YAML readers turn a bare `off` into False and a bare `on` into True; both are accepted here.
        """
        if isinstance(given, Policy):
            return given
        if given is False:
            return off
        if isinstance(given, str):
            return _from_text(given)
        if isinstance(given, Mapping) and given:
            return _from_mapping({"on" if name is True else name: value for name, value in given.items()})
        raise InvalidArgument(
            f"policy must be text or a mapping, got {shown(given)}", remedy=f"Give {_FORMS}; or a mapping with every and on."
        )


def every(steps: int | None = None, seconds: Duration | None = None) -> Policy:
    """Make a checkpoint after so many steps, or so long after the last one (also in the middle of a step): seconds, a timedelta or "5min"."""
    if steps is None and seconds is None:
        raise InvalidArgument("every() needs steps or seconds", remedy="Use every(steps=5), every(seconds=30) or both.")
    return Policy(steps, to_seconds(seconds, "seconds"))


def on(*events: str) -> Policy:
    """Make a checkpoint whenever one of these events happens.

    `step` (the same as `post_step`): a step has ended; `pre_step`: one is about to begin; `llm`, `tool`: a step of that kind has
    ended; `gate`: a gate was answered; `error`: a step failed; `milestone`: `run.milestone` was
    called; `custom:name`: `run.emit(name)` was called, or a step of kind `name` has ended.
    """
    if not events:
        raise InvalidArgument("on() needs at least one event", remedy=f"Use {_ALLOWED}.")
    return Policy(events=frozenset(_event(name) for name in events))


manual = Policy()
off = Policy(off=True)


def _event(name: Any) -> str:
    if name == "step":
        return "post_step"
    if is_custom(name) or (isinstance(name, str) and name in EVENTS):
        return str(name)
    if name == "artifact":
        raise InvalidArgument(
            "a policy cannot wait for 'artifact': runs have no artifacts",
            remedy="Emit an event of your own, run.emit('artifact'), and use on('custom:artifact').",
        )
    raise InvalidArgument(f"unknown checkpoint event {shown(name)}", remedy=f"Use {_ALLOWED}.")


def _least(one: Any, other: Any) -> Any:
    return min(one, other) if one is not None and other is not None else other if one is None else one


def _steps(number: int) -> str:
    return f"every {number} step{'' if number == 1 else 's'}"


def _seconds(number: float) -> str:
    return f"every {repr(number).removesuffix('.0')} s"


def _from_text(text: str) -> Policy:
    if text.strip() == "off":
        return off
    policy = manual
    for part in text.split("|"):
        policy |= _part(part.strip(), text)
    return policy


def _part(part: str, text: str) -> Policy:
    if part == "manual":
        return manual
    if part.startswith("on "):
        return on(*(name.strip() for name in part[3:].split(",")))
    found = _EVERY.fullmatch(part)
    if found is None:
        raise InvalidArgument(f"{shown(part)} in the policy {shown(text)} is invalid", remedy=f"Write {_FORMS}.")
    number, unit = found["number"] or "1", found["unit"]
    if unit in ("step", "steps"):
        return every(steps=_number(number, int, part))
    if unit not in _UNITS:
        raise InvalidArgument(f"unknown unit {unit!r:.60} in {shown(part)}", remedy=f"Use step, steps, {', '.join(_UNITS)}.")
    return every(seconds=_number(number, float, part) * _UNITS[unit])


def _number(text: str, to: type[Any], part: str) -> Any:
    try:
        return to(text)
    except ValueError:
        raise InvalidArgument(f"invalid number {text!r:.60} in {shown(part)}", remedy=f"Write {_FORMS}.") from None


def _from_mapping(given: Mapping[Any, Any]) -> Policy:
    check_keys(given, ("every", "on"), "a policy")
    policy = manual
    if "every" in given:
        if not isinstance(given["every"], Mapping):
            raise InvalidArgument(
                f"every must be a mapping, got {shown(given['every'])}", remedy="Write every: {steps: 5} or every: {seconds: 30}."
            )
        check_keys(given["every"], ("steps", "seconds"), "every")
        policy |= every(**given["every"])
    if "on" in given:
        events = given["on"]
        if not isinstance(events, (str, list, tuple)):
            raise InvalidArgument(f"on must be an event or a list of events, got {shown(events)}", remedy=f"Use {_ALLOWED}.")
        policy |= on(*([events] if isinstance(events, str) else events))
    return policy
