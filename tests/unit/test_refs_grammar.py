"""Run ids, tags and refs: what they may look like."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.errors import InvalidArgument
from everstep.ids import Ref, check_id, check_tag, new_id, parse_ref


@pytest.mark.parametrize(("text", "run", "at", "back"), [
    ("r", "r", None, 0), ("r@7", "r", 7, 0), ("r@007", "r", 7, 0), ("r@tag", "r", "tag", 0), ("r@v1.2", "r", "v1.2", 0), ("r~2", "r", None, 2), ("r~0", "r", None, 0),
    ("r@7~2", "r", 7, 2), ("r@tag~1", "r", "tag", 1), ("@last", None, None, 0), ("@last~3", None, None, 3), ("@last@2", None, 2, 0), ("@last@t~1", None, "t", 1),
    ("a/b:c-d_e.f", "a/b:c-d_e.f", None, 0), ("läufer", "läufer", None, 0), ("7", "7", None, 0), ("last", "last", None, 0), ("r@_x", "r", "_x", 0),
])  # fmt: skip
def test_a_ref_is_read(text: str, run: str | None, at: object, back: int) -> None:
    assert parse_ref(text) == Ref(text, run, at, back)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "@", "~", "~2", "@7", "@tag", "r@", "r~", "r~x", "r~-1", "r~1.5", "r~²", "r@7x", "r@a b", "r@@7", "r@7@8", "r~1~2", "r~1@7", " r", "r ", "r\n", "-r", "_r", "r\x00", "r@\u202e", "r\u200b", "r" * 201, "@LAST", "@lastly", "r@-1", None, 7, b"r"])  # fmt: skip
def test_what_is_no_ref_is_refused(text: object) -> None:
    with pytest.raises(InvalidArgument):
        parse_ref(text)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "7", "7a", "a@b", "a~b", "a b", "a\n", "-a", "x" * 101, None, 5, "a\x7f", "\u202ea"])
def test_what_is_no_tag_is_refused(name: object) -> None:
    with pytest.raises(InvalidArgument):
        check_tag(name)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["a", "best", "v1.0", "ünï", "_x", "a-b/c:d", "x" * 100])
def test_a_tag_is_accepted(name: str) -> None:
    assert check_tag(name) == name


@given(st.text(max_size=30))
def test_every_text_is_an_id_that_its_ref_names_or_refused(text: str) -> None:
    try:
        check_id(text)
    except InvalidArgument:
        return
    assert parse_ref(text).run == text
    assert parse_ref(f"{text}@3~1") == Ref(f"{text}@3~1", text, 3, 1)


@given(st.text(max_size=30))
def test_every_text_is_a_tag_that_a_ref_names_or_refused(text: str) -> None:
    try:
        check_tag(text)
    except InvalidArgument:
        return
    assert parse_ref(f"r@{text}").at == text


def test_new_ids_are_valid_and_do_not_repeat() -> None:
    made = [new_id() for _ in range(2000)]
    assert len(set(made)) == 2000
    assert all(check_id(one) == one and len(one) == 12 for one in made)
    assert not set("".join(made)) & set("lo01")
