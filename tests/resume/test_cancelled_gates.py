"""A gate whose wait the program cancelled is cancelled, not answered: for a late answer, in listings, in events and on the command line."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep.errors import AlreadyAnswered


async def work() -> str:
    await asyncio.sleep(0.1)
    return "won"


@everstep.workflow(name="f5-flow")
async def flow() -> Any:
    lost = asyncio.ensure_future(everstep.gate("boss", ask="Go?", choices=["yes", "no"]))
    found = await everstep.current().step("work", work)
    lost.cancel()
    await asyncio.gather(lost, return_exceptions=True)
    await everstep.gate("editor")
    return found


def test_F5_a_late_answer_hears_that_the_program_cancelled_the_gate(store: everstep.Store) -> None:
    assert store.start(flow, id="r").status == "waiting"
    for name in ("boss", "boss#0"):
        with pytest.raises(AlreadyAnswered, match=r"the program cancelled gate 'boss#0' of run 'r'.*the answer was not recorded") as caught:
            store.answer("r", name, "yes")
        assert "from_step='boss#0'" in caught.value.remedy
        assert "None" not in str(caught.value)
    store.answer("r", "editor", 1)
    assert store.resume("r").result == "won"
    with pytest.raises(AlreadyAnswered, match="the program cancelled gate"):
        store.answer("r", "boss", "yes")


def test_F5_listings_say_that_it_was_cancelled(store: everstep.Store) -> None:
    out = store.start(flow, id="r")
    assert [gate.address for gate in out.gates] == ["editor#0"]
    boss, editor = store.gates("r")
    assert (boss.answered, boss.cancelled, boss.answer, boss.by, boss.open) == (False, True, None, None, False)
    assert boss.ask == "Go?"
    assert (editor.answered, editor.cancelled, editor.open) == (False, False, True)
    events = [event.name for event in store.events(run="r") if event.name.startswith("gate")]
    assert events == ["gate_opened", "gate_cancelled", "gate_opened"]
    store.answer("r", "editor", 1)
    (_, editor) = store.gates("r")
    assert (editor.answered, editor.answer) == (True, 1), "an answer shows as soon as it is posted"
    store.resume("r")
    assert [gate.answered for gate in store.gates("r")] == [False, True]


def test_F5_a_republish_tells_no_hook_of_an_answer_that_never_was(store: everstep.Store) -> None:
    store.start(flow, id="r")
    store.answer("r", "editor", 1)
    store.resume("r")
    heard: list[Any] = []
    store.on("after_gate", lambda event: heard.append(event.data.get("gate")))
    store.resume("r", replay="republish")
    assert heard == ["editor#0"]


@pytest.mark.parametrize("damage", ["name = replace(name, 'answer:', 'answes:')", "run = run + 8"])
def test_a_posted_answer_that_is_damaged_is_not_taken_for_a_missing_one(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "s.db"
    with everstep.open(path) as store:
        store.start(flow, id="r")
        store.answer("r", "editor", 1)
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE messages SET {damage}")
    connection.close()
    with everstep.open(path) as store, pytest.raises(everstep.errors.Damaged):
        store.gates("r")
