"""Breaks stores and workers on purpose, counts the results, and records the demo. Not part of the installed package."""
