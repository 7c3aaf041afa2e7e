"""Shared by the tests of adapters."""
