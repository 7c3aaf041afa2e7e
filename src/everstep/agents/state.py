"""Named fields of an agent, as a view on the dict that a run keeps: `AgentState(run.state).messages` is `run.state["messages"]` itself.

There is no second copy, so changes through the view are tracked and saved like any other change of a state, O(change). `Draft` is passed to
a recorded function instead of the live state: the function may change it freely, and the changes are recorded with its result. Relies on
`codec` and on `snapshot.delta`. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from datetime import datetime
from typing import Any, Generic, TypeVar, overload

from everstep.codec.values import decode, encode
from everstep.errors import InvalidArgument
from everstep.records import Status
from everstep.snapshot.delta import DELETE, SET, Op, apply, difference

T = TypeVar("T")
S = TypeVar("S", bound="AgentState")
_NONE = type(None)


class Field(Generic[T]):
    """One field of an agent's state: reads and writes the key of its name, and refuses values of another type."""

    def __init__(self, types: type | tuple[type, ...], make: Callable[[], T], allowed: tuple[Any, ...] = ()):
        self.types = types if isinstance(types, tuple) else (types,)
        self.make = make
        self.allowed = allowed
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, state: None, owner: type) -> Field[T]: ...

    @overload
    def __get__(self, state: AgentState, owner: type) -> T: ...

    def __get__(self, state: AgentState | None, owner: type) -> Any:
        return self if state is None else state.data[self.name]

    def __set__(self, state: AgentState, value: T) -> None:
        self.check(value)
        state.data[self.name] = value

    def check(self, value: Any) -> None:
        if self.types != (object,) and (not isinstance(value, self.types) or (type(value) is bool and bool not in self.types)):
            wanted = " or ".join("None" if t is _NONE else t.__name__ for t in self.types)
            raise InvalidArgument(f"{self.name} of an agent's state must be of type {wanted}, got {value!r:.60}")
        if self.allowed and value not in self.allowed:
            raise InvalidArgument(
                f"{self.name} of an agent's state must be one of {', '.join(self.allowed)}, got {value!r:.60}",
                remedy=f"Use one of {', '.join(self.allowed)}.",
            )


def _nothing() -> Any:
    return None


class AgentState:
    """The state of an agent: a view with names on a dict, usually `run.state`. Missing keys get their defaults; other keys are kept.

    Values given by name apply only to a new state: `AgentState(run.state, agent="triage")` does not change an existing agent. A subclass
    may add fields: `topic = Field(str, str)`.
    """

    __slots__ = ("data",)

    agent: Field[str | None] = Field((str, _NONE), _nothing)
    model: Field[str | None] = Field((str, _NONE), _nothing)
    task: Field[Any] = Field(object, _nothing)
    status: Field[str] = Field(str, lambda: "running", tuple(s.value for s in Status))
    turn: Field[int] = Field(int, int)
    """How often the agent has thought."""
    messages: Field[list[Any]] = Field(list, list)
    memory: Field[dict[Any, Any]] = Field(dict, dict)
    plan: Field[Any] = Field(object, _nothing)
    pending: Field[list[dict[str, Any]]] = Field(list, list)
    """Actions that were decided but not taken yet: id, tool, input, turn, status."""
    finished: Field[list[dict[str, Any]]] = Field(list, list)
    """Actions with their status (succeeded, failed or refused) and the reason of the last two; results are in `tool_results`."""
    approvals: Field[list[dict[str, Any]]] = Field(list, list)
    """Answers of people about actions: action, tool, gate, answer, reason, at."""
    tool_counts: Field[dict[str, int]] = Field(dict, dict)
    tool_results: Field[dict[str, Any]] = Field(dict, dict)
    """Results by the id of their action."""
    answer: Field[Any] = Field(object, _nothing)
    tokens: Field[int] = Field(int, int)
    cost: Field[Any] = Field(object, float)
    """Money spent, in the unit in which it is reported."""
    budget: Field[dict[str, Any] | None] = Field((dict, _NONE), _nothing)
    specialists: Field[list[Any]] = Field(list, list)
    """The specialists that are working now."""
    specialist_calls: Field[list[Any]] = Field(list, list)
    run: Field[str | None] = Field((str, _NONE), _nothing)
    """The id of the run that keeps the agent."""
    parent: Field[str | None] = Field((str, _NONE), _nothing)
    """The checkpoint that the run was forked from, as a ref."""
    workflow: Field[Any] = Field(object, _nothing)
    """Free for the workflow around the agent."""
    control: Field[dict[str, Any]] = Field(dict, dict)
    """Control from outside; the loop notes here the gate at which it waits."""
    hooks: Field[list[str]] = Field(list, list)
    events: Field[list[Any]] = Field(list, list)
    started_at: Field[datetime | None] = Field((datetime, _NONE), _nothing)
    updated_at: Field[datetime | None] = Field((datetime, _NONE), _nothing)
    meta: Field[dict[str, Any]] = Field(dict, dict)

    def __init__(self, data: MutableMapping[Any, Any] | None = None, /, **first: Any):
        if data is not None and not isinstance(data, MutableMapping):
            raise InvalidArgument(f"an agent's state must be a dict, got {data!r:.60}", remedy="Pass run.state, or your own dict.")
        self.data: MutableMapping[Any, Any] = {} if data is None else data
        fields = self.fields()
        unknown = set(first) - set(fields)
        if unknown:
            raise InvalidArgument(f"an agent's state has no field {', '.join(sorted(unknown))}", remedy=f"Use {', '.join(fields)}.")
        for name, field in fields.items():
            if name in self.data:
                field.check(self.data[name])
            else:
                value = first[name] if name in first else field.make()
                field.check(value)
                self.data[name] = value

    @classmethod
    def over(cls: type[S], data: MutableMapping[Any, Any]) -> S:
        """Return a view on a dict that is known to have every field."""
        self = cls.__new__(cls)
        self.data = data
        return self

    @classmethod
    def fields(cls) -> dict[str, Field[Any]]:
        """Return all fields by name."""
        return {name: f for base in reversed(cls.__mro__) for name, f in vars(base).items() if isinstance(f, Field)}

    def capture(self) -> dict[str, Any]:
        """Return everything as a plain new dict that can be stored and restored, including keys that are not fields."""
        captured: dict[str, Any] = decode(encode(dict(self.data), "agent"))
        return captured

    def restore(self, captured: Mapping[str, Any]) -> None:
        """Restore a captured state. Equal values are left unchanged, so that only the difference is saved."""
        fresh = type(self)(decode(encode(dict(captured), "agent"))).data  # checked before anything changes
        kept = [key for key in self.data if key in fresh]
        if kept + [key for key in fresh if key not in self.data] != list(fresh):
            kept = []  # keep the order of keys, too
        for key in [key for key in self.data if key not in kept]:
            del self.data[key]
        for key, value in fresh.items():
            if key not in self.data or encode(self.data[key]) != encode(value):
                self.data[key] = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AgentState) and dict(self.data) == dict(other.data)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        who = f"agent {self.agent!r}" if self.agent else "agent"
        return (
            f"<{who}, {self.status}: turn {self.turn}, {len(self.messages)} messages, {len(self.pending)} actions pending and "
            f"{len(self.finished)} finished, {self.tokens:,} tokens, cost {float(self.cost):g}>"
        )


class Draft(MutableMapping[Any, Any]):
    """A copy of a state, made key by key on first access, that records its changes."""

    def __init__(self, source: Mapping[Any, Any]):
        self._source = source
        self._left = dict.fromkeys(source)  # keys in order; those in `_own` are no longer read from the source
        self._own: dict[Any, Any] = {}
        self._before: dict[Any, bytes] = {}

    def __getitem__(self, key: Any) -> Any:
        if key not in self._own:
            if key not in self._left:
                raise KeyError(key)
            self._before[key] = encode(self._source[key])
            self._own[key] = decode(self._before[key])
        return self._own[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._left[key] = None
        self._own[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._left[key]
        self._own.pop(key, None)

    def __contains__(self, key: object) -> bool:
        return key in self._left

    def __iter__(self) -> Iterator[Any]:
        return iter(self._left)

    def __len__(self) -> int:
        return len(self._left)

    def changes(self) -> list[Op]:
        """Return the changes as a delta, which can be recorded, and applied to the source by `redo`."""
        ops: list[Op] = [[DELETE, [key]] for key in self._source if key not in self._left]
        for key, value in self._own.items():
            if key not in self._source:
                ops.append([SET, [key], decode(encode(value))])
                continue
            before = self._before.get(key) or encode(self._source[key])
            after = encode(value)
            if after != before:
                difference(decode(before), decode(after), (key,), ops)
        return ops


def redo(state: AgentState, changes: list[Op]) -> None:
    """Apply the recorded changes of a draft to the live state."""
    apply(state.data, changes)
