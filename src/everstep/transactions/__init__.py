"""Transactional steps: a user's transaction and the record of its step are committed together."""
