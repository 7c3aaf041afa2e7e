"""Schedules: runs that are enqueued again and again, by cron and time zone. A store remembers them; any worker fires what is due.

The id of a fired run is the schedule's name and the time that it stands for. So it does not matter how many workers see that it is due, or
that one dies between firing and noting it: of one id there is one run. What was fired is noted beside a schedule, never in it: a worker that
fires cannot undo what somebody changes at that moment.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Literal, cast, get_args

from everstep.backends.contract.queues import Task
from everstep.clock import clock
from everstep.codec.values import decode, encode
from everstep.errors import Damaged, EverstepError, InvalidArgument, NotFound, RunExists, StoreError
from everstep.fields import Shape
from everstep.ids import check_tag
from everstep.queues import enqueue as queueing
from everstep.runtime import workflow as flows
from everstep.runtime.driving_store import Host

Missed = Literal["once", "skip", "all"]
PREFIX, FIRED = "schedule:", "fired:"
_LATE = 60_000_000  # what is later than this was missed
_MOST = 1_000


class Schedule(Shape, frozen=True):
    """A workflow that is enqueued at the times of `cron` in the time zone `zone`. `missed` says what happens with times at which no worker was
    there: they are fired `once` for all of them, `skip`ped, or `all` fired, each for itself (the last thousand). `next` is the next time."""

    name: str
    workflow: str
    cron: str
    zone: str
    missed: Missed
    queue: str
    priority: int
    key: str | None
    next: datetime
    input: tuple[Any, ...] = ()


class Fired(Shape, frozen=True):
    """A run that was enqueued by a schedule, or why none could be."""

    schedule: str
    run: str = ""
    error: EverstepError | None = None


def schedule(
    store: Host, name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], cron: str, zone: str, missed: Missed, task: Task
) -> Schedule:
    """Remember a schedule, or change the one of that name. Its first time is the next one from now on; one that had the same times goes on with
    them: a program that says at its start what its schedules are forgets nothing that came while it was away."""
    check_tag(name, "name of a schedule")
    if missed not in get_args(Missed):
        raise InvalidArgument(f"missed={missed!r:.60} is no choice", remedy=f"Use {', '.join(get_args(Missed))}.")
    order = queueing.order_of(store, function, args, kwargs, task, None)
    stored = queueing.stored_input(store, function, args, kwargs)
    following = next(times(cron, zone, clock.now_us()))
    before = _known(store, name)
    if (before.get("cron"), before.get("zone")) == (cron, zone):
        following = min(following, before["next"])
    said = {
        "workflow": order.name, "cron": cron, "zone": zone, "missed": missed, "task": order.task._asdict(), "next": following,
        "input": b64encode(store.framer.wrap(encode([list(stored[0]), stored[1]], "arguments"))).decode(),
    }  # fmt: skip
    store.backend.set_fact(PREFIX + name, json.dumps(said))
    return _parse(store, PREFIX + name, said)


def _known(store: Host, name: str) -> dict[str, Any]:
    """What is remembered under a name; nothing if that cannot be read, for it is about to be replaced."""
    text = store.backend.fact(PREFIX + name)
    with suppress(Damaged):
        return _read(PREFIX + name, text, store.backend.fact(FIRED + name)) if text is not None else {}
    return {}


def unschedule(store: Host, name: str) -> None:
    if store.backend.fact(PREFIX + check_tag(name, "name of a schedule")) is None:
        raise NotFound(f"there is no schedule {name!r}", remedy="store.schedules() lists them.")
    for prefix in (PREFIX, FIRED):
        if store.backend.fact(prefix + name) is not None:
            store.backend.set_fact(prefix + name, None)


def schedules(store: Host) -> list[Schedule]:
    return [_parse(store, name, _read(name, text, fired)) for name, text, fired in _all(store)]


def _all(store: Host) -> list[tuple[str, str, str | None]]:
    """Each schedule, and what was noted of its firing."""
    known = store.backend.facts(PREFIX)
    fired = store.backend.facts(FIRED) if known else {}
    return [(name, text, fired.get(FIRED + name.removeprefix(PREFIX))) for name, text in known.items()]


def _read(name: str, text: str, fired: str | None) -> dict[str, Any]:
    try:
        said = json.loads(text)
        of, _, following = (fired or "").partition(" ")
        return {**said, "next": int(following if of == _digest(text) else said["next"]), "task": dict(said["task"])}
    except (ValueError, TypeError, KeyError):
        raise Damaged(f"the {name.replace(':', ' ', 1)} cannot be read", remedy="Set it anew.") from None


def _digest(text: str) -> str:
    """What a schedule is known by: what was noted of another one of its name does not hold for it."""
    return sha256(text.encode()).hexdigest()[:32]


def _parse(store: Host, name: str, said: dict[str, Any]) -> Schedule:
    task = Task(**said["task"])
    args, kwargs = decode(store.framer.unwrap(b64decode(said["input"])))
    return Schedule(
        name.removeprefix(PREFIX), said["workflow"], said["cron"], said["zone"], cast(Missed, said["missed"]), task.queue, task.priority, task.key,
        datetime.fromtimestamp(said["next"] / 1e6, UTC), (tuple(args), kwargs),
    )  # fmt: skip


def times(cron: str, zone: str, moment: int, back: bool = False) -> Iterator[int]:
    """The times of a cron expression after a moment, or `back` from it, in microseconds. An hour that a clock change skips or repeats is fired once."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    from cronsim import CronSim, CronSimError

    try:
        here = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        raise InvalidArgument(f"{zone!r:.60} is no time zone", remedy="Give a name such as 'Europe/Berlin' or 'UTC'.") from None
    try:
        following = CronSim(cron, datetime.fromtimestamp(moment / 1e6, here), reverse=back)
    except (CronSimError, TypeError, AttributeError) as error:
        raise InvalidArgument(
            f"{cron!r:.60} is no cron expression: {error}", remedy="Give minute, hour, day, month and weekday: '30 9 * * 1-5'."
        ) from None
    found = False
    for at in following:
        found = True
        yield int(at.astimezone(UTC).timestamp()) * 1_000_000
    if not found:
        raise InvalidArgument(f"{cron!r:.60} never comes")


def fire(store: Host, now: int) -> list[Fired]:
    """Enqueue what is due. One that cannot be enqueued keeps no other from it."""
    fired: list[Fired] = []
    for name, text, noted in _all(store):
        try:
            said = _read(name, text, noted)
            if said["next"] <= now:
                fired += _fire(store, name, text, said, now)
        except StoreError:
            raise
        except EverstepError as error:
            fired.append(Fired(name.removeprefix(PREFIX), error=error))
    return fired


def _fire(store: Host, name: str, text: str, said: dict[str, Any], now: int) -> list[Fired]:
    due, following = _due(said, now)
    plan = _parse(store, name, said)
    task = Task(**said["task"])
    fired = [run for at in due if (run := _enqueue(store, plan, task, at)) is not None]
    if store.backend.fact(name) == text:  # else there is nothing left that this could be noted of
        store.backend.set_fact(FIRED + plan.name, f"{_digest(text)} {following}")
    return fired


def _due(said: dict[str, Any], now: int) -> tuple[list[int], int]:
    """The times that are to be fired now, and the next one after that. Gone back from now: however many were missed, few are looked at."""
    following = next(times(said["cron"], said["zone"], now))
    wanted = _MOST if said["missed"] == "all" else 1
    due: list[int] = []
    for at in times(said["cron"], said["zone"], following, back=True):
        if at < said["next"] or len(due) == wanted:
            break
        due.append(at)
    due = due or [said["next"]]  # a time of the day that a clock change moved may look another one from behind
    if said["missed"] == "skip":
        due = [at for at in due if now - at <= _LATE]
    return due[::-1], following


def _enqueue(store: Host, plan: Schedule, task: Task, at: int) -> Fired | None:
    args, kwargs = plan.input
    order = queueing.order_of(store, flows.by_name(plan.workflow) or plan.workflow, args, kwargs, task, None)
    run = f"{plan.name}-{datetime.fromtimestamp(at / 1e6, UTC):%Y%m%dT%H%M%SZ}"
    try:
        return Fired(plan.name, run) if queueing.place(store, order, run).new else None
    except RunExists:
        return None  # of that time there is a run already, with the input that the schedule had then
