"""Repair: write a new store with all provably good data of a damaged one, and list the losses. Never changes the source.

Relies on a damaged store for candidates (everything that the engine still reads, and for SQLite also the contents of the pages of the file
and its WAL). Every part must be proved: a run row by its check, a record by the chain, a chunk by its content, everything else by its own
check. Runs keep their positions, ids, numbers and epochs. The new store appears complete or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from everstep.backends.contract.queues import LIMITS
from everstep.backends.contract.recovery import Builder, DamagedStore, Entry, Feed, Summary
from everstep.backends.deleted_pks import PREFIX, unpack
from everstep.backends.registry import open_builder, open_damaged, shown
from everstep.clock import clock
from everstep.codec.frame import Framer
from everstep.errors import Damaged, DamagedKey, NotAStore, StoreError
from everstep.fields import Shape, field
from everstep.records import ENCRYPTION, ZERO, Framing, Seal, Tombstone, property_check, shift, unkeyed
from everstep.store.progress import Pace, Progress
from everstep.store.queue_entries import has_ended, task_in
from everstep.store.repair.bit_flips import Checked, Healer
from everstep.store.repair.encrypted import good_key, unlocked
from everstep.store.repair.find_runs import Finder, Found
from everstep.store.repair.report import Loss, Repaired

_KEPT = (ENCRYPTION, "retention", LIMITS, "schedule:", "fired:", PREFIX)  # settings of users, and what is recorded about them
_MOST_UNKNOWN = 10_000  # unknown positions in a row: a position after a larger gap is a damaged number


def repair(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    key: Any = None,
    old_keys: Sequence[Any] = (),
) -> Repaired:
    """Write a new store at `target` with all provably good data of the one at `source`, which is only read.

    Also works if the source cannot be opened any more. `.lost` lists the losses; `str()` of the result is for people.
    `progress(done, total, what)` is called now and then, with the number of runs. An encrypted store needs its `key`, by default that of
    EVERSTEP_KEY; the new store has the same.
    """
    key = os.environ.get("EVERSTEP_KEY", "").strip() or None if key is None else key
    return repair_sealed(source, target, unkeyed, Framer(), progress, [key, *old_keys] if key is not None else [])


def repair_sealed(
    source: str | os.PathLike[str], target: str | os.PathLike[str], seal: Seal, framer: Framing, progress: Progress | None = None,
    keys: Sequence[Any] = (),
) -> Repaired:  # fmt: skip
    """Repair a store that has its own seal and framer; the new one gets the same."""
    pace = Pace(progress, None)
    builder = open_builder(target, seal)
    try:
        damaged = open_damaged(source, builder.private, seal)
        try:
            found = unlocked(damaged, shown(source), framer, keys)
            if found is not None:
                framer, seal = found, found.seal
                damaged.set_seal(seal)
                builder.set_seal(seal)
            return _Repair(damaged, builder, Repaired(shown(source), shown(target)), Healer(seal=seal, framer=framer), pace).all()
        finally:
            damaged.close()
    except OSError as error:  # of the private copy
        raise StoreError(
            f"{shown(source)} cannot be repaired: the operating system reported {error}",
            remedy="Check the target's disk and its free space, then try again. The source was not changed.",
        ) from error
    finally:
        builder.abandon()


class _Repair(Shape):
    source: DamagedStore
    builder: Builder
    out: Repaired
    healer: Healer
    pace: Pace
    summary: Summary = field(default_factory=Summary)
    feed: Feed = field(default_factory=Feed)
    tombstones: dict[int, Tombstone] = field(default_factory=dict)
    _forgotten: set[int] = field(default_factory=set)
    _total: bytes = ZERO
    _heads: dict[int, int] = field(default_factory=dict)
    _ids: set[str] = field(default_factory=set)
    _families: set[bytes] = field(default_factory=set)
    _written: dict[bytes, set[bytes]] = field(default_factory=dict)

    def all(self) -> Repaired:
        self.summary = self.source.summary(False)
        deep = not self._adds_up()
        if deep:
            self.summary = self.source.summary(True)
        self.feed = self.source.feed(deep)
        self._read_tombstones(deep)
        properties = self.source.properties(deep)
        self._forgotten = {pk for name, value in properties.items() if name.startswith(PREFIX) for part in unpack(value) for pk in part}
        pks = _dense({*self.source.pks(deep), *self.tombstones, *self._forgotten, *self.feed.ends, self.summary.created})
        finder = Finder(self.source, self.feed, deep, self.healer, list(self.source.keys()))
        self.pace.total = len(pks)
        for pk in reversed(pks):  # newest first: if two runs have the same id, the older one was deleted
            if pk not in self.tombstones and pk not in self._forgotten:
                self._run(pk, finder)
            self.pace.on(1, "repair")
        if not self._heads and not self.tombstones and self.summary.total is None:
            raise NotAStore(f"nothing in {self.out.source} could be verified as a part of an Everstep store")
        for name, value in properties.items():
            self._total = shift(self._total, (), [property_check(name, value, self.healer.seal)])
            if name.startswith(_KEPT):  # the others are about the old store: when it was verified or cleaned up
                self.builder.add_property(name, value)
        self._bury(max(pks, default=0), deep)
        self._tell_of_the_store()
        self.out.healed = self.healer.healed
        self.out.lost.sort(key=lambda loss: (loss.run is not None, loss.run or ""))
        return self.out

    def _adds_up(self) -> bool:
        """Whether everything that the engine finds matches the manifest: then no run, tag or message is missing."""
        total, source, seal = ZERO, self.source, self.healer.seal
        stones = source.tombstones(False)
        if self.summary.total is None or any(stone.digest(self.healer.seal) != stone.check for stone in stones):
            return False
        for pk in source.pks(False):
            rows = source.rows(pk, False)
            beside: list[Checked] = [*source.tags(pk, False), *source.messages(pk, False), *source.pruned(pk, False)]
            beside += source.bases(pk, False)
            if not rows or rows[0][0].digest(seal) != rows[0][0].check or any(thing.digest(seal) != thing.check for thing in beside):
                return False
            total = shift(total, (), [rows[0][0].check, *(thing.check for thing in beside)])
        properties = [property_check(name, value, seal) for name, value in source.properties(False).items()]
        return shift(total, (), [*(stone.check for stone in stones), *properties]) == self.summary.total

    def _read_tombstones(self, deep: bool) -> None:
        for stone in self.source.tombstones(deep):
            good = stone if stone.digest(self.healer.seal) == stone.check else self.healer.row(stone)
            if good is not None:
                self.tombstones.setdefault(good.pk, good)

    def _run(self, pk: int, finder: Finder) -> None:
        found = finder.find(pk)
        if found is None or found.recovered.row.id in self._ids:
            return
        run, family = found.recovered.row.id, found.recovered.row.family
        try:
            found.recovered.rebuild(self.healer.framer, lambda digests: finder.chunks(family, digests))
        except DamagedKey as error:
            self.out.lost.append(Loss(run, "run", error.message))
            return
        except Damaged as error:  # its digests match, but Everstep cannot have written it
            self.out.lost.append(Loss(run, "run", f"it is inconsistent: {error.message}"))
            return
        self._write(pk, found, finder)
        self._ids.add(run)
        self._total = shift(self._total, (), [*found.checks(), *(tag.check for tag in found.recovered.tags)])

    def _write(self, pk: int, found: Found, finder: Finder) -> None:
        recovered = found.recovered
        task = None if has_ended(recovered.chain) else task_in(recovered.chain)
        self.builder.run(pk, recovered.row, recovered.chain, recovered.tags, recovered.messages, recovered.mark, recovered.bases, task)
        self._chunks(found, finder)
        if self.healer.framer.encrypted and recovered.row.family not in self._families:
            self._families.add(recovered.row.family)
            self.builder.add_key(recovered.row.family, good_key(self.healer.framer, recovered.row.family))
        self._heads[pk] = recovered.row.head_seq
        self.out.runs += 1
        self.out.records += len(recovered.records)  # without substitutes for lost ones
        self.out.checkpoints += len(recovered.good)
        self.out.paused += [recovered.row.id] if recovered.paused else []
        self.out.lost += recovered.losses

    def _chunks(self, found: Found, finder: Finder) -> None:
        recovered = found.recovered
        written = self._written.setdefault(recovered.row.family, set())
        frames = self.healer.framer.of(recovered.row.family, recovered.row.key)
        for digest in sorted(recovered.needed - written):
            made = recovered.made.get(digest)
            frame = frames.stored([(digest, made)])[0][1] if made is not None else finder.stored(recovered.row.family, digest)
            assert frame is not None
            self.builder.chunk(recovered.row.family, frames.chunk_name(digest), frame)
            self.out.chunks += 1
        written |= recovered.needed

    def _bury(self, last: int, deep: bool) -> None:
        """Give every position without a run a tombstone, unless a property lists it as deleted. If neither is left, the run is unknown."""
        for pk in range(1, last + 1):
            if pk in self._heads or pk in self._forgotten:
                continue
            stone = self.tombstones.get(pk)
            if stone is None:
                stone = Tombstone.unknown(pk, clock.now_us(), self.healer.seal)
                self._tell_of_a_run(pk, deep)
            self.builder.tombstone(stone)
        self._total = shift(self._total, (), [stone.check for stone in self.tombstones.values()])
        self.builder.finish(last, self.summary.last if self.summary.last in self._heads else None, self._entries())

    def _tell_of_a_run(self, pk: int, deep: bool) -> None:
        names = [name for name in self.source.names(pk) if name not in self._ids] if deep else []
        if names and self.source.alive(pk):
            self.out.lost.append(Loss(names[0], "run", "neither its row nor its first records can be proved", name=f"number {pk}"))
        elif self.summary.buries:
            self.out.lost.append(Loss(None, "run", "neither the run nor its tombstone was found", name=f"number {pk}"))

    def _entries(self) -> list[Entry]:
        """Return the old feed plus records that repair added; a new feed if it cannot be proved or contains missing records."""
        known = {pk: last for pk, last in self.feed.ends.items() if pk in self._heads}
        if self.feed.entries is not None and known.keys() == self._heads.keys():
            return self.feed.entries + [(p, known[p] + 1, last - known[p]) for p, last in sorted(self._heads.items()) if last > known[p]]
        reason = f"its order is lost: all records are listed again, run by run, after position {self.feed.end}"
        if self._heads:
            self.out.lost.append(Loss(None, "feed", reason))
        # Positions are never reused: a reader that followed the old store sees everything again and misses nothing.
        gone = [(0, 1, self.feed.end)] if self.feed.end else []
        return gone + [(pk, 1, last) for pk, last in sorted(self._heads.items())]

    def _tell_of_the_store(self) -> None:
        lost, told = self.out.lost, self.summary
        if told.unreadable:
            lost.append(Loss(None, "bytes", f"{told.unreadable:,} bytes of the file could not be read from the disk"))
        if told.behind:
            lost.append(
                Loss(
                    None,
                    "writes",
                    f"{told.behind} {'write that this machine has seen is' if told.behind == 1 else 'writes that this machine has seen are'} missing",
                )
            )
        if told.total is None:
            lost.append(Loss(None, "manifest", "it cannot be read, so missing runs, tags or messages would not be detected"))
        elif told.total != self._total:
            lost.append(
                Loss(
                    None,
                    "manifest",
                    "something was not found: a tag, a message, a retention, a schedule, the limits of a queue or a newer row of a run",
                )
            )


def _dense(pks: set[int]) -> list[int]:
    """Return the positions in order, up to the first large gap."""
    found: list[int] = []
    for pk in sorted(pks - {0}):
        if pk - (found[-1] if found else 0) > _MOST_UNKNOWN:
            break
        found.append(pk)
    return found
