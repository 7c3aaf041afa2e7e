"""Schedules as commands show them. No I/O."""

from __future__ import annotations

from typing import Any

from everstep.cli.draw.text import iso
from everstep.cli.draw.values import to_json


def facts(one: Any, hidden: Any) -> dict[str, Any]:
    """A schedule as JSON."""
    args, named = one.input
    return {
        "name": one.name, "workflow": one.workflow, "cron": one.cron, "zone": one.zone, "missed": one.missed, "queue": one.queue,
        "priority": one.priority, "key": hidden(one.key), "next": iso(one.next), "arguments": to_json(hidden(list(args))), "named": to_json(hidden(named)),
    }  # fmt: skip
