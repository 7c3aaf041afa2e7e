"""What commands are given: refs, paths, times, targets, conditions."""
