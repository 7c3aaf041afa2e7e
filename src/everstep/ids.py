"""Names: run ids, worker ids, and the refs that point at checkpoints. No I/O.

A ref is `RUN`, `RUN@7`, `RUN@tag` or `RUN~2`. In code RUN is an exact id. The command line also reads `@last` and unique prefixes of ids, and
turns them into exact ones (`cli.naming`).
Run ids are chosen by the caller or made here; `@`, `~`, white space and control characters are not
allowed in them because refs and terminals give those a meaning.
"""

from __future__ import annotations

import re

from everstep.errors import InvalidArgument
from everstep.fields import Shape

_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
_ID = re.compile(r"[^\W_][^\s@~\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff]{0,199}")
_TAG = re.compile(r"[^\W\d][^\s@~\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff]{0,99}")


def new_id(length: int = 12) -> str:
    """A random id of unmistakable characters; 12 of them carry 60 bits."""
    import secrets  # only here, because importing it takes longer than all of this module

    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def check_id(run: str) -> str:
    if not isinstance(run, str) or not _ID.fullmatch(run):
        raise InvalidArgument(
            f"{run!r:.100} is no run id: 1 to 200 characters that begin with a letter or digit, without @, ~, spaces or control characters"
        )
    return run


def check_tag(name: str, what: str = "tag") -> str:
    """A tag, or what else is named as tags are."""
    if not isinstance(name, str) or not _TAG.fullmatch(name):
        raise InvalidArgument(
            f"{name!r:.100} is no {what}: 1 to 100 characters that begin with a letter, without @, ~, spaces or control characters"
        )
    return name


class Ref(Shape, frozen=True):
    """A parsed ref. `run` is an id (at the command line perhaps a prefix), or None for @last; `at` a number, a tag or None for the head."""

    text: str
    run: str | None
    at: int | str | None = None
    back: int = 0


def parse_ref(text: str) -> Ref:
    if not isinstance(text, str) or not text:
        raise InvalidArgument(f"{text!r} is no ref", remedy="A ref is RUN, RUN@7, RUN@tag or RUN~2, with the exact id of the run.")
    body, tilde, steps = text.partition("~")
    if tilde and not (steps.isascii() and steps.isdigit()):
        raise InvalidArgument(f"{text!r} is no ref: after ~ stands a number", remedy="RUN~2 is two checkpoints before the head.")
    back = int(steps) if tilde else 0
    if body == "@last":
        return Ref(text, None, None, back)
    if body.startswith("@last@"):
        return Ref(text, None, _at(body[6:], text), back)
    run, at_sign, at = body.partition("@")
    if not run:
        raise InvalidArgument(
            f"{text!r:.100} is no ref: before @ stands a run", remedy="A ref is RUN, RUN@7, RUN@tag or RUN~2, with the exact id of the run."
        )
    check_id(run)
    return Ref(text, run, _at(at, text) if at_sign else None, back)


def _at(at: str, text: str) -> int | str:
    if at.isascii() and at.isdigit():
        return int(at)
    if not _TAG.fullmatch(at):
        raise InvalidArgument(f"{text!r} is no ref: after @ stands a number or a tag")
    return at
