"""`everstep doctor`: report what is unsafe, wasteful or left over in a store, and how to fix it."""

from __future__ import annotations

from everstep.cli import exit_codes
from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.draw.text import safe
from everstep.cli.failures import in_commands
from everstep.views.health import doctor
from everstep.views.json import to_json

_SIGNS = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "bad": ("✗", "red")}


@make("doctor")
def command(app: App) -> int:
    """Report unsafe settings and leftovers; exit with 6 if there is something to fix

    Example: everstep doctor --store shop.db
    """
    with app.open() as store:
        found = doctor(store, app.mask)
    if app.out.as_json:
        app.out.data("doctor", to_json(found))
        return exit_codes.OK if found.ok else exit_codes.FOUND
    for one in found.findings:
        sign, colour = _SIGNS[one.level]
        app.out.prose(f"{sign} {safe(one.name)}: {safe(one.sentence)}", colour)
        if one.remedy:
            app.out.prose(f"    {safe(in_commands(one.remedy))}")
    return exit_codes.OK if found.ok else exit_codes.FOUND
