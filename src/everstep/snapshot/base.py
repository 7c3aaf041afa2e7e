"""Builds one base: its content, its chunks, and the data about them that the next base reuses. No I/O.

Relies on `tree` for the cutting. A base whose compression ratio readers would refuse (see `loader`) is stored without compression. Frames
never get shorter once they are stored, so a ratio that was accepted stays acceptable when the same chunks are written again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from everstep.codec.frame import MAX_CONTENT, weight
from everstep.errors import LimitExceeded
from everstep.snapshot.loader import doubtful, too_heavy
from everstep.snapshot.tracked import Tracker
from everstep.snapshot.tree import Builder, Node

Known = Mapping[bytes, Node]
NOTHING: Known = {}
_MOST_PARTS = 1_000
_NOBODY = Tracker()  # its changes are not followed


class Built(NamedTuple):
    """The content of a base record, the chunks that are not stored yet, and all chunks that the base reaches."""

    root: bytes
    chunks: dict[bytes, bytes]
    known: Known


def build_base(state: Any, wrap: Callable[..., bytes], known: Known = NOTHING, tracker: Tracker = _NOBODY) -> Built:
    """Build a base for a state; `known` are the chunks that the base before it reaches."""
    builder = Builder(known, wrap, tracker)
    root = builder.build(state)
    reached = builder.reached()
    stored = sum(node.stored for node in reached.values())
    if not doubtful(builder.unfolded(reached), stored):
        return Built(root, builder.chunks, reached)
    scale = Builder(NOTHING, lambda content: wrap(content, least=MAX_CONTENT + 1), tracker, weight)  # nothing is compressed
    weighed = scale.build(state)
    on_scale = scale.reached()
    heavy = scale.unfolded(on_scale)
    if not too_heavy(heavy, stored):
        return Built(root, builder.chunks, reached)
    if too_heavy(heavy, sum(node.stored for node in on_scale.values())):
        raise LimitExceeded(
            f"{_heaviest(state)} repeats one small part many thousands of times: loading it would take about {heavy:,} bytes of memory",
            remedy="Store the part once, with the number of repetitions.",
        )
    sizes = {digest: Node(node.refs, len(scale.chunks[digest]), node.stored, node.shared) for digest, node in on_scale.items()}
    return Built(weighed, scale.chunks, sizes)


def _heaviest(state: Any) -> str:
    """Return the path of the innermost list or dict that could not be stored if it were the whole state."""
    path, value, found = "state", state, True
    while found:
        found = False
        for key, part in _parts(value):
            if _too_heavy_alone(part):
                path, value, found = f"{path}[{key!r:.60}]", part, True
                break
    return path


def _parts(value: Any) -> list[tuple[Any, Any]]:
    """List the lists and dicts inside one, each object once, up to a number that takes bearable time."""
    items = dict.items(value) if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    distinct = {id(part): (key, part) for key, part in items if isinstance(part, (dict, list))}
    return list(distinct.values())[:_MOST_PARTS]


def _too_heavy_alone(value: Any) -> bool:
    scale = Builder(NOTHING, bytes, _NOBODY, weight)
    scale.build(value)
    reached = scale.reached()
    return too_heavy(scale.unfolded(reached), sum(node.stored for node in reached.values()))
