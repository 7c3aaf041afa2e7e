"""Where bytes are kept. `base` is the contract, `memory` its plainest reading, `url` the way from an address to a backend.

Nothing is imported here: a program that uses one backend loads one.
"""
