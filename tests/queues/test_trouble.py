"""What is wrong with one part of a store keeps a worker from nothing else."""

from __future__ import annotations

from typing import Any

import everstep
from everstep.runtime.schedules import PREFIX


@everstep.workflow
def queued_thrice(number: int) -> int:
    return number * 3


def test_a_damaged_schedule_and_damaged_orders_keep_nobody_from_working(
    store: everstep.Store, work: Any, heard: list[Any], tmp_path: Any
) -> None:
    store.backend.set_fact(PREFIX + "bad", "no JSON")
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"no database at all" * 100)
    work(store, orders_in=[broken])
    assert [store.enqueue(queued_thrice, n).wait(30).result for n in range(3)] == [0, 3, 6]
    assert {said["code"] for said in heard if said["event"] == "trouble"} <= {"E500", "E407"}
    assert any(said["event"] == "trouble" for said in heard)
