"""Inputs, results and outputs in one line: JSON, cut if it is long and not wanted in full."""

from __future__ import annotations

import json
from typing import Any

from everstep.cli.draw.text import safe
from everstep.cli.draw.values import shown
from everstep.views.outcome import InputView
from everstep.views.stored.values import as_json

_LONGEST = 400


def value_words(value: Any, full: bool) -> str:
    """Return a value as JSON."""
    return safe(json.dumps(as_json(value), ensure_ascii=False)) if full else shown(value, _LONGEST)


def call_words(given: InputView | None, full: bool) -> str:
    """Return the arguments of a call, named ones last; empty if there are none."""
    if given is None:
        return ""
    parts = [value_words(one, full) for one in given.args]
    return ", ".join([*parts, *(f"{safe(str(name))}={value_words(one, full)}" for name, one in given.kwargs.items())])
