"""Each setting has a value, an origin and a place; the later source wins; what makes no sense is named."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from everstep.config.keys import GROUPS, HIDDEN, KEYS, VARIABLES
from everstep.config.presets import PRESETS
from everstep.config.settings import Settings, faults, load
from everstep.errors import InvalidArgument, InvalidConfig
from everstep.store.encryption.sources import Concealed

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "configuration.md").read_text()

# One good value for each key as TOML, as the environment writes it, and as an argument; and one bad one as TOML.
GOOD: dict[str, tuple[str, str, Any]] = {
    "enabled": ("false", "no", False),
    "store": ('"a.db"', "a.db", "a.db"),
    "preset": ('"production"', "production", "production"),
    "durability": ('"async"', "async", "async"),
    "policy": ('"every 3 steps"', "every 3 steps", "every 3 steps"),
    "compression.codec": ('"gzip"', "gzip", "gzip"),
    "compression.level": ("5", "5", 5),
    "compression.threshold": ("1000", "1000", 1000),
    "retention.keep_last": ("4", "4", 4),
    "retention.keep_within": ('"12h"', "12h", "12h"),
    "retention.keep_daily": ("7", "7", 7),
    "retention.keep_weekly": ("8", "8", 8),
    "retention.keep_tagged": ('["a", "b"]', "a, b", ["a", "b"]),
    "retention.keep_kinds": ('["manual"]', "manual", ["manual"]),
    "retention.max_bytes": ("99", "99", 99),
    "retention.completed": ('"final"', "final", "final"),
    "retention.minimum": ("2", "2", 2),
    "schedule": ('"weekly"', "weekly", "weekly"),
    "protect": ('["gold"]', "gold", ["gold"]),
    "lease_seconds": ("12.5", "12.5", 12.5),
    "imports": ('["shop.flows"]', "shop.flows", ["shop.flows"]),
    "workflows": ('["flows/*.yaml", "shop.py"]', "flows/*.yaml,shop.py", ["flows/*.yaml", "shop.py"]),
    "hooks": (
        '[{ event = "error", call = "a.b:c" }]',
        "error=a.b:c",
        [{"event": "error", "call": "a.b:c", "priority": 0, "timeout": 0.5}],
    ),
    "limits.seconds": ("1.5", "1.5", 1.5),
    "limits.steps": ("9", "9", 9),
    "limits.tokens": ("900", "900", 900),
    "limits.cost": ("0.5", "0.5", 0.5),
    "limits.timeout": ("60", "60", 60),
    "redaction.keys": ('["pin"]', "pin", ["pin"]),
    "redaction.patterns": ('["email", "X[0-9]+"]', "email,X[0-9]+", ["email", "X[0-9]+"]),
    "redaction.store": ("true", "on", True),
    "encryption.key": ('"file:/k"', "file:/k", Concealed("file:/k")),
    "encryption.old_keys": ('["file:/k"]', "file:/k", [Concealed("file:/k")]),
    "reload": ('"file"', "file", "file"),
}
BAD: dict[str, list[str]] = {
    "enabled": ["1", '"true"', "[]"],
    "store": ["5", '""', '" "', '"a\\u0000b"', "false"],
    "preset": ['"prod"', "1"],
    "durability": ['"never"', "true"],
    "policy": ['"sometimes"', '""', "3", '"every 0 steps"', '"on nothing"'],
    "compression.codec": ['"lz4"', "false"],
    "compression.level": ["23", "-8", "1.0", "true", '"3"'],
    "compression.threshold": ["-1", "0.5", "false"],
    "retention.keep_last": ["0", "-1", "1.0", '"3"', "99999999999999999999"],
    "retention.keep_within": ['"30 days"', '"d"', "-1", "nan", "inf", "true", '"99999999d"'],
    "retention.keep_daily": ["0"],
    "retention.keep_weekly": ["0"],
    "retention.keep_tagged": ["1", '["no tag"]', '"a"', "[1]"],
    "retention.keep_kinds": ['["nice"]', '"manual"'],
    "retention.max_bytes": ["-1"],
    "retention.completed": ['"never"'],
    "retention.minimum": ["0"],
    "schedule": ['"hourly"', "[]"],
    "protect": ['"gold"', '["a b"]', "[1]"],
    "lease_seconds": ["0", "100000", "true", "nan"],
    "imports": ['["a-b"]', '["os; x"]', '"os"', '["a..b"]'],
    "workflows": ['"flows/*.yaml"', '["flows"]', "[1]", '["flows/*.toml"]'],
    "hooks": ["1", "[1]", '[{ event = "error" }]', '[{ event = "no", call = "a:b" }]', '[{ event = "error", call = "a b" }]',
              '[{ event = "error", call = "a:b", timeout = 0 }]', '[{ event = "error", call = "a:b", priority = 1.5 }]',
              '[{ event = "error", call = "a:b", more = 1 }]'],
    "limits.seconds": ["0", "-1", "inf", "true"],
    "limits.steps": ["0", "1.5"],
    "limits.tokens": ["0"],
    "limits.cost": ["0", '"1"'],
    "limits.timeout": ["0"],
    "redaction.keys": ['["*"]', '[""]', '"pin"', "[1]"],
    "redaction.patterns": ['["("]', '["a*"]', '"email"'],
    "redaction.store": ["1"],
    "encryption.key": ["1", '""'],
    "encryption.old_keys": ['"file:/k"', "[1]"],
    "reload": ['"always"', "true"],
}  # fmt: skip


def written(name: str, value: str) -> str:
    group, _, key = name.rpartition(".")
    return f"# first\n\n[{group}]\n{key} = {value}\n" if group else f"# first\n\n\n{name} = {value}\n"


def put(text: str) -> Path:
    file = Path("everstep.toml")
    file.write_text(text)
    return file


def test_every_key_is_tried_here() -> None:
    assert list(GOOD) == list(KEYS) == list(BAD)


@pytest.mark.parametrize("name", KEYS)
def test_a_key_can_be_set_by_file_environment_and_argument(name: str) -> None:
    in_file, in_environment, value = GOOD[name]
    put(written(name, in_file))
    key = KEYS[name]
    expected = str(Path.cwd() / value) if name == "store" else [str(Path.cwd() / one) for one in value] if name == "workflows" else value
    assert load(environ={}).values[name] == (expected, "everstep.toml:4")
    assert load(environ={key.variable: in_environment}).values[name] == (value, f"environment {key.variable}")
    assert load(environ={}, arguments={name: value}).values[name] == (value, "argument")


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_a_bad_value_names_file_line_key_value_and_what_is_allowed(name: str, value: str) -> None:
    put(written(name, value))
    with pytest.raises(InvalidConfig) as caught:
        load(environ={})
    error = caught.value
    assert isinstance(error, InvalidArgument)
    assert error.code == "E105"
    assert error.location == "everstep.toml:4"
    assert error.key == name
    assert error.message.startswith(f"everstep.toml:4: {name} = ")
    assert "allowed: " in error.message or "needs event and call" in error.message
    assert faults("everstep.toml") == [error.message]


@pytest.mark.parametrize("name", [n for n, key in KEYS.items() if key.kind not in ("text", "modules", "names", *HIDDEN)])
def test_a_bad_variable_names_itself_and_what_is_allowed(name: str) -> None:
    key = KEYS[name]
    with pytest.raises(InvalidConfig, match=f"^environment {key.variable}: {re.escape(name)} = '\\(no good' .*allowed: "):
        load(environ={key.variable: "(no good"})


@pytest.mark.parametrize("name", [n for n, key in KEYS.items() if key.kind in HIDDEN])
def test_a_bad_key_is_not_shown(name: str, tmp_path: Path) -> None:
    variable = KEYS[name].variable
    for bad in ("hunter2", "vault:hunter2"):
        with pytest.raises(InvalidConfig) as refused:
            load(environ={variable: bad})
        (tmp_path / "bad.toml").write_text(written(name, f'"{bad}"' if name.endswith("key") else f'["{bad}"]'))
        said = [str(refused.value), repr(refused.value.value), *faults(tmp_path / "bad.toml")]
        assert variable in said[0]
        assert len(said) == 3
        assert not [text for text in said if "hunter2" in text]
    settings = load(environ={variable: "file:/somewhere/hunter2"})
    assert "hunter2" not in repr(settings)


SOURCES = ("preset", "file", "environment", "argument")


@pytest.mark.parametrize("present", [c for n in range(5) for c in itertools.combinations(SOURCES, n)])
def test_the_later_source_wins(present: tuple[str, ...]) -> None:
    values = {"preset": 4096, "file": 1, "environment": 2, "argument": 3}
    origins = {
        "preset": "preset high_throughput", "file": "everstep.toml:3", "environment": "environment EVERSTEP_COMPRESSION_THRESHOLD",
        "argument": "argument",
    }  # fmt: skip
    put(
        ('preset = "high_throughput"\n' if "preset" in present else "\n")
        + "[compression]\n"
        + ("threshold = 1\n" if "file" in present else "")
    )
    environ = {"EVERSTEP_COMPRESSION_THRESHOLD": "2"} if "environment" in present else {}
    arguments = {"compression.threshold": 3} if "argument" in present else {}
    found = load(environ=environ, arguments=arguments).values["compression.threshold"]
    strongest = [source for source in SOURCES if source in present][-1:]
    assert found == ((values[strongest[0]], origins[strongest[0]]) if strongest else (256, "default"))


def test_the_preset_itself_goes_by_the_same_order() -> None:
    put('preset = "development"\n')
    assert load(environ={}).values["compression.codec"] == ("none", "preset development")
    assert load(environ={"EVERSTEP_PRESET": "production"}).values["compression.codec"] == ("zstd", "preset production")
    found = load(environ={"EVERSTEP_PRESET": "production"}, arguments={"preset": "high_throughput"})
    assert found["durability"] == "async"


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_makes_sense_and_single_keys_override_it(preset: str) -> None:
    for name, value in PRESETS[preset].items():
        assert KEYS[name].check(value) == value
    put(f'preset = "{preset}"\nschedule = "monthly"\n')
    settings = load(environ={})
    assert settings.values["schedule"] == ("monthly", "everstep.toml:2")
    assert settings.values["retention.keep_last"].origin == f"preset {preset}"
    assert settings.options()


def test_the_level_of_a_preset_goes_with_its_codec() -> None:
    put('preset = "high_throughput"\ncompression.codec = "gzip"\n')
    assert load(environ={}).values["compression.level"] == (None, "default")


def test_all_faults_of_a_file_are_listed_at_once() -> None:
    put(
        'stoer = "x"\nlease_seconds = -1\n[compression]\ncodec = "lz4"\nlevle = 3\n[limits]\nsteps = "many"\n[[hooks]]\nevent = "x"\ncall = "a:b"\n'
    )
    found = faults("everstep.toml")
    assert [fault.partition(": ")[0] for fault in found] == [f"everstep.toml:{line}" for line in (1, 2, 4, 5, 7, 9)]
    with pytest.raises(InvalidConfig, match=r"\(and 5 more errors\)") as caught:
        load(environ={})
    assert caught.value.others == 5
    assert caught.value.fault == found[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("durabilty = 1\n", "there is no key 'durabilty'; did you mean durability?"),
        ("zzz = 1\n", "there is no key 'zzz'; allowed: enabled, store, preset"),
        ("[compression]\ncodek = 1\n", "compression has no key 'codek'; did you mean codec?"),
        ('compression = "zstd"\n', "compression must be a table; allowed: compression.codec, compression.level"),
        ("[enabled]\nx = 1\n", "enabled = {'x': 1} is not allowed; allowed: true, false"),
        ('"a.b" = 1\n', "there is no key 'a.b'"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest(text: str, message: str) -> None:
    put(text)
    assert message in faults("everstep.toml")[0]


def test_a_misspelt_variable_is_refused_and_others_of_ours_are_not() -> None:
    with pytest.raises(InvalidConfig, match="environment EVERSTEP_STOR: there is no such setting; did you mean EVERSTEP_STORE"):
        load(environ={"EVERSTEP_STOR": "x"})
    harmless = ("EVERSTEP_RUN", "EVERSTEP_STEP", "EVERSTEP_STEP_KEY", "EVERSTEP_STEP_ATTEMPT", "EVERSTEP_WITH_TARGET", "EVERSTEP_DEEP", "EVERSTEP_HYPOTHESIS", "EVERSTEP_REQUIRE_CC", "EVERSTEP_ROTATION", "_EVERSTEP_COMPLETE", "PATH")  # fmt: skip
    assert load(environ=dict.fromkeys(harmless, "x"))["store"] is None


def test_an_unknown_argument_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="argument: there is no key 'storre'; did you mean store"):
        load(environ={}, arguments={"storre": 1})


def test_all_that_is_wrong_with_the_environment_and_arguments_is_counted() -> None:
    with pytest.raises(InvalidConfig) as caught:
        load(environ={"EVERSTEP_X": "1", "EVERSTEP_RELOAD": "2"}, arguments={"x": 1, "reload": 2, "enabled": 3})
    assert caught.value.others == 4


@pytest.mark.parametrize(("text", "value"), [("1.5h", 5400), ("90", 90), ("0", 0), ("15min", 900), ("2m", 120), ("4w", 2_419_200)])
def test_lengths_of_time_are_read_from_the_environment(text: str, value: float) -> None:
    retention = load(environ={"EVERSTEP_RETENTION_KEEP_WITHIN": text}).retention()
    assert retention is not None
    assert retention.within_us == value * 1_000_000


def test_an_empty_variable_is_not_set_and_empties_a_list() -> None:
    put('store = "a.db"\nprotect = ["x"]\n')
    settings = load(environ={"EVERSTEP_STORE": "", "EVERSTEP_PROTECT": ""})
    assert settings.values["store"].origin == "everstep.toml:1"
    assert settings.values["protect"] == ([], "environment EVERSTEP_PROTECT")


@pytest.mark.parametrize(
    ("store", "expected"),
    [
        ("x.db", "{here}/x.db"),
        ("../x.db", "{here}/../x.db"),
        ("/abs/x.db", "/abs/x.db"),
        ("memory://", "memory://"),
        ("memory://shared", "memory://shared"),
        ("sqlite:///x.db", "sqlite:///{here}/x.db"),
        ("sqlite:////abs/x.db", "sqlite:////abs/x.db"),
    ],
)
def test_a_relative_store_is_relative_to_the_file(here: Path, store: str, expected: str) -> None:
    put(f'store = "{store}"\n')
    inner = here / "inner"
    inner.mkdir()
    assert load(inner, environ={})["store"] == expected.format(here=here)


def test_what_makes_no_sense_together_is_refused() -> None:
    put('[compression]\ncodec = "gzip"\nlevel = 15\n[retention]\ncompleted = "delete"\n')
    first, second = faults("everstep.toml")
    assert first.startswith("everstep.toml:3: level must be an integer from 0 to 9 for gzip, got 15")
    assert second.startswith('everstep.toml:5: completed="delete" needs keep_within')


def test_every_default_is_allowed_or_none() -> None:
    for key in KEYS.values():
        value = list(key.default) if isinstance(key.default, tuple) else key.default
        assert value is None or key.check(value) == value
        assert key.about.endswith(".")
        assert key.allowed


def test_every_key_has_a_variable_of_its_own() -> None:
    assert len(VARIABLES) == len(KEYS)
    assert set(GROUPS) == {"compression", "retention", "limits", "redaction", "encryption"}


@pytest.mark.parametrize("name", KEYS)
def test_every_key_is_documented_with_what_is_allowed_and_its_default(name: str) -> None:
    key = KEYS[name]
    row = next((line for line in DOCUMENT.splitlines() if line.startswith(f"| `{name}` | ") and key.about in line), None)
    assert row is not None, f"docs/configuration.md has no row for {name}"
    assert key.allowed.replace("|", "\\|") in row
    assert f" | {shown(key.default)} | " in row


def shown(default: Any) -> str:
    if default is None or default == ():
        return "none" if default is None else "`[]`"
    if isinstance(default, bool):
        return "`true`" if default else "`false`"
    return f'`"{default}"`' if isinstance(default, str) else f"`{default:g}`"


def test_no_key_is_documented_that_does_not_exist() -> None:
    table = DOCUMENT.partition("## Keys")[2].partition("### Hooks")[0]
    assert re.findall(r"^\| `([\w.]+)` \|", table, flags=re.MULTILINE) == list(KEYS)


def test_the_table_of_presets_is_what_they_hold() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| (.*?) \|$", DOCUMENT.partition("## Presets")[2], flags=re.MULTILINE)
    found: dict[str, dict[str, Any]] = {preset: {} for preset in PRESETS}
    for name, cells in rows:
        for preset, cell in zip(PRESETS, re.split(r" ?(?<!\\)\| ?", cells), strict=True):
            if cell.strip():
                text = cell.strip().strip("`").replace("\\|", "|")
                found[preset][name] = text.strip('"') if '"' in text else {"true": True}.get(text) or int(text)
    assert found == PRESETS


@pytest.mark.parametrize("text", re.findall(r"^```toml\n(.*?)^```", DOCUMENT, flags=re.MULTILINE | re.DOTALL))
def test_every_example_in_the_document_is_in_order(text: str) -> None:
    assert faults(put(text)) == []


def test_settings_are_made_without_the_file_system_too() -> None:
    settings = load(environ={}, arguments={"limits.steps": 3, "limits.timeout": 2})
    assert isinstance(settings, Settings)
    assert settings.budget() is not None
    assert settings.budget().steps == 3  # type: ignore[union-attr]
    assert settings.options()["timeout"] == 2
    assert settings.retention() is None
