"""What redaction missed (plurals, suffixes, odd keys, values of many lines, long values), and the ordinary words that it must leave alone."""

from __future__ import annotations

import enum
import time
from typing import Any

import pace
import pytest

from everstep.redact import MASK, Redactor

default = Redactor.default()


class Field(str, enum.Enum):  # noqa: UP042 - such a member prints its name, not its value
    PASSWORD = "password"
    USER = "user"


class Plain(enum.Enum):
    TOKEN = "token"


SECRET_KEYS: list[Any] = [
    "passwords", "tokens", "secrets", "api_keys", "apiKeys", "access_tokens", "private_keys", "cookies", "db_passwords", "client_secrets", "db_pass", "DB_PASS", "dbPass",
    "smtp-pass", "user.pass", "pass", "PASS", "DB_PASS2", "PASSWORD1", "password2", "api_key_2", "token1", "SECRET_KEY_1", "db_pwd", "user_passwd", "passwords2",
    b"password", b"API_KEY", b"db_pass", ("db", "password"), ("password", 1), (b"token",), (("a", "secret"), 1), Field.PASSWORD, Plain.TOKEN,
]  # fmt: skip


@pytest.mark.parametrize("key", SECRET_KEYS)
def test_a_secret_under_this_name_is_masked(key: Any) -> None:
    for value in ("hunter2", ["hunter2"], {"a": "hunter2"}, b"hunter2", ("x", 1)):
        assert default.value({key: value}) == {key: MASK}


ORDINARY_KEYS: list[Any] = [
    "tokens_used", "token_count", "max_tokens", "total_tokens", "prompt_tokens", "tokenizer", "tokenized", "compass", "bypass", "bypasses", "by_pass", "byPass", "passes",
    "passed", "passenger", "passage", "first_pass", "boarding_pass", "overpass", "COMPASS", "trespass", "secretary", "password_length", "cookie_banner", "keys", "key1", "author",
    "authors", "a1", "s", "", "1", 5, None, 2.5, ("user", 1), (), b"", b"\xff", Field.USER, (((((("password",),),),),),),
]  # fmt: skip


@pytest.mark.parametrize("key", ORDINARY_KEYS)
def test_an_ordinary_name_is_left_alone(key: Any) -> None:
    assert default.value({key: "x"}) == {key: "x"}


@pytest.mark.parametrize("value", [15, 1.5, 0, True, [1, 2, 3], {"prompt": 5, "completion": 7}, (1, (2, 3))])
def test_numbers_under_a_plural_are_counts(value: Any) -> None:
    for key in ("tokens", "passwords", "cookies", "pass", "secrets"):
        assert default.value({key: value}) == {key: value}
    assert default.value({"password": value, "token1": value}) == {"password": MASK, "token1": MASK}


LONG = "correct horse battery staple " * 100
TEXTS = [
    ('{"password": "' + LONG + '", "n": 1}', f'{{"password": "{MASK}", "n": 1}}'),
    ("password='" + LONG + "', n=1", f"password='{MASK}', n=1"),
    ("password=" + "x" * 5_000 + " n=1", f"password={MASK} n=1"),
    ('password: "line one\nline two\nline three" n', f'password: "{MASK}" n'),
    ('secret = """one\n"two"\nthree""" n', f'secret = """{MASK}""" n'),
    ('{"password": "with \\" and \\\\ inside", "n": 1}', f'{{"password": "{MASK}", "n": 1}}'),
    ("password: |\n  line one\n  line two\nuser: ann", f"password: {MASK}\nuser: ann"),
    ("user: ann\npassword: >-\n  line one\n\tline two\n", f"user: ann\npassword: {MASK}\n"),
    ("password:\n  hunter2\nuser: ann", f"password:{MASK}\nuser: ann"),
    ('password: "no end to it\nuser: ann', f'password: "{MASK}\nuser: ann'),
    ("passwords=a,b", f"passwords={MASK},b"),
    ("{b'password': b'hunter2', 'n': 1}", f"{{b'password': b'{MASK}', 'n': 1}}"),
    ('token = rb"hunter2"', f'token = rb"{MASK}"'),
    ("DB_PASS=hunter2 DB_USER=ann", f"DB_PASS={MASK} DB_USER=ann"),
    ("PASSWORD1: hunter2", f"PASSWORD1: {MASK}"),
    ("tokens = 'abc'", f"tokens = '{MASK}'"),
    ("passwords=['x', 'y'], n=1", f"passwords={MASK}, n=1"),
    ('{"tokens": ["x", {"a": "]"}], "n": 1}', f'{{"tokens": {MASK}, "n": 1}}'),
    ('{"credentials": {"user": "ann", "key": "x"}, "n": 1}', f'{{"credentials": {MASK}, "n": 1}}'),
    ('{"passwords": [\n  "x",\n  "y"\n], "n": 1}', f'{{"passwords": {MASK}, "n": 1}}'),
    ('"{\\"tokens\\": [\\"x\\"], \\"n\\": 1}"', f'"{{\\"tokens\\": {MASK}, \\"n\\": 1}}"'),
    ("passwords=['x', 'cut off\n  'y'\nuser: ann", f"passwords={MASK}\nuser: ann"),
    ("password=SecretStr('hunter2'), n=1", f"password={MASK}, n=1"),
    ("{('db', 'password'): 'hunter2', ('db', 'user'): 'ann'}", f"{{('db', 'password'): '{MASK}', ('db', 'user'): 'ann'}}"),
    ("{('password', 1): 'hunter2', (('a', 'secret'), 1): b'hunter2'}", f"{{('password', 1): '{MASK}', (('a', 'secret'), 1): b'{MASK}'}}"),
    ("(password=hunter2): n", f"(password={MASK}): n"),
    ("login --user ann --password hunter2 --verbose", f"login --user ann --password {MASK} --verbose"),
    ("login --password='hunter 2' --api-key=x", f"login --password='{MASK}' --api-key={MASK}"),
    ("['login', '--password', 'hunter2', '-v']", f"['login', '--password', '{MASK}', '-v']"),
    ("password := hunter2", f"password := {MASK}"),
    ("'password' => 'hunter2'", f"'password' => '{MASK}'"),
    ("password   =\thunter2", f"password   =\t{MASK}"),
    ("<user>ann</user><password>hunter2</password>", f"<user>ann</user><password>{MASK}</password>"),
    ("-----BEGIN PGP PRIVATE KEY BLOCK-----\nabc\n-----END PGP PRIVATE KEY BLOCK----- n", f"{MASK} n"),
]


@pytest.mark.parametrize(("text", "masked"), TEXTS)
def test_a_value_in_a_text_is_masked_as_a_whole(text: str, masked: str) -> None:
    assert default.text(text) == masked
    assert default.text(masked) == masked
    assert default.value(text.encode()) == masked.encode()


@pytest.mark.parametrize(
    "text",
    [
        "tokens: 512", "tokens=1,024", "used tokens: 15%", "max_tokens: 100", "passes: 3", "compass: north", "bypass=yes", "first_pass: ok", 'password: ""', "password=''",
        "if token:\n    call()", "class Secret:\n    pass", "the password is\n  not here", "pass", "tokens", "password: None", "secrets: 0",
        "tokens=[1, 2, 3]", '{"tokens": {"prompt": 5, "completion": 7}}', "passwords=[]", "credentials: {}", "--tokens 512", "--password --verbose", "--token-file a", "f('password'): x",
    ],
)  # fmt: skip
def test_an_ordinary_text_stays(text: str) -> None:
    assert default.text(text) == text


HOSTILE = {
    "open quotes": 'password="a\\', "single quotes": "password='", "both": "password='\"", "escaped": 'password=\\"', "triple": 'password="""', "blocks": "password: |\n a\n",
    "block begins": "password: |\n", "names and breaks": "password:\n", "indents": "password:\n ", "plurals": "passwords1", "pass": "db_pass", "passes": "pass=pass", "commas": "tokens=1,",
    "brackets": "password=[", "calls": "password=f(", "closed": "password=[']", "quotes in brackets": "password=['\\'", "tuples": "('password'", "options": "--password ", "elements": "<password>",
    "triples in brackets": 'password=["""', "escapes in brackets": 'password=[\\"\\', "brackets after quotes": "password='[",
}  # fmt: skip


@pytest.mark.parametrize("part", HOSTILE)
def test_hostile_text_takes_linear_time(part: str) -> None:
    taken = []
    for size in (pace.share(500_000, 4), pace.share(2_000_000, 4)):
        text = (HOSTILE[part] * (size // len(HOSTILE[part]) + 1))[:size]
        began = time.process_time()
        default.text(text)
        taken.append(time.process_time() - began)
    assert taken[1] < 8 * taken[0] + 0.5


def test_a_hostile_value_under_a_plural_takes_a_short_look() -> None:
    value: Any = [1] * 5_000
    for _ in range(4):
        value = [value] * 5_000
    began = time.process_time()
    assert default.value({"tokens": value}) == {"tokens": MASK}
    assert time.process_time() - began < 1


def test_an_argument_after_the_name_of_an_option_is_masked() -> None:
    command = ["login", "--user", "ann", "--password", "hunter2", "--tokens", 5, "--token", "--verbose", "ann"]
    assert default.value(command) == [*command[:4], MASK, *command[5:]]
    assert default.value(("--db-pass", "hunter2")) == ("--db-pass", MASK)


def test_names_of_your_own_mean_what_they_say() -> None:
    own = Redactor(keys=["pin"])
    assert own.value({"pins": "x", "pin1": "x", "db_pass": "x", b"pin": "x"}) == {"pins": "x", "pin1": "x", "db_pass": "x", b"pin": MASK}
