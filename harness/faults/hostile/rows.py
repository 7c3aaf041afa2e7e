"""Hostile journals, names, notes, metadata and numbers for stores whose digests are all right. Lists cases; does nothing with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ormsgpack import packb

from everstep.records import Kind
from harness.faults.hostile.forge import Case, Forger, plain, reference, rewrite
from harness.faults.hostile.frames import MODULE
from harness.faults.hostile.values import DEEP


def groups() -> list[dict[str, Case]]:
    return [_journals(), _labels()]


def _journals() -> dict[str, Case]:
    bodies: dict[str, Any] = {
        "a journal of numbers": 5,
        "a journal of empty lists": [],
        "a journal of texts": ["x"] * 13,
        "a journal of nothings": [None] * 13,
        "a journal of dicts": [{}] * 13,
        "a journal of huge numbers": [2**63] * 13,
        "a step that was recorded by chunks that are not there": ["succeeded", 1, b"", b"", 2, reference("l", 1, 0, b"x" * 32), None, 0, 0, 0, 0.0, "w", {}],
        "a step that ended before time began": ["succeeded", 1, b"", b"", 0, None, None, -(2**60), 2**60, 0, 0.0, "w", {}],
        "a step that failed with a type to import": [
            "failed", 1, b"", b"", 0, None, {"type": f"{MODULE}:Evil", "message": "x", "args": packb(["x"])}, 0, 0, 0, 0.0, "w", {},
        ],
    }  # fmt: skip

    def make(said: Any) -> Case:
        def forge(path: Path) -> None:
            for kind in (Kind.STEP, Kind.GATE, Kind.ANSWER, Kind.TIMER, Kind.EVENT, Kind.STATUS, Kind.START, "unheard-of"):
                with Forger(path, f"run-{kind}") as forged:
                    forged.state(packb({"a": 1}))
                    forged.record(kind, plain(packb(said)), "x#0")
                    forged.message("retry", plain(packb(said)))
                    forged.commit(status="failed")
                    forged._records.clear()

        return forge

    return {name: make(said) for name, said in bodies.items()}


def _labels() -> dict[str, Case]:
    """List hostile labels: names, notes, tags, metadata."""
    names = {
        "a run id that leads out of its folder": "../../../../tmp/everstep-was-here",
        "an absolute run id": "/etc/passwd",
        "a run id with escapes": "r\x1b[2J\x1b]0;owned\x07",
        "a run id that turns round": "r\u202etxt.exe",
        "a run id of NUL": "r\x00x",
        "an empty run id": "",
        "a run id of 100,000 characters": "r" * 100_000,
        "a run id that is a ref": "r@7~2",
        "a run id that is SQL": "r'; DROP TABLE runs; --",
    }

    def named(name: str) -> Case:
        def forge(path: Path) -> None:
            with Forger(path, name, workflow=name, session=name, note=name, worker=name, parent=name, tags=(name,)) as forged:
                forged.state(packb({"a": 1}), note=name, tags=(name,))
                forged.step(name, 1, packb(1))
                forged.message(name, plain(packb(name)))

        return forge

    deep = "[" * DEEP + "]" * DEEP
    metas = {
        f"metadata with {DEEP:,} lists inside each other": f'{{"a": {deep}}}',
        "metadata that is not JSON": "{",
        "metadata that is a list": "[1]",
        "metadata of a huge number": '{"a": 1' + "0" * 10_000 + "}",
        "metadata with a million keys": json.dumps({str(i): i for i in range(100_000)}),
    }

    def labelled(meta: str) -> Case:
        def forge(path: Path) -> None:
            with Forger(path) as forged:
                forged.state(packb({"a": 1}))
            rewrite(path, "r", meta=meta)
            with Forger(path, "checkpoint") as forged:
                forged.state(packb({"a": 1}), meta=meta)

        return forge

    owns = {
        f"a header with {DEEP:,} lists inside each other": deep,
        "a header that is not JSON": "{",
        "a header that is nothing": "null",
        "a header of texts": '{"used": "abcd", "counts": 5, "base": "x"}',
        "a header with a base that is not there": '{"kind": "automatic", "base": 99999}',
        "a header with a negative base": '{"kind": "automatic", "base": -3}',
    }

    def told(own: str) -> Case:
        def forge(path: Path) -> None:
            with Forger(path) as forged:
                forged.state(packb({"a": 1}), own=own)

        return forge

    numbers: dict[str, dict[str, Any]] = {
        "a head of 2**31": {"head_seq": 2**31 - 1},
        "a million checkpoints that are not there": {"checkpoints": 1_000_000},
        "a negative head": {"head_seq": -5},
        "an epoch of 2**62": {"epoch": 2**62},
        "an unknown status": {"status": "exploded"},
        "a parent that is itself": {"parent": "r", "parent_number": 1},
        "times of the year 300,000": {"created_at": 2**62, "updated_at": 2**62},
        "times before all time": {"created_at": -(2**62), "updated_at": -(2**62), "since": -(2**62)},
    }

    def numbered(fields: dict[str, Any]) -> Case:
        def forge(path: Path) -> None:
            with Forger(path) as forged:
                forged.state(packb({"a": 1}))
                forged.tag("tag", 1)
            rewrite(path, "r", **fields)

        return forge

    out = {name: named(text) for name, text in names.items()}
    out |= {name: labelled(meta) for name, meta in metas.items()}
    out |= {name: told(own) for name, own in owns.items()}
    return out | {name: numbered(fields) for name, fields in numbers.items()}
