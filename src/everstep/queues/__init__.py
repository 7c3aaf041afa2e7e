"""Queues and workers: runs that are enqueued, the processes that drive them, schedules."""
