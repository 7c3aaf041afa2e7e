"""Masks secrets: values under names such as password, and texts that look like API keys or tokens.

Relies only on the interpreter. Never changes its input, never raises for an odd value, and takes time proportional to the size: a state may
be hostile. Secrets that it cannot recognise are not masked: a password in the middle of a sentence stays visible.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Sequence
from enum import Enum
from functools import lru_cache
from pathlib import PurePath
from typing import Any

from everstep.errors import InvalidArgument
from everstep.redact import pairs
from everstep.redact.pairs import ALWAYS, NEVER, UNLESS_COUNT
from everstep.secret import MASK as MASK
from everstep.secret import Secret

KEYS = (
    "password", "passwd", "passphrase", "pwd", "secret", "*_secret", "secret_key", "token", "access_token", "refresh_token", "id_token",
    "auth_token", "bearer_token", "session_token", "api_token", "api_key", "*_api_key", "x_api_key", "access_key", "*_access_key",
    "secret_access_key", "private_key", "*_private_key", "authorization", "proxy_authorization", "cookie", "set_cookie", "credential",
    "credentials", "client_secret", "*_password", "*_passwd", "*_pwd", "*_passphrase",
)  # fmt: skip
# db_pass and dbPass are passwords; compass, bypass and first_pass are not.
_PASS = re.compile(r"(?:^|(?P<before>[A-Za-z]{0,20})(?:[^A-Za-z]|(?<=[a-z])(?=P)))(?:pass|Pass|PASS)[\W\d_]{0,6}$")
_ORDINARY = frozenset(
    (
        "by",
        "com",
        "over",
        "under",
        "first",
        "second",
        "third",
        "next",
        "last",
        "final",
        "single",
        "multi",
        "one",
        "two",
        "boarding",
        "season",
        "compiler",
    )
)

_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtf]))"  # the start of a word; one after an escaped line end counts, too
# Hints (in lower case) that a text must contain to be searched, and the expression. No expression backtracks (++), and each begins with
# fixed text, so time stays linear.
BUILT_IN: dict[str, tuple[tuple[tuple[str, ...], str], ...]] = {
    "api_keys": (
        (("sk-",), rf"{_START}sk-[A-Za-z0-9_-]{{16,}}+"),  # OpenAI, Anthropic and others with the same form
        (("akia", "asia"), rf"{_START}(?:AKIA|ASIA)[A-Z0-9]{{16}}(?![A-Za-z0-9])"),  # AWS
        (("aiza",), rf"{_START}AIza[A-Za-z0-9_-]{{35}}"),  # Google
        (
            ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
            rf"{_START}gh[pousr]_[A-Za-z0-9]{{20,}}+|{_START}github_pat_[A-Za-z0-9_]{{20,}}+",
        ),
        (("glpat-",), rf"{_START}glpat-[A-Za-z0-9_-]{{16,}}+"),
        (("xox", "xapp-"), rf"{_START}xox[abeoprs]-[A-Za-z0-9-]{{10,}}+|{_START}xapp-[A-Za-z0-9-]{{10,}}+"),  # Slack
        (("k_live_", "k_test_"), rf"{_START}[rs]k_(?:live|test)_[A-Za-z0-9]{{16,}}+"),  # Stripe
        (("hf_", "npm_", "pypi-"), rf"{_START}hf_[A-Za-z0-9]{{20,}}+|{_START}npm_[A-Za-z0-9]{{30,}}+|{_START}pypi-[A-Za-z0-9_-]{{30,}}+"),
    ),
    "tokens": (
        (("bearer ", "basic "), rf"{_START}(?i:bearer) {{1,4}}[A-Za-z0-9._~+/=-]{{8,}}+|{_START}(?i:basic) {{1,4}}[A-Za-z0-9+/=]{{16,}}+"),
        (("eyj",), r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrtf]))eyJ[A-Za-z0-9_-]{8,4096}+\.[A-Za-z0-9_-]{2,65536}+\.[A-Za-z0-9_-]*+"),  # JWT
        (
            ("private key",),
            r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:[^-]++|-(?!----END ))*+(?:-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?",
        ),
        (("://",), r"(?<=://)[^\s/:@\"']{0,200}+:[^\s/@\"']{1,200}+(?=@)"),  # user:password@host in a URL
    ),
    "email": ((("@",), r"(?<![\w.+-])[\w.+-]{1,64}+@[A-Za-z0-9-]{1,63}+(?:\.[A-Za-z0-9-]{1,63}+){1,8}+"),),
}
_SKELETON = str.maketrans("", "", "_- ")
_BUILT_IN_KEYS = frozenset(KEYS)
_LONGEST_NAME, _MOST_COUNTS = 200, 10_000


Expression = tuple[tuple[str, ...], re.Pattern[str]]


def check_pattern(pattern: str) -> tuple[Expression, ...]:
    """Return the expressions of a pattern, each with hints that a text must contain: those of a built-in name, or the given one."""
    if pattern in BUILT_IN:
        return tuple((hints, re.compile(text)) for hints, text in BUILT_IN[pattern])
    try:
        made = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidArgument(
            f"{pattern!r:.60} is not a valid regular expression: {error}",
            remedy=f"Use {', '.join(BUILT_IN)} or an expression of Python's re.",
        ) from error
    if made.match("") is not None:
        raise InvalidArgument(
            f"{pattern!r:.60} matches the empty string, so it would match everywhere",
            remedy="Use a pattern that matches at least one character.",
        )
    return (((), made),)


class Redactor:
    """The rules that mask secrets: by the names of keys (`*` matches any text; case, _ and - are ignored) and by patterns (built-in names, or expressions)."""

    def __init__(self, keys: Iterable[str] = (), patterns: Iterable[str] = ()):
        self.keys = _texts(keys, "keys")
        self.patterns = _texts(patterns, "patterns")
        names = [_skeleton(key) for key in self.keys]
        self._exact = frozenset(name for name in names if "*" not in name)
        self._globs = tuple(name.split("*") for name in names if "*" in name)
        known = [_skeleton(key) for key in self.keys if key in _BUILT_IN_KEYS]
        self._known = frozenset(name for name in known if "*" not in name), tuple(name.split("*") for name in known if "*" in name)
        self._hints = tuple(dict.fromkeys([max(name.split("*"), key=len) for name in names] + (["pass"] if "password" in known else [])))
        self._expressions = tuple(one for pattern in self.patterns for one in check_pattern(pattern))
        self._named = lru_cache(2048)(self._fits)

    def __repr__(self) -> str:
        return f"<everstep.Redactor of {len(self.keys)} keys, {len(self.patterns)} patterns>"

    @classmethod
    def default(cls, keys: Iterable[str] = (), patterns: Iterable[str] = ()) -> Redactor:
        """Return the redactor that masks all output, with additional keys and patterns."""
        return cls((*KEYS, *_texts(keys, "keys")), dict.fromkeys(("api_keys", "tokens", *_texts(patterns, "patterns"))))

    def names(self, key: object) -> bool:
        """Return whether the value under a key is masked, unless it is a count (see `hides`)."""
        return bool(self._secrecy(key))

    def hides(self, key: object, value: object) -> bool:
        """Return whether a value under a key is masked. Numbers under a plural are counts: `tokens` may be 512, or a list of secrets.

        A Secret is left alone: it never shows its value, and is stored only where that is safe.
        """
        if value.__class__ is Secret:
            return False
        secrecy = self._secrecy(key)
        return secrecy == ALWAYS or (secrecy == UNLESS_COUNT and not _is_count(value))

    def _secrecy(self, key: object, depth: int = 0) -> int:
        if not (self._exact or self._globs):
            return NEVER
        if isinstance(key, str):
            text = str.__str__(key)  # the value of an enum's member, not its name
            return self._named(text) if len(text) <= _LONGEST_NAME else self._fits(text)
        if isinstance(key, (bytes, Enum)):
            return self._secrecy(key.decode("latin-1") if isinstance(key, bytes) else key.value, depth + 1) if depth < 4 else NEVER
        if isinstance(key, tuple) and depth < 4:
            return max((self._secrecy(part, depth + 1) for part in key[:_LONGEST_NAME]), default=NEVER)
        return NEVER

    def _fits(self, key: str) -> int:
        name = _skeleton(key)
        if name in self._exact or any(_glob(parts, name) for parts in self._globs):
            return ALWAYS
        exact, globs = self._known
        bare = name.rstrip("0123456789")
        if bare != name and (bare in exact or any(_glob(parts, bare) for parts in globs)):
            return ALWAYS  # password1
        if bare.endswith("s") and (bare[:-1] in exact or any(_glob(parts, bare[:-1]) for parts in globs)):
            return UNLESS_COUNT
        found = _PASS.search(key[-60:]) if "password" in exact else None
        return UNLESS_COUNT if found is not None and (found["before"] or "").lower() not in _ORDINARY else NEVER

    def text(self, text: str) -> str:
        """Mask the secrets in a text."""
        if MASK in text:  # masked parts stay as they are
            return MASK.join(self._text(part) if part else part for part in text.split(MASK))
        return self._text(text)

    def _text(self, text: str) -> str:
        text = self.pattern_text(text)
        if self._hints and any(sign in text for sign in pairs.SIGNS):
            skeleton = _skeleton(text)
            if any(hint in skeleton for hint in self._hints):
                return pairs.without_pairs(text, self._secrecy, MASK)
        return text

    def pattern_text(self, text: str) -> str:
        """Mask only the patterns in a text that is not a value, such as the source of a program."""
        lowered = text.lower()
        for hints, expression in self._expressions:
            if not hints or any(hint in lowered for hint in hints):
                text = expression.sub(_masked, text)
        return text

    def value(self, value: Any) -> Any:
        """Replace everything that must be masked in a value with the text "[redacted]". Other parts are shared, not copied."""
        return _Walk(self).of(value)


class _Walk:
    """One pass over one value. A part that occurs several times is visited once; a part that contains itself is masked there."""

    def __init__(self, redactor: Redactor):
        self._redactor = redactor
        self._seen: dict[int, Any] = {}
        self._kept: list[Any] = []  # keeps each object alive, because its id is used
        self._depth = 0

    def of(self, value: Any) -> Any:
        cls = value.__class__
        if cls is str:
            return self._redactor.text(value)
        if cls in _PLAIN:
            return value
        if id(value) in self._seen:
            return self._seen[id(value)]
        if self._depth > 250:
            return MASK  # deeper than anything that can be stored
        self._seen[id(value)] = MASK
        self._kept.append(value)
        self._depth += 1
        try:
            masked = self._open(value, cls)
        except Exception:  # noqa: BLE001 - an object that cannot be inspected is not shown either
            masked = MASK
        finally:
            self._depth -= 1
        self._seen[id(value)] = masked
        return masked

    def _open(self, value: Any, cls: type) -> Any:
        if isinstance(value, str):
            text = str.__str__(value)
            masked = self._redactor.text(text)
            return value if masked == text else masked
        if isinstance(value, dict):
            return self._dict(value, cls)
        if isinstance(value, (list, tuple, set, frozenset, deque)):
            return self._items(value, cls)
        if isinstance(value, (bytes, bytearray)):
            return self._bytes(value)
        if isinstance(value, PurePath):
            text = str(value)
            masked = self._redactor.text(text)
            return value if masked == text else type(value)(masked)
        return self._object(value, cls)

    def _dict(self, value: dict[Any, Any], cls: type) -> Any:
        changed, items = False, []
        for key, held in dict.items(value):
            new_key = self.of(key)
            new = MASK if held is not None and self._redactor.hides(key, held) else self.of(held)
            changed = changed or new_key is not key or not _same(new, held)
            items.append((new_key, new))
        if not changed:
            return value
        plain: dict[Any, Any] = {}
        for key, held in items:
            plain[_free(key, plain)] = held
        return _remade(value, cls, plain)

    def _items(self, value: Any, cls: type) -> Any:
        fields = getattr(cls, "_fields", None) if isinstance(value, tuple) else None
        if isinstance(fields, tuple):
            pairs = zip(fields, value, strict=False)
            items = [MASK if held is not None and self._redactor.hides(name, held) else self.of(held) for name, held in pairs]
        else:
            items = self._arguments(value) if isinstance(value, (list, tuple)) else [self.of(held) for held in value]
        if all(_same(new, held) for new, held in zip(items, value, strict=False)):
            return value
        if isinstance(value, deque):
            return deque(items, value.maxlen)
        if isinstance(fields, tuple):
            return tuple.__new__(cls, items)
        return next(kind for kind in (list, tuple, set, frozenset) if isinstance(value, kind))(items)

    def _arguments(self, value: Sequence[Any]) -> list[Any]:
        """Items of a list, which may be the arguments of a command: the one after --password is masked."""
        items, before = [], None
        for held in value:
            secret = before is not None and held.__class__ is str and held[:1] != "-" and self._redactor.hides(before, held)
            items.append(MASK if secret else self.of(held))
            before = held[2:] if held.__class__ is str and held[:2] == "--" else None
        return items

    def _bytes(self, value: bytes | bytearray) -> Any:
        text = value.decode("latin-1")
        masked = self._redactor.text(text)
        return (
            value if masked == text else type(value)(masked, "latin-1") if type(value) in (bytes, bytearray) else masked.encode("latin-1")
        )

    def _object(self, value: Any, cls: type) -> Any:
        """Copy an object of the program with its fields masked, if its structure is known."""
        own = getattr(cls, "__redacted__", None)
        if own is not None:
            return own(value, self._fields)
        if hasattr(cls, "__dataclass_fields__"):
            fields = {name: getattr(value, name) for name in cls.__dataclass_fields__ if hasattr(value, name)}
        elif isinstance(getattr(cls, "__struct_fields__", None), tuple):
            fields = {name: getattr(value, name) for name in cls.__struct_fields__}  # type: ignore[attr-defined]
        elif hasattr(cls, "__pydantic_fields__") or hasattr(cls, "model_fields"):
            fields = dict(value.__dict__)
        else:
            return value
        masked = self._fields(fields)
        return value if masked is fields else _copy_with(value, masked)

    def _fields(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Mask fields by name; returns the same dict if nothing changed."""
        masked: dict[str, Any] = self._dict(fields, dict)
        return masked


_PLAIN = frozenset({int, float, bool, type(None), complex, Secret})


def _masked(found: re.Match[str]) -> str:
    return MASK if found[0] else ""  # an expression that matches between two characters masks nothing


def _is_count(value: object) -> bool:
    """Whether a value is a number or holds only numbers, as far as a short look shows."""
    waiting, looked = [value], 0
    while waiting:
        one = waiting.pop()
        looked += 1
        if looked > _MOST_COUNTS:
            return False
        if isinstance(one, (dict, list, tuple)) and len(one) <= _MOST_COUNTS:
            waiting += dict.values(one) if isinstance(one, dict) else one
        elif not isinstance(one, (int, float)):
            return False
    return looked > 1 or isinstance(value, (int, float))


def _same(new: Any, held: Any) -> bool:
    return new is held or (new.__class__ is str and held.__class__ is str and new == held)


def _remade(value: Any, cls: type, plain: dict[Any, Any]) -> Any:
    """Build a dict of the same type with other content."""
    if isinstance(value, OrderedDict):
        return OrderedDict(plain)
    if isinstance(value, Counter) and all(isinstance(count, int) for count in plain.values()):
        return Counter(plain)
    return plain


def _free(key: Any, taken: dict[Any, Any]) -> Any:
    """Return a key that is not taken: two masked keys must not become one."""
    number, free = 2, key
    while free in taken and isinstance(key, str):
        free, number = f"{key} {number}", number + 1
    return free


def _copy_with(value: Any, fields: dict[str, Any]) -> Any:
    from copy import copy

    if hasattr(type(value), "__struct_fields__"):
        return type(value)(**fields)  # a frozen struct cannot be changed in any way; its constructor checks nothing
    made = copy(value)
    for name, held in fields.items():
        try:
            object.__setattr__(made, name, held)
        except (AttributeError, TypeError):
            setattr(made, name, held)
    return made


def _texts(given: Iterable[str], what: str) -> tuple[str, ...]:
    texts = (given,) if isinstance(given, str) else tuple(given)
    for text in texts:
        if not isinstance(text, str) or not text.strip("*_- "):
            raise InvalidArgument(
                f"{what} must be strings with at least one character other than *, _, - and space, got {text!r:.60}",
                remedy="Pass a list of strings.",
            )
    return texts


def _skeleton(name: str) -> str:
    return name.lower().translate(_SKELETON)


def _glob(parts: list[str], name: str) -> bool:
    """Whether a name matches a pattern that was split at its stars: the first and last part are at the ends, the others follow in order."""
    first, *middle, last = parts
    if not name.startswith(first) or not name.endswith(last) or len(name) < len(first) + len(last):
        return False
    at, end = len(first), len(name) - len(last)
    for part in middle:
        at = name.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True
