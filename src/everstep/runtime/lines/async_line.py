"""The same handle for asyncio: `line = await store.line(id)`. Saves of all tasks that wait at the same time share one commit to disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, cast

from everstep.errors import RunClosed
from everstep.runtime.lines import calls, questions
from everstep.runtime.lines.appender import Appender
from everstep.runtime.lines.through_driver import attach_through, refuse_driver, refuse_workflow
from everstep.runtime.lines.ways import InTask
from everstep.runtime.lines.within import driver_here
from everstep.runtime.waits.questions import ask_in, asked_of, settle_in
from everstep.store.gates import Gate
from everstep.store.journal.attached import given
from everstep.store.query import check_text
from everstep.store.views import Checkpoint
from everstep.threads.offload import offload

if TYPE_CHECKING:
    from everstep.runtime.engine.attempt import Attempt
    from everstep.runtime.engine_store import EngineStore


class AsyncLine:
    """One run, open for appending without a lease by the tasks of one event loop."""

    def __init__(self, appender: Appender):
        self._appender: Appender | None = appender
        self._id = appender.id

    @classmethod
    async def open(cls, store: EngineStore, id: str, state: Any, fields: dict[str, Any]) -> AsyncLine:
        appender = Appender(store, id, state, fields, InTask())
        await appender.open()
        if appender.number:
            await appender.live()  # `state` is a plain attribute here
        return cls(appender)

    def __repr__(self) -> str:
        return f"<everstep.AsyncLine {self._id!r}{'' if self._appender else ', closed'}>"

    @property
    def id(self) -> str:
        return self._id

    @property
    def exists(self) -> bool:
        """Whether the run exists: its first append creates it."""
        return self._open().row is not None

    @property
    def number(self) -> int:
        """The newest checkpoint that this handle knows; see `Line.number`."""
        driver = self._driver()
        return self._open().number if driver is None else driver.live()[0].checkpoints

    async def state(self) -> Any:
        """Return the live state, loaded if necessary. Change it as you like; `checkpoint` saves the changes."""
        driver = self._driver()
        return await calls.state(self._open()) if driver is None else driver.live()[1].state

    async def refresh(self) -> bool:
        """Catch up with other writers; see `Line.refresh`."""
        return False if self._driver() is not None else await calls.refresh(self._open())

    async def checkpoint(
        self, note: str | None = None, tags: Iterable[str] | str = (), meta: Mapping[str, Any] | None = None, state: Any = None
    ) -> Checkpoint:
        """Append a checkpoint; see `Line.checkpoint`. If the waiting task is cancelled, the save still takes place."""
        driver = self._driver()
        if driver is None:
            return await calls.checkpoint(self._open(), note, tags, meta, state)
        refuse_workflow(driver)
        made = driver.root.handle.checkpoint(note, tags, meta, state)
        return cast(Checkpoint, await made if isawaitable(made) else made)

    async def attach(self, number: int, name: str, value: Any, *, replace: bool = False) -> bool:
        """Attach a named value to a checkpoint; see `Line.attach`."""
        return bool(await self.attach_many(number, {name: value}, replace=replace))

    async def attach_many(self, number: int, values: Mapping[str, Any], *, replace: bool = False) -> list[str]:
        """Attach several named values in one commit; see `Line.attach_many`."""
        line, driver = self._open(), self._driver()
        calls.check_number(number)
        found = given(line.store, values)
        if driver is None:
            return await calls.attach(line, number, found, replace)
        return await offload(attach_through, driver, number, found, replace)

    async def ask(
        self, name: str, ask: str | None = None, *, schema: Any = None, choices: Any = None, timeout: float | None = None
    ) -> Gate:
        """Record a question; see `Line.ask`."""
        line, driver = self._open(), self._driver()
        asked = asked_of(line.store, name, ask, schema, choices, timeout)
        if driver is None:
            return await questions.ask(line, asked)
        refuse_workflow(driver)
        return await offload(ask_in, driver, asked)

    async def answers(self) -> list[Gate]:
        """Record the answers that have come; see `Line.answers`."""
        line, driver = self._open(), self._driver()
        if driver is None:
            return await questions.answers(line)
        await offload(settle_in, driver)
        return await offload(line.store.gates, self._id)

    async def status(self, word: str, reason: str | None = None) -> None:
        """Set the status of the run; see `Line.status`."""
        status = calls.check_status(word)
        refuse_driver(self._driver())
        await calls.status(self._open(), status, check_text(reason, "reason"))

    def close(self) -> None:
        """Forget the state. Writes nothing."""
        self._appender = None

    async def __aenter__(self) -> AsyncLine:
        return self

    async def __aexit__(self, *problem: object) -> None:
        self.close()

    def _driver(self) -> Attempt | None:
        return driver_here(self._open().store, self._id)

    def _open(self) -> Appender:
        if self._appender is None:
            raise RunClosed(f"the line of run {self._id!r} is closed", remedy="Open it again: await store.line(run_id).")
        return self._appender
