"""One live state on its way to storage: decides between delta and base, and builds both. No I/O.

A checkpoint normally carries a delta. A base goes with it when there are BASE_EVERY deltas or more since the last one and they outweigh
what that base cost, or MOST_DELTAS in any case; it stands alone where the delta would be huge or the run has no base yet.

A base never disagrees with its deltas. Deltas say what the methods of the tracked containers know, a base encodes what is there. So a base
is made only of containers in which both are the same; where they are not, because something wrote past the methods, the difference goes into
the delta first. Before a base all containers are looked at, if enough checkpoints were made since the last look that this costs little for
each of them (LOOKS containers); the last checkpoint of a run looks in any case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from everstep.codec.values import Decoder, encode
from everstep.errors import EverstepError, LimitExceeded, Unstorable
from everstep.fields import Shape, field
from everstep.snapshot import delta_builder
from everstep.snapshot.base import NOTHING, Known, build_base
from everstep.snapshot.delta import apply, joined
from everstep.snapshot.tracked import Edits, Strayed, Tracker

BASE_EVERY = 48
MOST_DELTAS = 512
BIG_DELTA = 256 * 1024
NO_DELTA = b"\xc0"
LOOKS = 8  # containers that may be looked at for each checkpoint: some millionths of a second
_MOST_EDITS = 8
_TRIES = 16  # before a save says that the state never holds still


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
        self._tracker = delta_builder.start(None)
        self._known: Known = NOTHING  # the chunks that the last base reaches
        self._deltas = 0
        self._delta_bytes = 0
        self._base_bytes = 0
        self._whole = True  # nothing is stored yet that a delta could stand on
        self._mirror: Any = None
        self._looks = 0  # how many containers may be looked at by now
        self._containers = 0  # how many there were at the last look
        self._edits: list[tuple[Tracker, int]] = []  # trackers that a save found in the middle of edits, and of how many

    def begin(self, state: Any) -> None:
        """Take an initial state that is not stored yet."""
        try:
            self._tracker = delta_builder.forget(delta_builder.start(state))
        except (TypeError, ValueError, RecursionError, Unstorable, LimitExceeded):
            _explain(state)
            raise

    def go_on(self, state: Any, deltas: int, delta_bytes: int) -> None:
        """Take a state that was loaded, together with how far behind its base is."""
        self._tracker = delta_builder.start(state)
        self._deltas, self._delta_bytes = deltas, delta_bytes
        self._base_bytes = delta_bytes
        self._whole = False
        if self._checking:
            self._mirror = _copy(state)

    @property
    def state(self) -> Any:
        return delta_builder.state_of(self._tracker)

    @state.setter
    def state(self, value: Any) -> None:
        delta_builder.replace_state(self._tracker, value)

    def hand_in(self, value: Any) -> None:
        """Take an object of the program's own as the state, to be compared with the last one."""
        delta_builder.hand_in(self._tracker, value)

    def build(self, whole: bool = False, thorough: bool = False) -> Saved:
        """What the next checkpoint writes; with `whole`, a base in any case. On an error nothing is lost: the next one says everything.

        `thorough` looks at every container for writes past its methods.
        """
        if self._tracker.torn or self._edits:
            self._look_at_edits()
        edits = self._tracker.torn = Edits(self._tracker.torn)
        try:
            return self._build_quietly(edits, whole, thorough or self._checking)
        except BaseException as error:
            self.lost()
            if isinstance(error, Strayed):
                raise EverstepError("the state changed while it was saved", remedy="Let one thread at a time change and save it.") from None
            if isinstance(error, (TypeError, ValueError, RecursionError, Unstorable, LimitExceeded)):
                _explain(self.state)  # names the place in the state, wherever the trouble was met
            raise
        finally:
            if self._tracker.torn is edits:
                self._tracker.torn = edits.count

    def _build_quietly(self, edits: Edits, whole: bool, thorough: bool) -> Saved:
        """Build from a state that nobody changes meanwhile. A signal handler or another thread may: then delta and base would not be of one
        moment, and the change would be in the base and in the next delta. Nothing that was built is kept then, and all is said once more."""
        for _ in range(_TRIES):
            saved, fragile = None, self._whole
            try:
                saved = self._build(whole, thorough)
                delta_builder.settle(self._tracker)
            except Exception:
                if not edits.begun and self._tracker.torn is edits:
                    raise  # else it may be what the change led to, such as a dict that changed size during an iteration
            fragile = fragile or saved is None or saved.base is not None
            quiet = not edits.begun and self._tracker.torn is edits
            if saved is not None and quiet and not (fragile and delta_builder.drifted(self._tracker)):
                return saved
            edits.begun = False
            self._tracker.torn = edits
            self.lost()
        raise Strayed

    def _build(self, whole: bool, thorough: bool) -> Saved:
        if thorough:
            self._look()
        delta = self._delta()
        base = self._base_due(len(delta), whole)
        self._looks += LOOKS
        if base and not thorough and self._looks >= self._containers and self._look():
            delta = self._more(delta)
        if self._checking:
            self._check(delta)
        if not base:
            return self._only(delta)
        try:
            return self._with_base(delta, whole)
        except Strayed:
            self._look()
            return self._with_base(self._more(delta), whole)

    def _look(self) -> int:
        """Look at every container; how many were found to have been written past their methods."""
        found, self._containers = delta_builder.overlooked(self._tracker)
        self._looks = 0
        return found

    def _more(self, delta: bytes) -> bytes:
        """The delta with what was overlooked at first. Its bytes stay as they are: the live values that they were made of are known better now."""
        return joined(delta, self._delta())

    def _delta(self) -> bytes:
        """What has changed. Encoding it may meet more, as long as there is something that was not known before."""
        delta = delta_builder.packed(delta_builder.collect(self._tracker))
        while delta_builder.met(self._tracker):
            delta = joined(delta, delta_builder.packed(delta_builder.collect(self._tracker)))
        return delta

    def _base_due(self, size: int, whole: bool) -> bool:
        deltas, written = self._deltas + 1, self._delta_bytes + size
        return whole or size > BIG_DELTA or deltas >= MOST_DELTAS or (deltas >= BASE_EVERY and written >= self._base_bytes)

    def _look_at_edits(self) -> None:
        """Save everything where edits were broken off. One that is merely interrupted by this save, or that another thread is at, ends later and
        is noted nowhere: when it has ended, everything is saved once more."""
        torn = self._tracker.torn
        if torn or any(tracker.torn != count for tracker, count in self._edits):
            found = [*(tracker for tracker, _ in self._edits), self._tracker]
            self._edits = [(tracker, tracker.torn) for tracker in found if tracker.torn][-_MOST_EDITS:]
            self.lost()

    def _only(self, delta: bytes) -> Saved:
        self._deltas += 1
        self._delta_bytes += len(delta)
        self._whole = False
        return Saved(delta)

    def _with_base(self, delta: bytes, whole: bool) -> Saved:
        built = build_base(self.state, self._wrap, self._known, self._tracker)
        self._known = built.known
        self._deltas = self._delta_bytes = 0
        self._base_bytes = 2 * (len(built.root) + sum(map(len, built.chunks.values())))
        alone = whole or len(delta) > BIG_DELTA or self._whole
        self._whole = False
        return Saved(NO_DELTA if alone else delta, built.root, list(built.chunks.items()))

    def lost(self) -> None:
        """What was built was not stored, or nobody knows: forget all that was believed to be stored."""
        old = self._tracker
        self._tracker = delta_builder.forget(old)
        delta_builder.release(old)  # only now: a signal handler that asks for the state in between gets it
        self._known = NOTHING
        self._whole = True
        self._deltas = self._delta_bytes = self._base_bytes = 0

    def _check(self, delta: bytes) -> None:
        """Debug switch: encode everything and compare with what the deltas say."""
        self._mirror = apply(self._mirror, Decoder().decode(delta))
        if encode(self._mirror) != encode(self.state):
            raise EverstepError("the tracked changes do not add up to the state", remedy="Report this: it is a bug in Everstep.")


def _explain(state: Any) -> None:
    from everstep.codec.explain import explain

    explain(state)


def _copy(value: Any) -> Any:
    return Decoder().decode(encode(value))
