"""Saves one live state: decides between delta and base, and builds both. No I/O.

A checkpoint normally carries a delta. A base is added after BASE_EVERY deltas or more, if they outweigh the cost of the last base, and
always after MOST_DELTAS. A base is written alone if the delta would be huge or the run has no base yet.

A base never disagrees with its deltas. Deltas contain the content that the methods of the tracked containers know; a base encodes the
actual content. So a base is made only of containers in which both are the same. If they differ, because something wrote past the methods,
the difference goes into the delta first. Before a base, all containers are checked, if there were enough checkpoints since the last check
to keep its cost for each of them low (LOOKS containers). The last checkpoint of a run always checks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from everstep.codec.secret_bytes import located, refuse_secret
from everstep.codec.values import Decoder, encode
from everstep.errors import EverstepError, LimitExceeded, PlainSecret, Unstorable
from everstep.fields import Shape, field
from everstep.snapshot import delta_builder
from everstep.snapshot.base import NOTHING, Known, build_base
from everstep.snapshot.delta import Op, apply, joined
from everstep.snapshot.tracked import Edits, Strayed, Tracker

BASE_EVERY = 48
MOST_DELTAS = 512
BIG_DELTA = 256 * 1024
NO_DELTA = b"\xc0"
NO_CHANGE = b"\x90"
LOOKS = 8  # containers that may be checked for each checkpoint: a few microseconds
_MOST_EDITS = 8
_TRIES = 16  # attempts before a save reports that the state keeps changing


class Saved(Shape):
    """The data that one checkpoint writes: the delta's content (nil if the base has everything), the base's, and the base's new chunks."""

    delta: bytes
    base: bytes | None = None
    chunks: list[tuple[bytes, bytes]] = field(default_factory=list)


class Saver:
    """Holds a run's live state and converts it to stored data."""

    def __init__(self, wrap: Callable[[bytes], bytes], checking: bool = False):
        self._wrap = wrap
        self._checking = checking
        self._tracker = delta_builder.start(None)
        self._known: Known = NOTHING  # the chunks that the last base reaches
        self._deltas = 0
        self._delta_bytes = 0
        self._base_bytes = 0
        self._whole = True  # nothing is stored yet that a delta could be based on
        self._mirror: Any = None
        self._looks = 0  # how many containers may be checked by now
        self._containers = 0  # how many there were at the last check
        self._edits: list[tuple[Tracker, int]] = []  # trackers that a save found in the middle of edits, with the number of edits

    def begin(self, state: Any) -> None:
        """Take an initial state that is not stored yet."""
        try:
            self._tracker = delta_builder.forget(delta_builder.start(state))
        except (TypeError, ValueError, RecursionError, Unstorable, LimitExceeded):
            _explain(state)
            raise

    def continue_from(self, state: Any, deltas: int, delta_bytes: int) -> None:
        """Take a loaded state, with the distance to its base."""
        self._tracker = delta_builder.start(state)
        self._deltas, self._delta_bytes = deltas, delta_bytes
        self._base_bytes = delta_bytes
        self._whole = False
        if self._checking:
            self._mirror = _copy(state)

    def follow(self, deltas: list[list[Op]], size: int, since_base: int | None) -> bool:
        """Apply deltas that others have stored to the live state. Return False, and assume nothing any more, if the program has changed it.

        `size` is their bytes since the newest base among them; `since_base` says how many of them follow it, None if there is none.
        """
        tracker = self._tracker
        if self._is_changed() or not delta_builder.is_tree(tracker):
            self.lost()
            return False
        try:
            for ops in deltas:
                if apply(self.state, ops) is not self.state:
                    self.lost()
                    return False
            self._delta()  # notes them as stored
            delta_builder.settle(tracker)
        except BaseException:
            self.lost()
            raise
        if since_base is not None:  # what is stored below that base may be freed
            self._known, self._deltas, self._delta_bytes, self._base_bytes = NOTHING, 0, 0, size
        self._deltas += len(deltas) if since_base is None else since_base
        self._delta_bytes += size
        return True

    def _is_changed(self) -> bool:
        """Whether the live state may differ from the stored one."""
        tracker = self._tracker
        return bool(self._whole or self._checking or self._edits or tracker.torn or tracker.handed_in or self._delta() != NO_CHANGE)

    def forget_chunks(self) -> None:
        """Rely on no chunk of the last base any more: others may have dropped it. The next base brings all of its chunks."""
        self._known = NOTHING

    @property
    def state(self) -> Any:
        return delta_builder.state_of(self._tracker)

    @state.setter
    def state(self, value: Any) -> None:
        delta_builder.replace_state(self._tracker, value)

    def hand_in(self, value: Any) -> None:
        """Take an object of the program as the state, to be compared with the last one."""
        delta_builder.hand_in(self._tracker, value)

    def build(self, whole: bool = False, thorough: bool = False) -> Saved:
        """Build the data of the next checkpoint; with `whole`, always a base. After an error nothing is lost: the next checkpoint contains
        everything.

        `thorough` checks every container for writes past its methods.
        """
        if self._tracker.torn or self._edits:
            self._look_at_edits()
        edits = self._tracker.torn = Edits(self._tracker.torn)
        try:
            saved = self._build_quietly(edits, whole, thorough or self._checking)
            for content in (saved.delta, saved.base or b""):
                refuse_secret(self._wrap, content, self.state, "state")
            return saved
        except BaseException as error:
            self.lost()
            if isinstance(error, Strayed):
                raise EverstepError(
                    "the state changed while it was being saved", remedy="Change and save a state from one thread at a time."
                ) from None
            if isinstance(error, PlainSecret):  # refused with the frame of a chunk, where the path is not known
                raise located(self.state, "state") from None
            if isinstance(error, (TypeError, ValueError, RecursionError, Unstorable, LimitExceeded)):
                _explain(self.state)  # names the path in the state, wherever the error occurred
            raise
        finally:
            if self._tracker.torn is edits:
                self._tracker.torn = edits.count

    def _build_quietly(self, edits: Edits, whole: bool, thorough: bool) -> Saved:
        """Build from a state that does not change meanwhile. A signal handler or another thread may change it: then delta and base would
        differ in time, and the change would be in the base and in the next delta. In that case everything built is dropped and built again.
        """
        for _ in range(_TRIES):
            saved, fragile = None, self._whole
            try:
                saved = self._build(whole, thorough)
                delta_builder.settle(self._tracker)
            except Exception:
                if not edits.begun and self._tracker.torn is edits:
                    raise  # otherwise the change may be the cause, such as a dict that changed size during iteration
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
        """Check every container; return how many were written past their methods."""
        found, self._containers = delta_builder.overlooked(self._tracker)
        self._looks = 0
        return found

    def _more(self, delta: bytes) -> bytes:
        """Append to the delta what was overlooked at first. Its bytes stay as they are: the bookkeeping of the live values has moved on."""
        return joined(delta, self._delta())

    def _delta(self) -> bytes:
        """Return the changes. Encoding may find more, as long as something new is found."""
        delta = delta_builder.packed(delta_builder.collect(self._tracker))
        while delta_builder.met(self._tracker):
            delta = joined(delta, delta_builder.packed(delta_builder.collect(self._tracker)))
        return delta

    def _base_due(self, size: int, whole: bool) -> bool:
        deltas, written = self._deltas + 1, self._delta_bytes + size
        return whole or size > BIG_DELTA or deltas >= MOST_DELTAS or (deltas >= BASE_EVERY and written >= self._base_bytes)

    def _look_at_edits(self) -> None:
        """Save everything if edits were broken off. An edit that this save interrupts, or that another thread is making, ends later and is
        not noted: then everything is saved once more after it has ended.
        """
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
        """Forget everything that was assumed to be stored: the built data was not stored, or its fate is unknown."""
        old = self._tracker
        self._tracker = delta_builder.forget(old)
        delta_builder.release(old)  # only now: a signal handler that reads the state in between still gets it
        self._known = NOTHING
        self._whole = True
        self._deltas = self._delta_bytes = self._base_bytes = 0

    def _check(self, delta: bytes) -> None:
        """Encode everything and compare it with the sum of the deltas (a debug switch)."""
        self._mirror = apply(self._mirror, Decoder().decode(delta))
        if encode(self._mirror) != encode(self.state):
            raise EverstepError("the tracked changes do not add up to the state", remedy="Report this: it is a bug in Everstep.")


def _explain(state: Any) -> None:
    from everstep.codec.explain import explain

    explain(state)


def _copy(value: Any) -> Any:
    return Decoder().decode(encode(value))
