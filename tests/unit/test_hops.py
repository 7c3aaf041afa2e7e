"""The newcomer's walk: how many of our functions lie between the call and the bytes."""

import sys
from types import FrameType
from typing import Any

import pytest

import everstep
from everstep.backends.memory.backend import MemoryBackend


def walk(monkeypatch: pytest.MonkeyPatch, method: str) -> list[list[tuple[str, str]]]:
    """Note at each call of a backend's method which functions of ours led there, outermost first."""
    found: list[list[tuple[str, str]]] = []
    original = getattr(MemoryBackend, method)

    def noting(*args: Any, **kwargs: Any) -> Any:
        frame: FrameType | None = sys._getframe(1)
        ours: list[tuple[str, str]] = []
        while frame is not None:
            module = frame.f_globals.get("__name__", "")
            if module.startswith("everstep."):
                ours.append((module, frame.f_code.co_qualname))
            frame = frame.f_back
        found.append(ours[::-1])
        return original(*args, **kwargs)

    monkeypatch.setattr(MemoryBackend, method, noting)
    return found


def files(path: list[tuple[str, str]]) -> list[str]:
    return list(dict.fromkeys(module for module, _ in path))


def test_a_checkpoint_is_at_most_four_functions_away_from_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    store = everstep.open("memory://")
    with store.run("r", state={"n": 0}) as run:
        found = walk(monkeypatch, "commit")
        for n in range(120):
            run.state["n"] = n
            run.checkpoint()
        assert len(found) == 120
        assert all(path[0] == ("everstep.runtime.run", "Run.checkpoint") for path in found)
        assert max(map(len, found)) <= 4
    store.close()


def test_what_a_checkpoint_writes_is_at_most_four_functions_away(monkeypatch: pytest.MonkeyPatch) -> None:
    from everstep.snapshot.saver import Saver

    depths: list[int] = []
    original = Saver.build

    def noting(self: Saver, *args: Any, **kwargs: Any) -> Any:
        frame: FrameType | None = sys._getframe(1)
        depth = 1
        while frame is not None and frame.f_code.co_qualname != "Run.checkpoint":
            depth += 1
            frame = frame.f_back
        if frame is not None:  # leaving the run makes one, too
            depths.append(depth + 1)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(Saver, "build", noting)
    store = everstep.open("memory://")
    with store.run("r") as run:
        run.checkpoint()
    assert depths
    assert max(depths) <= 4
    store.close()


def test_a_load_leads_through_at_most_four_files_to_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    store = everstep.open("memory://")
    with store.run("r", state={"text": "long " * 100_000}) as run:
        run.checkpoint()
    found = walk(monkeypatch, "chunks")
    store.load("r")
    assert found
    for path in found:
        assert path[0][1] == "BaseStore.load"
        assert len(files(path)) <= 4, path
    store.close()
