"""The contents of a run's journal: steps, gates, timers, values and errors."""
