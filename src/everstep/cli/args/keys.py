"""Keys for commands: from the configuration, from a source that an option names, or asked for. A key itself is never an argument: other users
see the arguments of a process, and a shell remembers them."""

from __future__ import annotations

from typing import Any

import click

from everstep.cli.app import App, interactive

_FORMS = ("file", "command", "keyring", "passphrase-file", "passphrase-command")
SOURCE = "file:PATH, command:PROGRAM, keyring:SERVICE/NAME, passphrase-file:PATH, passphrase-command:PROGRAM, or ask"


def configured(app: App) -> dict[str, Any]:
    """Return `key` and `old_keys` of the configuration and the environment, if they are set."""
    return {} if app.configured is None else app.configured.keys()


def named(source: str, option: str) -> Any:
    """Return the key that an option names; "ask" asks for it."""
    if source == "ask":
        return asked("The key or passphrase" if option == "--key-source" else "The former key or passphrase", option == "--key-source")
    form, colon, _ = source.partition(":")
    if not colon or form not in _FORMS:
        raise click.UsageError(f"{option} must be one of {SOURCE}; a key itself must not be an argument, where other users can see it.")
    return source


def asked(question: str, twice: bool = False) -> str:
    """Ask for a key without showing it. A text that is neither 64 hex digits nor names a source is a passphrase."""
    if not interactive():
        raise click.UsageError("There is no terminal to ask for a key on: name a source, or set EVERSTEP_KEY.")
    text = str(click.prompt(question, hide_input=True, confirmation_prompt=twice, err=True)).strip()
    is_hex = len(text) == 64 and all(digit in "0123456789abcdefABCDEF" for digit in text)
    return text if is_hex or text.partition(":")[0] in (*_FORMS, "passphrase") else f"passphrase:{text}"
