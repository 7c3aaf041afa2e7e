"""Transactional steps: a user's transaction and the record of its step are committed together.

`step` executes them; `results` finds the table of results in a user's database, which `sqlite` and `postgres` implement.
"""
