"""Proving a store whole, and judging how it is kept."""
