"""A handle that appends to a run without holding its lease, for frameworks that drive their own loops.

Opening reads one row and writes nothing. Many processes may have lines of one run: each append is compared with what the handle knows, and a
stale one raises Conflict. Inside a driver of the run, the handle saves through the driver. Installs no signal handlers, and is never
`everstep.current()`. Threads may share a handle. Thin: `appender` does the work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from everstep.errors import RunClosed
from everstep.runtime.lines import calls, questions
from everstep.runtime.lines.appender import Appender
from everstep.runtime.lines.through_driver import attach_through, checkpoint_through, refuse_driver, refuse_workflow
from everstep.runtime.lines.ways import InThread
from everstep.runtime.lines.within import driver_here
from everstep.runtime.waits.questions import ask_in, asked_of, settle_in
from everstep.store.gates import Gate
from everstep.store.journal.attached import given
from everstep.store.query import check_text
from everstep.store.views import Checkpoint
from everstep.threads.at_once import at_once

if TYPE_CHECKING:
    from everstep.runtime.engine.attempt import Attempt
    from everstep.runtime.engine_store import EngineStore


class Line:
    """One run, open for appending without a lease."""

    def __init__(self, store: EngineStore, id: str, state: Any, fields: dict[str, Any]):
        ways = InThread()
        self._appender: Appender | None = Appender(store, id, state, fields, ways)
        self._lock = ways.lock
        self._id = id
        at_once(self._appender.open())

    def __repr__(self) -> str:
        return f"<everstep.Line {self._id!r}{'' if self._appender else ', closed'}>"

    @property
    def id(self) -> str:
        return self._id

    @property
    def exists(self) -> bool:
        """Whether the run exists: its first append creates it."""
        return self._open().row is not None

    @property
    def number(self) -> int:
        """The newest checkpoint that this handle knows, 0 if there is none: the next one is refused if others have appended since."""
        line, driver = self._open(), self._driver()
        return line.number if driver is None else driver.live()[0].checkpoints

    @property
    def state(self) -> Any:
        """The live state, loaded on first use. Change it as you like; `checkpoint` saves the changes."""
        line, driver = self._open(), self._driver()
        return calls.state_in_thread(line, self._lock) if driver is None else driver.live()[1].state

    @state.setter
    def state(self, value: Any) -> None:
        line, driver = self._open(), self._driver()
        if driver is None:
            at_once(calls.set_state(line, value))
        else:
            driver.live()[1].state = value

    def refresh(self) -> bool:
        """Catch up with other writers; return whether there was a new checkpoint. Unsaved changes of the state are dropped then."""
        line = self._open()
        return False if self._driver() is not None else at_once(calls.refresh(line))

    def checkpoint(
        self, note: str | None = None, tags: Iterable[str] | str = (), meta: Mapping[str, Any] | None = None, state: Any = None
    ) -> Checkpoint:
        """Append a checkpoint of the state; when this returns, it is durable. The first one creates the run, which waits from then on.

        `state` passes your own object, which is compared with the last checkpoint and becomes `line.state`. If another writer has appended a
        checkpoint since, this raises Conflict with its `number`, nothing is written, and `line.state` is the newest state. While another
        process or thread drives the run, it raises LeaseHeld.
        """
        line, driver = self._open(), self._driver()
        if driver is not None:
            return checkpoint_through(driver, note, tags, meta, state)
        return calls.checkpoint_in_thread(line, self._lock, note, tags, meta, state)

    def attach(self, number: int, name: str, value: Any, *, replace: bool = False) -> bool:
        """Attach a named value to a checkpoint; return False if the name is taken there. With `replace`, the newest value counts."""
        return bool(self.attach_many(number, {name: value}, replace=replace))

    def attach_many(self, number: int, values: Mapping[str, Any], *, replace: bool = False) -> list[str]:
        """Attach several named values to a checkpoint in one commit; return the names of those that were not taken."""
        line = self._open()
        calls.check_number(number)
        found, driver = given(line.store, values), self._driver()
        if driver is not None:
            return attach_through(driver, number, found, replace)
        return calls.attach_in_thread(line, self._lock, number, found, replace)

    def ask(self, name: str, ask: str | None = None, *, schema: Any = None, choices: Any = None, timeout: float | None = None) -> Gate:
        """Record a question, and return it as a gate; nothing waits. If one of this name is open, that is returned.

        The answer must match `schema` (a type, or a JSON Schema) or be one of `choices`. After `timeout` seconds it counts as answered with
        None by "timeout". `store.answer` answers it, `store.gates` and `line.answers` show the answer.
        """
        line, driver = self._open(), self._driver()
        asked = asked_of(line.store, name, ask, schema, choices, timeout)
        if driver is None:
            return at_once(questions.ask(line, asked))
        refuse_workflow(driver)
        return ask_in(driver, asked)

    def answers(self) -> list[Gate]:
        """Record the answers that have come, and return all gates of the run. From then on they do not make the run due any more."""
        line, driver = self._open(), self._driver()
        if driver is None:
            return at_once(questions.answers(line))
        settle_in(driver)
        return line.store.gates(self._id)

    def status(self, word: str, reason: str | None = None) -> None:
        """Set the status of the run: waiting, succeeded, failed or cancelled. The next checkpoint has it wait again, unless it is cancelled."""
        line = self._open()
        status = calls.check_status(word)
        refuse_driver(self._driver())
        at_once(calls.status(line, status, check_text(reason, "reason")))

    def close(self) -> None:
        """Forget the state. Writes nothing."""
        self._appender = None

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def _driver(self) -> Attempt | None:
        """Return the driver of the run that the calling code is inside of, if any."""
        return driver_here(self._open().store, self._id)

    def _open(self) -> Appender:
        if self._appender is None:
            raise RunClosed(f"the line of run {self._id!r} is closed", remedy="Open it again: store.line(run_id).")
        return self._appender
