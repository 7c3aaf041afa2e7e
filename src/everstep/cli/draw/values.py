"""Formats stored values for people. Never runs code of a value, never prints a raw escape."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from shlex import quote
from typing import TYPE_CHECKING, Any

from everstep.cli.draw.text import safe
from everstep.store.journal.steps import name_of
from everstep.views.stored.messages import readable
from everstep.views.stored.values import as_json

if TYPE_CHECKING:
    from everstep.store.gates import Gate
    from everstep.views.run import GateView

_LONGEST = 200


def shown(value: Any, most: int = _LONGEST) -> str:
    """Format a value in one line, cut if it is long."""
    if isinstance(value, str):
        text = safe(json.dumps(value[: most + 1], ensure_ascii=False))
        return text if len(value) <= most else f'{text[:most]}…" ({len(value):,} characters)'
    if isinstance(value, (list, tuple, dict, Mapping)) and len(value) > 50:
        return f"{type(value).__name__.lower().removeprefix('tracked').removeprefix('live')} of {len(value):,}"
    found = readable(as_json(value))
    text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    return safe(text) if len(text) <= most else f"{safe(text[:most])}… ({len(text):,} characters)"


def answers(schema: Any, most: int = 40) -> list[str]:
    """Return the answers that the schema of a gate names, each as JSON: choices, true and false, an object by its required keys."""
    objects = [form for form in _forms(schema) if form.get("type") == "object" and isinstance(form.get("required"), (list, tuple))]
    named = ["{" + ", ".join(f"{shown(key, most)}: …" for key in form["required"]) + "}" for form in objects]
    return [*(shown(choice, most) for choice in _choices(schema)), *named]


def gate_names(gates: Iterable[Gate | GateView]) -> list[str]:
    """Return what `everstep answer` takes for each open gate: its name, or its address if another gate of the run has the same name."""
    found = [(gate.run, gate.address, name_of(gate.address)) for gate in gates]
    uses = Counter((run, name) for run, _, name in found)
    return [safe(name if uses[run, name] == 1 else address) for run, address, name in found]


def example(schema: Any) -> str:
    """Return the first answer that the schema of a gate names, as a person types it for `everstep answer`; VALUE if it names none."""
    first = next((choice for choice in _choices(schema) if not isinstance(choice, (list, tuple, Mapping))), None)
    if first is None:
        return "VALUE"
    return quote(safe(first)) if isinstance(first, str) and _is_text(first) else quote(shown(first, 60))


def _is_text(typed: str) -> bool:
    """Return whether the command line reads this as text, and not as JSON, a file or an option."""
    try:
        json.loads(typed)
    except ValueError:
        return bool(typed) and typed[0] not in "@-"
    return False


def _forms(schema: Any) -> list[Mapping[str, Any]]:
    if not isinstance(schema, Mapping):
        return []
    several = schema.get("anyOf")
    return [form for form in several if isinstance(form, Mapping)] if isinstance(several, (list, tuple)) else [schema]


def _choices(schema: Any) -> list[Any]:
    found: list[Any] = []
    for form in _forms(schema):
        if isinstance(form.get("enum"), (list, tuple)):
            found += form["enum"]
        elif form.get("type") == "boolean":
            found += [True, False]
    return found


def pretty(value: Any, longest: int = 2_000, most: int = 400) -> str:
    """Format a value over several lines as JSON; messages are one line each, long texts and lists are cut, with a note."""
    text = json.dumps(_cut(readable(as_json(value)), longest, most), indent=2, ensure_ascii=False)
    return safe(text, lines=True)


def _cut(value: Any, longest: int, most: int) -> Any:
    if isinstance(value, str) and len(value) > longest:
        return f"{value[:longest]}… ({len(value):,} characters)"
    if isinstance(value, list):
        kept = [_cut(item, longest, most) for item in value[:most]]
        return [*kept, f"… and {len(value) - most:,} more"] if len(value) > most else kept
    if isinstance(value, dict):
        some = {_cut(key, longest, most): _cut(item, longest, most) for key, item in list(value.items())[:most]}
        return {**some, "…": f"and {len(value) - most:,} more"} if len(value) > most else some
    return value
