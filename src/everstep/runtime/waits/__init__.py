"""Waiting for answers and times, and what people do to a run from outside."""
