"""Breaks the source in many small places, and counts how many of the breaks the tests catch: `python -m harness.mutants`."""
