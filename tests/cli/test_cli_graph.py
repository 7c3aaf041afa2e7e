"""`log --graph` and `runs --tree` draw what there is, in a form that other programs read."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from cli_helpers import LONG, Shop, plain

import everstep

NODE = re.compile(r'  (\w+)(?:\(\[|\[|\{\{)"([^"]*)"(?:\]\)|\]|\}\})(?::::(\w+))?')


def test_mermaid_names_steps_gates_forks_and_statuses(shop: Shop) -> None:
    text = shop.call("log", "done", "--graph", "mermaid").ok().out
    assert text.startswith("flowchart TD\n")
    nodes = {name: (label, status) for name, label, status in NODE.findall(text)}
    assert nodes["run"] == ("done: succeeded", "")
    assert nodes["n0"] == ("price#35;0", "succeeded")
    assert nodes["n2"] == ("boss#35;0", "succeeded")
    assert re.search(r"n2\{\{", text)  # a gate has another shape
    assert "  run --> n0\n  n0 --> n1\n  n1 --> n2\n" in text
    assert "failed" in NODE.search(shop.call("log", "broken", "--graph", "mermaid").out.partition("n0")[0] + "\n")[2]  # type: ignore[index]
    assert 'run -. "@3" .-> f0(["alternative"])' in shop.call("log", "loop", "--graph", "mermaid").out
    assert '"boss#35;0"}}:::waiting' in shop.call("log", "waits", "--graph", "mermaid").out


def test_every_line_of_mermaid_is_of_a_form_that_it_knows(shop: Shop) -> None:
    known = re.compile(
        rf"flowchart TD|{NODE.pattern}|  \w+ (-->|-\.->) \w+|  run -\. \"@\d+\" \.-> f\d+\(\[\"[^\"]*\"\]\)|  classDef \w+ \S+"
    )
    for run in ("done", "waits", "broken", "loop", "alternative"):
        for line in shop.call("log", run, "--graph", "mermaid").ok().lines:
            assert known.fullmatch(line), line


def test_a_step_inside_of_a_step_hangs_under_it(empty: Shop) -> None:
    with everstep.open(empty.path) as store, store.run("nested") as run:
        run.step("outer", lambda: everstep.current().step("inner", lambda: 1))
        run.step("after", lambda: 2)
    text = empty.call("log", "nested", "--graph", "mermaid").ok().out
    numbers = {label.replace("#35;", "#"): name for name, label, _ in NODE.findall(text)}
    assert f"{numbers['outer#0']} -.-> {numbers['outer#0/inner#0']}" in text
    assert f"{numbers['outer#0']} --> {numbers['after#0']}" in text


def test_dot_is_what_graphviz_reads(shop: Shop) -> None:
    with shop.open() as store, store.run("odd") as run:
        for name in ('quo"te', "back\\slash", "<b>html</b>", "ünï ☃", "semi;colon", "brace}"):
            run.step(name.replace("/", ""), lambda: 1)
    for run in ("done", "waits", "loop", "odd"):
        text = shop.call("log", run, "--graph", "dot").ok().out
        assert text.startswith("digraph run {\n")
        assert text.endswith("}\n")
        for line in text.splitlines()[1:-1]:
            assert re.fullmatch(
                r'  [\w ]+(\[(?:"(?:[^"\\]|\\.)*"|[^"\]])*\])?(; run -> f\d+ \[.*\])?( -> \w+( \[style=dashed\])?)?;|  \w+ -> \w+( \[.*\])?;',
                line,
            ), line
        render(text)


def render(text: str) -> None:
    """Let Graphviz judge, where it is installed."""
    if shutil.which("dot"):
        done = subprocess.run(["dot", "-Tsvg"], input=text, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr


def test_a_graph_in_json_names_its_form(shop: Shop) -> None:
    data = shop.json("log", "done", "--graph", "dot")
    assert (data["run"], data["form"]) == ("done", "dot")
    assert data["text"] + "\n" == shop.call("log", "done", "--graph", "dot").out


def test_the_tree_shows_which_run_came_from_which(shop: Shop) -> None:
    shop.call("fork", "alternative", "second").ok()
    shop.call("fork", "loop@1", "third").ok()
    lines = shop.call("runs", "--tree").ok().lines
    at = lines.index("loop  succeeded  a chat about tea")
    assert lines[at + 1 : at + 4] == [
        "├─ alternative  waiting from loop@3",
        "│  └─ second  waiting from alternative@1",
        "└─ third  waiting from loop@1",
    ]
    assert sum(line.startswith("loop") for line in lines) == 1
    assert {LONG[0], LONG[1]} <= {line.split()[0] for line in lines}
    assert "├─ alternative" in plain(shop.terminal("runs", "--tree").out)


def test_a_tree_is_drawn_whole_though_only_a_leaf_was_asked_for(shop: Shop) -> None:
    lines = shop.call("runs", "--tree", "--parent", "loop").ok().lines
    assert [line.split()[0] for line in lines] == ["loop", "└─"]


def test_a_long_line_of_forks_is_drawn_without_an_end_of_the_stack(empty: Shop) -> None:
    with everstep.open(empty.path) as store:
        with store.run("r0") as run:
            run.checkpoint()
        for n in range(150):
            store.fork(f"r{n}", f"r{n + 1}")
    assert len(empty.call("runs", "--tree").ok().lines) == 151


def test_children_are_called_so(empty: Shop) -> None:
    @everstep.workflow(name="tests.cli.child")
    def child() -> int:
        return 1

    @everstep.workflow(name="tests.cli.parent")
    def parent() -> int:
        return int(child())

    with everstep.open(empty.path) as store:
        assert store.start(parent, id="p").status == "succeeded"
    assert re.search(r"^└─ \S+  succeeded called by p", empty.call("runs", "--tree").ok().out, re.MULTILINE)


@pytest.mark.parametrize("form", ["mermaid", "dot"])
def test_a_run_without_steps_is_a_graph_too(form: str, shop: Shop) -> None:
    assert "alternative: waiting" in shop.call("log", "alternative", "--graph", form).ok().out
