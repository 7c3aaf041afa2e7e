"""Live containers: a real dict and a real list that record their own changes.

The content that the program sees through its own references is the content that is saved. So a plain object in a tracked container stays
the same object (a *plain part*, compared by its bytes at each checkpoint) until no other object refers to it; then `delta_builder` replaces
it by a tracked one. Each container knows its parents, so that a change is reported to the root once for each checkpoint, and its changes
since the last one: a dict by key, a list as a table of pieces kept or new.

A write can bypass the methods: C code such as heapq does so, and so does `dict.__setitem__(state, ...)`. Therefore each container has a
*guard*, a plain copy of the content that its methods know. Deltas are made from guards alone, so they always add up. Every way to get a
list out of a container marks it as `seen`, and `delta_builder` compares seen lists with their guards at each checkpoint. All other
containers are compared from time to time, and whenever a base would encode them: see `delta_builder.overlooked`. Reading a plain value from
a tracked dict costs one Python call; other operations are not slower than necessary.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable, Iterator, ValuesView
from operator import index as as_index
from operator import is_
from typing import Any, SupportsIndex

from everstep.codec.values import FROZEN, transparent
from everstep.snapshot.list_edits import replaced

SET, NEW, DELETED, AGAIN = range(4)  # of a key since the last checkpoint: changed in place, added, removed, removed and added again
LONG_TEXT = 512
_missing = object()
_dict_get, _dict_set, _dict_del, _dict_pop = dict.__getitem__, dict.__setitem__, dict.__delitem__, dict.pop
_list_get, _list_set, _list_append = list.__getitem__, list.__setitem__, list.append


class Strayed(Exception):
    """A container was written past its methods since the last check, so a base must not be made from it yet."""


class Plain:
    """A plain part: an object that is compared by its bytes. `at` holds each key or position that it has in its container.

    `shadow` is its saved content: a Shadow, its bytes if they are short, None while it is new.
    """

    __slots__ = ("at", "obj", "shadow")

    def __init__(self, obj: Any, at: Any):
        self.obj = obj
        self.at = [at]
        self.shadow: Any = None


class Edits:
    """Replaces `Tracker.torn` while a save reads the state: counts in the same way, and notes that an edit has begun."""

    __slots__ = ("begun", "count")

    def __init__(self, count: int):
        self.count = count
        self.begun = False

    def __iadd__(self, n: int) -> Edits:
        self.begun = True
        self.count += n
        return self

    def __isub__(self, n: int) -> Edits:
        self.count -= n
        return self


class Tracker:
    """Shared data of all containers of one state: which of them hold plain parts, and which lists were seen.

    `torn` counts the edits that have begun and not ended; if a checkpoint finds any, they were interrupted (Ctrl-C) and the bookkeeping
    can't be trusted. While a checkpoint reads the state, it is an `Edits`.
    """

    __slots__ = ("handed_in", "met", "owners", "root", "seen", "torn")

    def __init__(self) -> None:
        self.owners: dict[int, Any] = {}  # by id: containers that hold plain parts
        self.seen: list[TrackedList] = []
        self.met: dict[int, Any] = {}  # by id: containers that turned out, when encoded, to have been written past their methods
        self.torn: Any = 0
        self.handed_in = False  # the program passes its own object at each checkpoint
        self.root = TrackedDict.bare(self)


class Node:
    """The bookkeeping that dict and list share; mixed into both, so it has no slots of its own."""

    __slots__ = ()
    _tracker: Tracker
    _parent: Any  # the first parent and the key or position in it; further ones in _more
    _key: Any
    _more: list[tuple[Any, Any]] | None
    _held: int  # how many links of children point here
    _changes: Any  # None while unchanged
    _kids: list[Any] | None  # tracked children with changes
    _plain: dict[int, Plain] | None
    _moved: list[tuple[Plain, Any]] | None  # plain parts that were found changed
    _old: dict[Any, Any] | None  # a long text, or the stored container or plain part, that was replaced in place
    _image: Any  # how the last base cut this container into segments
    _guard: Any  # the content that the methods know

    def _start(self: Any, tracker: Tracker) -> None:
        self._tracker = tracker
        self._parent = self._key = self._more = None
        self._held = 0
        self._changes = self._kids = self._plain = self._moved = self._old = self._image = None

    def _rise(self: Any) -> None:
        """Report to the parents, once, that something below has changed."""
        links = self._links()
        for parent, _ in links:
            if parent._kids is None:
                marked = parent._changes is not None
                parent._kids = [self]
                if not marked:
                    parent._rise()
            else:
                parent._kids.append(self)

    def _links(self: Any) -> list[tuple[Any, Any]]:
        if self._parent is None:
            return []
        first = [(self._parent, self._key)]
        return first + self._more if self._more else first

    def _attached(self: Any) -> bool:
        """Whether the root can still reach this container."""
        node: Any = self
        for _ in range(1000):  # a cycle is refused on save; here it only must not hang
            if node is node._tracker.root:
                return True
            if node._more:
                return any(parent._attached() for parent, _ in node._links() if parent is not self)
            if node._parent is None:
                return False
            node = node._parent
        return True

    def _take(self: Any, value: Any, key: Any) -> None:
        """Note a value other than a plain scalar that is now in this container."""
        cls = value.__class__
        if (cls is TrackedDict or cls is TrackedList) and value._tracker is self._tracker:
            self._held += 1
            if value._parent is None:
                value._parent, value._key = self, key
            elif value._more is None:
                value._more = [(self, key)]
            else:
                value._more.append((self, key))
            return
        parts = self._plain
        if parts is None:
            parts = self._plain = {}
        if id(value) in parts:
            parts[id(value)].at.append(key)
        else:
            parts[id(value)] = Plain(value, key)
        self._tracker.owners[id(self)] = self

    def _drop(self: Any, value: Any, key: Any) -> None:
        """Forget one key or position of a value."""
        cls = value.__class__
        if (cls is TrackedDict or cls is TrackedList) and value._tracker is self._tracker:
            self._unlink(value, key)
        elif self._plain is not None and (part := self._plain.get(id(value))) is not None:
            part.at.remove(key) if key in part.at else part.at.pop()
            if not part.at:
                del self._plain[id(value)]

    def _unlink(self: Any, child: Any, key: Any) -> None:
        links = child._links()
        mine = [i for i, (parent, _) in enumerate(links) if parent is self]
        if not mine:
            return
        exact = [i for i in mine if links[i][1] == key]
        del links[(exact or mine)[0]]
        self._held -= 1
        child._parent, child._key = links[0] if links else (None, None)
        child._more = links[1:] or None


class _Values(ValuesView[Any]):
    """Returns values through the container, so that lists are marked as seen."""

    def __reversed__(self) -> Iterator[Any]:
        return (self._mapping[key] for key in reversed(self._mapping))  # type: ignore[attr-defined]


class _Items(ItemsView[Any, Any]):
    """Returns items through the container, so that lists are marked as seen."""

    def __reversed__(self) -> Iterator[tuple[Any, Any]]:
        return ((key, self._mapping[key]) for key in reversed(self._mapping))  # type: ignore[attr-defined]


class TrackedDict(Node, dict[Any, Any]):
    """A dict that records its changes by key."""

    __slots__ = ("_changes", "_guard", "_held", "_image", "_key", "_kids", "_more", "_moved", "_old", "_parent", "_plain", "_tracker")
    _guard: dict[Any, Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return dict(*args, **kwargs)  # libraries rebuild containers by calling their type; they get a plain one

    @classmethod
    def bare(cls, tracker: Tracker) -> TrackedDict:
        self = dict.__new__(cls)
        self._start(tracker)
        self._guard = {}
        return self

    def _watch(self) -> None:
        """Take the current content as the content that the methods know."""
        self._guard = plain_dict(self)

    def _put(self, key: Any, value: Any) -> None:
        """Set a value without noting it as a change."""
        _dict_set(self, key, value)
        self._guard[key] = value

    def _children(self) -> Any:
        return dict.values(self)

    def _holds(self, key: Any, value: Any) -> bool:
        return dict.get(self, key) is value

    def _strayed(self) -> bool:
        """Whether something wrote here without calling a method; the order of keys counts."""
        guard = self._guard
        return len(self) != len(guard) or not (
            all(map(is_, dict.values(self), guard.values())) and all(map(is_, dict.__iter__(self), guard))
        )

    def _catch_up(self) -> None:
        """Take over writes past the methods as if the methods had been called."""
        now, known = plain_dict(self), self._guard
        kept = [key for key in known if key in now]
        if all(map(is_, [*kept, *(key for key in now if key not in known)], now)):
            gone = [key for key in known if key not in now]
        else:
            gone = list(known)  # keys have moved: all of them are set again, in their current order
        for key in gone:
            self._gone(key, known.pop(key))
        for key, value in now.items():
            old = known.get(key, _missing)
            if old is not value:
                self._note(key, old is not _missing, True)
                self._exchange(key, old, value)
                known[key] = value

    def _note(self, key: Any, exists: bool, stays: bool) -> None:
        """Record that a key was set (`stays`) or removed, given whether it existed before."""
        changes = self._changes
        if changes is None:
            changes = self._changes = {}
            if self._kids is None:
                self._rise()
        was = changes.get(key)
        if stays:
            if was is None:
                changes[key] = SET if exists else NEW
            elif was == DELETED:
                del changes[key]
                changes[key] = AGAIN
        elif was == NEW:
            del changes[key]
        else:
            changes.pop(key, None)
            changes[key] = DELETED

    def __getitem__(self, key: Any) -> Any:
        value = _dict_get(self, key)
        if value.__class__ is TrackedList and not value._seen:
            value._show()
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        if dict.get(self, key, _missing) is value:
            return  # state["x"] += [...] ends here, too
        old = self._guard.get(key, _missing)
        exists = old is not _missing
        tracker = self._tracker
        tracker.torn += 1  # before reading anything that a save in the middle of this, from a signal handler, would change
        changes = self._changes
        first = changes is None or key not in changes
        if first or changes[key] == DELETED:
            self._note(key, exists, True)
        if exists:
            cls = old.__class__
            if cls is str:
                if first and value.__class__ is str and len(old) > LONG_TEXT:  # the content of the last checkpoint
                    self._old = self._old or {}
                    self._old[key] = old
            elif cls not in FROZEN:
                if first and (value.__class__ is list or value.__class__ is dict):
                    self._keep(key, old)
                self._drop(old, key)
        _dict_set(self, key, value)
        self._guard[key] = value
        if value.__class__ not in FROZEN:
            self._take(value, key)
        tracker.torn -= 1

    def _keep(self, key: Any, old: Any) -> None:
        """Keep a stored container that another one replaces: the next save writes only their difference."""
        part = old if old.__class__ is TrackedDict or old.__class__ is TrackedList else (self._plain or {}).get(id(old))
        if part is not None:
            self._old = self._old or {}
            self._old[key] = part

    def _exchange(self, key: Any, old: Any, value: Any) -> None:
        """Replace one value by another in the bookkeeping."""
        if old is not _missing and old.__class__ not in FROZEN:
            self._drop(old, key)
        if self._old is not None:
            self._old.pop(key, None)
        if value.__class__ not in FROZEN:
            self._take(value, key)

    def __delitem__(self, key: Any) -> None:
        self._tracker.torn += 1
        try:
            _dict_del(self, key)
        except KeyError:
            self._tracker.torn -= 1
            raise
        self._gone(key, self._guard.pop(key, _missing))
        self._tracker.torn -= 1

    def _gone(self, key: Any, old: Any) -> None:
        """Note that a key is removed; one that no method had set never existed."""
        if old is _missing:
            return
        self._note(key, True, False)
        if old.__class__ not in FROZEN:
            self._drop(old, key)
        if self._old is not None:
            self._old.pop(key, None)

    def get(self, key: Any, default: Any = None) -> Any:
        return self[key] if key in self else default

    def pop(self, key: Any, *default: Any) -> Any:
        if key not in self:
            return _dict_pop(self, key, *default)
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[Any, Any]:
        if not self:
            raise KeyError("popitem(): dictionary is empty")
        self._tracker.torn += 1
        key, value = dict.popitem(self)
        self._gone(key, self._guard.pop(key, _missing))
        self._tracker.torn -= 1
        return key, value

    def clear(self) -> None:
        for key in list(self):
            del self[key]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.update(*args, **kwargs)  # not called on construction; a program may call it later

    def update(self, *args: Any, **kwargs: Any) -> None:
        if len(args) > 1:
            raise TypeError(f"update expected at most 1 argument, got {len(args)}")
        for source in (*args, kwargs):
            pairs: Iterable[Any] = ((k, source[k]) for k in source.keys()) if hasattr(source, "keys") else source
            for key, value in list(pairs):
                self[key] = value

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def __ior__(self, other: Any) -> TrackedDict:
        self.update(other)
        return self

    def __or__(self, other: Any) -> Any:
        if not isinstance(other, dict):
            return NotImplemented
        return {**self, **other}

    def __ror__(self, other: Any) -> Any:
        if not isinstance(other, dict):
            return NotImplemented
        return {**other, **self}

    def __iter__(self) -> Iterator[Any]:
        return dict.__iter__(self)  # overridden so that dict(state) and {**state} use __getitem__

    def values(self) -> Any:
        return _Values(self)

    def items(self) -> Any:
        return _Items(self)

    def copy(self) -> dict[Any, Any]:
        return {**self}

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[Any, Any]:
        from copy import deepcopy

        out = memo[id(self)] = {}
        for key, value in dict.items(self):
            out[deepcopy(key, memo)] = deepcopy(value, memo)
        return out

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return dict, (self.copy(),)


class TrackedList(Node, list[Any]):
    """A list that records its changes as pieces [old start, length], with old start -1 for new items."""

    __slots__ = (
        "_changes",
        "_guard",
        "_held",
        "_image",
        "_key",
        "_kids",
        "_more",
        "_moved",
        "_old",
        "_origin",
        "_parent",
        "_plain",
        "_saved",
        "_seen",
        "_sortable",
        "_tracker",
    )  # fmt: skip
    _origin: int
    _seen: bool
    _guard: list[Any]
    _sortable: bool  # whether it holds anything but dicts, which C code can sort
    _saved: int

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return list(*args, **kwargs)  # libraries rebuild containers by calling their type; they get a plain one

    @classmethod
    def bare(cls, tracker: Tracker) -> TrackedList:
        self = list.__new__(cls)
        self._start(tracker)
        self._origin = 0  # position + origin is the number by which children remember it: pop(0) changes the origin, not the children
        self._seen = False
        self._guard = []
        self._sortable = False
        self._saved = 0  # its length at the last checkpoint
        return self

    def _show(self) -> None:
        self._seen = True
        self._tracker.seen.append(self)

    def _watch(self, guard: list[Any] | None = None) -> None:
        """Take the current content as the content that the methods know; `guard` is a copy of it that this list may keep."""
        self._guard = list.copy(self) if guard is None else guard
        self._sortable = self._sortable or not _only_dicts(self._guard)

    def _put(self, i: int, value: Any) -> None:
        """Set an item without noting it as a change."""
        _list_set(self, i, value)
        self._guard[i] = value

    def _children(self) -> Any:
        return list.__iter__(self)

    def _holds(self, i: int, value: Any) -> bool:
        return i < len(self) and _list_get(self, i) is value

    def _strayed(self) -> bool:
        """Whether something wrote here without calling a method."""
        return len(self) != len(self._guard) or not all(map(is_, list.__iter__(self), self._guard))

    def _bypassed(self) -> bool:
        """Check for writes past the methods at less cost, for each checkpoint: in a list of dicts the ends are enough.

        A dict cannot be ordered, so heapq on a list of dicts fails before it has moved anything but an end.
        """
        if self._sortable:
            return self._strayed()
        guard = self._guard
        return len(self) != len(guard) or (bool(guard) and (_list_get(self, 0) is not guard[0] or _list_get(self, -1) is not guard[-1]))

    def _catch_up(self) -> None:
        """Take over writes past the methods: known moves as changes, everything else as new."""
        now, known = list.copy(self), self._guard
        self._note(0, 0, 0)
        if self._plain:
            self._note(0, len(known), len(now))
        elif len(known) == len(now):
            for i in [i for i, same in enumerate(map(is_, now, known)) if not same]:
                self._note(i, i + 1, 1)
        else:
            head, tail = _alike(now, known)
            self._note(head, len(known) - tail, len(now) - head - tail)
        self._old = self._plain = None
        for child in known:
            if child.__class__ is TrackedDict or child.__class__ is TrackedList:
                while any(parent is self for parent, _ in child._links()):
                    self._unlink(child, None)
        self._held = 0
        for i, value in enumerate(now):
            if value.__class__ not in FROZEN:
                self._take(value, i + self._origin)
        self._watch(now)

    def _note(self, i: int, j: int, n: int) -> None:
        """Record that n new items replace the positions i to j; called before the list itself changes."""
        pieces = self._changes
        if pieces is None:
            size = len(self._guard)
            pieces = self._changes = [[0, size]] if size else []
            if self._kids is None:
                self._rise()
        if i == j and n == 0:
            return
        self._changes = replaced(pieces, i, j, n)

    def _replace(self, i: int, j: int, items: list[Any]) -> None:
        """Replace the positions i to j by items: all methods except append change the list through this one."""
        self._tracker.torn += 1
        if not self._sortable and self._bypassed():
            self._catch_up()
        n, size = len(items), len(self)
        if j - i == 1 == n:
            self._keep_text(i, items[0])
        self._note(i, j, n)
        origin = self._origin
        for k in range(i, j):
            old = _list_get(self, k)
            if old.__class__ not in FROZEN:
                self._drop(old, k + origin)
        _list_set(self, slice(i, j), items)
        if i < size - j:  # the longer part is after the change: keep its positions right
            self._origin = origin = origin - (n - (j - i))
        for k, value in enumerate(items, i + origin):
            if value.__class__ not in FROZEN:
                self._take(value, k)
        self._guard[i:j] = items  # writes past the methods still differ from it, and are found later
        self._sortable = self._sortable or not _only_dicts(items)
        self._tracker.torn -= 1

    def _keep_text(self, i: int, value: Any) -> None:
        old = _list_get(self, i)
        if old.__class__ is not str or value.__class__ is not str or len(old) <= LONG_TEXT:
            return
        if i >= len(self._guard) or self._guard[i] is not old:
            return  # written past the methods: not the saved content
        at = 0
        for start, length in self._changes if self._changes is not None else [[0, len(self._guard)]]:
            if i < at + length:
                if start >= 0:
                    self._old = self._old or {}
                    self._old[start + i - at] = old
                return
            at += length

    def append(self, value: Any) -> None:
        guard = self._guard
        tracker = self._tracker
        tracker.torn += 1
        pieces = self._changes
        if pieces is None:
            size = len(guard)
            self._changes = [[0, size], [-1, 1]] if size else [[-1, 1]]
            if self._kids is None:
                self._rise()
        elif pieces and pieces[-1][0] < 0:
            pieces[-1][1] += 1
        else:
            pieces.append([-1, 1])
        cls = value.__class__
        _list_append(guard, value)
        _list_append(self, value)
        if cls is not dict and cls is not TrackedDict:
            self._sortable = True
        if cls not in FROZEN:
            self._take(value, len(self) - 1 + self._origin)
        tracker.torn -= 1

    def __getitem__(self, index: Any) -> Any:
        value = _list_get(self, index)
        if value.__class__ is TrackedList:
            if not value._seen:
                value._show()
        elif index.__class__ is slice:
            for item in value:
                if item.__class__ is TrackedList and not item._seen:
                    item._show()
        return value

    def __iter__(self) -> Iterator[Any]:
        i = 0
        while i < len(self):
            value = _list_get(self, i)
            if value.__class__ is TrackedList and not value._seen:
                value._show()
            yield value
            i += 1

    def __reversed__(self) -> Iterator[Any]:
        i = len(self) - 1
        while i >= 0:
            if i < len(self):
                yield self[i]
            i -= 1

    def __setitem__(self, index: Any, value: Any) -> None:
        if index.__class__ is not slice:
            i = _position(index, len(self), "list assignment index out of range")
            if _list_get(self, i) is not value:
                self._replace(i, i + 1, [value])
            return
        start, stop, step = index.indices(len(self))
        items = list(value)
        if step == 1:
            self._replace(start, max(start, stop), items)
            return
        keys = range(start, stop, step)
        if len(keys) != len(items):
            raise ValueError(f"attempt to assign sequence of size {len(items)} to extended slice of size {len(keys)}")
        for i, item in zip(keys, items, strict=True):
            self._replace(i, i + 1, [item])

    def __delitem__(self, index: Any) -> None:
        if index.__class__ is not slice:
            i = _position(index, len(self), "list assignment index out of range")
            self._replace(i, i + 1, [])
            return
        start, stop, step = index.indices(len(self))
        if step == 1:
            self._replace(start, max(start, stop), [])
            return
        for i in sorted(range(start, stop, step), reverse=True):
            self._replace(i, i + 1, [])

    def __init__(self, items: Iterable[Any] = ()) -> None:
        self[:] = items  # not called on construction; a program may call it later

    def extend(self, items: Iterable[Any]) -> None:
        new = list(items)
        if len(new) == 1:
            self.append(new[0])
        elif new:
            self._replace(len(self), len(self), new)

    def __iadd__(self, items: Iterable[Any]) -> TrackedList:  # type: ignore[misc]
        self.extend(items)
        return self

    def __imul__(self, n: SupportsIndex) -> TrackedList:  # type: ignore[misc]
        self._replace(0, len(self), list.copy(self) * n)
        return self

    def insert(self, index: SupportsIndex, value: Any) -> None:
        size = len(self)
        i = as_index(index)
        i = max(0, i + size) if i < 0 else min(i, size)
        self._replace(i, i, [value])

    def pop(self, index: SupportsIndex = -1) -> Any:
        if not self:
            raise IndexError("pop from empty list")
        i = _position(index, len(self), "pop index out of range")
        value = self[i]
        self._replace(i, i + 1, [])
        return value

    def remove(self, value: Any) -> None:
        i = self.index(value)
        self._replace(i, i + 1, [])

    def clear(self) -> None:
        self._replace(0, len(self), [])

    def reverse(self) -> None:
        self._replace(0, len(self), list.copy(self)[::-1])

    def sort(self, *, key: Callable[[Any], Any] | None = None, reverse: bool = False) -> None:
        self._replace(0, len(self), sorted(list.copy(self), key=key, reverse=reverse))

    def copy(self) -> list[Any]:
        return list(self)

    __copy__ = copy

    def __add__(self, other: Any) -> Any:
        return list(self) + list(other) if isinstance(other, list) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return list(other) + list(self) if isinstance(other, list) else NotImplemented

    def __mul__(self, n: Any) -> Any:
        return list(self) * n

    __rmul__ = __mul__

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        from copy import deepcopy

        out: list[Any] = []
        memo[id(self)] = out
        out.extend(deepcopy(value, memo) for value in list.__iter__(self))
        return out

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return list, (self.copy(),)

    def _where(self, child: Any, keys: list[int]) -> list[int]:
        """Return the positions of a child, as the methods know it, searching first where it was put."""
        guard = self._guard
        size = len(guard)
        if len(keys) == 1:
            i = keys[0] - self._origin
            for distance in range(size + 1):
                low, high = i - distance, i + distance
                if 0 <= low < size and guard[low] is child:
                    return [low]
                if 0 <= high < size and guard[high] is child:
                    return [high]
                if low < 0 and high >= size:
                    return []
        return [i for i, value in enumerate(guard) if value is child]


def _position(index: SupportsIndex, size: int, message: str) -> int:
    i = as_index(index)
    if i < 0:
        i += size
    if not 0 <= i < size:
        raise IndexError(message)
    return i


def _only_dicts(items: list[Any]) -> bool:
    return all(v.__class__ is TrackedDict or v.__class__ is dict for v in items)


def _alike(now: list[Any], known: list[Any]) -> tuple[int, int]:
    """Return how many items at the beginning and at the end are identical in two lists."""
    head, limit = 0, min(len(now), len(known))
    while head < limit and now[head] is known[head]:
        head += 1
    tail = 0
    while tail < limit - head and now[-1 - tail] is known[-1 - tail]:
        tail += 1
    return head, tail


def plain_dict(node: TrackedDict) -> dict[Any, Any]:
    """Return a plain copy, in one call of C that no other thread interrupts. dict(node) and dict.copy would use __getitem__."""
    return dict(dict.items(node))


def _plain_parts(node: Node) -> list[Any]:
    """List all plain parts of the state: every object that is neither tracked nor frozen is one of them.

    A container that is only inside a plain part is not among the known owners of plain parts, so it is searched itself.
    """
    if not node._attached():
        return list(dict.values(node)) if isinstance(node, dict) else list.copy(node)  # type: ignore[arg-type]
    return [part.obj for owner in node._tracker.owners.values() for part in (owner._plain or {}).values()]


def _as_dict(node: TrackedDict) -> dict[Any, Any]:
    """Convert a dict for an encoder. A plain part that holds a tracked container is saved with its actual content, so its own delta must
    contain the same.
    """
    if node._strayed():
        node._tracker.met[id(node)] = node
    return plain_dict(node)


def _as_list(node: TrackedList) -> list[Any]:
    if node._strayed():
        node._tracker.met[id(node)] = node
    return list.copy(node)


transparent(TrackedDict, _as_dict, _plain_parts)
transparent(TrackedList, _as_list, _plain_parts)
