"""The suites that a backend must pass, one for each capability: the contract of `everstep.backends.contract` as tests.

The test of a new backend is a factory and the list of its capabilities:

    class TestMine(CoreSuite, MailboxSuite, FeedSuite):
        @pytest.fixture
        def open_handle(self, tmp_path):
            return lambda: MyBackend(tmp_path / "store")      # another handle on the same store at each call

A test that needs a capability which the backend lacks is skipped and names it. Relies on pytest; uses only the interface.
"""

from __future__ import annotations

from everstep.testing.conformance.audit import ManifestSuite, TombstonesSuite
from everstep.testing.conformance.feed import FeedSuite
from everstep.testing.conformance.index import AttachedSuite, CheckpointQuerySuite, FindSuite, GatesSuite, TagsSuite
from everstep.testing.conformance.keys import KeysSuite
from everstep.testing.conformance.leases import FencingSuite, LeaseSuite
from everstep.testing.conformance.mailbox import MessagesSuite
from everstep.testing.conformance.properties import PropertiesSuite
from everstep.testing.conformance.queues import QueuesSuite
from everstep.testing.conformance.reclaim import PruneSuite, SweepSuite
from everstep.testing.conformance.records import ChunksSuite, LocateSuite, RecordsSuite
from everstep.testing.conformance.runs import LifeSuite, RunQuerySuite, RunsSuite
from everstep.testing.conformance.several_runs import SeveralRunsSuite
from everstep.testing.conformance.submit import GroupCommitSuite
from everstep.testing.conformance.suite import OpenHandle, Suite

__all__ = [
    "AuditSuite",
    "ConformanceSuite",
    "CoreSuite",
    "FeedSuite",
    "IndexSuite",
    "KeysSuite",
    "MailboxSuite",
    "OpenHandle",
    "PropertiesSuite",
    "QueuesSuite",
    "ReclaimSuite",
    "SubmitSuite",
    "Suite",
]


class CoreSuite(
    RunsSuite, RecordsSuite, LocateSuite, ChunksSuite, FencingSuite, SeveralRunsSuite, LeaseSuite, RunQuerySuite, LifeSuite,
):  # fmt: skip
    """`contract.core`: runs, records, chunks, leases."""


class SubmitSuite(GroupCommitSuite):
    """`submit`: commits without waiting, and many at once."""


class MailboxSuite(MessagesSuite):
    """`contract.mailbox`: messages."""


class IndexSuite(TagsSuite, FindSuite, GatesSuite, AttachedSuite, CheckpointQuerySuite):
    """`contract.index`: tags, attached entries, and lists of checkpoints."""


class AuditSuite(ManifestSuite, TombstonesSuite):
    """`contract.audit`: the sum over everything stored, and the tombstones of deleted runs."""


class ReclaimSuite(PruneSuite, SweepSuite):
    """`contract.reclaim`: deleting, pruning, sweeping."""


class ConformanceSuite(
    CoreSuite, SubmitSuite, MailboxSuite, IndexSuite, FeedSuite, AuditSuite, ReclaimSuite, PropertiesSuite, QueuesSuite, KeysSuite
):
    """All suites."""
