"""What the records of a run's journal say: steps, gates, timers, values and errors."""
