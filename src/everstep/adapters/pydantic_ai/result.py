"""The result of a durable run of an agent: the same whether this process ran it or read it from the store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai import AgentRunResult
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
from pydantic_ai.usage import RunUsage

import everstep
from everstep.adapters.shared.plain import is_plain, to_plain

_USAGE = TypeAdapter(RunUsage)


class Result:
    """The answer of an agent, or the gates at which it waits."""

    def __init__(self, output_type: Any, kept: dict[str, Any] | None, outcome: everstep.Outcome | None = None):
        self._kept = kept or {}
        self.outcome = outcome
        self.output = _give(output_type, self._kept.get("output"))

    @property
    def status(self) -> str:
        """`succeeded`, or `waiting` for an approval, a budget or a pause."""
        return self.outcome.status if self.outcome is not None else "succeeded"

    @property
    def gates(self) -> list[Any]:
        """The approvals that the run waits for."""
        return list(self.outcome.gates) if self.outcome is not None else []

    @property
    def usage(self) -> RunUsage:
        """The tokens and requests of the whole run, each counted once however often it was resumed."""
        return _USAGE.validate_python(self._kept.get("usage") or {})

    def all_messages(self) -> list[ModelMessage]:
        """Return the whole conversation, as `message_history` of the next run."""
        return ModelMessagesTypeAdapter.validate_python(self._kept.get("messages", []))

    def new_messages(self) -> list[ModelMessage]:
        """Return the messages of this run alone."""
        return self.all_messages()[self._kept.get("before", 0) :]

    def __repr__(self) -> str:
        return f"<Result {self.status}: {self.output!r:.60}>"


def keep_result(result: AgentRunResult[Any], output_type: Any) -> dict[str, Any]:
    """Return what the store keeps of a result of the framework."""
    messages = result.all_messages()
    return {
        "output": _keep(output_type, result.output),
        "messages": ModelMessagesTypeAdapter.dump_python(messages, mode="json"),
        "before": len(messages) - len(result.new_messages()),
        "usage": _USAGE.dump_python(result.usage, mode="json"),
    }


def _types(wanted: Any) -> Iterator[type]:
    """Yield the classes that an output may have."""
    if isinstance(wanted, (list, tuple)):
        for each in wanted:
            yield from _types(each)
    elif isinstance(wanted, type):
        yield wanted
    else:
        for name in ("output", "outputs", "__args__"):
            inner = getattr(wanted, name, None)
            if inner is not None:
                yield from _types(inner)


def _keep(wanted: Any, output: Any) -> list[Any]:
    for number, cls in enumerate(_types(wanted)):
        if type(output) is cls and not is_plain(output):
            return [number, TypeAdapter(cls).dump_python(output, mode="json")]
    return [None, to_plain(output)]


def _give(wanted: Any, kept: Any) -> Any:
    if kept is None:
        return None
    number, value = kept
    return value if number is None else TypeAdapter(list(_types(wanted))[number]).validate_python(value)
