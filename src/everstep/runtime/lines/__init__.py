"""Lines: handles that append to a run without holding its lease. `line.py` and `async_line.py` are the handles, `appender.py` does the work."""
