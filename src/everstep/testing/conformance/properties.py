"""The properties of a store: `contract.properties`."""

from __future__ import annotations

from everstep.backends.contract.core import Backend
from everstep.testing.conformance.suite import OpenHandle, Suite


class PropertiesSuite(Suite):
    def test_properties_are_remembered_replaced_and_forgotten(self, backend: Backend, open_handle: OpenHandle) -> None:
        assert backend.get_property("a") is None
        for name, value in (("a", "1"), ("b/x", "2"), ("b/y", "3"), ("a", "4")):
            backend.set_property(name, value)
        other = open_handle()
        try:
            assert other.get_property("a") == "4"
            assert other.properties() == {"a": "4", "b/x": "2", "b/y": "3"}
            assert list(other.properties("b/")) == ["b/x", "b/y"]
            assert other.manifest().total == self.computed(other)
        finally:
            other.close()
        backend.set_property("a", None)
        backend.set_property("never", None)
        assert backend.manifest().total == self.computed(backend)
        assert backend.get_property("a") is None
