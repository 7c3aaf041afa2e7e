"""Ids of any text: e-mail addresses, paths, texts with spaces. They are quoted in refs, and commands show and accept the text."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import everstep
from everstep.cli.args.naming import to_change
from everstep.errors import InvalidArgument

TEXTS = ["user@example.com", "/a/b c~d", "a%40b", "ü x", "_x", "~", "a/b", "100 %", "a\tb", "a\u200bb"]


@given(st.one_of(st.sampled_from(TEXTS), st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=15)))
def test_quoting_is_undone_and_gives_a_valid_id(text: str) -> None:
    id = everstep.quote(text)
    assert everstep.ids.check_id(id) == id
    assert everstep.unquote(id) == text
    assert everstep.ids.parse_ref(f"{id}@7").run == id


@given(st.lists(st.text(st.sampled_from("a@~%402 /"), min_size=1, max_size=6), min_size=2, max_size=2, unique=True))
def test_two_texts_never_have_the_same_id(texts: list[str]) -> None:
    assert everstep.quote(texts[0]) != everstep.quote(texts[1])


def test_an_id_that_was_not_quoted_is_shown_as_it_is() -> None:
    assert [everstep.unquote(id) for id in ("100%", "a%zz", "%FF", "plain")] == ["100%", "a%zz", "%FF", "plain"]
    for wrong in ("", 3, "x" * 300, "\ud800"):
        with pytest.raises(InvalidArgument):
            everstep.quote(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument) as caught:
        everstep.ids.check_id("a@b")
    assert "everstep.quote" in caught.value.remedy


def test_commands_accept_the_text_and_refs_need_the_id(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db") as store:
        store.line(everstep.quote("user@example.com")).checkpoint(state={"n": 1})
        with store.run("user") as run:
            run.checkpoint(tags="example.org")
        assert store.load("user%40example.com@1") == {"n": 1}
        assert to_change(store, "user@example.com") == "user%40example.com"
        assert to_change(store, "user@example.org") == "user@example.org"
        assert to_change(store, "user%40example.com@1") == "user%40example.com@1"
