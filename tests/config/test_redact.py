"""A redactor masks by name and by pattern, changes nothing that it is given, and is not to be slowed down or broken by a hostile value."""

from __future__ import annotations

import copy
import enum
import time
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pace
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.codec.kinds import Unknown
from everstep.errors import InvalidArgument
from everstep.redact import BUILT_IN, KEYS, MASK, Redactor

default = Redactor.default()

SECRETS = {
    "openai": "sk-proj-Abc123_def456-ghi789JKL",
    "anthropic": "sk-ant-api03-abcdefghijklmnopqrstuvwx-yz_AA",
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "google": "AIzaSyA-1234567890abcdefghijklmnopqrstuv",
    "github": "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "github fine": "github_pat_11ABCDEFG0123456789_abcdefghij",
    "gitlab": "glpat-abcdefghij0123456789",
    "slack": "xoxb-1234567890-abcdefghij",
    "stripe": "sk_live_abcdefghijklmnop1234",
    "hugging face": "hf_abcdefghijklmnopqrstuvwxyz",
    "bearer": "Bearer abcdef.ghijkl-mnop",
    "basic": "Basic dXNlcjpwYXNzd29yZDEyMw==",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4",
    "pem": "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\nxyz+/==\n-----END RSA PRIVATE KEY-----",
    "pem without an end": "-----BEGIN PRIVATE KEY-----\nMIIEpAIBAAKCAQEA",
}


@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_of_this_kind_is_masked_within_a_text(kind: str) -> None:
    secret = SECRETS[kind]
    text = f"before ({secret})" if kind == "pem without an end" else f"before ({secret}) after"
    masked = default.text(text)
    assert masked.startswith("before (")
    assert MASK in masked
    assert kind == "pem without an end" or masked.endswith(") after")
    assert secret[-12:] not in masked
    assert default.text(masked) == masked


@pytest.mark.parametrize("before", ["\\n", "\n", "\\t", "_", '"', "=", "(", "/", "é "])
def test_a_key_is_seen_wherever_a_word_may_begin(before: str) -> None:
    for kind in ("openai", "aws", "jwt", "bearer"):
        assert before == "_" or default.text(f"x{before}{SECRETS[kind]}") == f"x{before}{MASK}"
    assert default.text(f"x{before}{SECRETS['openai']}") == f"x{before}{MASK}"


def test_a_password_in_a_url_is_masked() -> None:
    assert default.text("postgres://me:pa55word@db.example.org/x") == f"postgres://{MASK}@db.example.org/x"


@pytest.mark.parametrize(
    "text",
    [
        "a sk-etch of a task-list", "the token was lost", "bearer of bad news", "AKIA is short", "https://example.org:8080/a@b",
        "12:30:45", "a = b", "monkey: 5", "eyJ and so on", "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----", "tokens: 512",
        "write to ann@example.org", "secretary: Bob", "",
    ],
)  # fmt: skip
def test_harmless_text_stays(text: str) -> None:
    assert default.text(text) == text
    assert default.value(text) is text or default.value(text) == text


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("login(password='hunter2', n=1)", f"login(password='{MASK}', n=1)"),
        ('{"api_key": "abc", "n": 1}', f'{{"api_key": "{MASK}", "n": 1}}'),
        ("API-KEY: abc", f"API-KEY: {MASK}"),
        ("https://x.org/?token=abc&n=1", f"https://x.org/?token={MASK}&n=1"),
        ("a=token=abc", f"a=token={MASK}"),
        ("client_secret=abc;next", f"client_secret={MASK};next"),
        ('{\\"password\\": \\"abc\\"}', f'{{\\"password\\": \\"{MASK}\\"}}'),
        ("password=None, token: null", "password=None, token: null"),
    ],
)
def test_a_text_that_shows_a_value_by_its_name_is_masked_there(text: str, masked: str) -> None:
    assert default.text(text) == masked
    assert default.text(masked) == masked


@pytest.mark.parametrize("key", ["password", "PASSWORD", "Password", "api_key", "api-key", "API_KEY", "apiKey", "ApiKey", "Authorization", "set-cookie",
                                 "my_api_key", "stripe_secret", "client_secret", "private_key", "SECRET"])  # fmt: skip
def test_a_name_is_known_however_it_is_written(key: str) -> None:
    assert default.value({key: "x", "n": 1}) == {key: MASK, "n": 1}


@pytest.mark.parametrize(
    "key", ["tokens_used", "passwords_changed", "secretary", "key", "monkey", "author", "", 5, None, ("user",), b"user"]
)
def test_another_name_is_left_alone(key: Any) -> None:
    assert default.value({key: "x"}) == {key: "x"}


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("pin", ["pin", "PIN", "p-i-n"], ["spin", "pins"]),
        ("*_pin", ["card_pin", "card-pin", "_pin"], ["pin_card"]),
        ("pin*", ["pin", "pincode"], ["card_pin"]),
        ("a*b*c", ["abc", "axxbxxc"], ["acb", "ab"]),
        ("*x*", ["x", "axb"], ["ab"]),
        ("ab*ba", ["abba", "ab_ba"], ["aba"]),
        ("a.b", ["a.b"], ["axb"]),
        ("a[b]", ["a[b]"], ["ab"]),
    ],
)
def test_stars_stand_for_anything_and_nothing_else_does(pattern: str, yes: list[str], no: list[str]) -> None:
    redactor = Redactor(keys=[pattern])
    assert all(redactor.names(name) for name in yes)
    assert not any(redactor.names(name) for name in no)


def test_a_whole_value_is_masked_whatever_it_is_and_none_stays_none() -> None:
    value = {"secret": {"deep": [1, 2]}, "token": 5, "password": None, "cookie": b"x"}
    assert default.value(value) == {"secret": MASK, "token": MASK, "password": None, "cookie": MASK}


def test_what_stays_is_shared_and_what_is_given_is_never_changed() -> None:
    quiet, loud = {"a": [1, 2]}, {"password": "x"}
    value = {"quiet": quiet, "loud": [loud, 1]}
    before = copy.deepcopy(value)
    masked = default.value(value)
    assert masked == {"quiet": {"a": [1, 2]}, "loud": [{"password": MASK}, 1]}
    assert masked["quiet"] is quiet
    assert value == before
    assert default.value(quiet) is quiet
    assert default.value([quiet]) == [quiet]


class Colour(enum.Enum):
    RED = "sk-abcdefghijklmnopqrst"


class Text(str):
    __slots__ = ()


@dataclass(frozen=True)
class Login:
    user: str
    password: str = "x"
    more: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class Slotted:
    token: str
    n: int = 1


class Pair(NamedTuple):
    user: str
    password: str


class Struct(msgspec.Struct, frozen=True):
    user: str
    api_key: str


class Model(pydantic.BaseModel):
    user: str
    password: str = "x"


SECRET = "sk-abcdefghijklmnopqrstuv"


@pytest.mark.parametrize(
    ("value", "masked"),
    [
        ((SECRET, 1), (MASK, 1)),
        ({SECRET, "a"}, {MASK, "a"}),
        (frozenset({SECRET}), frozenset({MASK})),
        (deque([SECRET], 5), deque([MASK], 5)),
        (OrderedDict(a=SECRET), OrderedDict(a=MASK)),
        (defaultdict(list, a=SECRET), {"a": MASK}),
        (Counter({SECRET: 2}), Counter({MASK: 2})),
        ({SECRET: 1, SECRET + "x": 2}, {MASK: 1, f"{MASK} 2": 2}),
        ({(SECRET, 1): 2}, {(MASK, 1): 2}),
        (b"x " + SECRET.encode(), b"x [redacted]"),
        (bytearray(SECRET.encode()), bytearray(b"[redacted]")),
        (Path("/a") / SECRET, Path("/a") / MASK),
        (Text(SECRET), MASK),
        (Login("a", "b", [SECRET]), Login("a", MASK, [MASK])),
        (Slotted("t"), Slotted(MASK)),
        (Pair("a", "b"), Pair("a", MASK)),
        (Struct("a", "b"), Struct("a", MASK)),
        (Model(user="a", password="b"), Model(user="a", password=MASK)),
        (Unknown("x", 1, {"password": "b", "n": 1}), Unknown("x", 1, {"password": MASK, "n": 1})),
    ],
)
def test_every_kind_of_container_keeps_its_type(value: Any, masked: Any) -> None:
    kept = copy.deepcopy(value)
    found = default.value(value)
    assert found == masked
    assert type(found) is type(masked)
    assert value == kept
    assert default.value(found) == masked


@pytest.mark.parametrize("value", [1, 2.5, True, None, Decimal("1.5"), Colour.RED, object, range(3), 1j, "x", Login, lambda: 1])
def test_other_values_come_back_as_they_are(value: Any) -> None:
    assert default.value(value) is value


def test_the_type_of_what_is_unchanged_is_kept_even_in_odd_subclasses() -> None:
    class Odd(dict):  # type: ignore[type-arg]
        def items(self) -> Any:
            raise RuntimeError("no")

        def __iter__(self) -> Any:
            raise RuntimeError("no")

    odd = Odd(a=1)
    assert default.value(odd) is odd
    assert default.value(Odd(password=1)) == {"password": MASK}


def test_an_object_that_cannot_be_looked_into_is_masked() -> None:
    class Broken:
        __dataclass_fields__ = {"a": None}  # noqa: RUF012

        @property
        def a(self) -> Any:
            raise RuntimeError("no")

    assert default.value([Broken()]) == [MASK]


def test_a_value_that_contains_itself_comes_to_an_end() -> None:
    value: dict[str, Any] = {"a": 1}
    value["self"] = [value, value]
    assert default.value(value) == {"a": 1, "self": [MASK, MASK]}


def test_what_stands_in_many_places_is_looked_at_once() -> None:
    value: list[Any] = [SECRET]
    for _ in range(100):
        value = [value, value]
    began = time.perf_counter()
    masked = default.value(value)
    assert time.perf_counter() - began < 1
    for _ in range(100):
        masked = masked[1]
    assert masked == [MASK]


def test_endless_depth_is_cut_off() -> None:
    value: Any = "x"
    for _ in range(100_000):
        value = [value]
    masked, levels = default.value(value), 0
    while isinstance(masked, list):
        (masked,), levels = masked, levels + 1
    depth = 0
    while isinstance(value, list):  # or its end would be the interpreter's
        value, depth = value.pop(), depth + 1
    assert masked == MASK
    assert 100 < levels <= 251  # less where the interpreter has no more room for calls
    assert (value, depth) == ("x", 100_000)  # what was given is as it was


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10) | st.sampled_from(list(SECRETS.values())) | st.binary(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["password", "a", "apiKey", *list(SECRETS.values())[:2]]), inner, max_size=3)
            | st.tuples(inner, inner)
        ),
        max_leaves=12,
    )
)  # fmt: skip
def test_masking_twice_is_masking_once_and_no_secret_is_left(value: Any) -> None:
    kept = copy.deepcopy(value)
    masked = default.value(value)
    assert value == kept
    assert default.value(masked) == masked
    assert not any(secret[-14:] in repr(masked) for secret in SECRETS.values())


HOSTILE = {
    "plain": "a", "words": "ab ", "dashes": "-", "key begins": "sk-", "key begins with a break": "sk- ", "jwt begins": "eyJ-", "jwt": "eyJaaaaaaaa.", "bearer": "bearer ",
    "spaces": " ", "colons": "a:", "equals": "a=", "quotes": 'a:"', "mixed quotes": "a:'\"", "pem begins": "-----BEGIN PRIVATE KEY-----", "pem half": "-----BEGIN ",
    "urls": "x://", "url users": "x://a:", "ats": "a@", "dots": "a.", "emails": "a@b.c", "email begins": "a.b@", "password": "password=", "password long": "password:\"a",
    "underscores": "_", "backslashes": "\\", "mask": MASK, "mask and secret": MASK + "sk-abcdefghijklmnopqrst", "github": "ghp_a", "aws": "AKIA", "google": "AIza", "unicode": "ä\u202e",
}  # fmt: skip


@pytest.mark.parametrize("part", HOSTILE)
def test_ten_megabytes_of_anything_take_seconds_at_most_and_four_times_as_much_four_times_as_long(part: str) -> None:
    redactor = Redactor.default(patterns=["email"])
    taken = []
    for size in (pace.share(2_500_000, 10), pace.share(10_000_000, 10)):
        text = (HOSTILE[part] * (size // len(HOSTILE[part]) + 1))[:size]
        began = time.process_time()
        redactor.text(text)
        taken.append(time.process_time() - began)
    assert taken[1] < 20
    assert taken[1] < 8 * taken[0] + 0.5


def test_a_long_name_is_no_trouble() -> None:
    name = "a_" * 5_000_000
    began = time.process_time()
    assert default.value({name: 1}) == {name: 1}
    assert Redactor(keys=["*b*b*b*"]).value({name: 1}) == {name: 1}
    assert time.process_time() - began < 10


def test_patterns_are_built_in_names_or_expressions() -> None:
    redactor = Redactor(patterns=["email", r"CUST-\d+"])
    assert (
        redactor.text("ann.b+c@mail.example.org wrote about CUST-123, sk-abcdefghijklmnopqrst")
        == f"{MASK} wrote about {MASK}, sk-abcdefghijklmnopqrst"
    )
    assert set(BUILT_IN) == {"api_keys", "tokens", "email"}


@pytest.mark.parametrize("pattern", [r"\b", r"(?=a)"])
def test_an_expression_that_fits_between_characters_masks_nothing(pattern: str) -> None:
    assert Redactor(patterns=[pattern]).text("a b a") == "a b a"


def test_an_expression_may_fit_the_mask_itself() -> None:
    redactor = Redactor(patterns=["redacted", "[a-z]{3}"])
    assert redactor.text(redactor.text("abc [redacted]")) == redactor.text("abc [redacted]") == f"{MASK} {MASK}"


@pytest.mark.parametrize(
    "given_", [{"patterns": ["("]}, {"patterns": ["a*"]}, {"patterns": [""]}, {"keys": ["*"]}, {"keys": [5]}, {"keys": ["-"]}]
)
def test_what_makes_no_sense_is_refused(given_: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        Redactor(**given_)


def test_nothing_chosen_masks_nothing() -> None:
    value = {"password": SECRET}
    assert Redactor().value(value) is value
    assert Redactor(keys="pin").keys == ("pin",)
    assert len(set(KEYS)) == len(KEYS)
