"""Converts stored values to JSON and back, and parses paths into a state. No I/O."""
