"""Recovery from damage: write a new good store (`repair`), or go back to the newest good state of a run (`salvage`).

Reading the damaged files is the task of each backend: see `backends.sqlite.recovery` and `backends.postgres.recovery`.
"""
