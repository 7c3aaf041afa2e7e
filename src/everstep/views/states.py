"""States: a state or a part of it, the differences of two, the checkpoint that changed a part, and the first one at which a condition is true.

Masks each value by the keys above it, too. Relies on `store.load`, `store.view`, `store.diff` and `store.blame`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from everstep.errors import NotFound
from everstep.fields import Shape
from everstep.snapshot.diff import Change
from everstep.views.json import Beside, Stored
from everstep.views.masking import Masking
from everstep.views.run import CheckpointView, checkpoint_view
from everstep.views.stored.paths import pick
from everstep.views.stored.values import whole

if TYPE_CHECKING:
    from everstep.api import Store

Condition = Callable[[Any], bool]
Progress = Callable[[int, int], None]
_PAGE = 1_000


class StateView(Shape, frozen=True):
    """The state of a checkpoint, or the part at `path`. `passed_over` lists the damaged checkpoints that were skipped."""

    ref: str
    path: Stored
    state: Stored
    passed_over: Beside[str | None] = None


class ChangeView(Shape, frozen=True):
    """One difference, masked."""

    path: Stored
    kind: str
    before: Stored
    after: Stored


class DiffView(Shape, frozen=True):
    """The differences from the state of `a` to that of `b`."""

    a: str
    b: str
    changes: tuple[ChangeView, ...]


class BlameView(Shape, frozen=True):
    """The checkpoint that last changed a path. Not `exact`: it may also be an older one, whose state is missing."""

    path: str
    checkpoint: CheckpointView
    exact: bool
    after: str | None

    def __str__(self) -> str:
        if self.exact:
            return self.checkpoint.ref
        return f"{self.checkpoint.ref} or earlier" if self.after is None else f"between {self.after} and {self.checkpoint.ref}"


class BisectView(Shape, frozen=True):
    """The first checkpoint at which a condition is true; None if it is true at none of the `among` checkpoints."""

    run: str
    when: str
    checkpoint: CheckpointView | None
    states_read: int
    among: Beside[int] = 0


def state(
    store: Store,
    mask: Masking,
    ref: str,
    path: Sequence[Any] = (),
    *,
    newest_good: bool = False,
    show_secrets: bool = False,
    show_all: bool = False,
) -> StateView:
    """Return the state that a ref names, or the value at a path in it. `show_secrets` is only for `state --show-secrets`.

    The bookkeeping of an adapter is left out, unless `show_all` or a path asks for it.
    """
    name, found, passed_over = _loaded(store, ref, bool(path), newest_good)
    value = whole(pick(found, path, name))
    if not path and not show_all and isinstance(value, dict) and _is_adapted(store, name):
        value = {key: item for key, item in value.items() if not is_bookkeeping(key)}
    return StateView(name, list(path), value if show_secrets else mask(value, path), passed_over)


def _loaded(store: Store, ref: str, only_part: bool, newest_good: bool) -> tuple[str, Any, str | None]:
    if newest_good:
        salvaged = store.load(ref, newest_good=True)
        return f"{salvaged.run}@{salvaged.number}", salvaged.state, str(salvaged) if salvaged.skipped else None
    name = store.checkpoint(ref).ref
    return name, store.view(name) if only_part else store.load(name), None


def stored_state(store: Store, ref: str, *, newest_good: bool = False) -> tuple[str, Any, str | None]:
    """Return the ref of a checkpoint, its exact state, unmasked, and the list of skipped ones. For programs that continue from it."""
    return _loaded(store, ref, False, newest_good)


def change_view(change: Change, mask: Masking) -> ChangeView:
    """Return a difference, masked."""
    path = change.path
    return ChangeView(mask(list(path)), change.kind, mask(change.before, path), mask(change.after, path))


def is_bookkeeping(name: Any) -> bool:
    """Whether a key of the state or the name of an attached entry is an adapter's own: people need not see it."""
    return isinstance(name, str) and name.startswith("$")


def _is_adapted(store: Store, ref: str) -> bool:
    """Whether an adapter writes the run of a checkpoint."""
    return "adapter" in store.get(store.checkpoint(ref).run).meta


def diff(store: Store, mask: Masking, a: str, b: str, *, show_all: bool = False) -> DiffView:
    """Return the differences between two states; without those of an adapter's bookkeeping, unless `show_all`."""
    changes = store.diff(a, b)
    if not show_all and any(change.path and is_bookkeeping(change.path[0]) for change in changes) and _is_adapted(store, a):
        changes = [change for change in changes if not (change.path and is_bookkeeping(change.path[0]))]
    return DiffView(a, b, tuple(change_view(change, mask) for change in changes))


def ref_before(store: Store, ref: str) -> str | None:
    """Return the ref of the checkpoint before this one; None if it is the first."""
    one = store.checkpoint(ref)
    return None if one.number == 1 else f"{one.run}@{one.number - 1}"


def blame(store: Store, mask: Masking, ref: str, path: Sequence[Any], shown_path: str) -> BlameView:
    """Find the checkpoint that last changed the value at a path."""
    try:
        one = store.blame(ref, path)
    except NotFound:
        name = store.checkpoint(ref).ref
        pick(store.view(name), path, name)  # if the path is the cause, this says at which key, as `state` does
        raise
    return BlameView(shown_path, checkpoint_view(one, mask), one.exact, one.after)


def bisect(store: Store, mask: Masking, run: str, when: str, holds: Condition, is_sorted: bool, progress: Progress) -> BisectView:
    """Find the first checkpoint at which a condition is true. `is_sorted`: it stays true once it is true, so use binary search."""
    numbers = _numbers(store, run)
    found, read = (_halve if is_sorted else _walk)(store, run, numbers, holds, progress)
    one = None if found is None else checkpoint_view(store.checkpoint(f"{run}@{found}"), mask)
    return BisectView(run, when, one, read, len(numbers))


def _numbers(store: Store, run: str) -> list[int]:
    """Return the numbers of the checkpoints that have a state, oldest first."""
    out: list[int] = []
    after = None
    while True:
        page = store.checkpoints(run, oldest_first=True, limit=_PAGE, after=after)
        out += [one.number for one in page if not one.pruned]
        after = page.next
        if after is None:
            return out


def _walk(store: Store, run: str, numbers: list[int], holds: Condition, progress: Progress) -> tuple[int | None, int]:
    for done, number in enumerate(numbers):
        progress(done, len(numbers))
        if holds(store.view(f"{run}@{number}")):
            return number, done + 1
    return None, len(numbers)


def _halve(store: Store, run: str, numbers: list[int], holds: Condition, progress: Progress) -> tuple[int | None, int]:
    low, high, read = 0, len(numbers), 0
    while low < high:
        middle = (low + high) // 2
        read += 1
        progress(read, len(numbers).bit_length())
        if holds(store.view(f"{run}@{numbers[middle]}")):
            high = middle
        else:
            low = middle + 1
    return (numbers[low] if low < len(numbers) else None), read
