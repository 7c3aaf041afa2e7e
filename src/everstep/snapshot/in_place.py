"""Gives a live state the content of another one in place: names that a program has given to it stay valid. No I/O.

A fork with an edited state needs this. A workflow that begins with `state = everstep.current().state` would otherwise work on the state
without the edit, and what it writes there would never be saved. Below the top, an edited part is a new object: the old one may be in use
elsewhere, for example in another run of the same process.
"""

from __future__ import annotations

from typing import Any

from everstep.codec.values import encode
from everstep.errors import LimitExceeded, Unstorable
from everstep.snapshot.saver import Saver
from everstep.snapshot.tracked import TrackedDict


def become(saver: Saver, wanted: Any) -> None:
    """Make the live state equal to this value. A dict stays the same object, and so do the values in it that are equal."""
    live = saver.state
    if live.__class__ is not TrackedDict or wanted.__class__ is not dict:
        saver.state = wanted
        return
    content = {key: live[key] if key in live and _same(live[key], value) else value for key, value in wanted.items()}
    live.clear()  # the order of keys is a part of a state
    live.update(content)


def _same(live: Any, wanted: Any) -> bool:
    try:
        return encode(live) == encode(wanted)
    except (Unstorable, LimitExceeded):
        return False
