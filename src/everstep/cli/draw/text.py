"""Prepares text for a terminal: escapes, cuts and measures it; formats sizes and durations. No I/O.

Text from a store is hostile: control characters could move the cursor or overwrite earlier output, bidirectional marks could
make it read as something else. `safe` shows all of these as escapes; stored text must not be printed in any other way.
"""

from __future__ import annotations

import re
from unicodedata import category, east_asian_width

_PLAIN = re.compile(r"[ -~]*")
_COLOURS = re.compile(r"\x1b\[\d{1,2}m")
_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_JOINERS = "\u200d\ufe0f"  # inside of emoji; anywhere else they make two different texts look alike
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)  # messages and marks of no width
ELLIPSIS = "…"


def safe(text: str, lines: bool = False) -> str:
    """Escape everything that a terminal would interpret. With `lines`, line ends and tabs stay."""
    if _PLAIN.fullmatch(text):
        return text
    return "".join(_shown(character, before, lines) for before, character in zip(" " + text, text, strict=False))


def _shown(character: str, before: str, lines: bool) -> str:
    if " " <= character <= "~":
        return character
    if lines and character in "\n\t":
        return character
    if character in _JOINERS and (category(before) in ("So", "Sk") or before == _JOINERS[1]):
        return character
    if category(character) not in _HIDDEN and not _UNSEEN.match(character):
        return character
    number = ord(character)
    return _SHORT.get(character) or (f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}" if number < 65_536 else f"\\U{number:08x}")


def width(text: str) -> int:
    """Return how many columns a safe text takes; our own colours take none."""
    if "\x1b" in text:
        text = _COLOURS.sub("", text)
    if text.isascii():
        return len(text)
    return sum(0 if category(c) in ("Mn", "Me") or c in _JOINERS else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def cut(text: str, columns: int) -> str:
    """Cut a safe text to this many columns."""
    if width(text) <= columns:
        return text
    out, used = "", 0
    for character in text:
        used += width(character)
        if used > columns - 1:
            break
        out += character
    return out + ELLIPSIS


def cell(text: str, most: int = 60) -> str:
    """Prepare stored text for one cell of a table. Only the beginning is read: the text may be megabytes long."""
    return cut(safe(text[: 4 * most]), most) if len(text) > most or not text.isascii() else safe(text)


def filled(words: list[str], columns: int, later: str = "", first: str = "") -> list[str]:
    """Fill lines of this width with words; `first` and `later` are their margins. A word that is longer than a line stays whole."""
    lines, line = [], first
    for word in words:
        if line.strip() and width(line) + 1 + width(word) > columns:
            lines.append(line)
            line = later
        line += f" {word}" if line.strip() else word
    return [*lines, line] if line.strip() or not lines else lines


def size(count: float) -> str:
    """Format a number of bytes."""
    for unit in ("B", "KB", "MB", "GB"):
        if abs(count) < 1000 or unit == "GB":
            return f"{count:,.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError


def duration(seconds: float) -> str:
    """Format a time span."""
    if seconds < 0.0995:
        return f"{seconds * 1000:.1f} ms" if 0.0001 <= seconds < 0.00995 else f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    for unit, name in _UNITS:
        if seconds >= unit:
            whole = int(seconds // unit)
            rest = int(seconds - whole * unit) // {"d": 3_600, "h": 60, "min": 1}[name]
            smaller = {"d": "h", "h": "min", "min": "s"}[name]
            return f"{whole} {name} {rest} {smaller}" if rest else f"{whole} {name}"
    raise AssertionError


def plural(count: int, noun: str, more: str | None = None) -> str:
    return f"{count:,} {noun if count == 1 else more or noun + 's'}"
