"""Keeping a store small: retention policies, pruning, gc and clean-up."""
