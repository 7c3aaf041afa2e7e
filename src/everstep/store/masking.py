"""Masks values before they are written: states, results, errors, questions. Used only by stores with redaction.

Relies on the codec to take the program's own types apart, so that their fields are masked like the keys of a dict. Costs a walk over the
whole value. Never changes the program's own value. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any

from everstep.codec.values import Decoder, encode
from everstep.errors import EverstepError, InvalidArgument
from everstep.redact import MASK, Redactor
from everstep.snapshot.delta import Op
from everstep.snapshot.saver import Saved, Saver


class Mask:
    """Masks values of all kinds before they are encoded."""

    def __init__(self, redactor: Redactor):
        if not isinstance(redactor, Redactor):
            raise InvalidArgument(f"redaction must be a Redactor, got {redactor!r:.60}", remedy="Use everstep.redact.Redactor.default().")
        self.redactor = redactor

    def __call__(self, value: Any, what: str = "state") -> Any:
        """Return a new, masked value; objects of the program's own types appear in it as `Unknown`, which is stored in the same way."""
        return self.redactor.value(Decoder().decode(encode(value, what)))

    def text(self, text: str | None) -> str | None:
        return None if text is None else self.redactor.text(text) if isinstance(text, str) else text

    def meta(self, meta: Mapping[str, Any] | None) -> Any:
        """Mask metadata; anything else passes through and is rejected by validation."""
        return self.redactor.value(dict(meta)) if isinstance(meta, Mapping) else meta

    def source(self, text: str) -> str:
        """Mask the source code of a program: only texts that look like keys, because names in it mean nothing."""
        return self.redactor.pattern_text(text)

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], address: str) -> Any:
        """Mask the arguments of a call: positional ones by the names of the parameters."""
        masked: list[Any] = self(list(args), f"{address}: args")
        for index, name in enumerate(_parameters(function)[: len(masked)]):
            if masked[index] is not None and self.redactor.hides(name, masked[index]):
                masked[index] = MASK
        return tuple(masked), self(dict(kwargs), f"{address}: kwargs") if kwargs else kwargs

    def error(self, body: dict[str, Any]) -> dict[str, Any]:
        """Mask the stored parts of an error; its texts are masked already."""
        out = dict(body)
        for name in ("object", "fields", "more"):
            if name in body:
                try:
                    out[name] = encode(self.redactor.value(Decoder().decode(body[name])))
                except EverstepError:  # it then comes back as StepFailed
                    del out[name]
        return out


def _parameters(function: Any) -> list[str]:
    try:
        return list(signature(function).parameters)
    except (TypeError, ValueError):  # a function without a signature, written in C
        return []


class MaskingSaver(Saver):
    """Keeps the live state as the program sees it, and stores the masked one."""

    def __init__(self, saver: Saver, mask: Mask):
        self._inner = saver
        self._mask = mask
        self._live: Any = None

    def begin(self, state: Any) -> None:
        self._live = state
        self._inner.begin(self._mask(state))

    def continue_from(self, state: Any, deltas: int, delta_bytes: int) -> None:
        self._live = state
        self._inner.continue_from(Decoder().decode(encode(state)), deltas, delta_bytes)

    def forget_chunks(self) -> None:
        self._inner.forget_chunks()

    def follow(self, deltas: list[list[Op]], size: int, since_base: int | None) -> bool:
        """Return False: the deltas of others have masked values."""
        return False

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
