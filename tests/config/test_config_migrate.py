"""Older keys are read as what they mean today, and rewritten without touching anything else."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.config.legacy_keys import modern, rewritten
from everstep.config.settings import faults, load
from everstep.errors import InvalidConfig

EACH: dict[str, tuple[str, dict[str, Any]]] = {
    "checkpoint_frequency": ("10", {"policy": "every 10 steps"}),
    "checkpoint_interval": ("60", {"policy": "every 60 s"}),
    "checkpoint_enabled": ("false", {"policy": "manual"}),
    "cleanup_enabled": ("false", {"schedule": "manual"}),
    "cleanup_schedule": ('"on_startup"', {"schedule": "on_open"}),
    "retention_days": ("30", {"retention": {"keep_within": "30d"}}),
    "max_size_mb": ("100", {"retention": {"max_bytes": 104_857_600}}),
    "keep_latest": ("10", {"retention": {"keep_last": 10}}),
    "persistence_enabled": ("false", {"enabled": False}),
    "storage_location": ('"./var/checkpoints/"', {"store": "./var/checkpoints/store.db"}),
    "format": ('"json_gzip"', {"compression": {"codec": "gzip"}}),
    "compression": ("true", {"compression": {"codec": "zstd"}}),
}


@pytest.mark.parametrize("key", EACH)
def test_an_older_key_means_the_same_as_its_successor(key: str) -> None:
    value, expected = EACH[key]
    text = f"{key} = {value}\n"
    assert modern(tomllib.loads(text)).table == expected
    assert tomllib.loads(rewritten(text)[0]) == expected
    Path("everstep.toml").write_text(text)
    with pytest.warns(DeprecationWarning, match=f"everstep.toml:1: {key} is deprecated"):
        settings = load(environ={})
    (name, held), *_ = _flat(expected)
    got = settings.values[name]
    assert got.origin == "everstep.toml:1"
    assert got.value == (str(Path.cwd() / held) if name == "store" else held)


def test_the_note_about_an_older_key_is_seen_without_asking_for_it() -> None:
    Path("everstep.toml").write_text("keep_latest = 2\nstore = 'memory://'\n")
    done = subprocess.run([sys.executable, "-c", "import everstep; everstep.open().close()"], capture_output=True, text=True, check=True)
    assert "everstep.toml:1: keep_latest is deprecated: use retention.keep_last = 2" in done.stderr


def _flat(table: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    pairs = [(f"{prefix}{k}", v) for k, v in table.items()]
    return [p for name, v in pairs for p in (_flat(v, f"{name}.") if isinstance(v, dict) else [(name, v)])]


def test_one_is_a_number_too() -> None:
    text = "checkpoint_frequency = 1\nkeep_latest = 1\n"
    assert modern(tomllib.loads(text)).table == {"policy": "every step", "retention": {"keep_last": 1}}


def test_keys_that_say_what_holds_anyway_are_left_out() -> None:
    text, changes = rewritten("checkpoint_enabled = true  # as always\ncleanup_enabled = true\nlease_seconds = 5\n")
    assert text == "# as always\nlease_seconds = 5\n"
    assert len(changes) == 2


BEFORE = """# the settings of the shop
storage_location = "var/checkpoints"   # on the fast disk
checkpoint_frequency = 5
\tcheckpoint_interval = 60 # once a minute

  # kept for the auditors
retention_days = 30
keep_latest = 3
format = 'json_gzip'
lease_seconds = 12   # untouched

[retention]   # a table of today
keep_daily = 7

[limits]
tokens = 1_000 # untouched, too
"""
AFTER = """# the settings of the shop
store = "var/checkpoints/store.db"   # on the fast disk
policy = "every 5 steps | every 60 s"
\t# once a minute

  # kept for the auditors
compression.codec = "gzip"
lease_seconds = 12   # untouched

[retention]   # a table of today
keep_within = "30d"
keep_last = 3
keep_daily = 7

[limits]
tokens = 1_000 # untouched, too
"""


def test_a_file_is_rewritten_with_comments_and_other_lines_as_they_were() -> None:
    text, changes = rewritten(BEFORE)
    assert text == AFTER
    assert len(changes) == 6
    assert rewritten(text) == (text, [])
    Path("everstep.toml").write_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(environ={})


def test_a_project_is_rewritten_in_our_table_only() -> None:
    text = '[project]\nname = "x"\nformat = "json"\n\n[tool.everstep]\nformat = "json"\nkeep_latest = 2\n\n[tool.other]\nkeep_latest = 9\n'
    new, changes = rewritten(text)
    assert new == text.replace('[tool.everstep]\nformat = "json"\nkeep_latest = 2', '[tool.everstep]\ncompression.codec = "none"\nretention.keep_last = 2')  # fmt: skip
    assert len(changes) == 2


def test_dotted_keys_of_a_project_are_rewritten_in_their_place() -> None:
    assert rewritten("[tool]\neverstep.keep_latest = 2\n")[0] == "[tool]\neverstep.retention.keep_last = 2\n"


def test_line_ends_stay_as_they_are_and_a_last_line_may_have_none() -> None:
    assert rewritten("keep_latest = 2\r\nlease_seconds = 5\r\n")[0] == "retention.keep_last = 2\r\nlease_seconds = 5\r\n"
    assert rewritten("keep_latest = 2\r\n[retention]")[0] == "[retention]\r\nkeep_last = 2\r\n"
    assert rewritten("keep_latest = 2")[0] == "retention.keep_last = 2"


def test_a_key_of_today_wins_over_an_older_one() -> None:
    text = 'policy = "manual"\ncheckpoint_frequency = 5 # gone\n'
    assert rewritten(text)[0] == 'policy = "manual"\n# gone\n'
    Path("everstep.toml").write_text(text)
    with pytest.warns(DeprecationWarning, match="policy is also set"):
        assert load(environ={})["policy"] == "manual"


def test_what_cannot_be_rewritten_line_by_line_is_said_with_what_to_write() -> None:
    with pytest.raises(InvalidConfig, match="line by line") as caught:
        rewritten("tool.everstep = { keep_latest = 3 }\n")
    assert "use retention.keep_last = 3" in caught.value.remedy


def test_text_that_is_no_toml_is_refused_with_its_line() -> None:
    with pytest.raises(InvalidConfig, match=r"^line 2: invalid TOML"):
        rewritten("a = 1\nb\n")


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ("checkpoint_frequency = 0", "an integer of at least 1"),
        ('checkpoint_interval = "60"', "an integer of at least 1"),
        ('checkpoint_enabled = "no"', "true or false"),
        ("cleanup_enabled = 1", "true or false"),
        ('cleanup_schedule = "hourly"', "one of manual, on_startup, startup, on_open, daily, weekly, monthly"),
        ("retention_days = 1.5", "an integer of at least 1"),
        ("persistence_enabled = 0", "true or false"),
        ("storage_location = 5", "a string that is not empty"),
        ('format = "pickle"', "one of json, json_gzip, gzip"),
    ],
)
def test_an_older_key_with_a_bad_value_names_file_line_and_what_is_allowed(line: str, allowed: str) -> None:
    Path("everstep.toml").write_text(f"\n{line}\n")
    (fault,) = faults("everstep.toml")
    assert fault.startswith(f"everstep.toml:2: {line.split(' ')[0]} must be {allowed}, got ")
    with pytest.raises(InvalidConfig):
        rewritten(line)


_old = st.sampled_from([f"{key} = {value}" for key, (value, _) in EACH.items()] + ["checkpoint_enabled = true", "compression = false", 'format = "json"'])  # fmt: skip
_rest = st.sampled_from(["# a comment", "", "lease_seconds = 5", 'imports = ["a"]', "  # indented"])
_table = st.sampled_from(
    ["", "[retention]\nkeep_daily = 3", "[limits]\nsteps = 3 # x", "[compression]\nlevel = 3", "[retention]\nkeep_last = 9"]
)


@given(st.lists(_old | _rest, max_size=8), _table, st.booleans())
def test_rewriting_any_file_keeps_its_meaning_and_its_comments_and_does_it_once(lines: list[str], table: str, project: bool) -> None:
    head = "[tool.everstep]\n" if project else ""
    text = head + "\n".join([*lines, table.replace("[", "[tool.everstep.") if project else table]) + "\n"
    try:
        before = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    own = before["tool"]["everstep"] if project else before
    if isinstance(own.get("compression"), bool) and "[compression]" in table:
        return
    new, _ = rewritten(text)
    after = tomllib.loads(new)
    assert (after["tool"]["everstep"] if project else after) == modern(own).table
    assert rewritten(new) == (new, [])
    assert [part for part in new.splitlines() if part.strip().startswith("#")] == [
        p for p in text.splitlines() if p.strip().startswith("#")
    ]
