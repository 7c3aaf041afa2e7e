"""Queues and workers: enqueued runs, the processes that execute them, and schedules."""
