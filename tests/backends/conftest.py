"""Processes of their own for the tests of the backends."""

import pytest
from children import children

child = pytest.fixture(children, name="child")
