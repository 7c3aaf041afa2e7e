"""Arguments of commands: refs, paths, times, targets, conditions."""
