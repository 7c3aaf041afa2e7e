"""Shared by the crash tests: folders in memory, where a sync costs nothing. What survives is decided by the harness, not by a disk."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.faults import actor

actor.preload("pytest", "everstep.queues.worker")


@contextmanager
def in_memory() -> Iterator[Path]:
    shared = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="everstep-", dir=shared if shared.is_dir() else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def memory_folder() -> Iterator[Path]:
    with in_memory() as folder:
        yield folder


@pytest.fixture(scope="module")
def module_folder() -> Iterator[Path]:
    with in_memory() as folder:
        yield folder
