"""Masks values that a text shows beside their names: password=x, {"tokens": ["x"]}, {('db', 'password'): 'x'}, --password x.

Relies on the caller to say which names are secret. Takes time in proportion to the text, which may be hostile: no expression reads the
same text again and again, and a quote or a bracket that has no end is searched for once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

NEVER, UNLESS_COUNT, ALWAYS = 0, 1, 2
SIGNS = (":", "=", "--", "</")
"""A text without any of these shows no value beside a name."""

_LITERAL = r"""(?:[bBrRuU]{1,2}(?=\\?["']))?"""  # b'x' is a value, too, and not the word b
_NAME = re.compile(
    # password = "x", "password": "x", password := x, password => x
    rf"""(?<![\w-])([A-Za-z_][\w-]{{1,60}}+)\\?["']?[ \t]{{0,8}}(?::=|=>|[:=])[ \t]{{0,8}}{_LITERAL}"""
    # --password x, --password=x, ['--password', 'x']
    r"""|(?<![\w-])--([A-Za-z][\w-]{1,60}+)(?:=|\\?["'],?[ \t]{1,4}|[ \t]{1,4}(?=[^\s-]))"""
    # ('db', 'password'): 'x'
    rf"""|(?<![\w)\]])\(((?:[^()\n]++|\([^()\n]{{0,100}}+\)){{1,20}}+)\)[ \t]{{0,2}}:[ \t]{{0,2}}{_LITERAL}"""
    # <password>x</password>
    r"""|<([A-Za-z_][\w-]{1,60}+)>(?=[^<>\n]{1,1000}+</)"""
)
_QUOTED = re.compile(r"""\\?["']([^"'\\\n]{1,60}+)\\?["']""")
_QUOTES = (
    r"""\\"(?:[^"\\]|\\(?!"))*+\\"|\\'(?:[^'\\]|\\(?!'))*+\\'|"""
    r'''"""(?:[^"\\]|\\.|"(?!""))*+"""|"(?:[^"\\]|\\.)*+"|'''
    r"""'(?:[^'\\]|\\.)*+'"""
)
# A value in quotes, on several lines too, or a word. Then what is tried where a quote has no end, and a block of lines under a name.
_VALUE = re.compile(rf"""{_QUOTES}|[^\s"'\\,;&<>()\[\]{{}}]++""", re.DOTALL)
_ELEMENT = re.compile(r"[^<>\n]{1,1000}+(?=</)")
_PARTS = re.compile(rf"""[^"'\\()\[\]{{}}]++|{_QUOTES}|(?P<open>[(\[{{])|(?P<close>[)\]}}])|.""", re.DOTALL)
_OPEN = re.compile(r"""\\?["'][^\n]++""")
_OPEN_BRACKET = re.compile(r"[^\n]*+(?:\r?\n[ \t]++[^\n]*+)*+")
_BLOCK = re.compile(r"(?:[|>][-+0-9]{0,2})?[ \t]*(?:\r?\n[ \t]++[^\n]*+)++")
_NO_SECRETS = ("None", "null", "true", "false", "True", "False", '""', "''", '\\"\\"', "\\'\\'")
_NOTHING = re.compile(r"[\s()\[\]{}]*+")
_NUMBER = re.compile(r"[-+]?[\d.,_]{1,30}%?")
_NUMBERS = re.compile(r"""(?:[\s()\[\]{},]|[-+]?[\d.]++%?|\\?["'][^"'\\]*+\\?["'][ ]{0,2}:|[A-Za-z_]\w*+=)*+""")

Span = tuple[int, int]


def without_pairs(text: str, secrecy_of: Callable[[str], int], mask: str) -> str:
    """The text with the values of secret names masked. `secrecy_of` returns NEVER, UNLESS_COUNT or ALWAYS for a name."""
    parts, done, at = [], 0, 0
    unended: set[str] = set()
    while (found := _NAME.search(text, at)) is not None:
        at = found.end() if found[3] is None else found.start() + 1
        secrecy = max(map(secrecy_of, _names(found)), default=NEVER)
        span = _value(text, found, unended) if secrecy else None
        if span is None or _is_harmless(text[slice(*span)], secrecy):
            continue
        value = text[slice(*span)]
        quote = _quote(value)
        parts += [text[done : span[0]], quote, mask, quote if value.endswith(quote) else ""]
        done = at = span[1]
    return "".join(parts) + text[done:] if parts else text


def _names(found: re.Match[str]) -> Iterator[str]:
    """The names before a value: one, or the texts in a tuple."""
    if found[3] is None:
        yield found[1] or found[2] or found[4]
    else:
        yield from _QUOTED.findall(found[3])


def _is_harmless(value: str, secrecy: int) -> bool:
    """Whether a value says nothing: None, an empty list, or under a plural a number or a container of numbers."""
    if value in _NO_SECRETS or _NOTHING.fullmatch(value):
        return True
    return secrecy == UNLESS_COUNT and bool(_NUMBER.fullmatch(value) or (value[0] in "([{" and _NUMBERS.fullmatch(value)))


def _quote(value: str) -> str:
    return next((sign for sign in ('\\"', "\\'", '"""', '"', "'") if value.startswith(sign)), "")


def _value(text: str, name: re.Match[str], unended: set[str]) -> Span | None:
    """Where the value after a name is. Quotes and brackets that were found to have no end are not searched for again: time stays linear."""
    at = name.end()
    if name[4] is not None:
        return _span(_ELEMENT.match(text, at))
    if text[at : at + 1] in ("|", ">", "\n", "\r"):
        before = text[max(0, name.start() - 80) : name.start()].rpartition("\n")[2]
        block = _BLOCK.match(text, at) if not before.strip(" \t-\"'") else None  # `if token:` begins no block of secrets
        return _span(block or _VALUE.match(text, at))
    if text[at : at + 1] in ("(", "[", "{"):
        return _bracketed(text, at, at, unended)
    quote = _quote(text[at : at + 3])
    if quote not in unended:
        if (value := _VALUE.match(text, at)) is not None:
            called = not quote and text[value.end() : value.end() + 1] in ("(", "[")  # SecretStr('x')
            return _bracketed(text, at, value.end(), unended) if called else value.span()
        if quote:
            unended.add(quote)
    return _span(_OPEN.match(text, at)) if quote else None


def _bracketed(text: str, begin: int, at: int, unended: set[str]) -> Span | None:
    """From `begin` to the end of the bracket that opens at `at`; if it has none, to the end of the line and of the indented lines below."""
    if "[" not in unended:
        depth = 0
        for part in _PARTS.finditer(text, at):
            if part["open"]:
                depth += 1
            elif part["close"]:
                depth -= 1
                if not depth:
                    return begin, part.end()
        unended.add("[")
    return begin, _OPEN_BRACKET.match(text, at).end()  # type: ignore[union-attr]


def _span(found: re.Match[str] | None) -> Span | None:
    return None if found is None else found.span()
