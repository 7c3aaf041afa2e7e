"""The suite that every backend passes: the contract of `everstep.backends.contract.core`, said as tests.

A new backend's test is a factory:

    class TestMine(ConformanceSuite):
        @pytest.fixture
        def open_handle(self, tmp_path):
            return lambda: MyBackend(tmp_path / "store")      # another handle on the same store at each call

Each of its parts is one capability and can be taken alone. Relies on pytest; never looks behind the interface.
"""

from __future__ import annotations

from everstep.testing.conformance.letters import FeedSuite, LettersSuite
from everstep.testing.conformance.listing import CheckpointQuerySuite, RunQuerySuite
from everstep.testing.conformance.queues import QueuesSuite
from everstep.testing.conformance.records import ChunksSuite, LocateSuite, RecordsSuite, TagsSuite
from everstep.testing.conformance.runs import LifeSuite, ManifestSuite, RunsSuite
from everstep.testing.conformance.several_runs import SeveralRunsSuite
from everstep.testing.conformance.suite import OpenHandle, Suite
from everstep.testing.conformance.upkeep import FactsSuite, PruneSuite, SweepSuite, TombstonesSuite
from everstep.testing.conformance.writers import FencingSuite, GroupCommitSuite, LeaseSuite

__all__ = [
    "CheckpointQuerySuite",
    "ChunksSuite",
    "ConformanceSuite",
    "FactsSuite",
    "FeedSuite",
    "FencingSuite",
    "GroupCommitSuite",
    "LeaseSuite",
    "LettersSuite",
    "LifeSuite",
    "LocateSuite",
    "ManifestSuite",
    "OpenHandle",
    "PruneSuite",
    "QueuesSuite",
    "RecordsSuite",
    "RunQuerySuite",
    "RunsSuite",
    "SeveralRunsSuite",
    "Suite",
    "SweepSuite",
    "TagsSuite",
    "TombstonesSuite",
]


class ConformanceSuite(
    RunsSuite,
    RecordsSuite,
    LocateSuite,
    ChunksSuite,
    FencingSuite,
    SeveralRunsSuite,
    LeaseSuite,
    TagsSuite,
    LettersSuite,
    FeedSuite,
    RunQuerySuite,
    CheckpointQuerySuite,
    ManifestSuite,
    GroupCommitSuite,
    PruneSuite,
    SweepSuite,
    TombstonesSuite,
    FactsSuite,
    QueuesSuite,
    LifeSuite,
):
    """Everything."""
