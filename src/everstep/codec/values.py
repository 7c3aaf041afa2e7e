"""Type-faithful bytes: every storable value becomes MessagePack and comes back as the same type.

None, bool, int of 64 bits, float, str, bytes, list and dict with str keys are plain MessagePack. All else is an extension:

     1 tuple       array of items                    11 Decimal    its text
     2 set         array of encoded items, sorted    12 Fraction   [numerator, denominator]
     3 frozenset   likewise                          13 complex    [real, imaginary]
     4 dict        [key, value, key, value, …]       14 range      [start, stop, step]
     5 int         two's complement, big-endian      15 path       [class name, text]
     6 datetime    [Y, M, D, h, m, s, µs, fold, tz]  16 bytearray  its bytes
     7 date        [Y, M, D]                         17 OrderedDict  as 4
     8 time        [h, m, s, µs, fold, tz]           18 deque      [maxlen, items]
     9 timedelta   [days, seconds, µs]               19 Counter    as 4
    10 UUID        16 bytes                          20 object     [name, version, fields]
                                                     21 array      [dtype, shape, order, bytes]   (numpy)
                                                     22 scalar     [dtype, bytes]                 (numpy)
                                                     23 Secret     a mark, t or b, its value (codec.secret_bytes)
                                                     30 reference  to a tree of chunks (snapshot.tree)

tz is null, an offset [seconds, µs, name], or the key of a ZoneInfo. The C encoder does the walking; Python is called
only for what it doesn't know. A value that cannot be stored is refused with the path to it, found by a second, slow walk
that happens only then. No I/O; decoding never runs or imports what the data names.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PosixPath, PurePath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import Any
from uuid import UUID

import ormsgpack
from ormsgpack import Ext, packb, unpackb

from everstep.codec import secret_bytes
from everstep.codec.kinds import FROZEN as FROZEN
from everstep.codec.kinds import Unknown, kind_of, revive
from everstep.errors import DamagedFrame, EverstepError, LimitExceeded, Reentered, Unstorable
from everstep.secret import Secret

Hook = Callable[[Any], Any]
MAX_DEPTH = 200
MAX_NESTED = 100
_nesting = threading.local()
OBJECT, REFERENCE = 20, 30
SCALARS = frozenset({type(None), bool, int, float, str, bytes})
FROZEN |= SCALARS | {
    datetime,
    date,
    time,
    timedelta,
    UUID,
    Decimal,
    Fraction,
    complex,
    range,
    PosixPath,
    WindowsPath,
    PurePosixPath,
    PureWindowsPath,
    Secret,
}
_OPTIONS = (
    ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
_PATHS: dict[str, type[PurePath]] = {c.__name__: c for c in (PosixPath, WindowsPath, PurePosixPath, PureWindowsPath)}


def encode(value: Any, path: str = "state") -> bytes:
    """Encode a value. Raises `Unstorable` or `LimitExceeded`, naming the path."""
    try:
        return pack(value, hook)
    except Reentered:
        raise
    except (TypeError, ValueError, RecursionError, EverstepError) as error:
        from everstep.codec.explain import explain  # imported when needed, because it imports this module

        explain(value, path)
        raise Unstorable(path, f"cannot be stored: {error}") from error


def pack(value: Any, default: Hook) -> bytes:
    """Encode a value, with `default` for types that the C encoder doesn't know. Raises TypeError without a path."""
    try:
        out = packb(value, default, _OPTIONS)
    except TypeError as error:
        _raise_kept()
        if "Dict key" not in str(error):  # the only refusal that lowering helps with; any other would be tried again at each level
            _refuse_interrupted(value, default)
            raise
        return _pack_lowered(value, default)
    return _pack_lowered(value, default) if may_hold_bytes(out) and has_buffer(value) else out


def _pack_lowered(value: Any, default: Hook) -> bytes:
    try:
        return packb(_lowered(value, default), default, _OPTIONS)
    except TypeError:
        _raise_kept()
        raise


def _raise_kept() -> None:
    """Raise the error that `keep` noted: the C encoder turns every error of a hook into a TypeError."""
    failure, _nesting.failure = getattr(_nesting, "failure", None), None
    if failure is not None:
        raise failure from None


def _refuse_interrupted(value: Any, default: Hook) -> None:
    """Raise `Reentered` if the value can be encoded after all: then a signal handler raised an error as a hook was entered, where no `try`
    can see it, and the C encoder dropped it.
    """
    if getattr(_nesting, "trying", False):
        return
    _nesting.trying = True
    try:
        packb(value, default, _OPTIONS)
    except TypeError:
        _raise_kept()
        return
    finally:
        _nesting.trying = False
    raise Reentered("a signal handler or a finalizer raised an error while a value was encoded; nothing was written")


def keep(failure: BaseException) -> None:
    """Remember the error of a hook, so that the caller of the encoder gets it."""
    _nesting.failure = failure


def _pack(value: Any) -> bytes:
    """Encode the content of an extension. Each level takes stack here and on reading, so levels are counted."""
    depth = getattr(_nesting, "depth", 0)
    if depth > MAX_NESTED:
        raise LimitExceeded(f"more than {MAX_NESTED} tuples, sets or objects are nested inside each other")
    _nesting.depth = depth + 1
    try:
        return pack(value, hook)
    finally:
        _nesting.depth = depth


def same_bytes(value: Any, raw: bytes) -> bool:
    """Whether a value without any bytes in it encodes to `raw`: the quick test that finds most values unchanged."""
    try:
        return packb(value, hook, _OPTIONS) == raw
    except TypeError:
        return False


def may_hold_bytes(encoded: bytes) -> bool:
    """Whether a mark of binary data is among the bytes. It may also be there by chance."""
    return 0xC4 in encoded or 0xC5 in encoded or 0xC6 in encoded  # with bytes on the left, an error would be raised and dropped inside


def has_buffer(value: Any) -> bool:
    """Whether plain containers hold a bytearray or memoryview somewhere: the C encoder treats both as bytes."""
    todo = [value]
    done: set[int] = set()
    while todo:
        item = todo.pop()
        kind = type(item)
        if kind is bytearray or kind is memoryview:
            return True
        if kind is dict:
            todo.extend(item.values())
        elif kind is list:
            todo.extend(item)
        elif kind in _inside:
            for part in _inside[kind](item):
                if id(part) not in done:  # all tracked containers list the same parts
                    done.add(id(part))
                    todo.append(part)
    return False


def unfindable(key: Any) -> bool:
    """Whether a key holds NaN, which is not equal to itself, so that no path can lead through it."""
    if key.__class__ is str:
        return False
    if key.__class__ is tuple or key.__class__ is frozenset:
        return any(map(unfindable, key))
    return bool(key != key)


def _lowered(value: Any, default: Hook) -> Any:
    """Lower a value, and clear the error of a hook that fails: kept for longer, it would be raised for another value."""
    try:
        return _lower(value, default, 0)
    except BaseException:
        _nesting.failure = None
        raise


def _lower(value: Any, default: Hook, depth: int) -> Any:
    """Copy a value, with extensions instead of everything that the C encoder would refuse or confuse inside plain containers."""
    if depth > MAX_DEPTH:
        raise LimitExceeded(f"values are nested deeper than {MAX_DEPTH} levels")
    kind = type(value)
    if kind in TRANSPARENT:
        value = default(value)
        kind = type(value)
    if kind is dict:
        if all(type(k) is str for k in value):
            return {k: _lower(v, default, depth + 1) for k, v in value.items()}
        return Ext(4, pack([x for pair in value.items() for x in pair], default))
    if kind is list:
        return [_lower(v, default, depth + 1) for v in value]
    if kind is bytearray:
        return Ext(16, bytes(value))
    if kind is memoryview:
        raise TypeError("a memoryview")
    return value


TRANSPARENT: dict[type, Callable[[Any], Any]] = {}
_inside: dict[type, Callable[[Any], list[Any]]] = {}


def transparent(cls: type, plain: Callable[[Any], Any], inside: Callable[[Any], list[Any]]) -> None:
    """Make a subclass of dict or list encode as its base. `plain` returns the base copy, `inside` all values below that could be a buffer."""
    TRANSPARENT[cls] = plain
    _inside[cls] = inside
    _encoders[cls] = plain


def hook(value: Any) -> Any:
    """Encode a value that the C encoder doesn't know: return an extension, or a simpler value."""
    try:
        return _extension(value)
    except (KeyboardInterrupt, SystemExit, MemoryError) as failure:
        keep(failure)
        raise


def _extension(value: Any) -> Any:
    cls = type(value)
    encoder = _encoders.get(cls)
    if encoder is not None:
        return encoder(value)
    if cls is int:
        return Ext(5, value.to_bytes(value.bit_length() // 8 + 1, signed=True))
    kind = kind_of(cls)
    if kind is not None:
        fields = kind.take(value)
        if kind.explicit and not named(fields):
            raise TypeError("fields without names")
        return Ext(OBJECT, _pack([kind.name, kind.version, fields]))
    if (numpy := sys.modules.get("numpy")) is not None:
        if isinstance(value, numpy.ndarray) and cls is numpy.ndarray:
            return _array(value, numpy)
        if isinstance(value, numpy.generic) and not value.dtype.hasobject:
            return Ext(22, _pack([_descr(value.dtype, numpy), value.tobytes()]))
    raise TypeError(f"a {cls.__qualname__}")


def named(fields: Any) -> bool:
    return fields.__class__ is dict and all(k.__class__ is str for k in fields)


def _array(value: Any, numpy: Any) -> Ext:
    if value.dtype.hasobject:
        raise TypeError("an array of objects")
    order = "F" if value.flags.fnc else "C"
    return Ext(21, _pack([_descr(value.dtype, numpy), list(value.shape), order, value.tobytes(order)]))


def _descr(dtype: Any, numpy: Any) -> Any:
    return numpy.lib.format.dtype_to_descr(dtype)


def _pairs(tag: int, value: Any) -> Ext:
    if value.__dict__:  # the format has no place for attributes, and dropping them would lose data silently
        raise TypeError("attributes")
    return Ext(tag, _pack([x for pair in value.items() for x in pair]))  # dict.items would ignore the order of an OrderedDict


def _members(tag: int, value: Any) -> Ext:
    return Ext(tag, packb(sorted(_pack(v) for v in value)))


def _zone(tz: Any) -> Any:
    if tz is None:
        return None
    if type(tz) is timezone:
        offset = tz.utcoffset(None)
        return [offset.days * 86400 + offset.seconds, offset.microseconds, tz.tzname(None)]
    if (zoneinfo := sys.modules.get("zoneinfo")) and isinstance(tz, zoneinfo.ZoneInfo) and tz.key:
        return tz.key
    raise TypeError(f"a time zone of type {type(tz).__qualname__}")


def _datetime(v: datetime) -> Ext:
    return Ext(6, packb([v.year, v.month, v.day, v.hour, v.minute, v.second, v.microsecond, v.fold, _zone(v.tzinfo)]))


def _time(v: time) -> Ext:
    return Ext(8, packb([v.hour, v.minute, v.second, v.microsecond, v.fold, _zone(v.tzinfo)]))


_encoders: dict[type, Callable[[Any], Any]] = {
    tuple: lambda v: Ext(1, _pack(list(v))),
    set: lambda v: _members(2, v),
    frozenset: lambda v: _members(3, v),
    datetime: _datetime,
    date: lambda v: Ext(7, packb([v.year, v.month, v.day])),
    time: _time,
    timedelta: lambda v: Ext(9, packb([v.days, v.seconds, v.microseconds])),
    UUID: lambda v: Ext(10, v.bytes),
    Decimal: lambda v: Ext(11, str(v).encode()),
    Fraction: lambda v: Ext(12, _pack([v.numerator, v.denominator])),
    complex: lambda v: Ext(13, packb([v.real, v.imag])),
    range: lambda v: Ext(14, _pack([v.start, v.stop, v.step])),
    bytearray: lambda v: Ext(16, bytes(v)),
    OrderedDict: lambda v: _pairs(17, v),
    deque: lambda v: Ext(18, _pack([v.maxlen, list(v)])),
    Counter: lambda v: _pairs(19, v),
    Unknown: lambda v: Ext(OBJECT, _pack([v.name, v.version, v.fields])),
    Secret: lambda v: Ext(secret_bytes.TYPE, secret_bytes.to_bytes(v)),
}
for _path_class in _PATHS.values():
    _encoders[_path_class] = lambda v: Ext(15, packb([type(v).__name__, str(v)]))


class Decoder:
    """Decodes bytes to values. Objects stay `Unknown` here, so that deltas can reach into them; `revived` restores their types.

    `reference` is called with the content of a reference extension; without it, a reference is damage.
    """

    __slots__ = ("failure", "objects", "reference")

    def __init__(self, reference: Callable[[bytes], Any] | None = None):
        self.failure: BaseException | None = None
        self.objects = 0
        self.reference = reference

    def decode(self, data: bytes) -> Any:
        try:
            return unpackb(data, ext_hook=self._hook)
        except (ValueError, RecursionError) as error:
            failure, self.failure = self.failure, None
            if isinstance(failure, (EverstepError, MemoryError)) or (failure is not None and not isinstance(failure, Exception)):
                raise failure from None  # a damaged chunk, a closed store, Ctrl-C: raise it unchanged
            raise DamagedFrame(f"the content of a frame is not a valid value: {failure or error}") from (failure or error)

    def _hook(self, tag: int, data: bytes) -> Any:
        try:
            return self._extension(tag, data)
        except BaseException as error:
            self.failure = error  # the C decoder reports only that its hook failed
            raise

    def _extension(self, tag: int, data: bytes) -> Any:
        if tag == OBJECT:
            self.objects += 1
            name, version, fields = self.decode(data)
            if name.__class__ is not str or version.__class__ is not int or not named(fields):
                raise DamagedFrame("an object has no name, version or fields")
            return Unknown(name, version, fields)
        if tag == REFERENCE:
            if self.reference is None:
                raise DamagedFrame("a reference is not allowed here")
            return self.reference(data)
        decoder = _decoders.get(tag)
        if decoder is None:
            raise DamagedFrame(f"value kind {tag} is unknown to this program")
        return decoder(self, data)


def decode(data: bytes) -> Any:
    """Decode bytes made by `encode`, and restore the program's types."""
    try:
        return unpackb(data)  # most values are plain; without a hook, an extension is refused
    except ValueError:
        decoder = Decoder()
        value = decoder.decode(data)
        return revived(value) if decoder.objects else value


def revived(value: Any) -> Any:
    """Restore every `Unknown` whose type is registered, from the inside out."""
    cls = type(value)
    if cls in FROZEN:
        return value
    if cls is dict or cls is OrderedDict or cls is Counter:
        items = [(revived(k), revived(v)) for k, v in dict.items(value)]
        value.clear()
        for k, v in items:
            value[k] = v
        return value
    if cls is list:
        value[:] = [revived(v) for v in value]
        return value
    if cls is tuple or cls is set or cls is frozenset:
        return cls(revived(v) for v in value)
    if cls is deque:
        return deque((revived(v) for v in value), value.maxlen)
    if cls is Unknown:
        return revive(value.name, value.version, {k: revived(v) for k, v in value.fields.items()})
    return value


def _unzone(tz: Any) -> Any:
    if tz is None:
        return None
    if isinstance(tz, str):
        from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

        try:
            return ZoneInfo(tz)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise DamagedFrame(f"time zone {tz!r} is not known on this machine", remedy="Install the tzdata package.") from error
    offset = timedelta(seconds=tz[0], microseconds=tz[1])
    plain = timezone(offset)
    if not offset:
        plain = UTC
    return plain if plain.tzname(None) == tz[2] else timezone(offset, tz[2])


def _undatetime(decoder: Decoder, data: bytes) -> datetime:
    year, month, day, hour, minute, second, us, fold, tz = unpackb(data)
    return datetime(year, month, day, hour, minute, second, us, _unzone(tz), fold=fold)


def _untime(decoder: Decoder, data: bytes) -> time:
    hour, minute, second, us, fold, tz = unpackb(data)
    return time(hour, minute, second, us, _unzone(tz), fold=fold)


def _unpath(decoder: Decoder, data: bytes) -> PurePath:
    name, text = unpackb(data)
    cls = _PATHS[name]
    if issubclass(cls, Path) and cls is not type(Path()):  # a path of another system: use its pure form
        cls = PureWindowsPath if cls is WindowsPath else PurePosixPath
    return cls(text)


def _unpairs(decoder: Decoder, data: bytes) -> Any:
    flat = decoder.decode(data)
    return zip(flat[::2], flat[1::2], strict=True)


def _undeque(decoder: Decoder, data: bytes) -> Any:
    maxlen, items = decoder.decode(data)
    return deque(items, maxlen)


def _uncounter(decoder: Decoder, data: bytes) -> Any:
    return Counter(dict(_unpairs(decoder, data)))


def _unarray(decoder: Decoder, data: bytes) -> Any:
    descr, shape, order, raw = decoder.decode(data)
    if (numpy := _numpy()) is None:
        decoder.objects += 1
        return Unknown("numpy:ndarray", 1, {"dtype": descr, "shape": shape, "order": order, "bytes": raw})
    return numpy.frombuffer(raw, numpy.lib.format.descr_to_dtype(descr)).reshape(shape, order=order).copy(order=order)


def _unscalar(decoder: Decoder, data: bytes) -> Any:
    descr, raw = decoder.decode(data)
    if (numpy := _numpy()) is None:
        decoder.objects += 1
        return Unknown("numpy:scalar", 1, {"dtype": descr, "bytes": raw})
    return numpy.frombuffer(raw, numpy.lib.format.descr_to_dtype(descr))[0]


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        return None
    return numpy


def _unset(make: Callable[[Any], Any]) -> Callable[[Decoder, bytes], Any]:
    return lambda decoder, data: make(decoder.decode(item) for item in unpackb(data))


_decoders: dict[int, Callable[[Decoder, bytes], Any]] = {
    1: lambda decoder, data: tuple(decoder.decode(data)),
    2: _unset(set),
    3: _unset(frozenset),
    4: lambda decoder, data: dict(_unpairs(decoder, data)),
    5: lambda decoder, data: int.from_bytes(data, signed=True),
    6: _undatetime,
    7: lambda decoder, data: date(*unpackb(data)),
    8: _untime,
    9: lambda decoder, data: timedelta(*unpackb(data)),
    10: lambda decoder, data: UUID(bytes=bytes(data)),
    11: lambda decoder, data: Decimal(bytes(data).decode()),
    12: lambda decoder, data: Fraction(*decoder.decode(data)),
    13: lambda decoder, data: complex(*unpackb(data)),
    14: lambda decoder, data: range(*decoder.decode(data)),
    15: _unpath,
    16: lambda decoder, data: bytearray(data),
    17: lambda decoder, data: OrderedDict(_unpairs(decoder, data)),
    18: _undeque,
    19: _uncounter,
    21: _unarray,
    22: _unscalar,
    secret_bytes.TYPE: lambda decoder, data: secret_bytes.from_bytes(data),
}
