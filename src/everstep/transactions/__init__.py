"""Transactional steps: a user's transaction and the record of its step hold together."""
