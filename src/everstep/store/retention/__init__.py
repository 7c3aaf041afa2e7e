"""Keeping a store small: what stays by which policy, pruning, gc, cleaning up."""
