"""Which of several candidates for each record of a run are the ones that were written: those that the chain proves. Pure.

A record proves itself by its digest, given that of the record before it, and the digest may be known from elsewhere: from the record behind
it, which was chained to it, or from the run row. So what stands behind a hole is proved as well as what stands before it, but for the first
record behind it, whose predecessor's digest nobody knows; and a record whose own digest was damaged is proved by its successor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from everstep.fields import replace
from everstep.records import ZERO, Record, Seal, chain


class _Link(NamedTuple):
    """A candidate with a digest that may stand before it, and what its own would be then."""

    record: Record
    before: bytes
    digest: bytes


Heal = Callable[[Record, bytes, bytes], Record | None]


def prove(candidates: Mapping[int, Sequence[Record]], heads: Mapping[int, bytes], key: bytes, seal: Seal, heal: Heal) -> dict[int, Record]:
    """The proven records of the run with a key, by seq. `heads` are digests that are known for certain: that of the newest record, from the row.

    `heal` is asked for what a damaged record was, given the digest before it and its own.
    """
    digests: dict[int, dict[bytes, None]] = {0: {ZERO: None}, **{seq: {digest: None} for seq, digest in heads.items()}}
    links: dict[int, list[_Link]] = {}
    for seq in sorted(candidates):
        here = digests.setdefault(seq, {})
        here.update(dict.fromkeys(record.digest for record in candidates[seq]))
        whole = [record for record in candidates[seq] if not hollow(record)]
        links[seq] = [_link(record, before, key, seal) for record in whole for before in digests.get(seq - 1, ())]
        if not any(link.digest == link.record.digest for link in links[seq]):  # its own digest may be what is damaged
            here.update(dict.fromkeys(link.digest for link in links[seq]))
    return _choose(links, heads, heal)


def hollow(record: Record) -> bool:
    """Whether a candidate has lost its body: it can be nothing but a hint."""
    return record.body is None and record.body_digest == ZERO


def _link(record: Record, before: bytes, key: bytes, seal: Seal) -> _Link:
    return _Link(record, before, chain(before, key, record, seal))


def _choose(links: Mapping[int, Sequence[_Link]], heads: Mapping[int, bytes], heal: Heal) -> dict[int, Record]:
    """From the end to the beginning: what stands behind a record says which one it is."""
    out: dict[int, Record] = {}
    known = dict(heads)  # which digest a record must have; heads win over what stands behind it
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
