"""Every error that Everstep raises, each with a stable code, one sentence and a remedy.

    EverstepError
    ├── Unstorable          E101  a value that cannot be stored, with the path to it
    ├── LimitExceeded       E102  a value beyond a cap (depth, size, ratio)
    ├── TypeConflict        E103  two types registered under one name
    ├── InvalidArgument     E104  an argument that makes no sense
    │   └── InvalidConfig   E105  a setting that makes no sense, with its file and line
    ├── NotFound            E201  a run, checkpoint or ref that does not exist
    ├── AmbiguousRef        E202  an id prefix that fits several runs (reading commands only)
    ├── RunExists           E203  an id that is taken
    ├── PrunedCheckpoint    E204  a checkpoint whose state was dropped by retention (a NotFound)
    ├── AlreadyQueued       E205  a run with the same dedupe waits in the queue (a RunExists)
    ├── RunDeleted          E206  the run was deleted while it was read (a NotFound)
    ├── LeaseHeld           E301  another writer has the run open
    ├── LostLease           E302  this writer was overtaken
    ├── Conflict            E303  the run moved on underneath this write
    ├── RunClosed           E304  the handle was closed
    ├── RunBusy             E305  two threads save through one handle at once
    ├── UnknownWorkflow     E306  a run of a workflow that this process doesn't know
    ├── IllegalTransition   E307  a status that cannot follow another
    ├── Reentered           E308  a store was used in the middle of a save of the same thread
    ├── AmbiguousRun        E309  it can't be told which run the calling code belongs to
    ├── StoreError          E400  the store itself failed
    │   ├── NotAStore       E401  the file is something else
    │   ├── NewerFormat     E402  written by a newer Everstep
    │   ├── ReadOnly        E403  the store cannot be written
    │   ├── StoreFull       E404  no space left
    │   ├── StoreFailed     E405  an I/O error; the handle is closed for writing
    │   ├── StoreClosed     E406  the store was closed
    │   ├── StoreBusy       E407  another process kept the store locked too long
    │   ├── UnknownBackend  E408  no backend for that URL
    │   ├── RolledBack      E409  an older store stands in the place of a newer one
    │   ├── StoreUnreachable E410  the server does not answer
    │   ├── LeftoverFiles   E411  files of another store lie where a store is to be created
    │   ├── ForeignWal      E412  the WAL beside the store belongs to another file
    │   ├── UnsuitableEncoding E415  the database cannot hold every text
    │   ├── HistoryChanged  E416  an events cursor belongs to a history that is gone
    │   ├── SecondPath      E417  the store's file is reached by two paths
    │   ├── MissingCapability E418  the store's backend cannot do that
    │   └── WrongSeal       E419  the digests of the store were made with another key
    ├── Damaged             E500  stored bytes are not what was saved
    │   ├── DamagedRecord   E501
    │   ├── DamagedChunk    E502
    │   ├── DamagedRun      E503  the run row does not match its own digest
    │   ├── MissingHead     E504  the newest record of a run is gone
    │   └── DamagedFrame    E505  a frame that cannot be opened
    ├── StepFailed          E601  a recorded error whose type cannot be rebuilt
    ├── NonDeterminism      E602  a recorded step is asked for with another input
    ├── AlreadyAnswered     E603  a gate that has its answer
    ├── BadAnswer           E604  an answer that doesn't fit its gate
    ├── GateTimeout         E605  nobody answered in time, and there is no default
    ├── StepTimeout         E606  a step took too long
    ├── DefinitionChanged   E607  the definition is no longer the one that the run began with
    ├── InvalidWorkflow     E608  a workflow document that makes no sense
    ├── TransactionEnded    E609  a transactional step ended its own transaction
    ├── TransactionUnknown  E610  nobody knows whether the transaction of a step was committed
    ├── WorkerDied          E611  one worker after the other died with this run
    ├── ExitInWorkflow      E612  a workflow tried to end its worker
    ├── OtherVersion        E613  a run was driven by another version of its workflow (a DefinitionChanged)
    ├── AnswerTooLate       E615  an answer after the deadline of its gate (an AlreadyAnswered)
    └── NoResult            E616  the result of a run that has not succeeded
    (BaseException)
    └── Suspended           E620  not an error: unwinds a program whose run stops here
        ├── AttemptLost     E413  the store failed under this attempt; the run is given back
        ├── Waiting         E621  the run waits for an answer or for a time
        └── Interrupted     E622  a signal, a budget, a timeout or an operator stopped the run

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
    remedy = "Remove the value, convert it to plain data, or teach Everstep its type with everstep.register(Type, encode=..., decode=...)."

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
    remedy = "Correct the argument; help() on what was called says what it takes."


class InvalidConfig(InvalidArgument):
    """A configuration makes no sense."""

    code = "E105"
    remedy = "Correct the setting at the place given; `everstep config show` lists all keys."

    def __init__(
        self, message: str | None = None, place: str | None = None, *, key: str | None = None, value: object = None, others: int = 0,
        remedy: str | None = None,
    ):  # fmt: skip
        self.place, self.key, self.value, self.others = place, key, value, others
        said = message or "a configuration makes no sense"
        self.fault = f"{place}: {said}" if place else said
        more = f" (and {others} more fault{'s' if others > 1 else ''})" if others else ""
        super().__init__(self.fault + more, remedy=remedy)


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


class AlreadyQueued(RunExists):
    """A run with the same `dedupe` waits in the queue or is driven."""

    code = "E205"
    remedy = "Wait for that one to end, or leave out dedupe."

    def __init__(self, queue: str, dedupe: str, run: str | None = None):
        self.run = run
        super().__init__(f"the queue {queue!r} has a run for {dedupe!r}" + (f": {run}" if run else ""))


class PrunedCheckpoint(NotFound):
    """The state of a checkpoint was dropped by retention."""

    code = "E204"
    remedy = "Load one that was kept: store.checkpoints(run_id) says which are pruned."

    def __init__(self, run: str, number: int, kept: tuple[int | None, int | None] = (None, None)):
        self.run = run
        self.number = number
        self.before, self.after = kept
        near = " and ".join(f"{run}@{n}" for n in kept if n is not None)
        super().__init__(f"the state of {run}@{number} was pruned", remedy=f"The nearest that were kept: {near}." if near else None)


class RunDeleted(NotFound):
    """The run was deleted while it was read, or after a view of it was made."""

    code = "E206"
    remedy = "Nothing is damaged. Read another run: store.runs() lists what there is."

    def __init__(self, run: str):
        self.run = run
        super().__init__(f"run {run!r} was deleted, so its states cannot be read any more")


class LeaseHeld(EverstepError):
    """Another writer has the run open."""

    code = "E301"
    remedy = "Wait for its result: store.wait(run_id). Or read the run with store.load or store.view, which need no lease."

    def __init__(self, run: str, host: str, pid: int, since: str, expires: str):
        self.run = run
        self.host = host
        self.pid = pid
        self.since = since
        self.expires = expires
        super().__init__(
            f"run {run!r} is open for writing by process {pid} on {host} since {since} (its lease ends {expires} unless renewed)",
            remedy=f"Wait for its result: store.wait({run!r}). Or read the run with store.load or store.view, which need no lease.",
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


class UnknownWorkflow(EverstepError):
    """This process does not know the workflow of a run."""

    code = "E306"
    remedy = "Import the module that defines it before you resume the run; names found in a store are never imported."


class IllegalTransition(EverstepError):
    """A status cannot follow another."""

    code = "E307"
    remedy = "Look at the run's history with store.events(run=run_id); a run that has ended can be forked."

    def __init__(self, run: str, before: str, after: str):
        self.run, self.before, self.after = run, before, after
        super().__init__(f"run {run!r} is {before}, so it cannot become {after}")


class Reentered(EverstepError):
    """A signal handler or a finalizer used a store in the middle of a save of the same thread."""

    code = "E308"
    remedy = (
        "Let a signal handler only note the signal and save after it, or save in another thread; close what saves before it is "
        "collected, with a with block or contextlib.closing."
    )


class AmbiguousRun(EverstepError):
    """It can't be told which run the calling code belongs to."""

    code = "E309"
    remedy = (
        "Use the handle of the run that is meant: run.step(function, ...), run.gate(...). If the generator is one half of a block, "
        "decorate it with contextlib.contextmanager or asynccontextmanager."
    )

    def __init__(self, runs: list[str]):
        self.runs = runs
        names = " and ".join(repr(run) for run in runs)
        super().__init__(f"it can't be told whether this code belongs to run {names}: a generator that is not running opened it")


class StoreError(EverstepError):
    """The store failed."""

    code = "E400"
    remedy = "Look at the cause below; store.verify() tells whether the data is whole."
    place: str | None = None
    """Which store failed, by its url or by the path of its file; None where the error does not come from a backend."""

    def of(self, place: str) -> StoreError:
        """Note which store failed."""
        self.place = place
        return self


class NotAStore(StoreError):
    """The file is not an Everstep store."""

    code = "E401"
    remedy = "Give the path of a store, or of a file that does not exist yet."
    missing = False

    @classmethod
    def nothing_at(cls, place: object, remedy: str | None = None) -> NotAStore:
        """The error for a place where there is nothing at all: a store could be made there."""
        error = cls(f"there is no store at {place}", remedy=remedy)
        error.missing = True
        return error


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
    """The disk reported an error, or memory ran out inside the writer; this handle writes no more."""

    code = "E405"
    remedy = "Check the disk and the memory, open the store again and look at the head before you go on."
    written: Written = "unknown"
    lasting = False
    """Whether this handle of the store writes no more, so that only opening the store again helps."""


class StoreClosed(StoreError):
    """The store is closed."""

    code = "E406"
    remedy = "Open it again with everstep.open(...). After a fork of the process, open it anew in the child."


class StoreBusy(StoreError):
    """Another process kept the store locked for too long, or the system had no thread for it."""

    code = "E407"
    remedy = "Try again; if it stays so, look for a process that holds a transaction on the file open."


class UnknownBackend(StoreError):
    """No backend serves that URL."""

    code = "E408"
    remedy = "Use a path, sqlite:///path, postgresql://user@host/database or memory://."


class MissingCapability(StoreError, AttributeError):
    """The backend of a store lacks a part of the contract that this needs. An AttributeError too, so that `hasattr` tells what is missing."""

    code = "E418"
    remedy = "Use a store in SQLite (a path) or PostgreSQL, or a backend that has this capability."

    def __init__(self, url: str, capability: str):
        self.capability = capability
        super().__init__(f"the backend of {url} does not have the capability {capability!r}, which this needs", written="no")


class RolledBack(StoreError):
    """The store is older than what was seen of it on this machine."""

    code = "E409"
    remedy = "Put the newer file and its -wal back; or accept what is gone: everstep.open(path, accept_older=True)."


class StoreUnreachable(StoreError):
    """The server of the store does not answer."""

    code = "E410"
    remedy = (
        "Check that the server runs and can be reached. If it is unknown whether a save happened, open the run again and look at its head."
    )


class LeftoverFiles(StoreError):
    """Files of another store lie where a store is to be created."""

    code = "E411"
    remedy = "Put the store's file back, or move the files beside it to another folder."


class ForeignWal(StoreError):
    """The WAL beside the store belongs to another file."""

    code = "E412"
    remedy = "Put the file back that the WAL belongs to, or move the WAL to another folder."


class UnsuitableEncoding(StoreError):
    """The encoding of the database cannot hold every text."""

    code = "E415"
    remedy = "Make a database in UTF8 and use it instead (createdb -E UTF8 -T template0 NAME)."


class HistoryChanged(StoreError):
    """The cursor of an event reader belongs to a history that this store does not have any more."""

    code = "E416"
    remedy = "Read all events again with store.events(after=0), and skip those that were handled before."


class WrongSeal(StoreError):
    """The digests of the store were made with another key, or without one."""

    code = "E419"
    remedy = "Open it with the key that it was made with. Nothing was changed."


class SecondPath(StoreError):
    """The store's file is reached by two paths, and each would have a WAL of its own."""

    code = "E417"
    remedy = "Use one path to the store in every program. Remove hard links, and mount the folder of the store instead of the file."


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


class StepFailed(EverstepError):
    """A step failed, and its error cannot be rebuilt here."""

    code = "E601"
    remedy = (
        "Read the recorded traceback (traceback_text). To get the error back as its own class, import its module before you resume the run, "
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
    """A recorded step is asked for with another input."""

    code = "E602"

    def __init__(self, run: str, address: str, recorded: str, now: str, loop: bool = False):
        self.run, self.address, self.recorded, self.now = run, address, recorded, now
        fork = f"store.fork({run!r}) and go on there" if loop else f"store.resume({run!r}, from_step={address!r})"
        accept = f"store.run({run!r}, accept=[{address!r}])" if loop else f"store.resume({run!r}, accept=[{address!r}])"
        super().__init__(
            f"step {address} of run {run!r} was recorded with the input {recorded} and is now called with {now}",
            remedy=(f"Fork before it: {fork}. Or rename the step, so that it runs as a new one. Or accept the recorded result: {accept}."),
        )


class AlreadyAnswered(EverstepError):
    """A gate has its answer already."""

    code = "E603"
    remedy = "The first answer stands. Fork the run before the gate to try another one."


class AnswerTooLate(AlreadyAnswered):
    """An answer came after the deadline of its gate."""

    code = "E615"
    remedy = (
        "The outcome of the deadline holds. To give another answer, fork the run before the gate: store.resume(run_id, from_step=gate)."
    )


class NoResult(EverstepError):
    """A run was asked for its result and has none: it waits, was cancelled, or has not ended."""

    code = "E616"
    remedy = "Look at outcome.status and outcome.reason before you call unwrap()."

    def __init__(self, run: str, status: str, message: str, *, remedy: str | None = None):
        self.run, self.status = run, status
        super().__init__(message, remedy=remedy)


class BadAnswer(EverstepError):
    """An answer does not fit its gate."""

    code = "E604"
    remedy = "Look at what the gate asks for: store.gates(run_id)."


class GateTimeout(EverstepError):
    """Nobody answered a gate in time, and it has no default."""

    code = "E605"
    remedy = "Give the gate a default=, or catch this error where the gate stands."


class StepTimeout(EverstepError):
    """A step took longer than its timeout."""

    code = "E606"
    remedy = "Give the step more time, or a retry. What it had begun outside may still happen."


class DefinitionChanged(EverstepError):
    """The definition of a workflow is no longer the one that the run began with."""

    code = "E607"
    remedy = "Read the difference; go on with the new definition by store.resume(run_id, anyway=True), or begin a new run."

    def __init__(self, message: str, difference: str = ""):
        self.difference = difference
        super().__init__(message)
        if difference:
            self.add_note(difference)  # a traceback shows it


class InvalidWorkflow(EverstepError):
    """A workflow document makes no sense."""

    code = "E608"
    remedy = "Correct the document at the line given; docs/yaml.md lists all keys."

    def __init__(self, message: str, file: str | None = None, line: int | None = None, remedy: str | None = None):
        self.file, self.line = file, line
        place = f"{file or 'workflow'}:{line}: " if line is not None else f"{file}: " if file else ""
        super().__init__(place + message, remedy=remedy)


class TransactionEnded(EverstepError):
    """The function of a transactional step ended its transaction by itself."""

    code = "E609"
    remedy = "Leave COMMIT, ROLLBACK and close to Everstep. To undo everything, raise an error; to undo a part, use a savepoint."


class TransactionUnknown(EverstepError):
    """It is unknown whether the transaction of a step was committed."""

    code = "E610"
    remedy = "Resume the run when the database answers again: it looks, and takes the result or runs the step."
    written: Written = "unknown"


class WorkerDied(EverstepError):
    """One worker after the other died while it drove this run."""

    code = "E611"
    remedy = "Look at what the step does that kills its process (memory, a crash in C code), then resume the run: store.resume(run_id)."


class ExitInWorkflow(EverstepError):
    """A workflow tried to end the worker that drives it."""

    code = "E612"
    remedy = "Return from the workflow, or raise an Exception: a worker has other runs to drive. Then resume the run: store.resume(run_id)."


class OtherVersion(DefinitionChanged):
    """A run was driven by another version of its workflow than this process has."""

    code = "E613"
    remedy = "Start a worker that has that version, or continue under this one: store.resume(run_id)."


class Suspended(BaseException):
    """A run stops here for now. No error: everything up to here is recorded, and `except Exception` must not catch it."""

    code = "E620"
    remedy = "Let it pass: the run is closed properly on its way out."

    def __init__(self, message: str):
        self.message = message
        super().__init__(message)

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]\n{self.remedy}"


class AttemptLost(Suspended):
    """The store failed under this attempt. Nothing more of it is recorded; the run is given back and can be resumed."""

    code = "E413"
    remedy = "Let it pass. The run stays running and continues from its journal: a worker does that, or store.resume(run_id)."

    def __init__(self, run: str, error: EverstepError):
        self.run, self.error = run, error
        super().__init__(f"the store failed while run {run!r} was driven, so this attempt ends: {error.message}")


class Waiting(Suspended):
    """A run waits for an answer or for a time."""

    code = "E621"
    remedy = "Answer it with store.answer(run_id, gate, value); then run the program again, or resume a workflow: store.resume(run_id), store.wake()."

    def __init__(self, run: str, what: str, until: int | None = None):
        self.run, self.what, self.until = run, what, until
        super().__init__(f"run {run!r} waits for {what}")


class Interrupted(Suspended):
    """A signal, a budget, a timeout or an operator stopped a run at a step's end."""

    code = "E622"
    remedy = "Resume the run to go on where it stopped."

    def __init__(self, run: str, reason: str, exit_code: int | None = None):
        self.run, self.reason, self.exit_code = run, reason, exit_code
        super().__init__(f"run {run!r} was stopped: {reason}")
