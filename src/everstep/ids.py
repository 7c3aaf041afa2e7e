"""Names: run ids, worker ids, and the refs that point at checkpoints. No I/O.

A ref is `RUN`, `RUN@7`, `RUN@tag` or `RUN~2`. In code, RUN is an exact id. The command line also reads `@last` and unique prefixes of ids,
and converts them to exact ones (`cli.naming`).
Run ids are chosen by the caller or created here. They must not contain `@`, `~`, white space or control characters, which have a meaning in
refs and terminals.
"""

from __future__ import annotations

import re

from everstep.errors import InvalidArgument
from everstep.fields import Shape

_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
_ID = re.compile(r"(?:[^\W_]|%)[^\s@~\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff]{0,199}")
_REST = re.compile(_ID.pattern.partition(")")[2].removesuffix("{0,199}"))
_ESCAPES = re.compile("(?:%[0-9A-F]{2})+")
_TAG = re.compile(r"[^\W\d][^\s@~\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff]{0,99}")


def new_id(length: int = 12) -> str:
    """Return a random id without characters that look alike; 12 characters carry 60 bits."""
    import secrets  # imported here, because the import takes longer than the rest of this module

    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def check_id(run: str) -> str:
    if not isinstance(run, str) or not _ID.fullmatch(run):
        raise InvalidArgument(
            f"invalid run id {run!r:.100}: it must have 1 to 200 characters, begin with a letter or digit, "
            "and contain no @, ~, spaces or control characters",
            remedy="To use any other text as an id, such as an e-mail address or a path: everstep.quote(text).",
        )
    return run


def quote(text: str) -> str:
    """Return a run id for any text, such as an e-mail address or a path: "user@example.com" becomes "user%40example.com".

    Two texts never have the same id. Commands show the text and accept it; refs need the id: `user%40example.com@7`.
    """
    if not isinstance(text, str) or not text:
        raise InvalidArgument(f"quote takes text that is not empty, got {text!r:.60}")
    plain = "".join(c if c != "%" and _REST.fullmatch(c) else _escaped(c) for c in text)
    return check_id(plain if _ID.fullmatch(plain) else _escaped(plain[0]) + plain[1:])


def unquote(id: str) -> str:
    """Return the text that `quote` made an id of; an id that it did not make stays as it is."""
    if "%" not in id:
        return id
    try:
        text = _ESCAPES.sub(lambda found: bytes.fromhex(found[0].replace("%", "")).decode(), id)
        return text if quote(text) == id else id
    except (ValueError, InvalidArgument):
        return id


def _escaped(character: str) -> str:
    try:
        return "".join(f"%{byte:02X}" for byte in character.encode())
    except UnicodeEncodeError:
        raise InvalidArgument(f"an id cannot contain the lone surrogate {character!r}") from None


def check_tag(name: str, what: str = "tag") -> str:
    """Check a tag, or another name with the same rules."""
    if not isinstance(name, str) or not _TAG.fullmatch(name):
        raise InvalidArgument(
            f"invalid {what} {name!r:.100}: it must have 1 to 100 characters, begin with a letter, "
            "and contain no @, ~, spaces or control characters"
        )
    return name


class Ref(Shape, frozen=True):
    """A parsed ref. `run` is an id (on the command line perhaps a prefix), or None for @last; `at` is a number, a tag, or None for the
    head.
    """

    text: str
    run: str | None
    at: int | str | None = None
    back: int = 0


def parse_ref(text: str) -> Ref:
    if not isinstance(text, str) or not text:
        raise InvalidArgument(
            f"a ref must be a string that is not empty, got {text!r}",
            remedy="A ref is RUN, RUN@7, RUN@tag or RUN~2, with the exact id of the run.",
        )
    body, tilde, steps = text.partition("~")
    if tilde and not (steps.isascii() and steps.isdigit()):
        raise InvalidArgument(
            f"{text!r} is not a valid ref: ~ must be followed by a number", remedy="RUN~2 is two checkpoints before the head."
        )
    back = int(steps) if tilde else 0
    if body == "@last":
        return Ref(text, None, None, back)
    if body.startswith("@last@"):
        return Ref(text, None, _at(body[6:], text), back)
    run, at_sign, at = body.partition("@")
    if not run:
        raise InvalidArgument(
            f"{text!r:.100} is not a valid ref: a run must come before @",
            remedy="A ref is RUN, RUN@7, RUN@tag or RUN~2, with the exact id of the run.",
        )
    check_id(run)
    return Ref(text, run, _at(at, text) if at_sign else None, back)


def _at(at: str, text: str) -> int | str:
    if at.isascii() and at.isdigit():
        return int(at)
    if not _TAG.fullmatch(at):
        raise InvalidArgument(f"{text!r} is not a valid ref: @ must be followed by a number or a tag")
    return at
