"""A Secret gives its value to reveal() alone: no text, copy, pickle, comparison or error of it says what it holds."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import logging
import os
import pickle
import subprocess
import sys
import traceback
from collections import OrderedDict
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep import Redactor, Secret, Unknown
from everstep.adapters.shared.plain import is_plain, to_copy, to_plain, to_text
from everstep.codec.values import Decoder, decode, encode
from everstep.errors import DamagedFrame, InvalidArgument
from everstep.expressions.values import ExpressionError, as_text
from everstep.store.masking import Mask
from everstep.views.stored.tagged_json import exact, from_json, reconciled
from everstep.views.stored.values import as_json, dumps

VALUE = "hunter2-hunter2"
SECRET = Secret(VALUE)
values = st.one_of(st.text(st.characters(exclude_categories=["Cs"])), st.binary())


@dataclasses.dataclass
class Login:
    user: str
    key: Secret


class Model(pydantic.BaseModel):
    key: Secret
    raw: Secret[bytes] = Secret(b"raw")


class Struct(msgspec.Struct):
    key: Secret


SHOWN: list[Any] = [
    SECRET, Secret(VALUE.encode()), [SECRET], {"password": SECRET}, {SECRET: 1}, (SECRET, {SECRET}), Login("ann", SECRET), Model(key=SECRET), Struct(SECRET),
    Unknown("shop.Login", 1, {"key": SECRET}), ValueError(SECRET), OrderedDict(key=SECRET),
]  # fmt: skip


@pytest.mark.parametrize("value", SHOWN, ids=lambda value: type(value).__name__)
def test_no_text_of_a_value_shows_a_secret_in_it(value: Any, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("shop").warning("got %s and %r", value, value)
    texts = [
        repr(value),
        str(value),
        f"{value}",
        f"{value!r:>40}",
        format(str(value), "^30"),
        caplog.text,
        str(as_json(value)),
    ]
    texts += [dumps(exact(value)), str(Redactor.default().value(value)), str(to_text(value))] if not isinstance(value, Exception) else []
    assert not any("hunter2" in text or "aHVudGVyMi" in text for text in texts), texts


def test_no_attribute_shows_it() -> None:
    assert "hunter2" not in repr(inspect.getmembers(SECRET))
    assert not hasattr(SECRET, "__dict__")


@pytest.mark.parametrize(
    "wrong", [12345678, None, bytearray(b"hunter2"), ["hunter2"], "hunter2\udc80", type("T", (str,), {})("hunter2")], ids=repr
)
def test_a_wrong_value_is_refused_without_showing_it(wrong: Any) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Secret(wrong)
    text = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
    own = text.split("secret.py")[-1]
    assert "hunter2" not in own
    assert "12345678" not in own
    assert "hunter2" not in str(caught.value)


def test_operations_that_a_text_has_fail_without_showing_it() -> None:
    operations = [
        lambda s: s + "x", lambda s: "x" + s, lambda s: "".join([s]), lambda s: s < SECRET, lambda s: s[0], lambda s: list(s), lambda s: len(s),
        lambda s: bytes(s), lambda s: json.dumps({"key": s}), lambda s: msgspec.json.encode(Struct(s)), lambda s: int(s), lambda s: os.fspath(s),
    ]  # fmt: skip
    for operation in operations:
        with pytest.raises((TypeError, ValueError)) as caught:
            operation(SECRET)
        assert "hunter2" not in str(caught.value)


def test_it_cannot_be_pickled_changed_or_subclassed() -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(InvalidArgument, match="pickled") as caught:
            pickle.dumps({"key": SECRET}, protocol)
        assert "hunter2" not in str(caught.value)
    with pytest.raises(AttributeError):
        SECRET.value = "x"  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        del SECRET._held
    with pytest.raises(TypeError):
        type("Mine", (Secret,), {})


def test_a_copy_is_the_secret_itself() -> None:
    assert copy.copy(SECRET) is SECRET
    assert copy.deepcopy({"key": SECRET})["key"] is SECRET
    assert dataclasses.asdict(Login("ann", SECRET))["key"] is SECRET


@given(values, values)
def test_secrets_are_equal_if_their_values_are(a: str | bytes, b: str | bytes) -> None:
    one, other = Secret(a), Secret(b)
    assert (one == other) is (type(a) is type(b) and a == b)
    assert one == Secret(a)
    assert hash(one) == hash(Secret(a))
    assert one != a
    assert bool(one) is bool(a)


def test_its_hash_differs_in_each_process_even_if_the_hashes_of_texts_do_not() -> None:
    code = "import everstep; print(hash(everstep.Secret('1234')), hash('1234'))"
    found = [
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": "0"}, capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(2)
    ]
    assert found[0][0] != found[1][0]
    assert found[0][1] == found[1][1]


@given(values)
def test_it_comes_back_from_bytes_as_an_equal_secret(value: str | bytes) -> None:
    secret = Secret(value)
    nested = {
        "a": [secret, (secret, {"b": secret})],
        "c": {secret, frozenset([secret])},
        1: OrderedDict(x=secret),
        "u": Unknown("T", 1, {"f": secret}),
    }
    back = decode(encode(nested))
    assert back == nested
    assert encode(back) == encode(nested)
    found = back["a"][0].reveal()
    assert type(found) is type(value)
    assert found == value


@pytest.mark.parametrize("data", [b"", b"\xc1Secret\xc1", b"\xc1Secret\xc1x1", b"\xc1Secre\xc1ttv", b"\xc1Secret\xc1t\xff\xfehunter2"])
def test_damaged_bytes_are_refused_without_showing_them(data: bytes) -> None:
    packed = bytes((0xC7, len(data), 23)) + data
    with pytest.raises(DamagedFrame) as caught:
        Decoder().decode(packed)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_models_take_a_secret_or_its_value_and_do_not_show_it() -> None:
    assert Model.model_validate({"key": VALUE, "raw": b"x"}) == Model(key=SECRET, raw=Secret(b"x"))
    assert Model.model_validate_json(f'{{"key": "{VALUE}"}}').key == SECRET
    model = Model(key=SECRET)
    assert model.model_dump()["key"] is SECRET
    assert json.loads(model.model_dump_json())["key"] == "[redacted]"
    with pytest.raises(pydantic.ValidationError):
        Model.model_validate({"key": 5})
    assert msgspec.convert({"key": SECRET}, Struct).key is SECRET


def test_redaction_before_storing_keeps_a_secret_and_masks_everything_else() -> None:
    mask = Mask(Redactor.default())
    found = mask(
        {
            "password": SECRET,
            "token": "other",
            "list": [SECRET, "sk-abcdefghijklmnopqrstuvwx"],
            "credentials": {"key": SECRET, "user": "ann"},
        }
    )
    assert found == {"password": SECRET, "token": "[redacted]", "list": [SECRET, "[redacted]"], "credentials": "[redacted]"}
    args, kwargs = mask.call(lambda password, token: None, (SECRET, "other"), {}, "login")
    assert (args, kwargs) == ((SECRET, "[redacted]"), {})


def test_the_json_of_a_state_names_only_the_place_of_a_secret() -> None:
    state = {
        "a": SECRET,
        "list": [1, SECRET],
        "pair": (SECRET, 2),
        "odd": {1: SECRET},
        "$secret": "[redacted]",
        "own": {"$secret": "[redacted]"},
    }
    shown = json.loads(dumps(exact(state)))
    assert reconciled(state, shown) == state
    shown["list"][0] = 5
    assert reconciled(state, shown) == {**state, "list": [5, SECRET]}
    assert reconciled(state, {"a": "new"}) == {"a": "new"}
    assert from_json(exact({"$secret": "[redacted]"})) == {"$secret": "[redacted]"}
    for moved in ({"b": shown["a"]}, {"a": [shown["a"]]}, {"b": shown["pair"]}):
        with pytest.raises(InvalidArgument, match="stands for a Secret"):
            reconciled(state, moved)


def test_a_secret_in_a_text_of_a_yaml_workflow_is_an_error() -> None:
    for value in (SECRET, {"key": [SECRET]}):
        with pytest.raises(ExpressionError, match="cannot be put into a text"):
            as_text(value)


def test_adapters_keep_a_secret_and_a_model_gets_no_text_of_it() -> None:
    assert is_plain({"key": [SECRET]})
    assert to_plain({"key": SECRET, "at": Login("ann", SECRET)}) == {"key": SECRET, "at": {"user": "ann", "key": SECRET}}
    assert to_copy([SECRET]) == [SECRET]
    assert "hunter2" not in to_text({"key": SECRET})
