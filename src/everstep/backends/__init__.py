"""Where bytes are kept. `contract` says what a backend does; `memory`, `sqlite` and `postgres` are
backends; `registry` finds the one for an address.

Nothing is imported here: a program that uses one backend loads one.
"""
