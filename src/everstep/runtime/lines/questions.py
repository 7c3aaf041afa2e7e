"""Questions and answers of a line, written once for threads and tasks."""

from __future__ import annotations

from everstep.backends.contract.core import Commit
from everstep.clock import clock
from everstep.records import Message, RunRow
from everstep.runtime.lines.appender import Appender
from everstep.runtime.waits.questions import Asked, expire, place_of, recorded_answers, timer
from everstep.store.chain import Entry
from everstep.store.gates import Gate, indexed_gates, with_posted, with_records


async def ask(line: Appender, asked: Asked) -> Gate:
    """Record a question, unless it is open already; nothing waits."""
    async with line.ways:
        known: list[Gate] = []
        at: list[str] = []

        async def learn(row: RunRow | None) -> None:
            known[:] = [] if row is None else await _recorded(line, row)

        def build(row: RunRow | None) -> Commit | None:
            address, found = place_of(known, asked.name)
            at[:] = [address]
            if found is not None:
                return None
            now = clock.now_us()
            entry, deadline = asked.entry(address, now)
            commit = line.with_entries(row, [entry])
            if deadline is not None:
                commit.messages = [timer(line.store, commit.run, address, deadline, now)]
            return commit

        await line.begin()
        await line.append(build, learn)
        gates = await _gates(line)
    return next(gate for gate in gates if gate.address == at[0])


async def answers(line: Appender) -> list[Gate]:
    """Record the answers that have come, and return all gates of the run."""
    async with line.ways:
        await line.begin()
        if line.row is None:
            return []
        news: tuple[list[Entry], list[str], list[Message]] = ([], [], [])

        async def learn(row: RunRow | None) -> None:
            nonlocal news
            assert row is not None
            gates = await _recorded(line, row)
            await line.ways.call(expire, line.store, row, gates)
            news = await line.ways.call(recorded_answers, line.store, row, gates)

        def build(row: RunRow | None) -> Commit | None:
            entries, gone, stay = news
            if not entries:
                return None
            commit = line.with_entries(row, entries)
            commit.read, commit.messages = gone, stay
            return commit

        await line.refresh_row()
        await line.append(build, learn)
        return await _gates(line)


async def _gates(line: Appender) -> list[Gate]:
    row = line.row
    assert row is not None
    return await line.ways.call(with_posted, line.store.backend, row, await _recorded(line, row))


async def _recorded(line: Appender, row: RunRow) -> list[Gate]:
    """Return the gates that are stored, and those that wait for the end of a block."""
    return with_records(row, await line.ways.call(indexed_gates, line.store.backend, row), line.kept())
