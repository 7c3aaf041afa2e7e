"""Splits a line into commands and words: quotes as in a POSIX shell, `;` between commands. No variables, no pipes, no I/O.

A `#` begins a comment only at the beginning of a line: addresses of steps and gates contain one.
"""

from __future__ import annotations

import shlex

import click


def commands(line: str) -> list[list[str]]:
    """Return the commands of a line, each as a list of words."""
    if line.lstrip().startswith("#"):
        return []
    try:
        found = [shlex.split(part) for part in parts(line)]
    except ValueError as error:
        raise click.UsageError(f"Invalid line: {str(error).lower()}.") from error
    return [_plain(words) for words in found if words]


def _plain(words: list[str]) -> list[str]:
    """Remove a leading `everstep`: hints name commands as they are typed outside the shell."""
    return (words[1:] or ["help"]) if words[0] == "everstep" else words


def parts(line: str) -> list[str]:
    """Split a line at each `;` that is not quoted or escaped."""
    out, quote, escaped = [""], "", False
    for character in line:
        if character == ";" and not quote and not escaped:
            out.append("")
            continue
        out[-1] += character
        if escaped:
            escaped = False
        elif character == "\\" and quote != "'":
            escaped = True
        elif character in "'\"" and quote in ("", character):
            quote = "" if quote else character
    return out
