"""In which line of a TOML text each key stands. tomllib reads values and forgets their places.

Relies on the text being valid: it is looked at only after tomllib has read it. Never raises for odd text; a key that it
does not find has merely no line.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from contextlib import suppress

Path = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*+")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_QUOTED = re.compile(r'"(?:\\.|[^"\\\n])*+"|\'[^\'\n]*+\'')
_TEXT = re.compile(r'"""(?:\\.|[^\\])*?"""(?:""?)?|\'\'\'.*?\'\'\'(?:\'\'?)?', re.DOTALL)
_SCALAR = re.compile(r"[^\s,\]}#]+(?: [0-9][^\s,\]}#]*)?")
_DOT = re.compile(r"[ \t]*\.[ \t]*")


def lines_of(text: str) -> dict[Path, int]:
    """The line of each key, counted from 1; places in arrays are numbers in the path."""
    scanner = _Scanner(text.replace("\r\n", "\n"))
    with suppress(_Odd, RecursionError):  # best effort: what was found up to here
        scanner.document()
    return scanner.lines


class _Odd(Exception):
    """The text is none that this scanner knows."""


class _Scanner:
    """Goes over a document once."""

    def __init__(self, text: str):
        self._text = text
        self._at = 0
        self._ends = [found.start() for found in re.finditer("\n", text)]
        self._counts: dict[Path, int] = {}
        self.lines: dict[Path, int] = {}

    def document(self) -> None:
        here: Path = ()
        while self._more():
            if self._text.startswith("[", self._at):
                here = self._header()
            else:
                self._pair(here)

    def _header(self) -> Path:
        many = self._text.startswith("[[", self._at)
        self._at += 2 if many else 1
        self._more()
        start = self._at
        names = self._names()
        self._more()
        self._at += 2 if many else 1
        path: Path = ()
        for place, name in enumerate(names):
            path = (*path, name)
            self._note(path, start)
            if many and place == len(names) - 1:
                self._counts[path] = self._counts.get(path, 0) + 1
            if path in self._counts:
                path = (*path, self._counts[path] - 1)
                self._note(path, start)
        return path

    def _pair(self, here: Path) -> None:
        start = self._at
        for name in self._names():
            here = (*here, name)
            self._note(here, start)
        self._more()
        self._take("=")
        self._value(here)

    def _value(self, path: Path) -> None:
        self._more()
        sign = self._text[self._at : self._at + 1]
        if sign in ("[", "{"):
            self._at += 1
            self._inside(path, "]" if sign == "[" else "}")
            return
        found = _TEXT.match(self._text, self._at) or _QUOTED.match(self._text, self._at) or _SCALAR.match(self._text, self._at)
        if found is None:
            raise _Odd
        self._at = found.end()

    def _inside(self, path: Path, end: str) -> None:
        """The items of an array, or the pairs of an inline table."""
        place = 0
        while self._more() and not self._text.startswith(end, self._at):
            if end == "}":
                self._pair(path)
            else:
                self._note((*path, place), self._at)
                self._value((*path, place))
            place += 1
            self._more()
            if self._text.startswith(",", self._at):
                self._at += 1
        self._take(end)

    def _names(self) -> list[str]:
        names = [self._name()]
        while (dot := _DOT.match(self._text, self._at)) is not None:
            self._at = dot.end()
            names.append(self._name())
        return names

    def _name(self) -> str:
        found = _BARE.match(self._text, self._at)
        if found is None:
            found = _QUOTED.match(self._text, self._at)
            if found is None:
                raise _Odd
            self._at = found.end()
            return str(tomllib.loads(f"x = {found[0]}")["x"])
        self._at = found.end()
        return found[0]

    def _take(self, sign: str) -> None:
        if not self._text.startswith(sign, self._at):
            raise _Odd
        self._at += len(sign)

    def _more(self) -> bool:
        """Go on to what says something; whether there is anything left."""
        found = _BLANK.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return self._at < len(self._text)

    def _note(self, path: Path, at: int) -> None:
        self.lines.setdefault(path, bisect_right(self._ends, at - 1) + 1 if at else 1)
