"""Stored values as JSON, JSON back to values, and paths into a state. No I/O."""
