"""Appends to one session of ADK, with counters in all scopes: `URL NAME COUNT`. Prints the id of each event when it is stored."""

from __future__ import annotations

import asyncio
import sys

from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.events.event import Event

import everstep
from everstep.adapters.adk import SessionService

ME = {"app_name": "a", "user_id": "u", "session_id": "s"}


async def write(service: SessionService, name: str, count: int) -> None:
    for n in range(1, count + 1):
        while True:
            session = await service.get_session(**ME)
            if session is None:
                try:
                    session = await service.create_session(**ME)
                except AlreadyExistsError:
                    continue
            total = session.state.get("total", 0) + 1
            event = Event(author=name, message=f"{name}{n}", state={"total": total, f"app:{name}": n, f"user:{name}": n})
            try:
                await service.append_event(session, event)
            except StaleSessionError:
                continue  # another process was faster: read again
            print(event.id, flush=True)
            break


if __name__ == "__main__":
    with everstep.open(sys.argv[1]) as store:
        asyncio.run(write(SessionService(store), sys.argv[2], int(sys.argv[3])))
