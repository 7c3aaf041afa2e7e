"""A terminal's memory: what stands on it after a program has written, for programs that redraw in place. Knows what they may use, and no more."""

from __future__ import annotations

import re

_ESCAPE = re.compile(r"\x1b\[(\d*)([AKJm])")


class Screen:
    """Lines as they stand, without colours; `frames` keeps how it stood each time that something was erased below."""

    def __init__(self, columns: int = 100):
        self.columns = columns
        self.lines = [""]
        self.frames: list[list[str]] = []
        self.highest = 0
        """How far up it ever went at once: the height of what is redrawn."""
        self._row = self._column = 0

    @classmethod
    def of(cls, text: str, columns: int = 100) -> Screen:
        screen = cls(columns)
        screen.write(text)
        return screen

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def write(self, text: str) -> None:
        at = 0
        while at < len(text):
            found = _ESCAPE.match(text, at)
            if found:
                self._obey(found[2], int(found[1] or 0))
                at = found.end()
            else:
                self._put(text[at])
                at += 1

    def _obey(self, what: str, count: int) -> None:
        if what == "A":
            assert count <= self._row, "it goes above the first line"
            self.highest = max(self.highest, count)
            self._row -= count
        elif what in "KJ":
            self.lines[self._row] = self.lines[self._row][: self._column]
        if what == "J":
            del self.lines[self._row + 1 :]
            self.frames.append(list(self.lines))

    def _put(self, character: str) -> None:
        assert character in "\r\n" or character.isprintable(), repr(character)
        if character == "\r":
            self._column = 0
        elif character == "\n":  # a terminal makes \r\n of it
            self._row, self._column = self._row + 1, 0
            self.lines += [""] * (self._row + 1 - len(self.lines))
        else:
            line = self.lines[self._row].ljust(self._column)
            self.lines[self._row] = line[: self._column] + character + line[self._column + 1 :]
            self._column += 1
            assert self._column <= self.columns, f"a line is too long: {self.lines[self._row]}"
