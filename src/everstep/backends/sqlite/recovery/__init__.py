"""Reads a damaged file, and builds a new one."""
