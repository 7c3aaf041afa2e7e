"""LangGraph's own conformance suite for checkpointers: every capability, every store."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

conformance = pytest.importorskip("langgraph.checkpoint.conformance", reason="pip install 'everstep[langgraph,dev-adapters]'")

from everstep.adapters.langgraph import Saver  # noqa: E402 - the adapter needs the framework


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
async def test_all_capabilities(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = {"memory": "memory://", "sqlite": str(tmp_path / "s.db")}.get(kind) or request.getfixturevalue("place")

    @conformance.checkpointer_test(name=f"everstep-{kind}")
    async def made() -> AsyncGenerator[Any, None]:
        async with Saver(url) as saver:
            yield saver

    report = await conformance.validate(made)
    assert {name: found.failures for name, found in report.results.items() if not found.passed} == {}
    assert sum(found.tests_passed for found in report.results.values()) == 81
