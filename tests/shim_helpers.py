"""Shared by the tests that need the shim."""

import os

import pytest

from harness.faults.kills.shim import why_not


def shim_or_skip() -> None:
    """Skip loudly where there is no compiler; fail where one is required."""
    reason = why_not()
    if reason is not None and os.environ.get("EVERSTEP_REQUIRE_CC") == "1":
        pytest.fail(reason)
    if reason is not None:
        pytest.skip(reason)
