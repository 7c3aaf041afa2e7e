"""Every error that Everstep raises, each with a stable code, one sentence and a remedy.

    EverstepError
    ├── Unstorable          E101  a value that cannot be stored, with the path to it
    ├── LimitExceeded       E102  a value beyond a cap (depth, size, ratio)
    ├── TypeConflict        E103  two types registered under one name
    ├── InvalidArgument     E104  an argument that makes no sense
    ├── NotFound            E201  a run, checkpoint or ref that does not exist
    ├── AmbiguousRef        E202  an id prefix that fits several runs
    ├── RunExists           E203  an id that is taken
    ├── LeaseHeld           E301  another writer has the run open
    ├── LostLease           E302  this writer was overtaken
    ├── Conflict            E303  the run moved on underneath this write
    ├── RunClosed           E304  the handle was closed
    ├── RunBusy             E305  two threads save through one handle at once
    ├── StoreError          E400  the store itself failed
    │   ├── NotAStore       E401  the file is something else
    │   ├── NewerFormat     E402  written by a newer Everstep
    │   ├── ReadOnly        E403  the store cannot be written
    │   ├── StoreFull       E404  no space left
    │   ├── StoreFailed     E405  an I/O error; the handle is closed for writing
    │   ├── StoreClosed     E406  the store was closed
    │   ├── StoreBusy       E407  another process kept the store locked too long
    │   └── UnknownBackend  E408  no backend for that URL
    └── Damaged             E500  stored bytes are not what was saved
        ├── DamagedRecord   E501
        ├── DamagedChunk    E502
        ├── DamagedRun      E503  the run row does not match its own digest
        ├── MissingHead     E504  the newest record of a run is gone
        └── DamagedFrame    E505  a frame that cannot be opened

Relies on nothing. Every message ends up in front of a person: it names ids and values, never a bare
"invalid input". `written` answers the question that matters after a failed save: did it happen?
"""

from __future__ import annotations

from typing import Literal

Written = Literal["yes", "no", "unknown"]


class EverstepError(Exception):
    """Something went wrong in Everstep."""

    code = "E000"
    remedy = "Read the message; if it makes no sense, report it with the code."
    written: Written = "no"

    def __init__(self, message: str | None = None, *, remedy: str | None = None, written: Written | None = None):
        self.message = message or (type(self).__doc__ or "").strip()
        if remedy is not None:
            self.remedy = remedy
        if written is not None:
            self.written = written
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]\n{self.remedy}"


class Unstorable(EverstepError):
    """A value cannot be stored."""

    code = "E101"
    remedy = "Remove the value, convert it to plain data, or teach Everstep its type with everstep.register(Type)."

    def __init__(self, path: str, reason: str, *, remedy: str | None = None):
        self.path = path
        self.reason = reason
        super().__init__(f"{path} {reason}", remedy=remedy)


class LimitExceeded(EverstepError):
    """A value is beyond a limit."""

    code = "E102"
    remedy = "Make the value smaller or flatter; the limits stand in docs/format.md."


class TypeConflict(EverstepError):
    """Two different types claim one stored name."""

    code = "E103"
    remedy = "Give one of them another name: everstep.register(Type, name=...)."


class InvalidArgument(EverstepError):
    """An argument makes no sense."""

    code = "E104"
    remedy = "Correct the argument; docs/api.md says what each one takes."


class NotFound(EverstepError):
    """There is no such run or checkpoint."""

    code = "E201"
    remedy = "List what there is: store.runs() and store.checkpoints(run_id)."


class AmbiguousRef(EverstepError):
    """An id prefix fits more than one run."""

    code = "E202"
    remedy = "Type more of the id."

    def __init__(self, ref: str, candidates: list[str], more: bool = False):
        self.ref = ref
        self.candidates = candidates
        shown = ", ".join(candidates) + (", …" if more else "")
        super().__init__(f"{ref!r} fits several runs: {shown}")


class RunExists(EverstepError):
    """A run with that id exists already."""

    code = "E203"
    remedy = "Choose another id, or open the existing run with store.run(id)."


class LeaseHeld(EverstepError):
    """Another writer has the run open."""

    code = "E301"
    remedy = "Wait until it ends or expires, or read the run with store.load / store.view, which need no lease."

    def __init__(self, run: str, host: str, pid: int, since: str, expires: str):
        self.run = run
        self.host = host
        self.pid = pid
        self.since = since
        self.expires = expires
        super().__init__(
            f"run {run!r} is open for writing by process {pid} on {host} since {since} (its lease ends {expires} unless renewed)"
        )


class LostLease(EverstepError):
    """This writer lost its lease; another one has taken the run over."""

    code = "E302"
    remedy = "Stop this attempt: nothing of it is written any more. Open the run again to go on from its head."


class Conflict(EverstepError):
    """The run moved on underneath this write."""

    code = "E303"
    remedy = "Open the run again to go on from its head."


class RunClosed(EverstepError):
    """The run handle is closed."""

    code = "E304"
    remedy = "Open the run again: with store.run(id) as run: ..."


class RunBusy(EverstepError):
    """Two threads use one run handle at the same time."""

    code = "E305"
    remedy = "Let one thread at a time use a handle, or give each thread a run of its own."


class StoreError(EverstepError):
    """The store failed."""

    code = "E400"
    remedy = "Look at the cause below; store.verify() tells whether the data is whole."


class NotAStore(StoreError):
    """The file is not an Everstep store."""

    code = "E401"
    remedy = "Give the path of a store, or of a file that does not exist yet."


class NewerFormat(StoreError):
    """The store was written by a newer Everstep."""

    code = "E402"
    remedy = "Upgrade everstep. This version will not touch the store."


class ReadOnly(StoreError):
    """The store cannot be written."""

    code = "E403"
    remedy = "Check the permissions of the file and of its folder, and whether the disk is mounted read-only."


class StoreFull(StoreError):
    """No space is left for the store."""

    code = "E404"
    remedy = "Free some space and save again: the former checkpoint is still the head, and this handle goes on."


class StoreFailed(StoreError):
    """The disk reported an error; this handle writes no more."""

    code = "E405"
    remedy = "Check the disk, open the store again and look at the head before you go on."
    written: Written = "unknown"


class StoreClosed(StoreError):
    """The store is closed."""

    code = "E406"
    remedy = "Open it again with everstep.open(...). After a fork of the process, open it anew in the child."


class StoreBusy(StoreError):
    """Another process kept the store locked for too long."""

    code = "E407"
    remedy = "Try again; if it stays so, look for a process that holds a transaction on the file open."


class UnknownBackend(StoreError):
    """No backend serves that URL."""

    code = "E408"
    remedy = "Use a path, sqlite:///path or memory://."


class Damaged(EverstepError):
    """Stored bytes are not what was saved."""

    code = "E500"
    remedy = "store.verify('full') lists all damage; restore a backup, or go back to a good checkpoint explicitly."
    number: int | None = None
    good: int | None = None

    def of_head(self, run: str, number: int, good: int | None) -> Damaged:
        """Say that this damage concerns the newest checkpoint of a run, and which is the newest one that is good, if any."""
        self.number, self.good = number, good
        ref, back = f"{run}@{number}", f"{run}@{good}"
        begin = "" if ref in self.message else f"checkpoint {ref} is damaged: "
        self.message = begin + self.message + (f"; the newest good one is {back}" if good else "; no older checkpoint is good")
        self.args = (self.message,)
        if good:
            self.remedy = f"Go back explicitly: store.load({back!r}) or store.fork({back!r})."
        return self


class DamagedRecord(Damaged):
    """A record does not match its digest."""

    code = "E501"

    def __init__(self, run: str, seq: int, reason: str, number: int | None = None):
        self.run = run
        self.seq = seq
        self.number = number
        self.reason = reason
        what = f"checkpoint {run}@{number}" if number is not None else f"record {seq} of run {run!r}"
        super().__init__(f"{what} is damaged: {reason}")


class DamagedChunk(Damaged):
    """A chunk is missing or does not match its digest."""

    code = "E502"

    def __init__(self, digest: bytes, reason: str):
        self.digest = digest
        super().__init__(f"chunk {digest.hex()[:16]} is damaged: {reason}")


class DamagedRun(Damaged):
    """A run row does not match its digest."""

    code = "E503"


class MissingHead(Damaged):
    """The newest record of a run is gone."""

    code = "E504"


class DamagedFrame(Damaged):
    """A stored frame cannot be opened."""

    code = "E505"
