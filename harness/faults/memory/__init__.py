"""Processes that run out of memory."""
