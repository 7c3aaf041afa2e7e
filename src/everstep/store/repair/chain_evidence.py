"""Choose among several candidates for each record of a run those that the chain proves. Pure.

A record is proved by its digest, given the digest of the record before it. The digest may also be known from the record after it, which is
chained to it, or from the run row. So records after a hole are proved as well as those before it, except the first one after the hole: the
digest of its predecessor is unknown. A record whose own digest was damaged is proved by its successor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from everstep.fields import replace
from everstep.records import ZERO, Record, Seal, chain


class _Link(NamedTuple):
    """A candidate with a possible digest of its predecessor, and the digest that it would have then."""

    record: Record
    before: bytes
    digest: bytes


Heal = Callable[[Record, bytes, bytes], Record | None]


def prove(candidates: Mapping[int, Sequence[Record]], heads: Mapping[int, bytes], key: bytes, seal: Seal, heal: Heal) -> dict[int, Record]:
    """Return the proved records of the run with a key, by seq. `heads` are digests known for certain: that of the newest record, from the
    row.

    `heal` corrects a damaged record, given the digest before it and its own.
    """
    digests: dict[int, dict[bytes, None]] = {0: {ZERO: None}, **{seq: {digest: None} for seq, digest in heads.items()}}
    links: dict[int, list[_Link]] = {}
    for seq in sorted(candidates):
        here = digests.setdefault(seq, {})
        here.update(dict.fromkeys(record.digest for record in candidates[seq]))
        whole = [record for record in candidates[seq] if not hollow(record)]
        links[seq] = [_link(record, before, key, seal) for record in whole for before in digests.get(seq - 1, ())]
        if not any(link.digest == link.record.digest for link in links[seq]):  # its own digest may be damaged
            here.update(dict.fromkeys(link.digest for link in links[seq]))
    return _choose(links, heads, heal)


def hollow(record: Record) -> bool:
    """Whether a candidate has lost its body, so that it is only a hint."""
    return record.body is None and record.body_digest == ZERO


def _link(record: Record, before: bytes, key: bytes, seal: Seal) -> _Link:
    return _Link(record, before, chain(before, key, record, seal))


def _choose(links: Mapping[int, Sequence[_Link]], heads: Mapping[int, bytes], heal: Heal) -> dict[int, Record]:
    """Choose from the end to the beginning: each record names the one before it."""
    out: dict[int, Record] = {}
    known = dict(heads)  # the digest that a record must have; heads override the record after it
    for seq in sorted({*links, *heads}, reverse=True):
        wanted = known.get(seq)
        here = links.get(seq, ())
        found = next((link for link in here if link.digest == (link.record.digest if wanted is None else wanted)), None)
        if found is None:
            healed = (_healed(link, wanted, heal) for link in here)
            found = next((link for link in healed if link is not None), None)
        if found is not None:
            known.setdefault(seq - 1, found.before)
            out[seq] = replace(found.record, digest=found.digest)
    return dict(sorted(out.items()))


def _healed(link: _Link, wanted: bytes | None, heal: Heal) -> _Link | None:
    record = heal(link.record, link.before, link.record.digest if wanted is None else wanted)
    return None if record is None else _Link(record, link.before, record.digest)
