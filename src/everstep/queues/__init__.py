"""Queues and workers: enqueued runs, the processes that execute them, and schedules.

`enqueue`, `bulk` and `outbox` put runs into queues, `schedules` does so repeatedly. `worker` takes runs from queues, and `crew` executes
them. `awaiting` waits for an enqueued run. `live_workers` and `stranded` tell which workers are alive and which runs none of them takes.
"""
