"""Every error that Everstep raises: a stable code, a sentence and a remedy.

    EverstepError
    ├── Unstorable          E101  a value that cannot be stored, with the path to it
    │   └── PlainSecret     E106  a Secret that would be stored readable, because the store has no key
    ├── LimitExceeded       E102  a value beyond a cap (depth, size, ratio)
    ├── TypeConflict        E103  two types registered under one name
    ├── InvalidArgument     E104  an invalid argument
    │   └── InvalidConfig   E105  an invalid setting, with its file and line
    ├── NotFound            E201  a run, checkpoint or ref that does not exist
    ├── AmbiguousRef        E202  an id prefix that matches several runs (reading commands only)
    ├── RunExists           E203  an id that is taken
    ├── PrunedCheckpoint    E204  a checkpoint whose state was dropped by retention (a NotFound)
    ├── AlreadyQueued       E205  a run with the same dedupe waits in the queue (a RunExists)
    ├── RunDeleted          E206  the run was deleted while it was read (a NotFound)
    ├── LeaseHeld           E301  another writer has the run open
    ├── LostLease           E302  another process took over the run
    ├── Conflict            E303  the run changed during this write
    ├── RunClosed           E304  the handle was closed
    ├── RunBusy             E305  two threads save through one handle at once
    ├── UnknownWorkflow     E306  a run of a workflow that this process doesn't know
    ├── IllegalTransition   E307  a status that cannot follow another
    ├── Reentered           E308  a store was used in the middle of a save in the same thread
    ├── AmbiguousRun        E309  cannot decide which run the calling code belongs to
    ├── StoreError          E400  the store itself failed
    │   ├── NotAStore       E401  the file is not a store
    │   ├── NewerFormat     E402  written by a newer Everstep
    │   ├── ReadOnly        E403  the store cannot be written
    │   ├── StoreFull       E404  no space left
    │   ├── StoreFailed     E405  an I/O error; the open store refuses further writes
    │   ├── StoreClosed     E406  the store was closed
    │   ├── StoreBusy       E407  another process kept the store locked too long
    │   ├── UnknownBackend  E408  no backend for that URL
    │   ├── RolledBack      E409  this machine has already seen a newer version of the store
    │   ├── StoreUnreachable E410  the server does not answer
    │   ├── LeftoverFiles   E411  files of another store are in the way of a new one
    │   ├── ForeignWal      E412  the WAL next to the store belongs to another file
    │   ├── UnsuitableEncoding E415  the database cannot hold every text
    │   ├── HistoryChanged  E416  an events cursor belongs to a history that is gone
    │   ├── SecondPath      E417  the store's file is reachable by two paths
    │   ├── MissingCapability E418  the store's backend cannot do that
    │   ├── WrongSeal       E419  the digests of the store were made with another key
    │   ├── StoreGone       E420  a file of the store was deleted, replaced or moved while it was open (a StoreFailed)
    │   ├── MissingKey      E421  the store is encrypted, and no key was given
    │   ├── WrongKey        E422  the store is encrypted with another key
    │   ├── OldKey          E423  the key was replaced by another one (a WrongKey)
    │   ├── KeySourceFailed E424  the source of a key gave none
    │   ├── NotEncrypted    E425  a key was given, and the store is not encrypted
    │   ├── MissingPackage  E426  a package is not installed that this needs
    │   └── NotSearchable   E427  encrypted values cannot be searched this way
    ├── Damaged             E500  stored bytes are not what was saved
    │   ├── DamagedRecord   E501
    │   ├── DamagedChunk    E502
    │   ├── DamagedRun      E503  the run row does not match its own digest
    │   ├── MissingHead     E504  the newest record of a run is missing
    │   ├── DamagedFrame    E505  a frame that cannot be decoded
    │   ├── DamagedKey      E506  the stored key of a family is missing, changed or moved
    │   ├── UntrustedHeads  E510  a file of signed heads that was changed, or signed with another key
    │   └── NotAsSigned     E511  the store differs from signed heads
    ├── StepFailed          E601  a recorded error whose type cannot be rebuilt
    ├── NonDeterminism      E602  a recorded step is called with a different input
    ├── AlreadyAnswered     E603  a gate that already has an answer
    ├── BadAnswer           E604  an answer that does not match its gate
    ├── GateTimeout         E605  no answer came in time, and there is no default
    ├── StepTimeout         E606  a step took too long
    ├── DefinitionChanged   E607  the definition has changed since the run began
    ├── InvalidWorkflow     E608  an invalid workflow document
    ├── TransactionEnded    E609  a transactional step ended its own transaction
    ├── TransactionUnknown  E610  unknown whether the transaction of a step was committed
    ├── WorkerDied          E611  several processes in a row died while running this run
    ├── ExitInWorkflow      E612  a workflow tried to end its worker
    ├── OtherVersion        E613  the run belongs to another version of its workflow (a DefinitionChanged)
    ├── AnswerTooLate       E615  an answer after the deadline of its gate (an AlreadyAnswered)
    └── NoResult            E616  the result of a run that has not succeeded
    (BaseException)
    └── Suspended           E620  not an error: unwinds a program whose run stops here
        ├── AttemptLost     E413  the store failed during this attempt; the run is released
        ├── Waiting         E621  the run waits for an answer or for a time
        ├── Interrupted     E622  a signal, a budget, a timeout or an operator stopped the run
        └── SaveFailed      E623  a framework's checkpoint was not saved, so its workflow stops

Relies on nothing. People read these messages, so each names ids and values, never a bare "invalid
input". `written` says whether the save that failed is in the store.
"""

from __future__ import annotations

from typing import Literal

Written = Literal["yes", "no", "unknown"]


class EverstepError(Exception):
    """Something went wrong in Everstep."""

    code = "E000"
    remedy = "If the message does not help, report it with its code."
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
    remedy = "Remove the value, convert it to plain data, or register its type: everstep.register(Type, encode=..., decode=...)."

    def __init__(self, path: str, reason: str, *, remedy: str | None = None):
        self.path = path
        self.reason = reason
        super().__init__(f"{path} {reason}", remedy=remedy)


class PlainSecret(Unstorable):
    """A Secret would be stored readable."""

    code = "E106"
    remedy = "Give the store a key (everstep.open(..., key=...)), or allow it to store secrets readable: plain_secrets = true in the configuration, or everstep.open(..., plain_secrets=True)."

    def __init__(self, path: str, *, remedy: str | None = None):
        super().__init__(path, "is a Secret, and this store has no key, so that its value would be stored readable", remedy=remedy)


class LimitExceeded(EverstepError):
    """A value exceeds a limit."""

    code = "E102"
    remedy = "Make the value smaller or less deeply nested. docs/format.md lists the limits."


class TypeConflict(EverstepError):
    """Two types are registered under the same name."""

    code = "E103"
    remedy = "Give one of them another name: everstep.register(Type, name=...)."


class InvalidArgument(EverstepError):
    """An argument is invalid."""

    code = "E104"
    remedy = "Correct the argument. help() on the function you called describes it."


class InvalidConfig(InvalidArgument):
    """A setting is invalid."""

    code = "E105"
    remedy = "Correct the setting. `everstep config validate` lists all errors of a file; docs/configuration.md lists all keys."

    def __init__(
        self, message: str | None = None, location: str | None = None, *, key: str | None = None, value: object = None, others: int = 0,
        remedy: str | None = None,
    ):  # fmt: skip
        self.location, self.key, self.value, self.others = location, key, value, others
        text = message or "a setting is invalid"
        self.fault = f"{location}: {text}" if location else text
        more = f" (and {others} more error{'s' if others > 1 else ''})" if others else ""
        super().__init__(self.fault + more, remedy=remedy)


class NotFound(EverstepError):
    """The run, checkpoint, tag or step does not exist."""

    code = "E201"
    remedy = "List runs with store.runs(), and the checkpoints of a run with store.checkpoints(run_id)."


class AmbiguousRef(EverstepError):
    """An id prefix matches more than one run."""

    code = "E202"
    remedy = "Type more of the id."

    def __init__(self, ref: str, candidates: list[str], more: bool = False):
        self.ref = ref
        self.candidates = candidates
        shown = ", ".join(candidates) + (", …" if more else "")
        super().__init__(f"{ref!r} matches several runs: {shown}")


class RunExists(EverstepError):
    """A run with this id already exists."""

    code = "E203"
    remedy = "Choose another id, or open the existing run with store.run(run_id)."

    @classmethod
    def of(cls, run: str) -> RunExists:
        """Return the error for a run that cannot be created, with a remedy that names it."""
        return cls(f"a run {run!r} already exists", remedy=f"Choose another id, or open the existing run with store.run({run!r}).")


class AlreadyQueued(RunExists):
    """A run with the same `dedupe` is waiting in the queue or running."""

    code = "E205"
    remedy = "Wait until that run ends, or leave out dedupe."

    def __init__(self, queue: str, dedupe: str, run: str | None = None):
        self.run = run
        super().__init__(f"the queue {queue!r} already has a run with dedupe {dedupe!r}" + (f": {run}" if run else ""))


class PrunedCheckpoint(NotFound):
    """Retention dropped the state of this checkpoint."""

    code = "E204"
    remedy = "Load another checkpoint: store.checkpoints(run_id) shows which are pruned."

    def __init__(self, run: str, number: int, kept: tuple[int | None, int | None] = (None, None)):
        self.run = run
        self.number = number
        self.before, self.after = kept
        near = " and ".join(f"{run}@{n}" for n in kept if n is not None)
        super().__init__(
            f"the state of {run}@{number} was pruned", remedy=f"Load a checkpoint that was kept; the nearest: {near}." if near else None
        )


class RunDeleted(NotFound):
    """The run was deleted while it was being read, or after a view of it was created."""

    code = "E206"
    remedy = "Nothing is damaged. Read another run: store.runs() lists them."

    def __init__(self, run: str):
        self.run = run
        super().__init__(f"run {run!r} was deleted, so its states can no longer be read")


class LeaseHeld(EverstepError):
    """Another writer has the run open."""

    code = "E301"
    remedy = "Wait for its result: store.wait(run_id). To read the run, use store.load or store.view, which need no lease."

    def __init__(self, run: str, host: str, pid: int, since: str, expires: str):
        self.run = run
        self.host = host
        self.pid = pid
        self.since = since
        self.expires = expires
        super().__init__(
            f"process {pid} on {host} has had run {run!r} open for writing since {since} (its lease ends {expires} unless renewed)",
            remedy=f"Wait for its result: store.wait({run!r}). To read the run, use store.load or store.view, which need no lease.",
        )


class LostLease(EverstepError):
    """This process lost its lease; another process took over the run, or the run was deleted."""

    code = "E302"
    remedy = "Stop this attempt: nothing more of it will be written. Open the run again to continue from its newest checkpoint."


class Conflict(EverstepError):
    """Another writer changed the run first; this write was not made. `number` is the newest checkpoint, if a line raised this."""

    code = "E303"
    remedy = "Open the run again to continue from its newest checkpoint."

    def __init__(self, message: str | None = None, *, remedy: str | None = None, written: Written | None = None, number: int | None = None):
        self.number = number
        super().__init__(message, remedy=remedy, written=written)


class RunClosed(EverstepError):
    """The run handle is closed."""

    code = "E304"
    remedy = "Open the run again: with store.run(id) as run: ..."


class RunBusy(EverstepError):
    """Two threads use one run handle at the same time."""

    code = "E305"
    remedy = "Use a handle in one thread at a time, or give each thread its own run."


class UnknownWorkflow(EverstepError):
    """The workflow of a run is not defined in this process."""

    code = "E306"
    remedy = "Import the module that defines it, then resume the run. Everstep never imports a name that it finds in a store."


class IllegalTransition(EverstepError):
    """The run's status does not allow this change."""

    code = "E307"
    remedy = "See the run's history: store.events(run=run_id). A run that has ended can be forked."

    def __init__(self, run: str, before: str, after: str, message: str = ""):
        self.run, self.before, self.after = run, before, after
        super().__init__(message or f"the status of run {run!r} is {before} and cannot change to {after}")
        self.remedy = f"See the run's history: store.events(run={run!r}). A run that has ended can be forked."


class Reentered(EverstepError):
    """A signal handler or a finalizer used a store in the middle of a save in the same thread."""

    code = "E308"
    remedy = (
        "In a signal handler, only set a flag and save later, or save in another thread. If an object saves when it is deleted, "
        "close it explicitly: use a with block or contextlib.closing."
    )


class AmbiguousRun(EverstepError):
    """Everstep cannot decide which run the calling code belongs to."""

    code = "E309"
    remedy = (
        "Use the run's handle: run.step(function, ...), run.gate(...). If the generator implements a with block, decorate it with "
        "contextlib.contextmanager or asynccontextmanager."
    )

    def __init__(self, runs: list[str]):
        self.runs = runs
        names = " or ".join(f"run {run!r}" for run in runs)
        opened = f"{names} was" if len(runs) == 1 else f"it may be {names}, and one of them was"
        super().__init__(f"cannot decide which run this code belongs to: {opened} opened by a generator that is not running")


class StoreError(EverstepError):
    """The store failed."""

    code = "E400"
    remedy = "The message names the cause. store.verify() checks the data."
    address: str | None = None
    """The URL or path of the store that failed; None if the error does not come from a backend."""

    def of(self, address: str) -> StoreError:
        """Set which store failed, and return this error."""
        self.address = address
        return self


class NotAStore(StoreError):
    """The file is not an Everstep store."""

    code = "E401"
    remedy = "Give the path of a store, or of a file that does not exist yet."
    missing = False

    @classmethod
    def nothing_at(cls, address: object, remedy: str | None = None) -> NotAStore:
        """Return the error for an address where nothing exists yet, so a store could be created there."""
        error = cls(
            f"there is no store at {address}", remedy=remedy or "Check the path. everstep.open(path) creates a store if there is none."
        )
        error.missing = True
        return error


class NewerFormat(StoreError):
    """The store was written by a newer Everstep."""

    code = "E402"
    remedy = "Upgrade everstep. This version leaves the store unchanged."


class ReadOnly(StoreError):
    """The store cannot be written to."""

    code = "E403"
    remedy = "Check the permissions of the file and its folder, and whether the disk is mounted read-only."


class StoreFull(StoreError):
    """No space is left for the store."""

    code = "E404"
    remedy = "Free some space and save again through the same handle. The previous checkpoint is still the newest."


class StoreFailed(StoreError):
    """The disk reported an error, or the writer ran out of memory; the open store refuses further writes."""

    code = "E405"
    remedy = "Check the disk and the memory, then open the store again. Check the run's newest checkpoint before you continue."
    written: Written = "unknown"
    lasting = False
    """Whether the open store refuses all further writes, so that it must be opened again."""


class StoreGone(StoreFailed):
    """A file of the store was deleted, replaced or moved while the store was open."""

    code = "E420"
    remedy = (
        "Stop this program. If the files were moved, move them back together; if they were deleted or replaced, restore a backup. "
        "Then start the program again. To delete or move a store, first end all programs that use it."
    )
    written: Written = "no"
    lasting = True


class StoreClosed(StoreError):
    """The store is closed."""

    code = "E406"
    remedy = "Open it again with everstep.open(...). A forked child process must open it itself."


class StoreBusy(StoreError):
    """Another process kept the store locked for too long, or the system could not start a thread."""

    code = "E407"
    remedy = "Try again. If it keeps happening, find the process that keeps a transaction open on the file."


class UnknownBackend(StoreError):
    """No backend supports this URL."""

    code = "E408"
    remedy = "Use a path, sqlite:///path, postgresql://user@host/database or memory://."


class MissingCapability(StoreError, AttributeError):
    """The store's backend lacks a capability that this call needs.

    Also an AttributeError, so that `hasattr` returns False for the missing part.
    """

    code = "E418"
    remedy = "Use a store in SQLite (a path) or PostgreSQL, or a backend that has this capability."

    def __init__(self, url: str, capability: str):
        self.capability = capability
        super().__init__(f"this call needs the capability {capability!r}, which the backend of {url} does not have", written="no")


class RolledBack(StoreError):
    """This machine has already seen a newer version of this store."""

    code = "E409"
    remedy = "Restore the newer file and its -wal. Or accept the loss: everstep.open(path, accept_older=True)."


class StoreUnreachable(StoreError):
    """The server of the store does not answer."""

    code = "E410"
    remedy = (
        "Check that the server is running and reachable. If it is unknown whether a save succeeded, open the run again and check its "
        "newest checkpoint."
    )


class LeftoverFiles(StoreError):
    """Files of another store exist where a new store would be created."""

    code = "E411"
    remedy = "Put the store's file back, or move the files next to it to another folder."


class ForeignWal(StoreError):
    """The WAL next to the store belongs to another file."""

    code = "E412"
    remedy = "Put back the file that the WAL belongs to, or move the WAL to another folder."


class UnsuitableEncoding(StoreError):
    """The database's encoding cannot store every text."""

    code = "E415"
    remedy = "Create a database with encoding UTF8 and use that: createdb -E UTF8 -T template0 NAME."


class HistoryChanged(StoreError):
    """The events cursor belongs to a history that this store no longer has."""

    code = "E416"
    remedy = "Read all events again from the start (after=0), and skip those you have already handled."


class WrongSeal(StoreError):
    """The digests of the store were made with another key, or without one."""

    code = "E419"
    remedy = "Open it with the key that it was created with. Nothing was changed."


class MissingKey(StoreError):
    """The store is encrypted, and it was opened without a key."""

    code = "E421"
    remedy = "Give its key: everstep.open(url, key=...), EVERSTEP_KEY, or `key` under [encryption] in the configuration."


class WrongKey(StoreError):
    """The store is encrypted with another key."""

    code = "E422"
    remedy = "Open it with the key that it was created with. Nothing was changed."


class OldKey(WrongKey):
    """The key of the store was replaced by another one."""

    code = "E423"
    remedy = "Open it with the new key, and give the former one in old_keys if `everstep rekey` has not finished."


class KeySourceFailed(StoreError):
    """The source of a key gave none."""

    code = "E424"
    remedy = (
        "Check that the file, command, keyring or service is there and gives a key of 32 bytes. docs/encryption.md has the forms of a key."
    )


class NotEncrypted(StoreError):
    """A key was given, and the store is not encrypted."""

    code = "E425"
    remedy = "Open it without a key, or encrypt it: `everstep encrypt`, or everstep.encrypt(path, key=...). Nothing was changed."


class MissingPackage(StoreError):
    """A package is not installed that this needs."""

    code = "E426"
    remedy = "Install it: pip install 'everstep[crypto]'."


class NotSearchable(StoreError):
    """Encrypted values cannot be searched this way."""

    code = "E427"
    remedy = "Search by tag or by equal metadata: an encrypted store finds these by keyed hash. Notes are not searchable."


class SecondPath(StoreError):
    """The store's file is reachable by two paths, and each would have its own WAL."""

    code = "E417"
    remedy = "Use the same path in every program. Remove hard links, and mount the store's folder instead of the file."


class Damaged(EverstepError):
    """Stored bytes differ from what was saved."""

    code = "E500"
    remedy = "List all damage: store.verify('full'). Then restore a backup, or load or fork an undamaged checkpoint."
    number: int | None = None
    good: int | None = None

    def of_head(self, run: str, number: int, good: int | None) -> Damaged:
        """Add that the newest checkpoint of a run is damaged, and which one is the newest undamaged one, if any."""
        self.number, self.good = number, good
        ref, back = f"{run}@{number}", f"{run}@{good}"
        begin = "" if ref in self.message else f"checkpoint {ref} is damaged: "
        self.message = begin + self.message + (f"; the newest undamaged one is {back}" if good else "; no older checkpoint is undamaged")
        self.args = (self.message,)
        if good:
            self.remedy = f"Use the undamaged checkpoint: store.load({back!r}) or store.fork({back!r})."
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
    """The row of a run does not match its digest."""

    code = "E503"


class MissingHead(Damaged):
    """The newest record of a run is missing."""

    code = "E504"


class DamagedFrame(Damaged):
    """A stored frame cannot be decoded."""

    code = "E505"


class DamagedKey(Damaged):
    """The stored key of a family is missing, changed or moved."""

    code = "E506"


class UntrustedHeads(Damaged):
    """A file of signed heads was changed, cut off, or signed with another key."""

    code = "E510"
    remedy = "Use another copy of the heads, and check that the public key is that of the person who signed them. Nothing was compared."


class NotAsSigned(Damaged):
    """The store differs from signed heads: it was rolled back, replaced or changed."""

    code = "E511"
    remedy = "Keep a copy of the store as evidence, then restore a backup that is newer than the heads. List the differences: everstep verify --against FILE."


class StepFailed(EverstepError):
    """A step failed earlier, and this process cannot rebuild its recorded error."""

    code = "E601"
    remedy = (
        "Read the recorded traceback (traceback_text). To get the error as its own class, import its module before you resume the run, "
        "or register the class: everstep.register(Error, encode=..., decode=...)."
    )
    written: Written = "yes"

    def __init__(self, address: str, type_name: str, error_message: str, traceback_text: str = ""):
        self.address = address
        self.type_name = type_name
        self.error_message = error_message
        self.traceback_text = traceback_text
        super().__init__(f"{address} failed with {type_name}: {error_message}")


class NonDeterminism(EverstepError):
    """A recorded step was called with a different input."""

    code = "E602"
    remedy = (
        "Fork before the step: store.resume(run_id, from_step=...). Or rename it, so that it runs as a new step. "
        "Or accept the recorded result: store.resume(run_id, accept=[step])."
    )

    def __init__(self, run: str, address: str, recorded: str, now: str, loop: bool = False):
        self.run, self.address, self.recorded, self.now = run, address, recorded, now
        fork = f"store.fork({run!r}) and continue in the fork" if loop else f"store.resume({run!r}, from_step={address!r})"
        accept = f"store.run({run!r}, accept=[{address!r}])" if loop else f"store.resume({run!r}, accept=[{address!r}])"
        super().__init__(
            f"step {address} of run {run!r} was recorded with input {recorded}, but is now called with {now}",
            remedy=(f"Fork before the step: {fork}. Or rename it, so that it runs as a new step. Or accept the recorded result: {accept}."),
        )


class AlreadyAnswered(EverstepError):
    """The gate already has an answer."""

    code = "E603"
    remedy = "The first answer counts. To try another one, fork the run before the gate."


class AnswerTooLate(AlreadyAnswered):
    """The answer came after the gate's deadline."""

    code = "E615"
    remedy = (
        "The run continues with the gate's default or with GateTimeout. To give another answer, fork the run before the gate: "
        "store.resume(run_id, from_step=gate)."
    )


class NoResult(EverstepError):
    """The run has no result: it is waiting, was cancelled, or has not ended."""

    code = "E616"
    remedy = "Check outcome.status and outcome.reason before you call unwrap()."

    def __init__(self, run: str, status: str, message: str, *, remedy: str | None = None):
        self.run, self.status = run, status
        super().__init__(message, remedy=remedy)


class BadAnswer(EverstepError):
    """The answer does not match the gate's schema or choices."""

    code = "E604"
    remedy = "See what the gate asks for: store.gates(run_id)."


class GateTimeout(EverstepError):
    """No answer came before the gate's deadline, and the gate has no default."""

    code = "E605"
    remedy = "Give the gate a default=, or catch this error around the gate."


class StepTimeout(EverstepError):
    """A step took longer than its timeout."""

    code = "E606"
    remedy = "Give the step more time, or a retry. Side effects that it has started may still happen."


class DefinitionChanged(EverstepError):
    """The workflow's definition has changed since the run began."""

    code = "E607"
    remedy = "Read the difference. Continue with the new definition: store.resume(run_id, anyway=True). Or start a new run."

    def __init__(self, message: str, difference: str = ""):
        self.difference = difference
        super().__init__(message)
        if difference:
            self.add_note(difference)  # a traceback shows it


class InvalidWorkflow(EverstepError):
    """A workflow document is invalid."""

    code = "E608"
    remedy = "Correct the document. docs/yaml.md lists all keys."

    def __init__(self, message: str, file: str | None = None, line: int | None = None, remedy: str | None = None):
        self.file, self.line = file, line
        where = f"{file or 'workflow'}:{line}: " if line is not None else f"{file}: " if file else ""
        super().__init__(where + message, remedy=remedy)


class TransactionEnded(EverstepError):
    """The function of a transactional step ended its own transaction."""

    code = "E609"
    remedy = "Leave COMMIT, ROLLBACK and close() to Everstep. To undo everything, raise an error; to undo a part, use a savepoint."


class TransactionUnknown(EverstepError):
    """It is unknown whether the transaction of a step was committed."""

    code = "E610"
    remedy = "Resume the run when the database answers again. It then checks the database, and uses the result or runs the step."
    written: Written = "unknown"


class WorkerDied(EverstepError):
    """Several processes in a row died while running this run."""

    code = "E611"
    remedy = "Find out why the next step kills its process (memory, a crash in C code), then resume the run: store.resume(run_id)."


class ExitInWorkflow(EverstepError):
    """A workflow tried to end its worker's process."""

    code = "E612"
    remedy = "Return from the workflow, or raise an Exception: the worker has other runs. Then resume the run: store.resume(run_id)."


class OtherVersion(DefinitionChanged):
    """The run belongs to another version of its workflow than this process has."""

    code = "E613"
    remedy = "Start a worker with that version, or continue with this one: store.resume(run_id)."


class Suspended(BaseException):
    """The run stops here for now. Not an error: everything so far is recorded, and `except Exception` must not catch it."""

    code = "E620"
    remedy = "Do not catch it: the run is closed properly while the exception propagates."

    def __init__(self, message: str):
        self.message = message
        super().__init__(message)

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]\n{self.remedy}"


class AttemptLost(Suspended):
    """The store failed during this attempt. Nothing more of it is recorded; the run is released and can be resumed."""

    code = "E413"
    remedy = "Do not catch it. The run stays running. A worker resumes it from its journal; without a worker: store.resume(run_id)."

    def __init__(self, run: str, error: EverstepError):
        self.run, self.error = run, error
        super().__init__(f"the store failed while run {run!r} was running, so this attempt ends: {error.message}")


class Waiting(Suspended):
    """The run waits for an answer or for a time."""

    code = "E621"
    remedy = (
        "Answer it: store.answer(run_id, gate, value). Then run the program again; for a workflow: store.resume(run_id) or store.wake()."
    )

    def __init__(self, run: str, what: str, until: int | None = None):
        self.run, self.what, self.until = run, what, until
        super().__init__(f"run {run!r} waits for {what}")


class Interrupted(Suspended):
    """A signal, a budget, a timeout or an operator stopped the run at the end of a step."""

    code = "E622"
    remedy = "Resume the run to continue where it stopped."

    def __init__(self, run: str, reason: str, exit_code: int | None = None, user: str | None = None):
        self.run, self.reason, self.exit_code, self.user = run, reason, exit_code, user
        super().__init__(f"run {run!r} was stopped: {reason}")


class SaveFailed(Suspended):
    """A checkpoint of a framework was not saved. The framework would only log the failure, so Everstep stops its workflow; `error` is the cause."""

    code = "E623"
    remedy = "Remove the cause, then continue the workflow from its newest checkpoint: what was done since then is done again."

    def __init__(self, run: str, error: Exception):
        self.run, self.error = run, error
        super().__init__(f"a checkpoint of run {run!r} was not saved, so the workflow stops: {getattr(error, 'message', error)}")
