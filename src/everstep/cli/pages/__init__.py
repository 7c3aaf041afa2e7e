"""Pages about one thing, for `everstep show`: a run, a step, a checkpoint."""
