"""Reads a damaged store, and builds a new one."""
