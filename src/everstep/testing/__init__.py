"""Tools for testing against Everstep and for extending it: the conformance suite for backends, rows and queued
runs to feed it, a clock that can be set, a PostgreSQL server, and waiting for threads and processes.

The suite needs pytest, which Everstep itself does not install. Under pytest, failed assertions show their values.
"""

import sys

if "pytest" in sys.modules:
    sys.modules["pytest"].register_assert_rewrite("everstep.testing.conformance")
