"""The properties of a store: `contract.facts`."""

from __future__ import annotations

from everstep.backends.contract.core import Backend
from everstep.testing.conformance.suite import OpenHandle, Suite


class FactsSuite(Suite):
    def test_facts_are_remembered_replaced_and_forgotten(self, backend: Backend, open_handle: OpenHandle) -> None:
        assert backend.fact("a") is None
        for name, value in (("a", "1"), ("b/x", "2"), ("b/y", "3"), ("a", "4")):
            backend.set_fact(name, value)
        other = open_handle()
        try:
            assert other.fact("a") == "4"
            assert other.facts() == {"a": "4", "b/x": "2", "b/y": "3"}
            assert list(other.facts("b/")) == ["b/x", "b/y"]
            assert other.manifest().total == self.computed(other)
        finally:
            other.close()
        backend.set_fact("a", None)
        backend.set_fact("never", None)
        assert backend.manifest().total == self.computed(backend)
        assert backend.fact("a") is None
