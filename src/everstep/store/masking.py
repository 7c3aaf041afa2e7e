"""Masks what is to be written: states, results, errors, questions. For stores that were asked to; others never come here.

Relies on the codec to take the program's own types apart, so that their fields are masked like the keys of a dict. Costs a walk over
the whole value. Never changes the value that the program holds. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any

from everstep.codec.values import Decoder, encode
from everstep.errors import EverstepError, InvalidArgument
from everstep.redact import MASK, Redactor
from everstep.snapshot.saver import Saved, Saver


class Mask:
    """Masks values of all kinds before they are encoded."""

    def __init__(self, redactor: Redactor):
        if not isinstance(redactor, Redactor):
            raise InvalidArgument(f"redaction={redactor!r:.60} is no Redactor", remedy="Give everstep.redact.Redactor.default().")
        self.redactor = redactor

    def __call__(self, value: Any, what: str = "state") -> Any:
        """A fresh value, masked; objects of the program's own types stand in it as `Unknown`, which is stored as they are."""
        return self.redactor.value(Decoder().decode(encode(value, what)))

    def text(self, text: str | None) -> str | None:
        return None if text is None else self.redactor.text(text) if isinstance(text, str) else text

    def meta(self, meta: Mapping[str, Any] | None) -> Any:
        """Metadata, masked. What is none is left for others to refuse."""
        return self.redactor.value(dict(meta)) if isinstance(meta, Mapping) else meta

    def source(self, text: str) -> str:
        """The source of a program: names in it say nothing, only what looks like a key is masked."""
        return self.redactor.pattern_text(text)

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], address: str) -> Any:
        """The arguments of a call, masked: those that are given by their place go by the names of the parameters."""
        masked: list[Any] = self(list(args), f"{address}: args")
        for place, name in enumerate(_parameters(function)[: len(masked)]):
            if masked[place] is not None and self.redactor.hides(name, masked[place]):
                masked[place] = MASK
        return tuple(masked), self(dict(kwargs), f"{address}: kwargs") if kwargs else kwargs

    def error(self, body: dict[str, Any]) -> dict[str, Any]:
        """What is kept of an error, masked; its texts are so already."""
        out = dict(body)
        for name in ("object", "fields", "more"):
            if name in body:
                try:
                    out[name] = encode(self.redactor.value(Decoder().decode(body[name])))
                except EverstepError:  # it comes back as StepFailed then
                    del out[name]
        return out


def _parameters(function: Any) -> list[str]:
    try:
        return list(signature(function).parameters)
    except (TypeError, ValueError):  # a function without a signature, written in C
        return []


class MaskingSaver(Saver):
    """Holds the live state as the program sees it, and stores what the mask leaves of it."""

    def __init__(self, saver: Saver, mask: Mask):
        self._inner = saver
        self._mask = mask
        self._live: Any = None

    def begin(self, state: Any) -> None:
        self._live = state
        self._inner.begin(self._mask(state))

    def go_on(self, state: Any, deltas: int, delta_bytes: int) -> None:
        self._live = state
        self._inner.go_on(Decoder().decode(encode(state)), deltas, delta_bytes)

    @property
    def state(self) -> Any:
        return self._live

    @state.setter
    def state(self, value: Any) -> None:
        self._live = value

    def hand_in(self, value: Any) -> None:
        self._live = value

    def build(self, whole: bool = False, thorough: bool = False) -> Saved:
        self._inner.hand_in(self._mask(self._live))
        return self._inner.build(whole, thorough)

    def lost(self) -> None:
        self._inner.lost()
