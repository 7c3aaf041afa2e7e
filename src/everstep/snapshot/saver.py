"""One live state on its way to storage: decides between delta and base, and builds both. No I/O.

A checkpoint normally carries a delta. A base goes with it when there are BASE_EVERY deltas or more since the last one and they outweigh
what that base cost, or MOST_DELTAS in any case; it stands alone where the delta would be huge or the run has no base yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from everstep.codec.values import Decoder, encode
from everstep.errors import EverstepError, LimitExceeded, Unstorable
from everstep.shape import Shape, field
from everstep.snapshot import collect
from everstep.snapshot.base import NOTHING, Known, build_base
from everstep.snapshot.delta import apply
from everstep.snapshot.tracked import Tracker

BASE_EVERY = 48
MOST_DELTAS = 512
BIG_DELTA = 256 * 1024
NO_DELTA = b"\xc0"
_MOST_EDITS = 8


class Saved(Shape):
    """What one checkpoint writes: the delta's content (nil where the base says all), the base's, and the base's new chunks."""

    delta: bytes
    base: bytes | None = None
    chunks: list[tuple[bytes, bytes]] = field(default_factory=list)


class Saver:
    """Holds a run's live state and turns it into what is stored."""

    def __init__(self, wrap: Callable[[bytes], bytes], checking: bool = False):
        self._wrap = wrap
        self._checking = checking
        self._tracker = collect.start(None)
        self._known: Known = NOTHING  # the chunks that the last base reaches
        self._deltas = 0
        self._delta_bytes = 0
        self._base_bytes = 0
        self._whole = True  # nothing is stored yet that a delta could stand on
        self._mirror: Any = None
        self._edits: list[tuple[Tracker, int]] = []  # trackers that a save found in the middle of edits, and of how many

    def begin(self, state: Any) -> None:
        """Take an initial state that is not stored yet."""
        try:
            self._tracker = collect.forget(collect.start(state))
        except (TypeError, ValueError, RecursionError, Unstorable, LimitExceeded):
            _explain(state)
            raise

    def go_on(self, state: Any, deltas: int, delta_bytes: int) -> None:
        """Take a state that was loaded, together with how far behind its base is."""
        self._tracker = collect.start(state)
        self._deltas, self._delta_bytes = deltas, delta_bytes
        self._base_bytes = delta_bytes
        self._whole = False
        if self._checking:
            self._mirror = _copy(state)

    @property
    def state(self) -> Any:
        return collect.state_of(self._tracker)

    @state.setter
    def state(self, value: Any) -> None:
        collect.replace_state(self._tracker, value)

    def hand_in(self, value: Any) -> None:
        """Take an object of the program's own as the state, to be compared with the last one."""
        collect.hand_in(self._tracker, value)

    def build(self, whole: bool = False) -> Saved:
        """What the next checkpoint writes; with `whole`, a base in any case. On an error nothing is lost: the next one says everything."""
        if self._tracker.torn or self._edits:
            self._look_at_edits()
        try:
            ops = collect.collect(self._tracker)
            delta = collect.packed(ops)
            del ops
            if self._checking:
                self._check(delta)
            saved = self._with_base(delta, whole)
            collect.settle(self._tracker)
        except BaseException as error:
            self.lost()
            if isinstance(error, (TypeError, ValueError, RecursionError, Unstorable, LimitExceeded)):
                _explain(self.state)  # names the place in the state, wherever the trouble was met
            raise
        return saved

    def _look_at_edits(self) -> None:
        """Save everything where edits were broken off. One that is merely interrupted by this save, or that another thread is at, ends later and
        is noted nowhere: when it has ended, everything is saved once more."""
        torn = self._tracker.torn
        if torn or any(tracker.torn != count for tracker, count in self._edits):
            found = [*(tracker for tracker, _ in self._edits), self._tracker]
            self._edits = [(tracker, tracker.torn) for tracker in found if tracker.torn][-_MOST_EDITS:]
            self.lost()

    def _with_base(self, delta: bytes, whole: bool) -> Saved:
        big = whole or len(delta) > BIG_DELTA
        self._deltas += 1
        self._delta_bytes += len(delta)
        due = self._deltas >= BASE_EVERY and self._delta_bytes >= self._base_bytes
        if not (big or due or self._deltas >= MOST_DELTAS):
            self._whole = False
            return Saved(delta)
        built = build_base(self.state, self._wrap, self._known, self._tracker)
        self._known = built.known
        self._deltas = self._delta_bytes = 0
        self._base_bytes = 2 * (len(built.root) + sum(map(len, built.chunks.values())))
        alone = big or self._whole
        self._whole = False
        return Saved(NO_DELTA if alone else delta, built.root, list(built.chunks.items()))

    def lost(self) -> None:
        """What was built was not stored, or nobody knows: forget all that was believed to be stored."""
        self._tracker = collect.forget(self._tracker)
        self._known = NOTHING
        self._whole = True
        self._deltas = self._delta_bytes = self._base_bytes = 0

    def _check(self, delta: bytes) -> None:
        """Debug switch: encode everything and compare with what the deltas say."""
        self._mirror = apply(self._mirror, Decoder().decode(delta))
        if encode(self._mirror) != encode(self.state):
            raise EverstepError("the tracked changes do not add up to the state", remedy="Report this: it is a bug in Everstep.")


def _explain(state: Any) -> None:
    from everstep.codec.refusal import explain

    explain(state)


def _copy(value: Any) -> Any:
    return Decoder().decode(encode(value))
