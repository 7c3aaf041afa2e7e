"""`checkpoint` and `restore` keep the state of a script in any language: exactly, over crashes, and beside another script."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest
import warm
from cli_helpers import Shop, environment
from hypothesis import given, settings
from hypothesis import strategies as st

import everstep
from everstep.cli.main import main

SCRIPT = """
set -eu
if ! everstep restore count >state.json 2>/dev/null; then echo '{"n": 0, "seen": []}' >state.json; fi
n=$(sed -n 's/.*"n": \\([0-9]*\\).*/\\1/p' state.json)
while [ "$n" -lt 5 ]; do
  n=$((n + 1))
  echo "work $n" >>work.log
  echo "{\\"n\\": $n, \\"seen\\": [$(seq -s, 1 $n)]}" | everstep checkpoint count --note "turn $n" --meta n=$n
  if [ "$n" = "${CRASH:-0}" ]; then kill -9 $$; fi
done
everstep restore count | everstep checkpoint count --done --tag finished
"""

JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**40), 10**40) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)


def at_hand(shop: Shop, **more: str) -> dict[str, str]:
    """An environment in which `everstep` is a command."""
    folder = shop.folder / "bin"
    folder.mkdir(exist_ok=True)
    warm.command(folder / "everstep")
    return environment(PATH=f"{folder}{os.pathsep}{os.environ['PATH']}", **more)


def script(shop: Shop, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", SCRIPT], cwd=shop.folder, env=at_hand(shop, **more), capture_output=True, text=True, timeout=120)


def test_a_script_that_is_killed_goes_on_behind_its_last_checkpoint(empty: Shop) -> None:
    died = script(empty, CRASH="3")
    assert died.returncode == -9, died.stderr
    assert empty.json("show", "count")["run"]["status"] == "waiting"
    done = script(empty)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["count@4", "count@5", "count@6"]
    assert (empty.folder / "work.log").read_text().split() == [word for n in range(1, 6) for word in ("work", str(n))]
    assert json.loads(empty.call("restore", "count@finished").out) == {"n": 5, "seen": [1, 2, 3, 4, 5]}
    assert empty.json("show", "count")["run"]["status"] == "succeeded"
    assert empty.json("show", "count@2")["meta"] == {"n": 2}


@settings(max_examples=25)
@given(JSON)
def test_any_json_comes_back_as_it_was(value: Any) -> None:
    import contextlib
    import io
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path, out = str(Path(folder) / "s.db"), io.StringIO()
        (Path(folder) / "in.json").write_text(json.dumps(value), encoding="utf-8")
        with contextlib.redirect_stdout(out):
            assert main(["checkpoint", "r", "--store", path, "--state", str(Path(folder) / "in.json")]) == 0
            assert main(["restore", "r", "--store", path, "-o", str(Path(folder) / "out.json"), "--quiet"]) == 0
        assert out.getvalue() == f"r@1{os.linesep}"
        again = json.loads((Path(folder) / "out.json").read_text(encoding="utf-8"))
    assert again == value
    assert json.dumps(again) == json.dumps(value)  # 1 is not 1.0, and the order stays


@pytest.mark.parametrize(
    "text",
    [
        "null",
        "[]",
        "{}",
        '""',
        "0",
        "-1.5e300",
        "123456789012345678901234567890",
        '{"b": 1, "a": 2}',
        '"\\u0000\\ud83d\\ude00 ☃"',
        "[1, 1.0, true]",
    ],
)
def test_the_first_and_a_later_state_come_back_exactly(text: str, empty: Shop) -> None:
    file = empty.folder / "state.json"
    for name, former in (("first", None), ("later", '{"a": [1, 2], "b": {"c": 3}}')):
        for content in filter(None, (former, text)):
            file.write_text(content, encoding="utf-8")
            empty.call("checkpoint", name, "--state", "state.json").ok()
        assert json.dumps(json.loads(empty.call("restore", name).ok().out)) == json.dumps(json.loads(text))


@pytest.mark.parametrize(
    "given_bytes", [b"", b"{", b"nothing", b"\xff\xfe", b"NaN", b"[1e999]", b"-Infinity", b"[" * 100_000, b'"\\ud800"', b"1 2"], ids=repr
)
def test_what_is_no_json_is_refused_and_nothing_is_saved(given_bytes: bytes, empty: Shop) -> None:
    (empty.folder / "one.json").write_text("1")
    empty.call("checkpoint", "r", "--state", "one.json").ok()
    called = empty.pipe("checkpoint", "r", stdin=given_bytes)
    assert called.code in (1, 2)
    assert called.out == ""
    assert "Traceback" not in called.err
    assert called.err.startswith("error: ")
    assert empty.call("restore", "r").out == "1\n"


def test_a_file_with_a_mark_of_its_encoding_is_read(empty: Shop) -> None:
    (empty.folder / "bom.json").write_bytes(b'\xef\xbb\xbf{"a": 1}')
    empty.call("checkpoint", "r", "--state", "bom.json").ok()
    assert empty.json("state", "r")["state"] == {"a": 1}


def test_a_state_is_written_to_a_file_whole_or_not_at_all(empty: Shop) -> None:
    empty.pipe("checkpoint", "r", stdin="[1]").ok()
    (empty.folder / "out.json").write_text("before")
    assert empty.call("restore", "nobody", "-o", "out.json").code == 3
    assert (empty.folder / "out.json").read_text() == "before"
    called = empty.call("restore", "r", "-o", "out.json").ok()
    assert called.out == ""
    assert json.loads((empty.folder / "out.json").read_text()) == [1]
    assert sorted(path.name for path in empty.folder.iterdir()) == [".everstep", "out.json"]


def test_a_file_that_is_replaced_keeps_its_mode_and_a_link_to_it_stays_a_link(empty: Shop) -> None:
    empty.pipe("checkpoint", "r", stdin="[1]").ok()
    (empty.folder / "private.json").write_text("before")
    (empty.folder / "private.json").chmod(0o600)
    (empty.folder / "link.json").symlink_to("private.json")
    for n, name in enumerate(("private.json", "link.json"), 1):
        empty.pipe("checkpoint", "r", stdin=f"[{n}]").ok()
        empty.call("restore", "r", "-o", name).ok()
        assert json.loads((empty.folder / "private.json").read_text()) == [n]
        assert (empty.folder / "private.json").stat().st_mode & 0o777 == 0o600
    assert (empty.folder / "link.json").is_symlink()


def test_a_pipe_is_written_to_and_not_replaced(empty: Shop) -> None:
    empty.pipe("checkpoint", "r", stdin="[1]").ok()
    pipe = empty.folder / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        empty.call("restore", "r", "-o", str(pipe)).ok()
        assert json.loads(os.read(reader, 1000)) == [1]
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_two_scripts_at_once_lose_nothing_silently(empty: Shop) -> None:
    empty.pipe("checkpoint", "shared", stdin='{"from": "nobody"}').ok()
    loop = (
        "for i in 1 2 3 4 5 6; do "
        'echo "{\\"from\\": \\"$1$i\\"}" | everstep checkpoint shared >>$1.out 2>>$1.err; echo "$1$i $?" >>codes; done'
    )
    env = at_hand(empty)
    both = [subprocess.Popen(["bash", "-c", loop, "bash", name], cwd=empty.folder, env=env) for name in ("a", "b")]
    for child in both:
        assert child.wait(120) == 0
    ends = dict(line.split() for line in (empty.folder / "codes").read_text().splitlines())
    assert set(ends.values()) <= {"0", "4"}
    with empty.open() as store:
        saved = {store.load(one.ref)["from"] for one in store.checkpoints("shared", limit=None)}
        assert store.verify("full").ok
    assert saved == {name for name, code in ends.items() if code == "0"} | {"nobody"}
    for name in ("a", "b"):
        refused = sum(code == "4" for who, code in ends.items() if who.startswith(name))
        assert (empty.folder / f"{name}.err").read_text().count("[E301]") == refused


def test_a_run_of_a_workflow_is_not_overwritten_by_a_script(shop: Shop) -> None:
    before = shop.counts()
    called = shop.pipe("checkpoint", "waits", stdin="{}")
    assert called.code == 2, called.out + called.err
    assert "everstep resume" in called.err
    assert shop.counts() == before


def test_a_state_that_python_saved_is_restored_as_json(empty: Shop) -> None:
    with everstep.open(empty.path) as store, store.run("py") as run:
        run.state.update(t=(1, 2), s={"b", "a"}, b=b"x", n=float("inf"), k={1: "one"})
        run.checkpoint()
    state = empty.json("restore", "py")["state"]
    assert state == {"t": [1, 2], "s": ["a", "b"], "b": {"$bytes": "eA=="}, "n": {"$float": "inf"}, "k": {"$dict": [[1, "one"]]}}


@pytest.mark.parametrize("bad", [("--tag", "1 x"), ("--meta", "x=[1]"), ("--note", "n" * 10_001)])
def test_a_checkpoint_with_a_bad_option_writes_nothing(empty: Shop, bad: tuple[str, str]) -> None:
    empty.pipe("checkpoint", "r", stdin='{"a": 1}').ok()
    before = empty.json("show", "r")["run"]
    for name in ("r", "new"):
        assert empty.pipe("checkpoint", name, *bad, stdin='{"a": 2}').code == 2
    assert empty.json("show", "r")["run"] == before
    assert [run["id"] for run in empty.json("runs")["runs"]] == ["r"]


def test_a_state_that_cannot_be_saved_leaves_the_run_as_it_was(empty: Shop) -> None:
    empty.pipe("checkpoint", "r", stdin='{"a": 1}').ok()
    assert empty.pipe("checkpoint", "r", stdin="[" * 900 + "]" * 900).code != 0
    assert empty.json("show", "r")["run"]["status"] == "waiting"
    empty.pipe("checkpoint", "r", stdin='{"a": 2}').ok()
