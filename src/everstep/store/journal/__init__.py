"""The contents of a run's journal: steps, gates, timers, values and errors.

`entries` owns the format of journal entries, `failures` that of recorded errors. `results` stores and loads results and inputs.
"""
