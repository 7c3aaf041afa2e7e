"""Processes that are killed at every file call, and workers that wake up too late."""
