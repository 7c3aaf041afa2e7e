"""The command line says of a gate whose wait the program cancelled that it was cancelled, and lists open gates only."""

import asyncio
from typing import Any

from cli_helpers import Shop

import everstep


async def work() -> str:
    await asyncio.sleep(0.1)
    return "won"


@everstep.workflow(name="f5-cli")
async def flow() -> Any:
    lost = asyncio.ensure_future(everstep.gate("boss", ask="Go?", choices=["yes", "no"]))
    found = await everstep.current().step("work", work)
    lost.cancel()
    await asyncio.gather(lost, return_exceptions=True)
    await everstep.gate("editor")
    return found


def test_F5_the_command_line_lists_open_gates_only(shop: Shop) -> None:
    with shop.open() as store:
        store.start(flow, id="r")
    assert [(gate["gate"], gate["cancelled"]) for gate in shop.json("answer", "r")] == [("editor", False)]
    late = shop.call("answer", "r", "boss", "yes")
    assert late.code == 4
    assert "the program cancelled gate 'boss#0'" in late.err
    assert "gate boss#0 cancelled by the program" in shop.call("log", "r").out
    assert "answer r boss" not in shop.call("show", "r").out
