"""Enqueues many runs at once: one transaction, and on PostgreSQL one round trip. Creates all of them or none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from everstep.backends.contract.queues import Task
from everstep.errors import EverstepError, InvalidArgument, RunExists
from everstep.fields import Shape
from everstep.ids import check_id, new_id
from everstep.queues.enqueue import Enqueued, Order, commit_of, enqueue_order, order_of, refuse_other_run
from everstep.runtime.child import child_id
from everstep.runtime.engine.attempt import Attempt
from everstep.runtime.engine.context import Frame, frame
from everstep.runtime.engine_store import EngineStore
from everstep.store.refs import find_run

MOST = 10_000
if TYPE_CHECKING:
    from everstep.durations import Duration

FIELDS = ("workflow", "args", "kwargs", "id", "queue", "priority", "delay", "key", "dedupe")
_TRIES = 20


class Item(Shape, frozen=True):
    """One checked item: the order and the id that the caller chose, if any."""

    order: Order
    id: str | None


def enqueue_many(
    store: EngineStore, items: Iterable[Mapping[str, Any]], workflow: Any, queue: str, priority: int, delay: Duration | None
) -> list[Enqueued[Any]]:
    defaults = {"workflow": workflow, "queue": queue, "priority": priority, "delay": delay}
    found = [_item(store, number, item, defaults) for number, item in enumerate(_listed(items))]
    if not found:
        return []
    here = frame.get()
    if here is not None and here.ticket is None and isinstance(here.run, Attempt):
        return _as_step(store, found, here)
    return _enqueue_all(store, found, [new_id() if item.id is None else item.id for item in found])


def _listed(items: Any) -> list[Any]:
    if isinstance(items, (str, bytes, Mapping)) or not isinstance(items, Iterable):
        raise InvalidArgument(
            f"items must be a list of dicts, got {items!r:.60}", remedy='Give items such as {"workflow": crawl, "args": ["https://…"]}.'
        )
    listed = list(items)
    if len(listed) > MOST:
        raise InvalidArgument(
            f"items must have at most {MOST:,} entries, got {len(listed):,}; nothing was enqueued",
            remedy="Split the list, and call enqueue_many for each part.",
        )
    return listed


def _item(store: EngineStore, number: int, item: Any, defaults: dict[str, Any]) -> Item:
    """Check one item as `enqueue` checks its arguments. The error names the item, because there may be thousands."""
    try:
        if not isinstance(item, Mapping):
            raise InvalidArgument(f"an item must be a dict, got {item!r:.60}", remedy=f"Its fields are {', '.join(FIELDS)}.")
        strange = sorted(str(name) for name in item if name not in FIELDS)
        if strange:
            raise InvalidArgument(f"unknown key {', '.join(strange)}", remedy=f"The keys are {', '.join(FIELDS)}.")
        said = {**defaults, **item}
        return _checked(store, said)
    except EverstepError as error:
        error.message = f"item {number}: {error.message}"
        error.args = (error.message,)
        raise


def _checked(store: EngineStore, said: dict[str, Any]) -> Item:
    args, kwargs = said.get("args", ()), said.get("kwargs", {})
    if said["workflow"] is None:
        raise InvalidArgument("workflow is missing", remedy="Give it in the item, or for all items: enqueue_many(items, workflow=crawl).")
    if not isinstance(args, (list, tuple)):
        raise InvalidArgument(f"args must be a list, got {args!r:.60}")
    if not isinstance(kwargs, Mapping) or not all(isinstance(name, str) for name in kwargs):
        raise InvalidArgument(f"kwargs must be a dict with names as keys, got {kwargs!r:.60}")
    task = Task(said["queue"], said["priority"], said.get("key"), said.get("dedupe"))
    order = order_of(store, said["workflow"], tuple(args), dict(kwargs), task, said["delay"])
    id = said.get("id")
    return Item(order, None if id is None else check_id(id))


def _as_step(store: EngineStore, items: list[Item], here: Frame) -> list[Enqueued[Any]]:
    """Enqueue as one step of the calling run. The ids are derived from the step, so a crash in the middle creates no second run."""

    def enqueue_many(digest: bytes) -> list[list[Any]]:
        inside = frame.get()
        assert inside is not None
        assert inside.ticket is not None
        address = inside.ticket.address
        ids = [child_id(inside.run.id, f"{address}/{n}") if item.id is None else item.id for n, item in enumerate(items)]
        return [[made.id, made.new] for made in _enqueue_all(store, items, ids)]

    digest = sha256(b"".join(item.order.name.encode() + item.order.about["input_digest"] for item in items)).digest()[:16]
    made = here.run.called(False, "enqueue_many", enqueue_many, (digest,), {})
    return [Enqueued(run, item.order.task.queue, new, store) for item, (run, new) in zip(items, made, strict=True)]


def _enqueue_all(store: EngineStore, items: list[Item], ids: list[str]) -> list[Enqueued[Any]]:
    """Create the runs. If an id is taken, the transaction is rolled back: the existing run must have the same workflow and input."""
    first = _first_of_each(items, ids)
    known: list[str] = []
    for _ in range(_TRIES):
        try:
            made = store.backend.create([commit_of(store, items[n].order, id) for id, n in first.items()], known)
        except RunExists:
            known = [id for id, n in first.items() if _is_there(store, id, items[n].order)]
            continue
        new = dict(zip(first, made, strict=True))
        return [_result(store, items[n], id, new[id] and first[id] == n, new[id] or id in known) for n, id in enumerate(ids)]
    raise RunExists("runs with these ids keep appearing and disappearing; nothing was enqueued", remedy="Try again, or choose other ids.")


def _first_of_each(items: list[Item], ids: list[str]) -> dict[str, int]:
    """Map each id to the item that creates its run: the first one. Two items with one id must have the same workflow and input."""
    first: dict[str, int] = {}
    for n, (item, id) in enumerate(zip(items, ids, strict=True)):
        other = items[first.setdefault(id, n)].order
        if (other.name, other.about["input_digest"]) != (item.order.name, item.order.about["input_digest"]):
            raise RunExists(
                f"items {first[id]} and {n} have the same id {id!r} but a different workflow or input; nothing was enqueued",
                remedy="Give each item its own id.",
            )
    return first


def _is_there(store: EngineStore, id: str, order: Order) -> bool:
    """Whether the run of an order exists; raises if another run has its id."""
    if store.backend.run(id) is None:
        return False
    refuse_other_run(store, find_run(store.backend, id), order)
    return True


def _result(store: EngineStore, item: Item, id: str, new: bool, exists: bool) -> Enqueued[Any]:
    queue = item.order.task.queue
    if exists:
        return Enqueued(id, queue, new, store)
    twin = store.backend.twin(item.order.task)
    return Enqueued(twin, queue, False, store) if twin is not None else enqueue_order(store, item.order, id)
