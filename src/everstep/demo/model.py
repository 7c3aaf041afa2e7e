"""A language model that needs no network: it waits like a real one, counts tokens, has a price, and always gives the same answers.

Its answers follow from the messages: it extracts figures from notes, compares them, and puts them into a sentence. `wait` makes it slow; a
process that is to be killed in the middle of a call replaces it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence

from everstep.fields import Shape

SECONDS = 0.55
DOLLARS_READ, DOLLARS_WRITTEN = 15 / 1_000_000, 75 / 1_000_000  # for each token, at the price of a large model
CHARACTERS = 4  # in a token

FINDING = re.compile(r"(?P<option>[a-z ]+): (?P<percent>\d+) % of all hours, (?P<cents>\d+) cents, (?P<years>\d+) years?")
_IN_NOTES = (r"(\d+) % of all hours", r"(\d+) cents", r"take (\d+ years?)")
_BEST: Mapping[str, tuple[str, int]] = {"a steady supply": ("percent", 1), "a low price": ("cents", -1), "an early start": ("years", -1)}

Messages = Sequence[Mapping[str, str]]
wait: Callable[[float], None] = time.sleep


class Reply(Shape, frozen=True):
    """A reply of the model, and its cost."""

    text: str
    tokens: int
    cost: float


def complete(messages: Messages) -> Reply:
    """Make one call. Each call reads, and pays for, all earlier messages."""
    wait(SECONDS)
    text = _answer(messages)
    read, written = sum(len(message["text"]) for message in messages) // CHARACTERS, len(text) // CHARACTERS
    return Reply(text, read + written, round(read * DOLLARS_READ + written * DOLLARS_WRITTEN, 6))


def _answer(messages: Messages) -> str:
    verb, _, rest = messages[-1]["text"].partition(": ")
    if verb == "Compare":
        return rest
    if verb == "Judge":
        percent, cents, years = (re.findall(pattern, messages[-2]["text"])[0] for pattern in _IN_NOTES)
        return f"{rest}: {percent} % of all hours, {cents} cents, {years}"
    found = [match for message in messages if message["role"] == "model" and (match := FINDING.fullmatch(message["text"]))]
    if verb == "Decide":
        return _decision(found, rest)
    return _conclusion(next(match for match in found if match["option"] == rest), messages[-2]["text"])


def _decision(found: Sequence[re.Match[str]], wish: str) -> str:
    field, sign = _BEST[wish]
    best = max(found, key=lambda match: sign * int(match[field]))
    return f"{best['option']}, the best of {len(found)} for {wish}"


def _conclusion(match: re.Match[str], bill: str) -> str:
    option, percent, cents, years = match.group("option", "percent", "cents", "years")
    ready = "a year" if years == "1" else f"{years} years"
    return f"{option.capitalize()}: {percent} % of hours, {cents} cents, {bill}, in {ready}."
