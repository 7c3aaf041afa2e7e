"""Policies, hooks, stats and refusals say what is true."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import everstep
from everstep import on
from everstep.errors import DefinitionChanged, InvalidArgument
from everstep.runtime.limits.policy import Policy
from everstep.views.stats import count


@pytest.fixture
def store() -> Iterator[everstep.Store]:
    with everstep.open("memory://") as store:
        yield store


@pytest.mark.parametrize(
    "make", [lambda: on("artifact"), lambda: Policy.parse("on gate, artifact"), lambda: Policy.parse({"on": ["artifact"]})]
)
def test_a_policy_on_artifacts_is_refused(make: Any) -> None:
    with pytest.raises(InvalidArgument, match="artifact") as refused:
        make()
    assert "custom:artifact" in refused.value.remedy


def hear(store: everstep.Store) -> list[str]:
    heard: list[str] = []
    store.on("before_checkpoint", lambda e: heard.append(f"before {e.data['kind']}"))
    store.on("after_checkpoint", lambda e: heard.append(f"after {e.data['checkpoint'].kind}"))
    return heard


@pytest.mark.parametrize(
    "use", ["empty", "nothing after a checkpoint", "opened again", "a change", "a step", "a change after a checkpoint"]
)
def test_before_checkpoint_is_fired_only_if_one_is_written(store: everstep.Store, use: str) -> None:
    with store.run("old", state={"n": 1}) as run:
        run.checkpoint()
    heard = hear(store)
    with store.run("old" if use == "opened again" else "r") as run:
        if "after a checkpoint" in use:
            run.state["n"] = 1
            run.checkpoint()
            heard.clear()
        if use.startswith("a change"):
            run.state["n"] = 2
        elif use == "a step":
            run.step("a", int)
    written = use.startswith("a ")
    assert heard == (["before final", "after final"] if written else [])
    if use.startswith("a change"):
        assert store.load("r") == {"n": 2}


def test_a_hook_may_still_change_the_state(store: everstep.Store) -> None:
    with store.run("r", state={}) as run:
        store.on("before_checkpoint", lambda e: run.state.update(seen=True), timeout=None)
        run.state["n"] = 1
    assert store.load("r") == {"n": 1, "seen": True}


def test_before_checkpoint_of_an_async_run(store: everstep.Store) -> None:
    heard = hear(store)

    async def main() -> None:
        async with store.run("r") as run:
            run.state["n"] = 1
            await run.checkpoint()
            heard.clear()

    asyncio.run(main())
    assert heard == []


def counted(store: everstep.Store) -> tuple[int, int]:
    found = count(store, None, 100, lambda *_: None)
    return found.resumed, found.resumed_well


def test_a_resume_without_new_steps_is_counted(store: everstep.Store) -> None:
    @everstep.workflow(name="asks")
    def flow() -> Any:
        everstep.current().step("a", int)
        return everstep.gate("ok")

    store.start(flow, id="r")
    store.start(flow, id="cancelled")
    store.start(flow, id="waits")
    assert counted(store) == (0, 0)
    store.cancel("cancelled")
    assert counted(store) == (0, 0)
    store.answer("r", "ok", 1)
    store.resume("r").unwrap()
    assert counted(store) == (1, 1)


def test_a_run_without_steps_that_was_resumed_is_counted_and_shown(tmp_path: Path) -> None:
    from everstep.cli.main import group as cli

    with everstep.open(tmp_path / "s.db") as store:

        @everstep.workflow(name="asks")
        def flow() -> Any:
            return everstep.gate("ok")

        store.start(flow, id="r")
        store.answer("r", "ok", 1)
        store.resume("r").unwrap()
    said = CliRunner().invoke(cli, ["stats", "--store", str(tmp_path / "s.db")]).output
    assert "resumes" in said
    assert "1, of which 1 succeeded" in said


def test_a_killed_loop_that_is_opened_again_is_counted(store: everstep.Store) -> None:
    def stopped() -> None:
        with store.run("r") as run:
            run.step("a", int)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    with store.run("r") as run:
        run.step("a", int)
    assert counted(store) == (1, 1)


YAML = "name: shop\nsteps:\n  - id: a\n    run: {shell: echo 1}\n  - id: ok\n    gate: {ask: Sure}\n"


def test_a_refused_resume_prints_the_difference(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from everstep.cli.main import main
    from everstep.yaml import load

    document, where = tmp_path / "shop.yaml", str(tmp_path / "s.db")
    document.write_text(YAML)
    with everstep.open(where) as store:
        assert store.start(load(document), id="r").status == "waiting"
        document.write_text(YAML.replace("id: a", "id: other"))
        load(document)
        with pytest.raises(DefinitionChanged) as refused:
            store.resume("r")
    assert "+  - id: other" in refused.value.difference
    assert "+  - id: other" in "\n".join(refused.value.__notes__)
    capfd.readouterr()
    assert main(["resume", "r", "--store", where, "--import", str(document)]) != 0
    said = capfd.readouterr().err
    assert "-  - id: a" in said
    assert "+  - id: other" in said
    main(["resume", "r", "--store", where, "--import", str(document), "--json"])
    told = json.loads(capfd.readouterr().err)["data"]
    assert "+  - id: other" in told["difference"]
