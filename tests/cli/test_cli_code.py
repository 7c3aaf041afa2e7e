"""Where `resume` finds the code of a workflow: in what the person gives or configures, never in what a store names."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from cli_helpers import Shop

from everstep.cli.args import remembered

PYTHON = """
import everstep, pathlib
pathlib.Path("imported").touch()

@everstep.step
def work():
    if not pathlib.Path("go").exists():
        raise OSError("not yet")
    return "worked"

@everstep.workflow
def flow_{name}():
    return work()
"""


def write(shop: Shop, name: str, text: str) -> Path:
    path = Path(shop.folder) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def stopped(empty: Shop, request: pytest.FixtureRequest) -> Shop:
    """A failed run of a workflow in flows/order.py. Each command runs in a process of its own: what one imported, the next does not know."""
    write(empty, "flows/order.py", PYTHON.format(name="order"))
    assert empty.pipe("run", "flows/order.py:flow_order", "--id", "r").code == 1
    (Path(empty.folder) / "go").touch()
    (Path(empty.folder) / "imported").unlink()
    return empty


def test_a_name_in_a_store_is_not_imported_but_what_worked_is_suggested(stopped: Shop) -> None:
    called = stopped.pipe("resume", "r")
    assert called.code == 1
    assert "flows/order.py defined it last time: `everstep resume r --import flows/order.py`." in called.err
    assert not (Path(stopped.folder) / "imported").exists()
    assert stopped.pipe("resume", "r", "--import", "flows/order.py").ok().out == "worked\n"


def test_the_suggestion_keeps_the_options_that_were_typed(stopped: Shop) -> None:
    called = stopped.pipe("resume", "r", "--from-step", "work#0", "--anyway", "--accept", "work#0")
    assert "`everstep resume r --import flows/order.py --from-step 'work#0' --accept 'work#0' --anyway`." in called.err


def test_the_module_of_an_enqueued_run_is_suggested(empty: Shop) -> None:
    write(empty, "flows/order.py", PYTHON.format(name="order"))
    empty.pipe("enqueue", "flows/order.py:flow_order", "--id", "q").ok()
    assert "`everstep resume q --import flows/order.py`." in empty.pipe("resume", "q").err


def test_the_module_of_a_worker_is_suggested(empty: Shop) -> None:
    write(empty, "flows/order.py", PYTHON.format(name="order"))
    empty.pipe("enqueue", "flow_order", "--id", "q").ok()
    empty.pipe("worker", "--import", "flows/order.py", "--until-idle").ok()
    assert "everstep resume q --import flows/order.py" in empty.pipe("retry", "q").err


def test_a_missing_module_of_the_configuration_is_traced_to_it(empty: Shop) -> None:
    write(empty, "everstep.toml", 'imports = ["flowz"]\n')
    write(empty, "order.py", PYTHON.format(name="order"))
    called = empty.pipe("run", "order.py:flow_order")
    assert (called.code, "module 'flowz' was not found" in called.err) == (2, True)
    assert "hint: The setting imports (everstep.toml:1) names it." in called.err


def test_a_file_that_is_gone_is_not_suggested(stopped: Shop) -> None:
    (Path(stopped.folder) / "flows/order.py").unlink()
    assert "`everstep resume r --import MODULE`" in stopped.pipe("resume", "r").err


@pytest.mark.parametrize(
    "config",
    [
        'workflows = ["flows/*.py"]',
        'workflows = ["flows/order.py"]',
        'workflows = ["**/*.yaml", "**/order.py"]',
        'imports = ["flows.order"]',
    ],
)
def test_the_configuration_names_the_code(stopped: Shop, config: str) -> None:
    write(stopped, "everstep.toml", config)
    write(stopped, "flows/__init__.py", "")
    assert stopped.pipe("resume", "r").ok().out == "worked\n"


def test_a_draft_among_the_files_is_reported_and_left_out(stopped: Shop) -> None:
    write(stopped, "everstep.toml", 'workflows = ["flows/*"  ]'.replace('"flows/*"', '"flows/*.yaml", "flows/*.py"'))
    write(stopped, "flows/draft.yaml", "steps: [")
    called = stopped.pipe("resume", "r").ok()
    assert called.out == "worked\n"
    assert "flows/draft.yaml was not loaded: " in called.err


def test_a_yaml_workflow_is_found_by_its_file(empty: Shop) -> None:
    write(empty, "flows/one.yaml", "name: asks\nsteps:\n  - {id: boss, gate: {ask: Ready}}\n")
    started = empty.pipe("run", "flows/one.yaml", "--id", "y")
    if started.code:
        pytest.fail(started.err)
    assert "`everstep resume y --import flows/one.yaml`" in empty.pipe("resume", "y").err
    write(empty, "everstep.toml", 'workflows = ["flows/*.yaml"]')
    assert empty.pipe("resume", "y", "--answer", "boss=yes").ok().err.startswith("y: succeeded")


def test_what_is_remembered_is_harmless_if_it_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    file = remembered.file()
    assert file is not None
    (tmp_path / "a.py").touch()
    remembered.remember("s", "w", ["a.py", "package.module"])
    assert remembered.last("s", "w") == ["a.py", "package.module"]
    assert remembered.last("s", "other") == remembered.last("t", "w") == remembered.last("s", None) == []
    assert os.stat(file.parent).st_mode & 0o077 == 0
    for text in ("", "[]", "{", '{"s": 1}', '{"s": {"w": "x"}}', '{"s": {"w": [1]}}', '{"s": {"w": {"a": 1}}}'):
        file.write_text(text)
        assert remembered.last("s", "w") == []
        remembered.remember("s", "w", ["a.py"])
        assert remembered.last("s", "w") == ["a.py"]
    for n in range(300):
        remembered.remember("s", f"w{n}", ["a.py"])
    assert len(json.loads(file.read_text())["s"]) == 200
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    remembered.remember("s", "w", ["a.py"])
    assert remembered.last("s", "w") == []


def test_a_failing_run_shows_its_own_frames_and_what_to_type(empty: Shop) -> None:
    write(empty, "flows/order.py", PYTHON.format(name="order"))
    called = empty.pipe("run", "flows/order.py:flow_order", "--id", "r")
    assert called.code == 1
    assert 'flows/order.py:8, in work: raise OSError("not yet")' in called.err
    assert "everstep/runtime" not in called.err
    assert "Traceback" not in called.err
    assert "\n  everstep show r 'work#0'\n  everstep resume r --import flows/order.py\n" in called.err
    assert 'raise OSError("not yet")' in empty.pipe("show", "r", "work#0").ok().out
