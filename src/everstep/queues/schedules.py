"""Schedules: runs that are enqueued repeatedly, by cron and time zone. The store keeps the schedules; any worker fires those that are due.

The id of a fired run is the schedule's name and the scheduled time. So several workers may see that a time is due, and one may die between
firing and recording it: there is one run for each id. Fire times are recorded beside the schedule, never in it: a worker that fires cannot
overwrite a change that a user makes at the same moment.
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
from everstep.runtime.engine_store import EngineStore
from everstep.store.encryption.frames import need_key

Missed = Literal["once", "skip", "all"]
PREFIX, FIRED = "schedule:", "fired:"
_LATE = 60_000_000  # a time that is later than this was missed
_MOST = 1_000


class Schedule(Shape, frozen=True):
    """A workflow that is enqueued at the times of `cron` in the time zone `zone`. `missed` says what to do with times at which no worker was
    running: fire `once` for all of them, `skip` them, or fire `all` of them (the last thousand). `next` is the next time."""

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
    """A run that a schedule enqueued, or the error that prevented it."""

    schedule: str
    run: str = ""
    error: EverstepError | None = None


def schedule(
    store: EngineStore,
    name: str,
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    cron: str,
    zone: str,
    missed: Missed,
    task: Task,
) -> Schedule:
    """Save a schedule, or change the one with this name. It first fires at the next time from now. If cron and zone did not change, its next
    time stays: a program that sets its schedules at every start loses no time that was missed while it was down."""
    check_tag(name, "schedule name")
    if missed not in get_args(Missed):
        raise InvalidArgument(f"missed must be one of {', '.join(get_args(Missed))}, got {missed!r:.60}")
    order = queueing.order_of(store, function, args, kwargs, task, None)
    stored = queueing.stored_input(store, function, args, kwargs)
    following = next(times(cron, zone, clock.now_us()))
    before = _known(store, name)
    if (before.get("cron"), before.get("zone")) == (cron, zone):
        following = min(following, before["next"])
    said = {
        "workflow": order.name, "cron": cron, "zone": zone, "missed": missed, "task": order.task._asdict(), "next": following,
        "input": b64encode(store.framer.store().wrap(encode([list(stored[0]), stored[1]], "arguments"), ("schedule", name))).decode(),
    }  # fmt: skip
    store.backend.set_property(PREFIX + name, json.dumps(said))
    return _parse(store, PREFIX + name, said)


def _known(store: EngineStore, name: str) -> dict[str, Any]:
    """Return the schedule saved under a name; empty if it cannot be read, because the caller replaces it."""
    text = store.backend.get_property(PREFIX + name)
    with suppress(Damaged):
        return _read(PREFIX + name, text, store.backend.get_property(FIRED + name)) if text is not None else {}
    return {}


def unschedule(store: EngineStore, name: str) -> None:
    if store.backend.get_property(PREFIX + check_tag(name, "schedule name")) is None:
        raise NotFound(f"there is no schedule {name!r}", remedy="store.schedules() lists them.")
    for prefix in (PREFIX, FIRED):
        if store.backend.get_property(prefix + name) is not None:
            store.backend.set_property(prefix + name, None)


def schedules(store: EngineStore) -> list[Schedule]:
    return [_parse(store, name, _read(name, text, fired)) for name, text, fired in _all(store)]


def _all(store: EngineStore) -> list[tuple[str, str, str | None]]:
    """Return each schedule with the record of its last firing."""
    need_key(store.framer)
    known = store.backend.properties(PREFIX)
    fired = store.backend.properties(FIRED) if known else {}
    return [(name, text, fired.get(FIRED + name.removeprefix(PREFIX))) for name, text in known.items()]


def _read(name: str, text: str, fired: str | None) -> dict[str, Any]:
    try:
        said = json.loads(text)
        of, _, following = (fired or "").partition(" ")
        return {**said, "next": int(following if of == _digest(text) else said["next"]), "task": dict(said["task"])}
    except (ValueError, TypeError, KeyError):
        raise Damaged(f"the {name.replace(':', ' ', 1)} cannot be read", remedy="Set it again.") from None


def _digest(text: str) -> str:
    """Return the identity of a schedule: fire times of an earlier schedule with this name do not count."""
    return sha256(text.encode()).hexdigest()[:32]


def _parse(store: EngineStore, name: str, said: dict[str, Any]) -> Schedule:
    task = Task(**said["task"])
    args, kwargs = decode(store.framer.store().unwrap(b64decode(said["input"]), ("schedule", name.removeprefix(PREFIX))))
    return Schedule(
        name.removeprefix(PREFIX), said["workflow"], said["cron"], said["zone"], cast(Missed, said["missed"]), task.queue, task.priority, task.key,
        datetime.fromtimestamp(said["next"] / 1e6, UTC), (tuple(args), kwargs),
    )  # fmt: skip


def times(cron: str, zone: str, moment: int, back: bool = False) -> Iterator[int]:
    """Yield the times of a cron expression after a moment, or `back` from it, in microseconds. An hour that a clock change skips or repeats fires once."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    from cronsim import CronSim, CronSimError

    try:
        here = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        raise InvalidArgument(f"unknown time zone {zone!r:.60}", remedy="Give a name such as 'Europe/Berlin' or 'UTC'.") from None
    try:
        following = CronSim(cron, datetime.fromtimestamp(moment / 1e6, here), reverse=back)
    except (CronSimError, TypeError, AttributeError) as error:
        raise InvalidArgument(
            f"invalid cron expression {cron!r:.60}: {error}", remedy="Give minute, hour, day, month and weekday: '30 9 * * 1-5'."
        ) from None
    found = False
    for at in following:
        found = True
        yield int(at.astimezone(UTC).timestamp()) * 1_000_000
    if not found:
        raise InvalidArgument(f"cron expression {cron!r:.60} never matches a time")


def fire(store: EngineStore, now: int) -> list[Fired]:
    """Enqueue the runs that are due. A schedule that fails does not keep the others from firing."""
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


def _fire(store: EngineStore, name: str, text: str, said: dict[str, Any], now: int) -> list[Fired]:
    due, following = _due(said, now)
    plan = _parse(store, name, said)
    task = Task(**said["task"])
    fired = [run for at in due if (run := _enqueue(store, plan, task, at)) is not None]
    if store.backend.get_property(name) == text:  # else the schedule was changed or removed: there is nothing to record this for
        store.backend.set_property(FIRED + plan.name, f"{_digest(text)} {following}")
    return fired


def _due(said: dict[str, Any], now: int) -> tuple[list[int], int]:
    """Return the times to fire now, and the next time after them. Searches backwards from now, so that a long outage costs little."""
    following = next(times(said["cron"], said["zone"], now))
    wanted = _MOST if said["missed"] == "all" else 1
    due: list[int] = []
    for at in times(said["cron"], said["zone"], following, back=True):
        if at < said["next"] or len(due) == wanted:
            break
        due.append(at)
    due = due or [said["next"]]  # searched backwards, a time that a clock change moved may come out different
    if said["missed"] == "skip":
        due = [at for at in due if now - at <= _LATE]
    return due[::-1], following


def _enqueue(store: EngineStore, plan: Schedule, task: Task, at: int) -> Fired | None:
    args, kwargs = plan.input
    order = queueing.order_of(store, flows.by_name(plan.workflow) or plan.workflow, args, kwargs, task, None)
    run = f"{plan.name}-{datetime.fromtimestamp(at / 1e6, UTC):%Y%m%dT%H%M%SZ}"
    try:
        return Fired(plan.name, run) if queueing.enqueue_order(store, order, run).new else None
    except RunExists:
        return None  # a run for that time exists already, with the input that the schedule had then
