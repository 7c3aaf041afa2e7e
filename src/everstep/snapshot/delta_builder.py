"""Collects the changes of a live state since the last checkpoint into a delta, and adopts plain parts that only the state holds.

Relies on `tracked` and, for plain parts, on `untracked`; and on `saver` to start again if the state changed meanwhile. If the delta isn't
stored, `forget` makes the next one a full one. No I/O.

Reads and sets the underscored attributes of tracked containers: these are the user's own dicts and lists, and a public name there would be an
attribute of a program's state.
"""

from __future__ import annotations

import sys
from typing import Any

from ormsgpack import Fragment

from everstep.codec.values import FROZEN, encode, hook, keep, pack, unfindable
from everstep.errors import EverstepError
from everstep.snapshot.between.compared import comparable, compare
from everstep.snapshot.delta import DELETE, SET, SPLICE, Op, Path, texts
from everstep.snapshot.tracked import AGAIN, NEW, Edits, Plain, TrackedDict, TrackedList, Tracker
from everstep.snapshot.tracked import SET as CHANGED
from everstep.snapshot.untracked import changes_of, remember

KEY = "state"  # the key of the state in a tracker's root
MOST_SEEN = 32
_ADOPTABLE: frozenset[Any] = frozenset({dict, list})
_CONTAINERS: frozenset[Any] = frozenset({dict, list, TrackedDict, TrackedList})
_get_dict, _get_list = dict.__getitem__, list.__getitem__


def start(state: Any) -> Tracker:
    """Create a tracker for a state that is already stored and that no other object refers to."""
    tracker = Tracker()
    value = _tracked(tracker, state, sure=True) if type(state) in (dict, list) else state
    tracker.root._put(KEY, value)
    if value.__class__ not in FROZEN:
        tracker.root._take(value, KEY)
    _remember(tracker, tracker.root)
    return tracker


def state_of(tracker: Tracker) -> Any:
    return tracker.root[KEY]


def replace_state(tracker: Tracker, state: Any) -> None:
    """Use another object as the state, without copying it. A new instance of a class is compared with the one before, field by field."""
    old = _get_dict(tracker.root, KEY)
    if state.__class__ is old.__class__ and state.__class__ not in FROZEN and state.__class__ not in _CONTAINERS:
        hand_in(tracker, state)
        return
    tracker.handed_in = False
    tracker.root[KEY] = state


def hand_in(tracker: Tracker, state: Any) -> None:
    """Use another object as the state, like `replace_state`, for a program that does so repeatedly: it is compared with the saved content
    of the one before.
    """
    root, old = tracker.root, _get_dict(tracker.root, KEY)
    part = root._plain.get(id(old)) if root._plain else None
    tracked = state.__class__ is TrackedDict or state.__class__ is TrackedList
    if part is None or part.shadow is None or tracked or state.__class__ in FROZEN:
        root[KEY] = state
    elif state is not old:
        part.obj = state
        root._plain = {id(state): part}
        root._put(KEY, state)
    tracker.handed_in = True


def collect(tracker: Tracker) -> list[Op]:
    """Return the operations since the last call. They refer to live values: encode them at once with `packed`."""
    for node in tracker.seen:
        if node._bypassed():
            node._catch_up()
    for node in met(tracker):
        node._catch_up()
    tracker.met.clear()
    for owner in list(tracker.owners.values()):
        if owner._attached():
            _look(owner)
        else:
            del tracker.owners[id(owner)]
    gathering = _Gathering()
    gathering.visit(tracker.root, ())
    for value in gathering.fresh:
        _remember(tracker, value)
    return gathering.ops


def met(tracker: Tracker) -> list[Any]:
    """Return the containers that turned out, during encoding, to have been written past their methods, and whose changes are not noted yet."""
    return [node for node in list(tracker.met.values()) if node._tracker is tracker and node._strayed() and node._attached()]


def drifted(tracker: Tracker) -> bool:
    """Whether something that notes no changes, a plain part or a list that was written past its methods, differs from the collected
    content.
    """
    if any(node._bypassed() for node in tracker.seen):
        return True
    owners = [owner for owner in list(tracker.owners.values()) if owner._plain and owner._attached()]
    return any(changes_of(part) for owner in owners for part in list(owner._plain.values()))


def overlooked(tracker: Tracker) -> tuple[int, int]:
    """Catch up with every container that was written past its methods; return how many there were, and how many were checked.

    Costs time proportional to the state, though little: nothing is encoded, only compared by identity.
    """
    found = 0
    done: set[int] = set()
    todo: list[Any] = [tracker.root]
    while todo:
        node = todo.pop()
        if node._tracker is not tracker or id(node) in done:
            continue
        done.add(id(node))
        if node._strayed():
            node._catch_up()
            found += 1
        todo += [v for v in node._children() if v.__class__ is TrackedDict or v.__class__ is TrackedList]
    return found, len(done)


def is_tree(tracker: Tracker) -> bool:
    """Whether every part of the state is a tracked container that is in one place and that nothing has written past its methods.

    Only then do operations by path change the same parts of the live state as of the stored one.
    """
    done: set[int] = set()
    todo: list[Any] = [tracker.root]
    while todo:
        node = todo.pop()
        if node._tracker is not tracker or id(node) in done or node._plain or node._strayed():
            return False
        done.add(id(node))
        todo += [v for v in node._children() if v.__class__ is TrackedDict or v.__class__ is TrackedList]
    return True


def packed(ops: list[Op]) -> bytes:
    """Encode a delta. Raises `Unstorable` with the path of the value in the state."""
    try:
        return pack(ops, _known)
    except (TypeError, ValueError, RecursionError, EverstepError):
        for op in ops:
            if op[0] == SPLICE:
                for i, item in enumerate(op[4]):
                    encode(item, shown((*op[1], op[2] + i)))
            elif op[0] == SET:
                encode(op[2], shown(op[1]))
        raise


def _known(value: Any) -> Any:
    """Convert a value that the encoder doesn't know: a tracked container to the content that its methods know, anything else unchanged."""
    if value.__class__ is not TrackedDict and value.__class__ is not TrackedList:
        return hook(value)
    if not value._plain:
        return value._guard
    try:  # a plain part is remembered with its current content, also if a tracked container is in it
        return _with_fragments(value._guard, value._plain)
    except BaseException as failure:
        keep(failure)
        raise


def _with_fragments(guard: Any, parts: dict[int, Plain]) -> Any:
    if guard.__class__ is dict:
        return {k: _fragment(parts[id(v)]) if id(v) in parts else v for k, v in guard.items()}
    return [_fragment(parts[id(v)]) if id(v) in parts else v for v in guard]


def _fragment(part: Plain) -> Fragment:
    """Return the remembered bytes of a plain part: encoded again, they could differ by now."""
    shadow = part.shadow
    return Fragment(shadow if shadow.__class__ is bytes else (shadow is not None and shadow.raw) or encode(part.obj))


def _raw_of(node: Any, item: Any) -> bytes:
    """Return the stored bytes of an item of a container."""
    part = node._plain.get(id(item)) if node._plain else None
    return pack(item if part is None else _fragment(part), _known)


def _replaced(node: Any, was: Any, value: Any) -> list[Op] | None:
    """Return the difference of a container that replaces a stored one; None if it has to be written as a whole."""
    part = node._plain.get(id(value)) if node._plain else None
    if part is None or part.shadow is not None:
        return None
    if was.__class__ is Plain:
        if was.shadow is None or was.obj.__class__ is not value.__class__:
            return None
        part.shadow = was.shadow
        return changes_of(part)
    if not comparable(was, value):
        return None
    found: list[Op] = []
    compare(was, value, (), _raw_of, found)
    part.shadow = remember(value)
    return found


def settle(tracker: Tracker) -> None:
    """After a delta was encoded: adopt the plain parts that only the state holds, and forget lists that no other object holds."""
    if not TRUSTED:
        return
    for owner in list(tracker.owners.values()):
        if tracker.handed_in and owner is tracker.root:
            continue  # the next object will be compared with this one
        for part in list(owner._plain.values()) if owner._plain else ():
            if part.obj.__class__ in _ADOPTABLE and part.shadow is not None and len(part.at) == 1 and _is_ours(owner, part):
                _adopt(tracker, owner, part)
        if not owner._plain:
            owner._plain = None
            del tracker.owners[id(owner)]
    if len(tracker.seen) > MOST_SEEN:  # checking one is cheap, so a few may stay
        for i in range(len(tracker.seen) - 1, -1, -1):
            if _unheld(tracker, i):
                tracker.seen.pop(i)._seen = False


def forget(tracker: Tracker) -> Tracker:
    """Create a tracker of the same live state that assumes nothing is stored: its next delta sets everything."""
    fresh = Tracker()
    if tracker.torn.__class__ is Edits:
        fresh.torn = tracker.torn  # code that changes the state now may still use the old tracker, or already the new one
    fresh.handed_in = tracker.handed_in
    value = state_of(tracker)
    _move(value, tracker, fresh)
    fresh.root._note(KEY, False, True)  # by hand: this is not an edit by the program
    fresh.root._put(KEY, value)
    if value.__class__ not in FROZEN:
        fresh.root._take(value, KEY)
    return fresh


def release(tracker: Tracker) -> None:
    """Drop the state of a forgotten tracker: reference counts must include only one tracker."""
    tracker.root._put(KEY, None)


def _move(value: Any, old: Tracker, tracker: Tracker) -> None:
    """Move the tracked containers below a value to another tracker, as new ones; skip those of other states."""
    if (value.__class__ is not TrackedDict and value.__class__ is not TrackedList) or value._tracker is not old:
        return
    value._tracker = tracker
    value._parent = value._key = value._more = None
    value._held = 0
    value._plain = value._changes = value._kids = value._moved = value._old = value._image = None
    if value.__class__ is TrackedList:
        value._saved = 0
        value._show()
    value._watch()
    for key, child in _entries(value):
        _move(child, old, tracker)
        if child.__class__ not in FROZEN:
            value._take(child, key)


def _entries(node: Any) -> list[tuple[Any, Any]]:
    """Return the keys or positions and the children of a container."""
    if node.__class__ is TrackedDict:
        return list(dict.items(node))
    return list(enumerate(list.__iter__(node), node._origin))


def _look(owner: Any) -> None:
    """Compare the plain parts of one container with their saved content."""
    for part in owner._plain.values() if owner._plain else ():
        if found := changes_of(part):
            marked = owner._changes is not None or owner._kids is not None or owner._moved is not None
            owner._moved = [*(owner._moved or ()), (part, found)]
            if not marked:
                owner._rise()


class _Gathering:
    """One collection in progress: the operations, the values that were added whole, and the operations of children with several paths."""

    __slots__ = ("fresh", "ops", "shared")

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.fresh: list[Any] = []
        self.shared: dict[int, list[Op]] = {}

    def visit(self, node: Any, path: Path) -> None:
        changes, kids, moved, old = node._changes, node._kids, node._moved, node._old
        node._changes = node._kids = node._moved = node._old = None
        if node.__class__ is TrackedDict and _odd(node, changes, kids, moved):
            node._image = None
            self.ops.append([SET, [*path], node])
            self.fresh.append(node)
            return
        new: Any = ()
        if changes is not None:
            new = self._dict(node, changes, old, path) if node.__class__ is TrackedDict else self._list(node, changes, old, path)
        if kids is not None:
            for kid in kids if len(kids) == 1 else {id(kid): kid for kid in kids}.values():
                if kid._more is None and node.__class__ is TrackedDict:  # the usual case, kept fast
                    if kid._parent is node and kid._key not in new:
                        self.visit(kid, self._enter(node, path, kid._key))
                    continue
                for key in _keys(node, kid, [key for parent, key in kid._links() if parent is node]):
                    if not _within(key, new):
                        self._kid(kid, self._enter(node, path, key))
        for part, found in moved or ():
            for key in _keys(node, part.obj, part.at):
                if not _within(key, new):
                    self.ops.extend(_prefixed(found, self._enter(node, path, key)))

    @staticmethod
    def _enter(node: Any, path: Path, key: Any) -> Path:
        """Return the path of a child in which something changed, and report it to the container's image."""
        if node._image is not None:
            node._image.touch(key)
        return () if node is node._tracker.root else (*path, key)

    def _kid(self, kid: Any, path: Path) -> None:
        """Visit a child; one with several paths is visited once, and its operations are added for each path."""
        if kid._more is None:
            self.visit(kid, path)
            return
        if id(kid) not in self.shared:
            outer, self.ops = self.ops, []
            self.visit(kid, ())
            self.shared[id(kid)], self.ops = self.ops, outer
        self.ops.extend(_prefixed(self.shared[id(kid)], path))

    def _value(self, node: Any, value: Any, path: Path, key: Any) -> Any:
        """Add a value as a whole."""
        part = node._plain.get(id(value)) if node._plain else None
        if part is None:
            self.fresh.append(value)
            return value
        if part.shadow is None:
            try:
                part.shadow = remember(value)
            except EverstepError:
                encode(value, shown((*path, key) if node is not node._tracker.root else path))  # raises the same error with the path
                raise
        return _fragment(part)

    def _dict(self, node: Any, changes: dict[Any, int], old: dict[Any, Any] | None, path: Path) -> Any:
        image, ops = node._image, self.ops
        top = node is node._tracker.root
        later = False
        for key, how in changes.items():
            if how == CHANGED:
                value = node._guard[key]
                step = [] if top else [*path, key]
                if image is not None:
                    image.touch(key)
                was = None if old is None else old.get(key)
                if was.__class__ is str and value.__class__ is str:
                    texts(was, value, tuple(step), ops)
                elif was is not None and (found := _replaced(node, was, value)) is not None:
                    ops.extend(_prefixed(found, tuple(step)))
                else:
                    ops.append([SET, step, value if value.__class__ in FROZEN else self._value(node, value, path, key)])
                continue
            later = True
            if how != NEW:
                ops.append([DELETE, [*path, key]])
                if image is not None:
                    image.remove(key)
        if later:
            self._added(node, changes, path)
        return changes

    def _added(self, node: Any, changes: dict[Any, int], path: Path) -> None:
        """Add the keys that go to the end of a dict, in their order."""
        for key, how in changes.items():
            if how in (NEW, AGAIN):
                value = node._guard[key]
                if node._image is not None:
                    node._image.add(key)
                step = [] if node is node._tracker.root else [*path, key]
                self.ops.append([SET, step, value if value.__class__ in FROZEN else self._value(node, value, path, key)])

    def _list(self, node: Any, pieces: list[list[int]], old: dict[Any, str] | None, path: Path) -> Any:
        """Turn the table of pieces into splices, from left to right, each in the coordinates that those before it leave."""
        new: list[range] = []
        at = was = 0
        waiting = 0  # new items whose splice is not written yet, because a deletion may join it
        for start, length in [*pieces, [node._saved, 0]]:
            if start < 0:
                waiting += length
                continue
            deleted = start - was
            if waiting or deleted:
                self._splice(node, at, was, deleted, waiting, old or {}, path)
                if node._image is not None:
                    node._image.splice(at, deleted, waiting)
                new.append(range(at, at + waiting))
            at += waiting + length
            was, waiting = start + length, 0
        node._saved = len(node._guard)
        return new

    def _splice(self, node: Any, at: int, was: int, deleted: int, n: int, old: dict[Any, str], path: Path) -> None:
        items = node._guard[at : at + n]
        if deleted == n == 1 and was in old and items[0].__class__ is str:
            texts(old[was], items[0], (*path, at), self.ops)
            return
        values = [item if item.__class__ in FROZEN else self._value(node, item, path, at + k) for k, item in enumerate(items)]
        if deleted == n == 1:
            self.ops.append([SET, [*path, at], values[0]])
        else:
            self.ops.append([SPLICE, [*path], at, deleted, values])


def _odd(node: Any, changes: Any, kids: Any, moved: Any) -> bool:
    """Whether a change of a dict concerns a key that no path can contain; then the dict is added as a whole."""
    keys = [*(changes or ()), *(key for kid in kids or () for parent, key in kid._links() if parent is node)]
    return any(map(unfindable, keys)) or any(unfindable(key) for part, _ in moved or () for key in part.at)


def shown(path: Path) -> str:
    return "state" + "".join(f"[{step!r:.60}]" for step in path)


def _within(key: Any, new: Any) -> bool:
    if new.__class__ is list:
        return any(key in positions for positions in new)
    return key in new


def _prefixed(ops: list[Op], path: Path) -> list[Op]:
    return [[op[0], [*path, *op[1]], *op[2:]] for op in ops]


def _keys(node: Any, child: Any, keys: list[Any]) -> list[Any]:
    if node.__class__ is TrackedDict:
        return [key for key in keys if node._guard.get(key) is child]
    found: list[int] = node._where(child, keys)
    return found


def _remember(tracker: Tracker, node: Any) -> None:
    """Note that a container and everything below it are stored with their current content. Skips containers of another state."""
    todo, done = [node], set()
    while todo:
        node = todo.pop()
        if (node.__class__ is not TrackedDict and node.__class__ is not TrackedList) or node._tracker is not tracker or id(node) in done:
            continue
        done.add(id(node))
        if node._changes is not None or node._kids is not None or node._moved is not None:
            node._image = None  # the image was not told of these changes
        node._changes = node._kids = node._moved = node._old = None
        if node.__class__ is TrackedList:
            node._saved = len(node._guard)
            if not node._seen:
                node._show()
        if node._plain:
            node._tracker.owners[id(node)] = node
            for part in node._plain.values():
                part.shadow = remember(part.obj)
        todo.extend(node._guard.values() if node.__class__ is TrackedDict else node._guard)


def _tracked(tracker: Tracker, obj: Any, sure: bool = False) -> Any:
    """Copy a plain dict or list to a tracked one. Children that other objects hold stay the same objects, as plain parts that are stored.

    `sure`: the caller knows that only the state holds all of it.
    """
    node: Any
    keys: Any
    if obj.__class__ is dict:
        node = TrackedDict.bare(tracker)
        dict.update(node, obj)
        node._guard = obj
        keys = list(obj)
    else:
        node = TrackedList.bare(tracker)
        list.extend(node, obj)
        node._saved = len(obj)
        keys = range(len(obj))
        node._guard = obj
    for key in keys:
        value: Any = obj[key]
        if value.__class__ in FROZEN:
            continue
        if value.__class__ in _ADOPTABLE:
            value = None  # our own reference would be counted
            if sure or _references(obj, key) == _ALONE + 1:  # the copy holds one as well
                value = _tracked(tracker, obj[key], sure)
                node._put(key, value)
            else:
                value = obj[key]
        else:
            _remember(tracker, value)  # a tracked container inside a plain part could not report its changes
        node._take(value, key)
    if node._plain:
        for part in node._plain.values():
            part.shadow = remember(part.obj)
    if node.__class__ is TrackedList:
        node._watch(obj)
    return node


def _is_ours(owner: Any, part: Plain) -> bool:
    """Whether only its container and our bookkeeping refer to a plain part."""
    ours = 2  # part.obj, and the owner's guard
    return sys.getrefcount(part.obj) == _ALONE + ours


def _adopt(tracker: Tracker, owner: Any, part: Plain) -> None:
    """Replace a plain part that only the state holds by a tracked one, without recording a change."""
    keys = _keys(owner, part.obj, part.at)
    if len(keys) != 1:
        return
    key = keys[0]
    if not owner._holds(key, part.obj):
        return  # written past the methods, and not noticed yet
    node = _tracked(tracker, part.obj)
    del owner._plain[id(part.obj)]
    owner._put(key, node)
    owner._take(node, key if owner.__class__ is TrackedDict else key + owner._origin)


def _references(container: Any, key: Any) -> int:
    """Count the references to an item of a container, including the container's own and that of the call."""
    if container.__class__ is TrackedDict or container.__class__ is dict:
        return sys.getrefcount(_get_dict(container, key))
    return sys.getrefcount(_get_list(container, key))


def _unheld(tracker: Tracker, i: int) -> bool:
    """Whether only the state still refers to a list that was seen, so that no other code can write to it."""
    node = tracker.seen[i]
    links = 2 * len(node._links())  # each parent and its guard
    expected = _ALONE + links + node._held + (id(node) in tracker.owners)
    del node
    return _references(tracker.seen, i) <= expected


def _trusted() -> bool:
    """Whether reference counts are reliable here: they must distinguish an object that only the state holds from any other."""
    if "t" in sys.abiflags or sys.implementation.name != "cpython":  # without the GIL, counts are split between threads
        return False
    node = TrackedDict.bare(Tracker())
    node._put("x", [])
    alone = _references(node, "x") == _ALONE + 1  # the guard holds one as well
    part = Plain(_get_dict(node, "x"), "x")
    ours = _is_ours(node, part)
    other = part.obj
    return alone and ours and not _is_ours(node, part) and other is part.obj


_ALONE = _references([{}], 0)  # the count of an object that only its container holds
TRUSTED = _trusted()
