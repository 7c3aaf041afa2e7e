"""Whatever stands in a file, in the environment or in arguments: it is a configuration, or an InvalidConfig. Nothing else ever happens."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everstep.config import settings as config
from everstep.config.keys import GROUPS, KEYS, VARIABLES
from everstep.config.legacy_keys import _MEANINGS, rewritten
from everstep.errors import InvalidConfig

_scalars = (
    st.booleans().map(lambda b: str(b).lower())
    | st.integers().map(str)
    | st.floats().map(lambda f: str(f).replace("inf", "inf"))
    | st.text(st.characters(codec="utf-8", exclude_characters='"\\', exclude_categories=("Cc", "Cs")), max_size=12).map(lambda t: f'"{t}"')
    | st.sampled_from(
        ['"every 2 steps"', '"zstd"', '"30d"', '"email"', '"production"', '"delete"', "1979-05-27T07:32:00Z", "07:32:00", "[]", "{}"]
    )
)
_values = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda v: f"[{', '.join(v)}]")
        | st.lists(st.tuples(st.sampled_from(["event", "call", "x"]), inner), max_size=2, unique_by=lambda p: p[0]).map(
            lambda v: "{" + ", ".join(f"{k} = {x}" for k, x in v) + "}"
        )
    ),
    max_leaves=6,
)
_keys = st.sampled_from([*KEYS, *GROUPS, *_MEANINGS, "nonsense", '"a b"', "tool.everstep", "tool.everstep.store"])
_documents = st.lists(st.tuples(_keys, _values).map(lambda p: f"{p[0]} = {p[1]}") | st.sampled_from([f"[{g}]" for g in GROUPS] + ["[[hooks]]", "# c"]), max_size=8)  # fmt: skip


def judged(text: bytes, name: str = "everstep.toml", **more: Any) -> None:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        file = Path(folder) / name
        file.write_bytes(text)
        listed = config.faults(file)
        made, error = outcome(file, more)
    if error is None:
        assert made is not None
        assert listed == []
        made.options()
        made.redactor()
    elif not more:
        assert name in error.message
        assert error.fault == listed[0]
        assert error.others == len(listed) - 1


def outcome(file: Path, more: dict[str, Any]) -> tuple[config.Settings | None, InvalidConfig | None]:
    try:
        return config.load(file=file, **{"environ": {}, **more}), None
    except InvalidConfig as error:
        return None, error


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_documents, st.sampled_from(["everstep.toml", "pyproject.toml"]))
def test_a_random_document_is_read_or_refused(lines: list[str], name: str) -> None:
    judged(("[tool.everstep]\n" * (name == "pyproject.toml") + "\n".join(lines)).encode(), name)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda t: t.encode("utf-8", "replace")))
def test_random_bytes_are_read_or_refused(data: bytes) -> None:
    judged(data)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from(sorted(VARIABLES)) | st.text(max_size=5).map(lambda t: f"EVERSTEP_{t}"), st.text(max_size=20), max_size=4
    )
)
def test_a_random_environment_is_read_or_refused(environ: dict[str, str]) -> None:
    judged(b"", environ=environ)


_objects = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary(max_size=4) | st.just(object()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3) | st.tuples(inner),
    max_leaves=5,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(sorted(KEYS)) | st.text(max_size=5), _objects, max_size=4))
def test_random_arguments_are_read_or_refused(arguments: dict[str, Any]) -> None:
    judged(b"", arguments=arguments)


@given(_documents)
def test_a_random_document_is_rewritten_or_refused(lines: list[str]) -> None:
    try:
        new, changes = rewritten("\n".join(lines))
    except InvalidConfig:
        return
    assert changes or new == "\n".join(lines)
