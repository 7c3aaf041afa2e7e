"""A configuration is found upward, the nearest one; what is wrong with its text has a file, a line and a reason."""

from __future__ import annotations

import os
import time
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import everstep
from everstep.config.file import read
from everstep.config.find import find_file
from everstep.config.settings import faults, load
from everstep.config.toml_lines import lines_of
from everstep.errors import InvalidConfig


def test_the_nearest_folder_wins(here: Path) -> None:
    inner = here / "a" / "b"
    inner.mkdir(parents=True)
    (here / "everstep.toml").write_text('durability = "exit"\n')
    assert find_file(inner) == here / "everstep.toml"
    (here / "a" / "everstep.toml").write_text('durability = "async"\n')
    assert load(inner, environ={})["durability"] == "async"
    assert load(here, environ={})["durability"] == "exit"


def test_everstep_toml_comes_before_pyproject_in_one_folder(here: Path) -> None:
    (here / "pyproject.toml").write_text('[tool.everstep]\ndurability = "async"\n')
    assert load(environ={}).values["durability"] == ("async", "pyproject.toml:2")
    (here / "everstep.toml").write_text('durability = "exit"\n')
    assert load(environ={}).values["durability"] == ("exit", "everstep.toml:1")


def test_a_project_without_our_table_is_passed_over(here: Path) -> None:
    inner = here / "inner"
    inner.mkdir()
    (inner / "pyproject.toml").write_text('[project]\nname = "x"\ndependencies = ["everstep"]\n')
    (here / "everstep.toml").write_text("")
    assert find_file(inner) == here / "everstep.toml"


def test_a_broken_project_is_nobodys_business_unless_it_speaks_of_us(here: Path) -> None:
    (here / "pyproject.toml").write_text("[project\n")
    assert find_file(here) is None
    (here / "pyproject.toml").write_text("[project\n[tool.everstep]\n")
    with pytest.raises(InvalidConfig, match=r"^pyproject\.toml:1: invalid TOML"):
        find_file(here)


def test_a_file_beyond_all_measure_is_refused(here: Path) -> None:
    (here / "everstep.toml").write_text("#" * 1_100_000)
    with pytest.raises(InvalidConfig, match="must have at most 1,048,576 bytes, got 1,100,000"):
        load(environ={})


def test_without_a_file_there_is_none(here: Path) -> None:
    assert find_file(here) is None


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_is_no_regular_file_is_no_configuration(here: Path, kind: str) -> None:
    (here / "everstep.toml").mkdir() if kind == "folder" else os.mkfifo(here / "everstep.toml")
    assert find_file(here) is None


def test_a_folder_that_is_named_is_refused(here: Path) -> None:
    with pytest.raises(InvalidConfig, match="cannot be read"):
        load(file=here)


def test_a_file_that_is_named_must_exist(here: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"none\.toml cannot be read: No such file"):
        everstep.open(config="none.toml")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_another_users_file_where_everybody_may_write_is_refused_unless_it_is_named(here: Path) -> None:
    file = here / "everstep.toml"
    file.write_text('durability = "exit"\n')
    os.chown(file, 4711, 4711)
    assert load(environ={})["durability"] == "exit"
    here.chmod(0o777)
    with pytest.raises(InvalidConfig, match="belongs to another user"):
        load(environ={})
    with pytest.raises(InvalidConfig, match="belongs to another user"):
        everstep.open()
    assert load(file=file, environ={})["durability"] == "exit"


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("enabled = true\nstore = \n", 2, "Invalid value"),
        ("enabled = true\n\n\nenabled = false\n", 4, "Cannot overwrite"),
        ("[compression\n", 1, "Expected"),
        ('store = "x', 1, "Unterminated|Expected|Illegal"),
        ("a = [1,\n2,\n", 2, "Unclosed array|Invalid value"),
        ("level = " + "9" * 5000 + "\n", 1, "digits"),
        ("a = " + "[" * 20_000 + "\n", 1, "recursion|nested"),
    ],
)
def test_broken_toml_names_file_line_and_reason(here: Path, text: str, line: int, reason: str) -> None:
    (here / "everstep.toml").write_text(text)
    with pytest.raises(InvalidConfig, match=f"^everstep.toml:{line}: invalid TOML.*({reason})"):
        load(environ={})
    assert len(faults("everstep.toml")) == 1


def test_text_that_is_not_utf_8_is_named_by_its_line(here: Path) -> None:
    (here / "everstep.toml").write_bytes(b"# fine\n# \xff\n")
    with pytest.raises(InvalidConfig, match=r"^everstep\.toml:2: the text is not UTF-8"):
        load(environ={})


def test_a_mark_at_the_beginning_and_windows_line_ends_are_no_harm(here: Path) -> None:
    (here / "everstep.toml").write_bytes('\ufeff# one\r\n\r\nstore = "x.db"\r\nlease = 1\r\n'.encode())
    assert faults("everstep.toml")[0].startswith("everstep.toml:4: there is no key 'lease'; did you mean lease_seconds")


def test_a_file_elsewhere_is_named_by_its_whole_path(here: Path) -> None:
    (here / "everstep.toml").write_text("nonsense = 1\n")
    inner = here / "inner"
    inner.mkdir()
    os.chdir(inner)
    assert faults(here / "everstep.toml")[0].startswith(f"{here}/everstep.toml:1: ")


def test_lines_are_known_in_every_way_to_write_a_key(here: Path) -> None:
    text = """# a comment with [brackets] and = signs
title = "a # no comment"
'quoted key' = 1
a.b . "c d" = [
  1,  # one
  { x = 1, y = [2,
    3] },
]
long = \"\"\"
[not.a.header]
fake = 1 \\" \"\"\"
raw = '''
also = "none"'''

[table]
k = 1979-05-27 07:32:00
inline = { one = 1, two = { three = 3 } }

[[many]]
n = 1
[[many]]
n = 2
[many.sub]
deep = true
"""
    tomllib.loads(text)
    found = lines_of(text)
    expected = {
        ("title",): 2, ("quoted key",): 3, ("a", "b", "c d"): 4, ("a", "b", "c d", 0): None, ("a", "b", "c d", 1, "x"): None,
        ("long",): 9, ("raw",): 12, ("table",): 15, ("table", "k"): 16, ("table", "inline", "two", "three"): 17,
        ("many",): 19, ("many", 0, "n"): 20, ("many", 1): 21, ("many", 1, "n"): 22, ("many", 1, "sub", "deep"): 24,
    }  # fmt: skip
    assert {path: found.get(path) for path in expected} == expected
    assert not any("fake" in path or "also" in path or "not" in path for path in found)


ODD = ["= 1", "a = ", "a", "[", "[[", "[]", "a.", "a . = 1", "a = {", "a = [1", 'a = "', "]", "a = 1 b = 2", "ä = 1", "{}", "[" * 50_000]


@pytest.mark.parametrize("text", ODD)
def test_odd_text_has_fewer_lines_and_is_no_reason_to_fail(text: str) -> None:
    assert lines_of("first = 1\n" + text).get(("first",)) == 1


_names = st.text("abcxyz_-019", min_size=1, max_size=6) | st.sampled_from(['"a b"', "'c.d'", '"\\u00e4"'])
_values = st.sampled_from(["1", "-2.5e3", '"text # = [x]"', "'raw'", '"""two\nlines"""', "[1, 2]", '[\n"a",\n# no\n"b"\n]', "{ p = 1, q = [2] }", "true", "1979-05-27"])  # fmt: skip
_parts = st.lists(st.tuples(_names, _values), max_size=4)


@given(_parts, st.lists(st.tuples(st.sampled_from(["[", "[["]), _names, _parts), max_size=4))
def test_every_key_that_tomllib_reads_has_its_line_or_none(first: list, tables: list) -> None:
    lines = [f"{name} = {value}" for name, value in first]
    for mark, name, parts in tables:
        lines += ["# between", f"{mark}{name}{']' * len(mark)}", *(f"  {key} = {value}" for key, value in parts)]
    text = "\n".join(lines)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        lines_of(text)  # odd text is no reason to fail
        return
    found, rows = lines_of(text), text.split("\n")
    for path in _paths(table):
        if path not in found:
            assert len([part for part in path if isinstance(part, str)]) > 2 or isinstance(path[-1], int), "it is a pair of its own"
            continue
        name = next(part for part in reversed(path) if isinstance(part, str))
        row = rows[found[path] - 1]
        assert isinstance(path[-1], int) or name in row or '"\\u00e4"' in row, (path, row)


def test_keys_behind_long_arrays_have_their_lines_soon() -> None:
    text = "a = [\n" + '  "name[extra]>=1",  # why\n' * 300 + "]\nb = 1\n"
    began = time.process_time()
    assert lines_of(text) == {("a",): 1, ("b",): 303}
    lines_of("a = [\n" + '"]",\n' * 200_000)
    assert time.process_time() - began < 10


def _paths(value: object, path: tuple = ()) -> list[tuple]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [p for name, held in inside for p in [(*path, name), *_paths(held, (*path, name))]]


def test_a_document_knows_its_table_in_a_project(here: Path) -> None:
    (here / "pyproject.toml").write_text('[project]\nname = "x"\n\n[tool.everstep.compression]\ncodec = "lz4"\n')
    assert read("pyproject.toml").table == {"compression": {"codec": "lz4"}}
    assert faults("pyproject.toml") == [
        "pyproject.toml:5: compression.codec must be one of none, zstd, gzip, got 'lz4'",
    ]


@pytest.mark.parametrize("text", ["[tool]\neverstep = 5\n", "tool = 1 # everstep\n"])
def test_a_table_of_ours_that_is_none_is_no_reason_to_break(here: Path, text: str) -> None:
    (here / "pyproject.toml").write_text(text)
    if "[tool]" in text:
        with pytest.raises(InvalidConfig, match=r"tool\.everstep must be a table"):
            load(environ={})
    else:
        assert load(environ={}).file is None
