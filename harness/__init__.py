"""Breaks stores and workers on purpose, and counts the results. Not part of the installed package."""
