"""Reads the lines of `everstep enqueue --batch`: one JSON object each. Reads all of them before anything is enqueued."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from everstep.cli.app import App
from everstep.cli.args.workflow_args import workflow_of
from everstep.errors import InvalidArgument
from everstep.queues.bulk import FIELDS

_REMEDY = 'A line is an object such as {"workflow": "order", "args": ["tea"], "key": "c1"}. Nothing was enqueued.'


def read(app: App, lines: Iterable[str]) -> list[dict[str, Any]]:
    """Return the items of all lines; empty lines are skipped."""
    items: list[dict[str, Any]] = []
    flows: dict[str, Any] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            items.append(_item(app, number, line, flows))
    return items


def _item(app: App, number: int, line: str, flows: dict[str, Any]) -> dict[str, Any]:
    try:
        item = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"line {number} must be JSON: {error}", remedy=_REMEDY) from error
    if not isinstance(item, dict):
        raise InvalidArgument(f"line {number} must be a JSON object, got {line.strip():.60}", remedy=_REMEDY)
    unknown = sorted(set(item) - set(FIELDS))
    if unknown:
        raise InvalidArgument(f"line {number} has the unknown key {', '.join(unknown)}", remedy=f"The keys are {', '.join(FIELDS)}.")
    name = item.get("workflow")
    if isinstance(name, str):
        if name not in flows:
            flows[name] = workflow_of(app, name)
        item["workflow"] = flows[name]
    return item
